"""The dry run: checks a scene before training and estimates memory and time of the run.

Each check has a verdict, a finding in words and, unless it is green, a remedy. The checks are in dry_run_checks.py,
those of poses in pose_checks.py.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nerf.config.schema import Config
from nerf.datasets.capture import FEWEST_POINTS
from nerf.datasets.plane_sweep import PlaneSweep
from nerf.datasets.posed_images import PosedImages
from nerf.diagnostics import dry_run_checks as checks
from nerf.diagnostics.dry_run_checks import Check
from nerf.diagnostics.pose_checks import ConventionScore, check_odd_images, check_poses
from nerf.diagnostics.step_time import free_bytes, measure_step
from nerf.errors import UserError
from nerf.ops.backend import Backend, device_name
from nerf.scene import bounds as scene_kinds
from nerf.scene.box import SceneBox
from nerf.scene.description import SceneDescription
from nerf.training.initial_state import find_silhouettes, finest_voxels
from nerf.training.memory import MemoryPlan, most_that_fits, plan_memory
from nerf.training.voxel_budget import most_voxels

MOST_IMAGES = 120  # images that are checked individually


@dataclass(frozen=True)
class DryRun:
    """The results of a dry run, for its page."""

    checks: list[Check]
    conventions: list[ConventionScore]  # the poses as given, then chance, then other conventions
    image_scores: dict[int, float]  # agreement of the checked images with their neighbors
    box: SceneBox | None  # None: no box was found, and a check says why
    points: Tensor  # [P,3] world: sparse points of the capture, else points where patches agree
    point_colors: Tensor  # [P,3] in [0,1]
    memory: MemoryPlan | None
    device: str  # its name
    seconds: float | None  # estimated training time; None: training is not possible
    seconds_from: str  # the basis of the estimate


def inspect(
    config: Config,
    images: PosedImages,
    backend: Backend,
    described: SceneDescription,
    points: Tensor | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> DryRun:
    """Checks the training images. config: resolved. described: the description of their scene.

    points [P,3] float, world: sparse points of the capture, if any. log: called with the name of each stage.
    """
    log("comparing images with their neighbors")
    sweep = PlaneSweep(images)
    agreement = sweep.score(evenly_spaced(len(images), MOST_IMAGES))
    poses, conventions, trusted = check_poses(sweep, agreement)
    found = [poses]
    if trusted:
        found.append(check_odd_images(agreement, conventions, sweep, images.names))
    found.append(checks.check_duplicates(sweep, images))
    found.append(checks.check_blank(sweep, images.names))
    surface = agreement.surface()
    sparse = points is not None and len(points) >= FEWEST_POINTS
    shown = points.float() if sparse else surface.points
    colors = torch.full_like(shown, 0.5) if sparse else surface.colors
    log("finding the box")
    box = None
    try:
        silhouettes = find_silhouettes(config, images, images.pixels, backend)
        box = scene_kinds.make_box(described, images.cameras, silhouettes, config.sampler.near, backend.device)
        box = box.to("cpu")
    except UserError as error:
        remedy = "correct the poses first, if they are red, else set dataset.aabb"
        found.append(Check("box", "red", str(error).rstrip("."), remedy))
    if box is not None:
        evidence = shown if sparse or trusted else shown[:0]
        distances = checks.seen_distances(images.cameras, points.float()) if sparse else surface.distances
        found.append(checks.check_box(box, images.cameras, images.names, evidence))
        found.append(checks.check_near_far(config.sampler, box, images.cameras, distances if len(evidence) else None))
    device = device_name(backend.device)
    memory, seconds, seconds_from = None, None, "nothing can be trained before the box is found"
    if box is not None:
        finest, free = box.resolution(finest_voxels(config, images, box)), free_bytes(backend.device, images)
        most = most_voxels(config, images.cameras, box, math.prod(n - 1 for n in finest))
        memory = plan_memory(config, finest, images, most_that_fits(config, finest, images, most, free))
        if backend.device.type == "cpu":  # all of it is in host memory
            memory = replace(memory, values=memory.values + memory.in_host, in_host=0)
        found.append(checks.check_memory(memory, free, device))
        seconds, seconds_from = _time(config, images, backend, described, log)
    scores = {image: score.item() for image, score in agreement.by_image().items()}
    return DryRun(found, conventions, scores, box, shown, colors, memory, device, seconds, seconds_from)


def _time(
    config: Config,
    images: PosedImages,
    backend: Backend,
    described: SceneDescription,
    log: Callable[[str], None],
) -> tuple[float | None, str]:
    """Estimated seconds of training, and the basis of the estimate."""
    limit = config.train.max_seconds
    if config.train.steps is None:
        return limit, "the schedule stretches to fit train.max_seconds"
    log("timing the first steps")
    try:
        step = measure_step(config, images, backend, described)
    except UserError as error:
        return None, str(error)
    if limit is not None and limit < step * config.train.steps:
        return limit, f"train.max_seconds ends the run before its {config.train.steps} steps are done"
    return step * config.train.steps, (
        f"{config.train.steps} steps as long as the first ones, {1e3 * step:.1f} ms each; later the grids double, and "
        "empty cells are pruned"
    )


def evenly_spaced(count: int, most: int) -> list[int]:
    """At most `most` of the numbers 0 ... count - 1, rising and evenly spaced, with the first and the last."""
    return torch.linspace(0, count - 1, min(count, most)).round().long().tolist()
