"""The state of a fresh run: scene box, first grids and occupancy, and batches of rays that can hit the scene."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from nerf.calibration.pose_alignment import perturbed
from nerf.cameras.cameras import Cameras
from nerf.config.schema import Config
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.fields.registry import build_field
from nerf.ops.backend import Backend
from nerf.scene import bounds as scene_kinds
from nerf.scene import visual_hull
from nerf.scene.box import SceneBox
from nerf.scene.description import SceneDescription
from nerf.scene.silhouettes import Silhouettes
from nerf.training.capacity import plan_capacity
from nerf.training.memory import check_memory, free_bytes, most_that_fits
from nerf.training.state import TrainState, assemble, make_batches, make_clock, make_sampler
from nerf.training.voxel_budget import most_voxels, pixel_size


def init_state(
    config: Config,
    images: PosedImages,
    backend: Backend,
    described: SceneDescription | None = None,
    start: Cameras | None = None,
) -> TrainState:
    """The state of a fresh run: scene box, field, occupancy, batches. Its time counts as training time.

    config: resolved. described: where the scene is; None derives it from settings and images. start: the initial
    cameras; None: those of the images, perturbed if the config says so.

    Raises UserError if no training ray hits the scene box or the time is over before the first step, and
    TooLittleMemory if the GPU has too little memory.
    """
    torch.manual_seed(config.seed)
    clock = make_clock(config)
    clock.start()
    described = described or scene_kinds.describe(config.dataset, images.scene, images.has_alpha)
    start = perturbed(images.cameras, config.poses, config.seed) if start is None else start
    images = replace(images, cameras=start)
    batches = make_batches(config, images, backend)
    silhouettes = find_silhouettes(config, images, batches.images, backend)
    box = scene_kinds.make_box(described, images.cameras, silhouettes, config.sampler.near, backend.device)
    finest = box.resolution(finest_voxels(config, images, box))
    most = most_voxels(config, images.cameras, box, math.prod(n - 1 for n in finest))
    if backend.device.type == "cuda":
        free = free_bytes(backend.device)
        check_memory(config, finest, images, free)
        most = most_that_fits(config, finest, images, most, free)
    first = box.resolution(level_voxels(config, math.prod(finest), 0))
    field = build_field(config.field, box, first, box.voxel_size(finest), backend)
    if config.dataset.background == "learned":
        field.learn_background()
    occupancy = visual_hull.carve(silhouettes, box, first)
    state = assemble(config, field, occupancy, batches, clock, box.voxel_size(finest))
    state.most_voxels = most
    if silhouettes is not None and box.space.kind == "bounded" and described.aabb is None:
        batches.valid_pixels = visual_hull.pixels_of_hull(silhouettes, box, first)
    else:
        batches.find_valid_pixels(make_sampler(config, state))
    _check_rays(config, state)
    plan_capacity(config, state)
    spent = state.read_clock()
    clock.stop()
    if clock.finished:
        raise UserError(
            f"train.max_seconds={config.train.max_seconds:g} is over before the first step: images, box and first "
            f"occupancy took {spent:.1f} s; give train.max_seconds={math.ceil(5 * spent)} or more."
        )
    return state


def _check_rays(config: Config, state: TrainState) -> None:
    """Raises UserError if no training ray has a sample."""
    batches, box, near, far = state.batches, state.field.box, config.sampler.near, config.sampler.far
    found = len(batches.valid_pixels) > 0
    if (near > 0 or far is not None) and not (found and batches.meet_scene(make_sampler(config, state))):
        away = (batches.cameras.c2w[:, :, 3] - box.center).norm(dim=-1).mean()
        end = "none" if far is None else f"{far:g}"
        raise UserError(
            f"no training ray meets the scene between sampler.near={near:g} and sampler.far={end}: its middle is "
            f"{away:.3g} from a camera on average. Leave them out; dry_run=true shows what would fit."
        )
    if not found:
        raise UserError(
            f"no training ray hits the scene box {box.aabb.tolist()}; set dataset.aabb to a box that the cameras see."
        )


def find_silhouettes(config: Config, images: PosedImages, pixels: Tensor, backend: Backend) -> Silhouettes | None:
    """The silhouettes of the scene, dilated if poses are learned; None if the images have no alpha.

    None with panoramas too: at the poles of one a cell has no size in pixels, so nothing is carved.
    pixels: of the images, on either device.
    """
    if not images.has_alpha or images.cameras.has_panoramas:
        return None
    dilation = math.radians(config.poses.mask_dilation_degrees) if config.poses.mode == "refine" else 0.0
    return Silhouettes(images.cameras, pixels[:, 3], images.valid_pixels, backend.device, dilation, backend.ops)


def finest_voxels(config: Config, images: PosedImages, box: SceneBox) -> float:
    """Number of voxels of the finest grid: field.num_voxels, or fewer if voxels would be much smaller than a pixel."""
    limit = box.num_voxels(config.field.min_voxel_pixels * pixel_size(images.cameras, box))
    return min(limit, config.field.num_voxels)


def level_voxels(config: Config, finest: float, doublings: int) -> float:
    """Number of voxels of the grid after some doublings; at least those asked for of the first grid."""
    first = (config.field if config.poses.mode == "fixed" else config.poses).initial_num_voxels
    return max(finest / 2 ** (len(config.field.upsample_at) - doublings), min(finest, first))
