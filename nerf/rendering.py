"""From samples to pixels: the field at the samples, composited along the rays, over the background."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nerf.cameras import Cameras
from nerf.fields.field import Field
from nerf.rays import RaySamples
from nerf.sampler import RaySampler

# A whole 800x800 frame in few pieces on a GPU; small enough for a CPU's caches.
RAYS_PER_CHUNK = {"cuda": 1 << 17, "cpu": 1 << 14}


@dataclass(frozen=True)
class Rendering:
    """What R rays see."""

    rgb: Tensor  # [R,3] over the background
    opacity: Tensor  # [R]
    depth: Tensor  # [R] sum of weight * t; divide by opacity for the mean distance along the ray
    weights: Tensor | None = None  # [M] of the samples; None for a whole image, whose samples are not kept


@torch.no_grad()
def sample_weights(field: Field, sampler: RaySampler, samples: RaySamples) -> Tensor:
    """Weight of every sample, [M], from density alone."""
    density = field.density(samples.positions())
    nothing = density.new_empty(len(density), 0)
    intervals = (samples.t_starts, samples.t_ends, samples.ray_offsets)
    return sampler.backend.ops.composite_rays(density, nothing, *intervals, sampler.config.min_transmittance)[3]


def visible_samples(field: Field, sampler: RaySampler, samples: RaySamples, capacity: int = 0) -> RaySamples:
    """The samples that weigh at least min_weight: colour is computed for these alone (Sun et al. 2022, section 4.3).

    Most samples lie in air or behind a surface. Looking at density first, one channel, finds the few that matter.
    capacity: see RaySamples.select.
    """
    return samples.select(sample_weights(field, sampler, samples) >= sampler.config.min_weight, capacity)


def render_samples(field: Field, sampler: RaySampler, samples: RaySamples, background: Tensor) -> Rendering:
    """Renders packed samples. background: [3] or [R,3]. Differentiable in the field's parameters."""
    density, rgb = field(samples.positions(), samples.rays.directions, samples.ray_indices)
    intervals = (samples.t_starts, samples.t_ends, samples.ray_offsets)
    values, opacity, depth, weights = sampler.backend.ops.composite_rays(
        density, rgb, *intervals, sampler.config.min_transmittance
    )
    return Rendering(values + (1 - opacity)[:, None] * background, opacity, depth, weights)


@torch.no_grad()
def render_image(
    field: Field, sampler: RaySampler, cameras: Cameras, index: int, background: Tensor
) -> Rendering:
    """Renders one camera's whole image: rgb [H,W,3], opacity [H,W], depth [H,W]."""
    rays = cameras.image_rays(index)
    size, chunks = RAYS_PER_CHUNK[sampler.backend.device.type], []
    for first in range(0, len(rays), size):
        samples = visible_samples(field, sampler, sampler.sample(rays[first : first + size]))
        chunks.append(render_samples(field, sampler, samples, background))
    shape = (cameras.height, cameras.width)
    return Rendering(
        torch.cat([chunk.rgb for chunk in chunks]).view(*shape, 3),
        torch.cat([chunk.opacity for chunk in chunks]).view(shape),
        torch.cat([chunk.depth for chunk in chunks]).view(shape),
    )
