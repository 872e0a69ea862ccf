"""Where held-out views are seen from once poses were learned, and how far the learned poses went.

A learned scene is free to lie elsewhere, turned and at another size, than the given poses say. The training cameras,
of which both poses are known, tell how, by what they see; held-out cameras are moved alike. Lin et al. 2021, section
4.1, go by the poses alone.
"""

from dataclasses import replace

import torch
from torch import Tensor

from nerf.calibration.pose_alignment import Similarity, align, align_views, perturbed, pose_errors
from nerf.calibration.pose_refinement import PoseRefinement, scene_radius
from nerf.cameras.cameras import Cameras
from nerf.config.schema import Config, PosesConfig
from nerf.datasets.posed_images import PosedImages
from nerf.fields.field import Field
from nerf.optim.clock import RunClock
from nerf.rendering.background import Background
from nerf.rendering.render import render_rays, render_samples, visible_samples
from nerf.rendering.sampler import RaySampler
from nerf.training.batches import RayBatches
from nerf.training.losses import photometric

# Of each view in a step of its refinement: 64 led views of fern's 1008x756 pixels away from where they were right.
RAYS_PER_VIEW = 512
MAX_RAYS = {"cuda": 1 << 16, "cpu": 1 << 12}
PIXELS_ACROSS = 12  # of each training image: where it sees what tells how the scene was moved
SEEN = 0.5  # opacity from which on something is seen
LEARNING_RATE = 1e-3  # views start near their place


def place(
    field: Field,
    sampler: RaySampler,
    config: Config,
    views: PosedImages,
    split: str,
    learned: Cameras,
    given: Cameras,
    every: int = 1,
) -> PosedImages:
    """The views of a split, with the cameras from which they are to be scored (evaluation.view_poses).

    learned, given: the training cameras, on the CPU. Training views get the learned ones. every: only every k-th view
    is going to be looked at.
    """
    how = config.evaluation.view_poses
    if how == "given" or (how == "aligned" and torch.equal(learned.c2w, given.c2w)):
        return views
    if split == "train":
        return replace(views, cameras=learned)
    cameras = _alignment(field, sampler, config, given, learned).applied(views.cameras)
    if config.poses.intrinsics:  # one correction for all, in shares of the image: that of any camera
        change = learned.intrinsics[:1] / given.intrinsics[:1]
        cameras = replace(cameras, intrinsics=cameras.intrinsics * change)
    if how == "refined":
        chosen = range(0, len(views), every)
        c2w = cameras.c2w.clone()
        some = replace(views, cameras=cameras).chosen(chosen)
        c2w[list(chosen)] = refine(field, sampler, config, some).c2w.cpu()
        cameras = replace(cameras, c2w=c2w)
    return replace(views, cameras=cameras)


@torch.no_grad()
def _alignment(field: Field, sampler: RaySampler, config: Config, given: Cameras, learned: Cameras) -> Similarity:
    """The similarity that takes given cameras to learned ones, by what the learned ones see of the field."""
    start, device = align(given, learned), sampler.backend.device
    if torch.equal(given.c2w, learned.c2w):
        return start
    pixels = torch.cat([_spread_pixels(learned, index) for index in range(len(learned))])
    rays = learned.to(device).rays_through(pixels.to(device), ops=sampler.backend.ops)
    color = Background.of(config.dataset, field.background).eval(field.backend.device)
    seen = render_rays(field, sampler, rays, color)
    distances, hit = seen.distance().cpu(), seen.opacity.cpu() > SEEN
    if hit.sum() < len(learned):  # too little to tell
        return start
    chosen = pixels[hit]
    before, after = given.rays_through(chosen), learned.rays_through(chosen)
    return align_views(start, before, after, distances[hit], learned.image_of(chosen))


def _spread_pixels(cameras: Cameras, index: int) -> Tensor:
    """Pixels in the middle of PIXELS_ACROSS by PIXELS_ACROSS equal parts of an image, [N] int64."""
    width, height = cameras.size(index)
    middle = (torch.arange(PIXELS_ACROSS) + 0.5) / PIXELS_ACROSS
    columns, rows = ((middle * size).long() for size in (width, height))
    return cameras.first_pixel(index) + (rows[:, None] * width + columns).flatten()


def refine(field: Field, sampler: RaySampler, config: Config, views: PosedImages) -> Cameras:
    """The views' cameras, each moved to where its own photo fits the scene best; the field stays as it is.

    What is left of a score after that says how good the scene is, not how well its place is known (Lin et al. 2021).
    """
    backend = sampler.backend
    batches = RayBatches(views, backend, config.seed)
    settings = replace(PosesConfig(), lr=LEARNING_RATE, start=0.0, warmup=0.0, view_from=0.0)
    poses = PoseRefinement(batches.cameras, scene_radius(field.box), settings, backend, keep_scale=False)
    batches.ray_source = poses
    batches.find_pool(sampler)
    color = Background.of(config.dataset, field.background).eval(field.backend.device)
    count = min(RAYS_PER_VIEW * len(views), MAX_RAYS[backend.device.type])
    if len(batches.pool) == 0:  # no view sees the scene
        return views.cameras
    trained = [p for p in field.parameters() if p.requires_grad]
    field.requires_grad_(False)
    clock = RunClock(config.evaluation.pose_steps, None)
    try:
        while not clock.finished:
            poses.advance(clock)
            batch = batches.draw(count)
            samples = visible_samples(field, sampler, batch.rays, batch.jitter)
            alpha = batch.rgba[:, 3:]
            truth = alpha * batch.rgba[:, :3] + (1 - alpha) * color
            rendering = render_samples(field, sampler, samples, color)
            photometric(rendering.rgb, truth).backward()
            poses.step()
            clock.tick()
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)
    return poses.refined()


def pose_facts(config: Config, learned: Cameras, given: Cameras) -> dict[str, dict[str, float]]:
    """For metrics.json: pose_change where poses were learned, here or before; pose_error where they were perturbed.

    How far they are from those given, and from those that are right. Both after alignment, rotations in degrees,
    translations in world units.
    """
    facts = {}
    start = perturbed(given, config.poses, config.seed)
    if config.poses.mode == "refine" or config.poses.from_run:
        facts["pose_change"] = pose_errors(start, learned).summary()
    if not torch.equal(start.c2w, given.c2w):
        facts["pose_error_before"] = pose_errors(given, start).summary()
        facts["pose_error"] = pose_errors(given, learned).summary()
    return facts
