"""Take a trained run away, in a form that other programs open.

    python scripts/export.py outputs/RUN format=web        one HTML file: turn the scene in a browser, without a server
    python scripts/export.py outputs/RUN format=splats     the surface as Gaussians, for viewers of splats: PLY
    python scripts/export.py outputs/RUN format=splats file=splats.spz    the same in a fifth of the bytes
    python scripts/export.py outputs/RUN format=points     the surface as points with colors and normals: PLY
    python scripts/export.py outputs/RUN format=mesh       the surface as triangles: GLB (mesh.py has more choices)
    python scripts/export.py outputs/RUN format=mesh 'crop=[-1,-1,-1,1,1,1]'    what is inside this box, in world units
    python scripts/export.py outputs/RUN format=volume     density on its grid, with the box and units: NumPy's .npz
    python scripts/export.py outputs/RUN format=volume file=volume.vti    the same for ParaView
    python scripts/export.py outputs/RUN format=cameras    the training cameras, as learned: transforms.json
    python scripts/export.py outputs/RUN format=colmap     the same as COLMAP's text model

Without a run's folder the newest one is taken. Points and meshes of an unbounded scene need a crop box. The last line
printed is the file, or the folder of several files.
The page of format=web needs WebGL 2; drag to turn, the wheel zooms, and it shows depth and saves pictures.
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nerf.cameras.cameras import Cameras
from nerf.cameras.poses import estimate_up
from nerf.cli.hydra_app import run
from nerf.cli.open_run import CropConfig, PicturesConfig, open_run
from nerf.config.settings import setting
from nerf.datasets.decoding import image_info
from nerf.datasets.load import found_again
from nerf.errors import UserError
from nerf.export.camera_files import write_colmap, write_transforms
from nerf.export.mesh import extract_mesh
from nerf.export.mesh_files import write_glb
from nerf.export.points import write_points
from nerf.export.splats.export import MOST, export_splats
from nerf.export.volume import write_volume
from nerf.export.web.export import export_web
from nerf.runs.open_run import LoadedRun


@dataclass
class ExportConfig(CropConfig, PicturesConfig):
    format: str = setting(
        "web", "what is written", choices=("web", "splats", "points", "mesh", "volume", "cameras", "colmap")
    )
    file: str | None = setting(
        None, "name of the file, in the folder of the result; none = named by the format", path=True
    )
    web_features: int = setting(7, "format=web: features of a voxel that the page keeps", choices=(3, 7, 11))
    web_width: int = setting(32, "format=web: neurons per layer of the page's network", choices=(16, 32, 64))
    web_steps: int | None = setting(
        None, "format=web: steps of training features and network; none = 12000 on a GPU, 4000 on a CPU", low=2
    )
    max_splats: int = setting(MOST, "format=splats: Gaussians at most", low=1, high=10_000_000)
    splats_degree: int = setting(3, "format=splats: degree of the harmonics of a color", choices=(0, 1, 2, 3))
    splats_steps: int | None = setting(
        None, "format=splats: steps for which Gaussians are fitted; none = 4000 on a GPU, 500 on a CPU", low=0
    )


def _web(opened: LoadedRun, path: Path, config: ExportConfig) -> str:
    scene, background = opened.config.dataset.scene, opened.background
    page = export_web(
        path, opened.field, opened.sampler, opened.cameras, background, scene,
        config.web_features, config.web_width, steps=config.web_steps,
    )  # fmt: skip
    sizes = f"{page.num_bytes / 1e6:.1f} MB, {page.gpu_bytes / 1e6:.0f} MB on the GPU"
    return f"{sizes}, {page.distilled_psnr:.1f} dB beside the run's own network"


def _splats(opened: LoadedRun, path: Path, config: ExportConfig) -> str:
    most, degree, steps = config.max_splats, config.splats_degree, config.splats_steps
    written = export_splats(path, opened.field, opened.sampler, opened.cameras, most, degree, steps)
    beside = f", {written.psnr:.1f} dB beside the run's own pictures" if math.isfinite(written.psnr) else ""
    return f"{written.count} splats{beside}"


def _points(opened: LoadedRun, path: Path, config: ExportConfig) -> str:
    mesh = extract_mesh(opened.field, opened.sampler, opened.cameras, crop=config.crop_box())
    write_points(path, mesh)
    return f"{len(mesh.vertices)} points"


def _mesh(opened: LoadedRun, path: Path, config: ExportConfig) -> str:
    mesh = extract_mesh(opened.field, opened.sampler, opened.cameras, crop=config.crop_box())
    write_glb(path, mesh, estimate_up(opened.cameras.c2w.double().cpu()))
    return f"{len(mesh.faces)} triangles"


def _volume(opened: LoadedRun, path: Path, config: ExportConfig) -> str:
    write_volume(path, opened.field, opened.sampler)
    return "density of {} x {} x {} vertices".format(*opened.field.resolution)


def _cameras(opened: LoadedRun, path: Path, config: ExportConfig) -> str:
    cameras, files = _stored(opened)
    root = found_again(opened.config.dataset).root if files else None
    models = write_transforms(path, cameras, _named(files, len(cameras), root and Path(root)))
    if len(models) > 1:
        print(f"note: nerfstudio reads one camera_model for all, and takes {' and '.join(models)} for perspective.")
    return f"{len(cameras)} cameras, {cameras.described_size}, for the scene's own folder"


def _colmap(opened: LoadedRun, path: Path, config: ExportConfig) -> str:
    cameras, files = _stored(opened)
    folder = Path(os.path.commonpath([file.absolute().parent for file in files])) if files else None
    write_colmap(path, cameras, _named(files, len(cameras), folder))
    return f"{len(cameras)} cameras, {cameras.described_size}, whose photos are in {folder or 'no folder'}"


def _stored(opened: LoadedRun) -> tuple[Cameras, Sequence[Path]]:
    """The training cameras for the photos as they are stored, and these files; for those of training where there are
    none any more."""
    try:
        files = opened.given_views("train").files
    except UserError as error:
        print(f"note: images are named by their numbers, cameras are for pictures as trained on: {error}")
        return opened.cameras, ()
    cameras, times, sizes = opened.cameras, opened.config.dataset.downscale, []
    for size, file in zip(cameras.image_sizes.tolist(), files, strict=True):
        info = image_info(file)
        # What downscaling cut off at the right and at the bottom is there again; a turned photo is as it is read.
        stored = [(info.width, info.height), (info.height, info.width), [times * side for side in size]]
        sizes.append(next(sides for sides in stored if [side // times for side in sides] == size))
    return Cameras.of_sizes(cameras.c2w, cameras.intrinsics * times, sizes, cameras.lenses), files


def _named(files: Sequence[Path], count: int, folder: Path | None) -> list[str]:
    """The files by their paths from a folder; numbers where there are none."""
    if not files:
        return [f"{index:04d}.png" for index in range(count)]
    return [Path(os.path.relpath(file.absolute(), folder.absolute())).as_posix() for file in files]


# By the setting: the name of the file or folder, and what writes it and tells its size.
FORMATS: dict[str, tuple[str, Callable[[LoadedRun, Path, ExportConfig], str]]] = {
    "web": ("scene.html", _web),
    "splats": ("splats.ply", _splats),
    "points": ("points.ply", _points),
    "mesh": ("mesh.glb", _mesh),
    "volume": ("volume.npz", _volume),
    "cameras": ("transforms.json", _cameras),
    "colmap": ("sparse/0", _colmap),
}
CROPPED = ("points", "mesh")
MORE_SUFFIXES = {"volume": (".vti",), "splats": (".spz",)}


def main(config: ExportConfig, folder: Path, overrides: list[str]) -> None:
    name, write = FORMATS[config.format]
    path = folder / (config.file or name)
    suffix = Path(name).suffix
    suffixes = (suffix, *MORE_SUFFIXES.get(config.format, ()))
    if path.suffix not in suffixes and suffix:
        fitting = " or ".join(suffixes)
        more = "; scripts/mesh.py writes PLY and OBJ" if config.format == "mesh" else ""
        raise UserError(
            f"file={config.file} does not fit format={config.format}; give a name that ends with {fitting}{more}."
        )
    if path.suffix and not suffix:  # else a folder of that name would be made, which looks like a file
        raise UserError(
            f"file={config.file} names a file, and format={config.format} writes a folder with cameras.txt, images.txt "
            f"and points3D.txt; give a name without {path.suffix}, as file={name}."
        )
    if config.crop_box() is not None and config.format not in CROPPED:
        raise UserError(f"crop= cuts format={' and '.join(CROPPED)} alone, not format={config.format}; leave it out.")
    opened = open_run(config)
    size = write(opened, path, config)
    print(f"{size}, of {opened.folder}:", path, sep="\n")


def command() -> None:
    run("export", ExportConfig, main, __doc__)
