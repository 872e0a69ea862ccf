"""Poses of held-out views after poses were learned (test-time pose alignment), and the change of the learned poses.

A scene learned with its poses is determined only up to a similarity. It is estimated from the training cameras, whose
given and learned poses are both known, and from scene points they see; then it is applied to the held-out cameras.
Lin et al. 2021, section 4.1, align by the poses alone.
"""

from dataclasses import replace

import torch
from torch import Tensor

from nerf.calibration.pose_alignment import Similarity, align, align_views, perturbed, pose_errors
from nerf.calibration.pose_refinement import PoseRefinement, scene_radius
from nerf.calibration.vignetting import middles, squared_radii, vignetted, vignetting_of
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

# Rays per view in a refinement step; 64 rays made correct poses of fern's 1008x756 views worse.
RAYS_PER_VIEW = 512
MAX_RAYS = {"cuda": 1 << 16, "cpu": 1 << 12}
PIXELS_ACROSS = 12  # grid of pixels per axis of each training image whose scene points enter the alignment
OPAQUE = 0.5  # opacity from which a ray hits the scene
LEARNING_RATE = 1e-3  # small, because views start near their poses
NOT_REFINED = "training views are scored with the poses that training ended with"


def has_effect(view_poses: str, split: str) -> bool:
    """Whether views of a split are scored with the poses that evaluation.view_poses says; if not, NOT_REFINED."""
    return not (view_poses == "refined" and split == "train")


def align_eval_poses(
    field: Field,
    sampler: RaySampler,
    config: Config,
    views: PosedImages,
    split: str,
    learned: Cameras,
    given: Cameras,
    every: int = 1,
) -> PosedImages:
    """The views of a split with the cameras for scoring, as evaluation.view_poses says.

    learned, given: the training cameras, on the CPU. Training views get the learned cameras. every: only every k-th
    view will be scored, so only these are refined.
    """
    how = config.evaluation.view_poses
    if how == "given" or (how == "aligned" and torch.equal(learned.c2w, given.c2w)):
        return views
    if split == "train":
        return replace(views, cameras=learned)
    cameras = moved(field, sampler, config, views.cameras, learned, given)
    if how == "refined":
        chosen = range(0, len(views), every)
        c2w = cameras.c2w.clone()
        some = replace(views, cameras=cameras).chosen(chosen)
        c2w[list(chosen)] = refine(field, sampler, config, some).c2w.cpu()
        cameras = replace(cameras, c2w=c2w)
    return replace(views, cameras=cameras)


def with_vignetting(views: PosedImages, given: Cameras, known: Tensor | None) -> PosedImages:
    """Views as in the data, with what training learned of their cameras' vignetting; to be called before they move.

    given: the training cameras of the data; known [I,3]: their coefficients, None: it was not learned.
    """
    if known is None:
        return views
    return replace(views, vignetting=vignetting_of(views.cameras, given, known))


def moved(
    field: Field, sampler: RaySampler, config: Config, cameras: Cameras, learned: Cameras, given: Cameras
) -> Cameras:
    """Cameras of the world in which the training cameras are the given ones, in the world of the field.

    learned: the same training cameras there. All on the CPU.
    """
    if not torch.equal(learned.c2w, given.c2w):
        cameras = _alignment(field, sampler, config, given, learned).applied(cameras)
    if not torch.equal(learned.intrinsics, given.intrinsics):  # the change is one for all, relative to the image
        cameras = replace(cameras, intrinsics=cameras.intrinsics * (learned.intrinsics[:1] / given.intrinsics[:1]))
    return cameras


