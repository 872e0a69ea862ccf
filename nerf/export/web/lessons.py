"""What a page is taught by: pixels of the training cameras, and what the run makes of them.

Legend: P pixels, F channels of the field.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.errors import UserError
from nerf.fields.voxel_deferred import SMALLEST_OPACITY, VoxelDeferred
from nerf.rendering.render import composited_grid
from nerf.rendering.sampler import RaySampler

PIXELS = 1 << 19
OPAQUE = 0.05  # pixels that meet less teach nothing


@dataclass(frozen=True)
class Lessons:
    """Pixels that meet the scene, drawn at random; all on the field's device."""

    pixels: Tensor  # [P] int64, counted over all cameras
    features: Tensor  # [P,F] means over what their rays meet
    opacity: Tensor  # [P]
    directions: Tensor  # [P,3] unit
    colors: Tensor  # [P,3] in [0,1] by the field's own network; a pixel's light is its color times its opacity


@torch.no_grad()
def draw(field: VoxelDeferred, sampler: RaySampler, cameras: Cameras, generator: torch.Generator) -> Lessons:
    """Lessons from the training cameras. Raises UserError where they meet nothing."""
    count, device = cameras.first_pixel(len(cameras)), generator.device
    pixels = torch.randint(count, (min(PIXELS, count),), generator=generator, device=device)
    features, opacity, directions = composited(field, sampler, cameras, pixels)
    met = (opacity > OPAQUE).nonzero()[:, 0]
    if len(met) == 0:
        raise UserError("the scene is empty: no training camera meets anything; train longer, or look at its renders.")
    pixels, features, opacity, directions = (x[met] for x in (pixels, features, opacity, directions))
    parts = zip(features.split(1 << 16), opacity.split(1 << 16), directions.split(1 << 16), strict=True)
    colors = [field.shade(f * o[:, None], o, d) / o[:, None] for f, o, d in parts]
    return Lessons(pixels, features, opacity, directions, torch.cat(colors).clamp(0, 1))


@torch.no_grad()
def composited(field: VoxelDeferred, sampler: RaySampler, cameras: Cameras, pixels: Tensor) -> tuple[Tensor, ...]:
    """Mean features [P,F], opacity [P] and unit directions [P,3] of pixels [P], counted over all cameras."""
    parts = []
    for some in pixels.split(1 << 15):
        rays = cameras.rays_through(some, sampler.rays_per_pixel, sampler.backend.ops)
        values, opacity, _ = composited_grid(field, sampler, rays, field.feature_grid)
        parts.append((values / opacity.clamp(min=SMALLEST_OPACITY)[:, None], opacity, rays.pixel_directions()))
    return tuple(torch.cat(column) for column in zip(*parts, strict=True))
