"""Make a mesh of a trained run: the surface of its scene as colored triangles.

    python scripts/mesh.py                                   mesh.glb of the newest run, for a browser
    python scripts/mesh.py run=outputs/RUN file=scene.ply    for modeling programs
    python scripts/mesh.py smallest=0.01                     large parts only
    python scripts/mesh.py triangles=50000                   fewer triangles; flat places lose most
    python scripts/mesh.py texture=true file=scene.obj       a texture of texture_size=2048 texels a side
    python scripts/mesh.py 'crop=[-1,-1,-1,1,1,1]'           what is inside this box, in world units

The last line printed is the file; mesh_sheet.png beside it shows the mesh next to the run's own pictures. GLB (glTF
2.0) stands upright and has the scene's colors: any glTF viewer shows it, in a browser, on a phone or inside of another
program. PLY and OBJ have the same triangles in world coordinates; a texture goes into GLB and OBJ. An unbounded scene
needs a crop box, and says which one to begin with; without one, the mesh of a forward-facing scene is limited to what
is not far away. Decimation and textures need optional packages: pip install 'nerf-voxel[export]'.
"""

from dataclasses import dataclass
from pathlib import Path

from nerf.cameras.poses import estimate_up
from nerf.cli.hydra_app import run
from nerf.cli.open_run import CropConfig, RunConfig, open_run
from nerf.config.settings import setting
from nerf.errors import UserError
from nerf.export.mesh import extract_mesh
from nerf.export.mesh_files import FORMATS
from nerf.export.mesh_sheet import mesh_sheet
from nerf.images.write import save_png


@dataclass
class MeshConfig(CropConfig, RunConfig):
    file: str = setting(
        "mesh.glb", f"name of the file, in the folder of the result; ends with {' or '.join(FORMATS)}", path=True
    )
    smallest: float = setting(0.001, "parts with a smaller fraction of all triangles are removed", low=0, high=1)

    triangles: int | None = setting(
        None, "at most so many triangles; none = all, and 200000 for a texture, which takes time to unwrap", low=4
    )
    texture: bool = setting(False, "colors in a texture, not at the vertices; for GLB and OBJ")
    texture_size: int = setting(2048, "texels of the texture's longer side, at most", low=16, high=8192)


UNWRAPPED_TRIANGLES = 200_000


def main(config: MeshConfig, folder: Path, overrides: list[str]) -> None:
    path = folder / config.file
    write = FORMATS.get(path.suffix.lower())
    if write is None:
        raise UserError(f"file={config.file} is of no format that is known here; name one with {' or '.join(FORMATS)}.")
    if config.texture and path.suffix.lower() == ".ply":
        raise UserError(f"file={config.file}: PLY holds no texture; give a name with .glb or .obj, or texture=false.")
    crop = config.crop_box()
    loaded = open_run(config)
    size = config.texture_size if config.texture else None
    triangles = UNWRAPPED_TRIANGLES if config.texture and config.triangles is None else config.triangles
    mesh = extract_mesh(loaded.field, loaded.sampler, loaded.cameras, config.smallest, triangles, size, crop)
    write(path, mesh, estimate_up(loaded.cameras.c2w.double().cpu()))
    sheet = mesh_sheet(mesh, loaded.field, loaded.sampler, loaded.cameras, loaded.background)
    save_png(path.with_name(f"{path.stem}_sheet.png"), sheet)
    numbers = f"{len(mesh.faces)} triangles, {len(mesh.vertices)} vertices, {path.stat().st_size / 1e6:.1f} MB"
    if mesh.texture is not None:
        numbers += ", texture {1} x {0}".format(*mesh.texture.image.shape)
    print(f"{numbers} of {loaded.folder}:", path, sep="\n")


def command() -> None:
    run("mesh", MeshConfig, main, __doc__)
