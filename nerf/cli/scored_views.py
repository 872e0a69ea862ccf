"""Pictures of a scored run: its renders, their contact sheet, the orbit video."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.cameras.paths import orbit, spiral, turn
from nerf.config.schema import Config
from nerf.datasets.posed_images import PosedImages
from nerf.evaluation.scores import Scores, evaluate
from nerf.fields.field import Field
from nerf.images import visualize
from nerf.images import write as pictures
from nerf.rendering.background import Background
from nerf.rendering.ensemble import Member
from nerf.rendering.image_renderer import ImageRenderer
from nerf.rendering.render import Rendering
from nerf.rendering.sampler import RaySampler, depth_range

SHEET_ROWS = 4
CONTACT_SHEET = "contact_sheet.png"
ORBIT_VIEWS = 60
# Longest sides in pixels: enough for viewing; on a CPU, larger videos would take longer than the training.
SHEET_SIDE = 1024
ORBIT_SIDE = {"cuda": 1920, "cpu": 400}


def score_views(
    field: Field,
    sampler: RaySampler,
    views: PosedImages,
    config: Config,
    folder: Path,
    others: Sequence[Member] = (),
) -> tuple[Scores, Path]:
    """Scores a split; writes its renders and a contact sheet (ground truth, render, depth, error) into the folder.

    others: more fields of the scene, whose pictures are averaged with those of the field; see evaluate.
    """
    rows: dict[str, list[Tensor]] = {}
    count = len(range(0, len(views), config.evaluation.every))
    shown = {round(i * (count - 1) / max(1, SHEET_ROWS - 1)) * config.evaluation.every for i in range(SHEET_ROWS)}

    def keep(index: int, rendering: Rendering, rgb_gt: Tensor) -> None:
        pictures.save_png(folder / config.evaluation.split / f"{views.names[index]}.png", rendering.rgb)
        if index in shown:
            depth = visualize.color_depth(rendering.depth, rendering.opacity, *depth_range(sampler, views.cameras))
            error = visualize.color_error(rendering.rgb, rgb_gt, valid=views.valid_mask(index))
            row = [rgb_gt, rendering.rgb, depth, error]
            rows[views.names[index]] = [visualize.shrunk(picture.cpu(), SHEET_SIDE) for picture in row]

    scores = evaluate(
        field,
        sampler,
        views,
        Background.of(config.dataset, field.background).eval(sampler.backend.device),
        config.evaluation.every,
        keep,
        with_lpips=True,
        exposure=config.evaluation.exposure,
        others=others,
    )
    path = folder / CONTACT_SHEET
    height, width = (max(row[0].shape[axis] for row in rows.values()) for axis in range(2))
    framed = [[visualize.framed(picture, width, height) for picture in row] for row in rows.values()]
    pictures.save_png(path, visualize.contact_sheet(framed, names=list(rows)))
    return scores, path


def write_orbit(field: Field, sampler: RaySampler, cameras: Cameras, config: Config, path: Path) -> Path:
    """Renders a video along an orbit around the scene, or along a spiral for a forward-facing scene.

    Among panoramas, which have no center to circle, it turns on the spot.
    """
    device = sampler.backend.device
    way = spiral if config.dataset.kind == "forward_facing" else orbit
    way = turn if cameras.has_panoramas else way
    path_cameras = way(cameras.to("cpu"), ORBIT_VIEWS).within(ORBIT_SIDE[device.type]).to(device)
    color = Background.of(config.dataset, field.background).eval(sampler.backend.device)
    images = ImageRenderer(field, sampler, color)
    frames = (images.render(path_cameras, i).rgb.cpu() for i in range(ORBIT_VIEWS))
    pictures.write_video(path, frames)
    return path
