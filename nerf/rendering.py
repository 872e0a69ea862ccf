"""From samples to pixels: the field at the samples, composited along the rays, over the background."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nerf.cameras import Cameras
from nerf.fields.field import Field
from nerf.ops.backend import Backend
from nerf.rays import RaySamples
from nerf.sampler import RaySampler

# A whole 800x800 frame in few pieces on a GPU; small enough for a CPU's caches.
RAYS_PER_CHUNK = {"cuda": 1 << 18, "cpu": 1 << 14}
# A sample that weighs less cannot change an 8-bit pixel, not even with a thousand others like it.
MIN_WEIGHT = 1e-6


@dataclass(frozen=True)
class Rendering:
    """What R rays see."""

    rgb: Tensor  # [R,3] over the background
    opacity: Tensor  # [R]
    depth: Tensor  # [R] sum of weight * t; divide by opacity for the mean distance along the ray
    weights: Tensor  # [M]


def render_samples(
    field: Field, samples: RaySamples, background: Tensor, backend: Backend, min_transmittance: float
) -> Rendering:
    """Renders packed samples. background: [3] or [R,3]. Differentiable in the field's parameters."""
    density, rgb = field(samples.positions(), samples.rays.directions, samples.ray_indices)
    values, opacity, depth, weights = backend.ops.composite_rays(
        density, rgb, samples.t_starts, samples.t_ends, samples.ray_offsets, min_transmittance
    )
    return Rendering(values + (1 - opacity)[:, None] * background, opacity, depth, weights)


@torch.no_grad()
def render_image(
    field: Field,
    sampler: RaySampler,
    cameras: Cameras,
    index: int,
    background: Tensor,
    min_transmittance: float,
) -> Rendering:
    """Renders one camera's whole image: rgb [H,W,3], opacity [H,W], depth [H,W]; no weights.

    Colours are evaluated only where a sample has weight, which leaves the picture as it is and saves most of them.
    """
    rays = cameras.image_rays(index)
    backend, chunks = sampler.backend, []
    for first in range(0, len(rays), RAYS_PER_CHUNK[backend.device.type]):
        chunk = rays[first : first + RAYS_PER_CHUNK[backend.device.type]]
        samples = sampler.sample(chunk)
        intervals = (samples.t_starts, samples.t_ends, samples.ray_offsets, min_transmittance)
        positions = samples.positions()
        density = field.density(positions)
        _, opacity, depth, weights = backend.ops.composite_rays(density, density.new_empty(len(density), 0), *intervals)
        seen = (weights > MIN_WEIGHT).nonzero()[:, 0]
        ray_indices = samples.ray_indices[seen]
        _, colors = field(positions[seen], chunk.directions, ray_indices)
        rgb = colors.new_zeros(len(chunk), 3).index_add(0, ray_indices, weights[seen, None] * colors)
        chunks.append((rgb + (1 - opacity)[:, None] * background, opacity, depth))
    rgb, opacity, depth = (torch.cat(parts) for parts in zip(*chunks, strict=True))
    shape = (cameras.height, cameras.width)
    return Rendering(rgb.view(*shape, 3), opacity.view(shape), depth.view(shape), opacity.new_empty(0))
