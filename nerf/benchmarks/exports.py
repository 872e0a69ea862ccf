"""A run's web page, splats and mesh: how large they are, how far from the photos and from the run's own pictures."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from nerf.benchmarks.figures import Log
from nerf.benchmarks.page_pictures import BrowserMissing, page_pictures
from nerf.benchmarks.spark_pictures import spark_pictures, spark_version
from nerf.benchmarks.splat_renderer import PinholeCamera, read_splats, render_file
from nerf.cameras.cameras import Cameras
from nerf.config.settings import setting
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.export.mesh import extract_mesh
from nerf.export.mesh_files import write_glb
from nerf.export.raster import first_surfaces
from nerf.export.splats.export import MOST, export_splats
from nerf.export.web.export import export_web
from nerf.images.metrics import psnr
from nerf.runs.open_run import LoadedRun
from nerf.system import usable_cores

FORMATS = ("web", "splats", "mesh")
SOLID = 0.9  # opacity from which a pixel shows a surface


@dataclass
class ExportsConfig:
    run: str | None = setting(None, "mode=exports: folder of the trained run; none = the newest in outputs", path=True)
    formats: list[str] = field(
        default_factory=lambda: list(FORMATS), metadata={"doc": f"mode=exports: which of {', '.join(FORMATS)}"}
    )
    views: int = setting(10, "mode=exports: test views beside which they are scored, evenly spread", low=1)
    web_steps: int | None = setting(None, "mode=exports: as of export.py", low=2)
    splats_steps: int | None = setting(None, "mode=exports: as of export.py", low=0)
    max_splats: int = setting(MOST, "mode=exports: as of export.py", low=1, high=10_000_000)
    splats_file: str | None = setting(
        None, "mode=exports: splats of the run that export.py has written, PLY; none = they are made", path=True
    )


@dataclass(frozen=True)
class Scored:
    """Pictures in place of which an export shows its own: [H,W,3] in [0,1] in host memory, as pinholes see."""

    cameras: Cameras  # pinholes
    photos: list[Tensor]
    ours: list[Tensor]

    def beside(self, pictures: Sequence[Tensor]) -> dict[str, dict]:
        """PSNR in dB of an export's pictures beside the photos and beside our own."""
        return {"photos": _psnr(pictures, self.photos), "ours": _psnr(pictures, self.ours)}


def check(settings: ExportsConfig) -> None:
    """Raises UserError for formats that are not measured, and for splats that are not there."""
    unknown = [name for name in settings.formats if name not in FORMATS]
    if unknown or not settings.formats:
        raise UserError(f"exports.formats={settings.formats}, expected some of {', '.join(FORMATS)}.")
    splats = settings.splats_file
    if splats is not None and not (splats.endswith(".ply") and Path(splats).is_file()):
        raise UserError(f"exports.splats_file={splats} is no PLY file; write one with export.py format=splats.")


