"""Make a mesh of a trained run: the surface of its scene as coloured triangles.

    python scripts/mesh.py                                   mesh.glb of the newest run, for a browser
    python scripts/mesh.py run=outputs/RUN file=scene.ply    for modelling programs
    python scripts/mesh.py smallest=0.01                     large parts only

The last line printed is the file. GLB (glTF 2.0) stands upright and has the scene's colours: any glTF viewer shows it,
in a browser, on a phone or inside of another program. PLY has the same triangles in world coordinates. The mesh of an
unbounded scene is limited to the inner box, that of a forward-facing scene to what is not far away.
"""

from dataclasses import dataclass
from pathlib import Path

from nerf.cameras.poses import estimate_up
from nerf.cli.hydra_app import run
from nerf.cli.open_run import RunConfig, open_run
from nerf.config.settings import setting
from nerf.errors import UserError
from nerf.export.mesh import extract_mesh
from nerf.export.mesh_files import FORMATS


@dataclass
class MeshConfig(RunConfig):
    file: str = setting(
        "mesh.glb", f"name of the file, in the folder of the result; ends with {' or '.join(FORMATS)}", path=True
    )
    smallest: float = setting(0.001, "parts with a smaller fraction of all triangles are removed", low=0, high=1)


def main(config: MeshConfig, folder: Path, overrides: list[str]) -> None:
    path = folder / config.file
    if path.suffix not in FORMATS:
        raise UserError(f"file={config.file} is of no format that is known here; name one with {' or '.join(FORMATS)}.")
    loaded = open_run(config)
    mesh = extract_mesh(loaded.field, loaded.sampler, loaded.cameras, config.smallest)
    FORMATS[path.suffix](path, mesh, estimate_up(loaded.cameras.c2w.double().cpu()))
    numbers = f"{len(mesh.faces)} triangles, {len(mesh.vertices)} vertices, {path.stat().st_size / 1e6:.1f} MB"
    print(f"{numbers} of {loaded.folder}:", path, sep="\n")


def command() -> None:
    run("mesh", MeshConfig, main, __doc__)
