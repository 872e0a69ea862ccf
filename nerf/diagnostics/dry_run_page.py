"""dry_run=true: checks the scene of a run and writes the results as one self-contained HTML page."""

import html
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import torch
from PIL import Image
from tqdm import tqdm

from nerf.cameras.cameras import Cameras
from nerf.cameras.panoramas import views_ahead
from nerf.config.schema import Config
from nerf.datasets.load import load_split, sparse_points
from nerf.datasets.posed_images import PosedImages
from nerf.diagnostics.dry_run import DryRun, evenly_spaced, inspect
from nerf.diagnostics.dry_run_checks import Check, world_box
from nerf.files import write_text
from nerf.images.write import jpeg_data_uri
from nerf.ops.backend import select
from nerf.runs.initial_poses import cameras_to_begin_with
from nerf.runs.resolve import check_learned_poses, resolve_for_run, why_background
from nerf.scene.bounds import describe, why_turned

TEMPLATE = Path(__file__).with_suffix(".html")
THUMBNAIL = 128  # pixels on the longer side
THUMBNAIL_QUALITY = 75  # of JPEG
MOST_THUMBNAILS = 60
MOST_POINTS = 6000
MOST_FRUSTA = 300
FRUSTUM_SIZE = 0.08  # of the cameras' spread
RED_STATUS = 1


def write_dry_run(config: Config, folder: Path) -> int:
    """Writes folder/dry_run.html, prints what the loader says and the verdicts.

    Returns the exit status: not 0 if a verdict is red.
    """
    check_learned_poses(config)
    points = sparse_points(config.dataset)
    images, backend = load_split(config.dataset, "train"), select(config.backend, config.device)
    for note in images.notes:  # as a run begins; whatever ends the checks below, this is known
        print(note)
    start = cameras_to_begin_with(config.poses, images.cameras)
    images = images if start is None else replace(images, cameras=start)
    described = describe(config.dataset, images.scene, images.has_alpha)
    given = config
    config = resolve_for_run(given, images, backend, described)
    with tqdm(total=3, bar_format="{n}/{total} {desc}") as bar:

        def log(line: str) -> None:
            bar.set_description_str(line)
            bar.update()

        found = inspect(config, images, backend, described, points, log)
    path = folder / "dry_run.html"
    write_text(path, page(config, images, found))
    turned = () if found.box is None else why_turned(found.box)
    reasons = (*described.reasons, *why_background(given, config), *turned)
    print(f"scene kind {config.dataset.kind}: {'; '.join(reason.rstrip('.') for reason in reasons)}")
    for check in found.checks:
        print(f"{check.verdict:<7}{check.name}: {check.found}.")
        if check.remedy:
            print(f"{'':<7}-> {check.remedy}")
    for name, value in _plan(config, found):
        print(f"{'':<7}{name}: {value}")
    print(path)
    red = [check.name for check in found.checks if check.verdict == "red"]
    if red:
        print(f"red: {', '.join(red)}; training would not go well", file=sys.stderr)
    return RED_STATUS if red else 0


def page(config: Config, images: PosedImages, found: DryRun) -> str:
    """The whole page."""
    cameras = images.cameras
    title = f"{config.dataset.scene}: {len(images)} training views {cameras.described_size}, {config.dataset.kind}"
    parts = {
        "TITLE": html.escape(title),
        "NOTES": "".join(f"<p>{html.escape(note)}</p>" for note in images.notes),
        "VERDICTS": "".join(_verdict_row(check) for check in found.checks),
        "PLAN": "".join(_row(name, value) for name, value in _plan(config, found)),
        "CONVENTIONS": "".join(
            _row(score.name, f"{score.score:.3f} ± {score.standard_error:.3f}") for score in found.conventions
        ),
        "THUMBNAILS": "".join(_figure(images, index, found) for index in evenly_spaced(len(images), MOST_THUMBNAILS)),
        "SHOWN": f"{min(len(images), MOST_THUMBNAILS)} of {len(images)}",
        "SCENE": json.dumps(_scene(cameras, images, found)).replace("<", "\\u003c"),  # a name may hold </script>
    }
    text = TEMPLATE.read_text(encoding="utf-8")
    for name, value in parts.items():
        text = text.replace(f"<!--{name}-->", value)
    return text


def _plan(config: Config, found: DryRun) -> list[tuple[str, str]]:
    """Memory, exposure and time of the run, in rows."""
    rows = []
    if found.memory is not None:
        rows = [(name, f"{size / 2**30:.3f} GiB") for name, size in asdict(found.memory).items()]
        rows.append((f"memory on {found.device}", f"{found.memory.total / 2**30:.2f} GiB"))
    learned, kept = "a gain and a bias of each color are learned for each photo", "photos are taken as they are"
    exposure = learned if config.exposure.learn else f"{kept}; where theirs differ, exposure.learn=true"
    if config.exposure.vignetting:
        exposure += "; how far they darken towards their corners is learned for each camera"
    training = f"{found.seconds:.0f} s ({found.seconds_from})" if found.seconds is not None else found.seconds_from
    return [*rows, ("exposure", exposure), ("training", training)]


def _row(name: str, value: str) -> str:
    return f"<tr><td>{html.escape(name)}</td><td>{html.escape(value)}</td></tr>\n"


def _verdict_row(check: Check) -> str:
    remedy = f"<p class=remedy>{html.escape(check.remedy)}</p>" if check.remedy else ""
    return (
        f"<tr><td><span class={check.verdict}>{check.verdict}</span></td><td>{html.escape(check.name)}</td>"
        f"<td>{html.escape(check.found)}{remedy}</td></tr>\n"
    )


def _figure(images: PosedImages, index: int, found: DryRun) -> str:
    score = found.image_scores.get(index)
    words = f" {score:.2f}" if score is not None else ""
    label = html.escape(images.names[index])
    picture = f"<img alt='' src='{_data_uri(images, index)}'>"
    return f"<figure data-camera={index}>{picture}<figcaption>{label}{words}</figcaption></figure>\n"


def _data_uri(images: PosedImages, index: int) -> str:
    picture = (255 * images.image_over(index, torch.ones(3))).round().byte().numpy()
    return jpeg_data_uri(Image.fromarray(picture), THUMBNAIL, THUMBNAIL_QUALITY)


def _scene(cameras: Cameras, images: PosedImages, found: DryRun) -> dict:
    """The data of the 3D view: world coordinates, to four digits."""
    chosen = evenly_spaced(len(found.points), MOST_POINTS)
    colors = (255 * found.point_colors[chosen]).round().int().tolist()
    shown, extent = evenly_spaced(len(cameras), MOST_FRUSTA), None if found.box is None else world_box(found.box)
    size = FRUSTUM_SIZE * (cameras.centers - cameras.centers.mean(0)).norm(dim=-1).mean()
    frusta, cameras = [], views_ahead(cameras)
    for index in shown:
        width, height = cameras.size(index)
        corners = [(0, 0), (width - 1, 0), (width - 1, height - 1), (0, height - 1)]
        pixels = torch.tensor([cameras.first_pixel(index) + v * width + u for u, v in corners])
        rays = cameras.rays_through(pixels)
        frusta.append(torch.cat([cameras.centers[index : index + 1], rays.origins + size * rays.directions]))
    return {
        "points": _digits(found.points[chosen]),
        "colors": colors,
        "frusta": [_digits(frustum) for frustum in frusta],
        "cameras": shown,
        "names": [images.names[index] for index in shown],
        "box": _digits(extent) if extent is not None else None,
    }


def _digits(values: torch.Tensor) -> list:
    return [[float(f"{x:.4g}") for x in row] for row in values.tolist()]