@torch.no_grad()
def _alignment(field: Field, sampler: RaySampler, config: Config, given: Cameras, learned: Cameras) -> Similarity:
    """The similarity that maps given cameras to learned ones, by their poses and the scene points they see."""
    start, device = align(given, learned), sampler.backend.device
    pixels = torch.cat([_spread_pixels(learned, index) for index in range(len(learned))])
    rays = learned.to(device).rays_through(pixels.to(device), ops=sampler.backend.ops)
    color = Background.of(config.dataset, field.background).eval(field.backend.device)
    rendering = render_rays(field, sampler, rays, color)
    distances, hit = rendering.distance().cpu(), rendering.opacity.cpu() > OPAQUE
    if hit.sum() < len(learned):  # too few scene points
        return start
    chosen = pixels[hit]
    before, after = given.rays_through(chosen), learned.rays_through(chosen)
    return align_views(start, before, after, distances[hit], learned.image_of(chosen))


def _spread_pixels(cameras: Cameras, index: int) -> Tensor:
    """The pixels at the centers of PIXELS_ACROSS x PIXELS_ACROSS equal tiles of an image, [N] int64."""
    width, height = cameras.size(index)
    middle = (torch.arange(PIXELS_ACROSS) + 0.5) / PIXELS_ACROSS
    columns, rows = ((middle * size).long() for size in (width, height))
    return cameras.first_pixel(index) + (rows[:, None] * width + columns).flatten()


def refine(field: Field, sampler: RaySampler, config: Config, views: PosedImages) -> Cameras:
    """The views' cameras, each optimized until its photo fits the scene best; the field is fixed.

    Then a score measures the quality of the scene, not of the pose (test-time photometric optimization, Lin et al.
    2021).
    """
    backend = sampler.backend
    batches = RayBatches(views, backend, config.seed)
    settings = replace(PosesConfig(), lr=LEARNING_RATE, start=0.0, warmup=0.0, view_dependence_start=0.0)
    poses = PoseRefinement(batches.cameras, scene_radius(field.box), settings, backend, keep_scale=False)
    batches.ray_source = poses
    batches.find_valid_pixels(sampler)
    color = Background.of(config.dataset, field.background).eval(field.backend.device)
    count = min(RAYS_PER_VIEW * len(views), MAX_RAYS[backend.device.type])
    if len(batches.valid_pixels) == 0:  # no ray hits the scene
        return views.cameras
    trained = [p for p in field.parameters() if p.requires_grad]
    field.requires_grad_(False)
    scaled_up_to, field.full_gradient_from = field.full_gradient_from, 0.0  # a field that has just been trained has it
    vignetting = None if views.vignetting is None else views.vignetting.to(backend.device)
    centers = middles(batches.cameras)
    clock = RunClock(config.evaluation.pose_steps, None)
    try:
        while not clock.finished:
            poses.set_progress(clock)
            batch = batches.draw(count)
            samples = visible_samples(field, sampler, batch.rays, batch.jitter)
            alpha = batch.rgba[:, 3:]
            target = alpha * batch.rgba[:, :3] + (1 - alpha) * color
            rgb = render_samples(field, sampler, samples, color).rgb
            if vignetting is not None:
                image, squares = squared_radii(batches.cameras, centers, batch.pixels)
                rgb = vignetted(rgb, alpha, vignetting.index_select(0, image), squares)
            photometric(rgb, target).backward()
            poses.step()
            clock.tick()
    finally:
        field.full_gradient_from = scaled_up_to
        for parameter in trained:
            parameter.requires_grad_(True)
    return poses.refined()


def pose_facts(config: Config, learned: Cameras, given: Cameras) -> dict[str, dict[str, float]]:
    """Entries for metrics.json: pose_change if poses were learned, pose_error and pose_error_before if perturbed.

    pose_change: learned against initial poses. pose_error: learned against given poses, which are correct when poses
    are perturbed for an experiment. After alignment; rotations in degrees, translations in world units.
    """
    facts = {}
    start = perturbed(given, config.poses, config.seed)
    if config.poses.mode == "refine" or config.poses.from_run:
        facts["pose_change"] = pose_errors(start, learned).summary()
    if not torch.equal(start.c2w, given.c2w):
        facts["pose_error_before"] = pose_errors(given, start).summary()
        facts["pose_error"] = pose_errors(given, learned).summary()
    return facts