def measure_exports(run: LoadedRun, settings: ExportsConfig, folder: Path, log: Log) -> dict:
    """Writes the exports of a run into a folder and scores them; without a browser its pictures are left out."""
    views = run.views("test", max(1, len(run.given_views("test")) // settings.views))
    background = run.background
    if views.cameras.has_panoramas:
        raise UserError(
            "mode=exports draws the exports as pinholes see them, but some test views of this run are panoramas; give "
            "exports.run= one whose cameras are perspective."
        )
    chosen = views.chosen(range(0, len(views), max(1, len(views) // settings.views))[: settings.views])
    pinholes = replace(chosen.cameras, lenses=None)
    ours = [run.render(pinholes, i).rgb.clamp(0, 1).cpu() for i in range(len(chosen))]
    scored = Scored(pinholes, [straightened(chosen, i, background.cpu()) for i in range(len(chosen))], ours)
    result: dict = {"views": list(chosen.names), "run": {"photos": _psnr(ours, scored.photos)}}
    measures = {"web": _web, "splats": _splats, "mesh": _mesh}
    for name in settings.formats:
        log(f"{name} of {run.folder}")
        result[name] = measures[name](run, scored, settings, folder)
    return result


def straightened(views: PosedImages, index: int, background: Tensor) -> Tensor:
    """A photo [H,W,3] in [0,1] over the background as its camera would take it without its lens, in host memory.

    What the lens did not see is filled with the color at the photo's edge.
    """
    photo, cameras = views.image_over(index, background), views.cameras
    if cameras.lenses is None:
        return photo
    rays = replace(cameras, lenses=None).image_rays(index)
    u, v, _ = cameras.project_along(index, rays, torch.ones(len(rays.directions), 1))
    grid = torch.cat([u, v], dim=-1) * 2 / torch.tensor(cameras.size(index)) - 1
    seen = functional.grid_sample(
        photo.permute(2, 0, 1)[None], grid[None, None], padding_mode="border", align_corners=False
    )
    return seen[0, :, 0].T.reshape(photo.shape)


def _web(run: LoadedRun, scored: Scored, settings: ExportsConfig, folder: Path) -> dict:
    path, scene = folder / "scene.html", run.config.dataset.scene
    page = export_web(
        path, run.field, run.sampler, run.cameras, run.background, scene, steps=settings.web_steps
    )  # fmt: skip
    found = {"bytes": page.num_bytes, "gpu_bytes": page.gpu_bytes, "distilled_psnr": page.distilled_psnr}
    try:
        pictures = page_pictures(path, scored.cameras, run.sampler.rays_per_pixel)
    except BrowserMissing as missing:
        return found | {"not_drawn": str(missing)}
    return found | scored.beside(pictures)


def _splats(run: LoadedRun, scored: Scored, settings: ExportsConfig, folder: Path) -> dict:
    if settings.splats_file is None:
        path, most = folder / "splats.ply", settings.max_splats
        export_splats(path, run.field, run.sampler, run.cameras, most, steps=settings.splats_steps)
    else:
        path = Path(settings.splats_file)
    cameras, pinholes = scored.cameras, []
    for index in range(len(cameras)):
        pose, lens = cameras.c2w[index].double().cpu().numpy(), cameras.intrinsics[index].tolist()
        pinholes.append(PinholeCamera.of_opengl(pose, lens, *cameras.size(index)))
    background = run.background[0].item()
    drawn = render_file(path, pinholes, background, usable_cores())
    pictures = [torch.from_numpy(picture).float() for picture in drawn]
    found = {"count": len(read_splats(path).means), "bytes": path.stat().st_size, **scored.beside(pictures)}
    try:
        spark: dict = {"version": spark_version()}
        for name, full in (("spark", False), ("spark_full", True)):
            drawn_by_spark = spark_pictures(path, cameras, background, full)
            found[name] = spark | scored.beside(drawn_by_spark) | {"numpy": _psnr(drawn_by_spark, pictures)}
    except BrowserMissing as missing:
        found["spark"] = {"not_drawn": str(missing)}
    return found


def _mesh(run: LoadedRun, scored: Scored, settings: ExportsConfig, folder: Path) -> dict:
    """Distance along the rays of the views between the mesh and where the field ends, and the pixels without a mesh."""
    mesh = extract_mesh(run.field, run.sampler, run.cameras, crop=run.field.box.space.inner_box)
    path, cameras = folder / "mesh.glb", scored.cameras
    write_glb(path, mesh, torch.tensor([0.0, 0.0, 1.0]))
    distances, uncovered, covered = [], 0, 0
    for index in range(len(cameras)):
        shown, weights = first_surfaces(mesh.vertices, mesh.faces, cameras, index)
        rendering, rays = run.render(cameras, index), cameras.pixel_range_rays(index, 0, len(shown))
        solid = rendering.opacity.flatten().cpu() > SOLID
        hit = (shown >= 0) & solid
        points = (mesh.vertices[mesh.faces[shown[hit]]] * weights[hit][..., None]).sum(1)
        met = (points - rays.origins[hit].cpu()).norm(dim=-1)
        distances.append((met - rendering.distance().flatten().cpu()[hit]).abs() / run.field.voxel_size)
        uncovered, covered = uncovered + int((solid & ~hit).sum()), covered + int(solid.sum())
    off = torch.cat(distances)
    return {
        "triangles": len(mesh.faces),
        "bytes": path.stat().st_size,
        "voxels_off": {"median": off.median().item(), "mean": off.mean().item()},
        "uncovered": uncovered / max(1, covered),
    }


def _psnr(pictures: Sequence[Tensor], expected: Sequence[Tensor]) -> dict:
    values = [psnr(found, truth) for found, truth in zip(pictures, expected)]
    return {"mean": statistics.fmean(values), "per_view": values}
