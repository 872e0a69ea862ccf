"""From samples to pixels: the field at the samples, composited along the rays, over the background."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nerf.cameras import Cameras
from nerf.fields.field import Field
from nerf.metrics import MIN_OPACITY
from nerf.normals import facing_normals, falling_density
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
    normals: Tensor | None = None  # [R,3] unit, world axes, on the camera's side; zero where nothing is met
    weights: Tensor | None = None  # [M] of the samples; None for a whole image, whose samples are not kept

    def distance(self) -> Tensor:
        """Mean distance along the ray, [R] in world units; 0 where nothing is met."""
        return torch.where(self.opacity > MIN_OPACITY, self.depth / self.opacity.clamp(min=MIN_OPACITY), 0.0)


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


def render_samples(
    field: Field, sampler: RaySampler, samples: RaySamples, background: Tensor, with_normals: bool = False
) -> Rendering:
    """Renders packed samples. background: [3] or [R,3].

    Differentiable in the field's parameters, and in the rays through where the samples are; not in the normals, nor in
    how colour depends on the direction.
    """
    directions = samples.rays.directions.detach()
    density, values = field(samples.positions(), directions, samples.ray_indices)
    if with_normals:
        values = torch.cat([values, falling_density(field, samples)], dim=-1)
    intervals = (samples.t_starts, samples.t_ends, samples.ray_offsets)
    values, opacity, depth, weights = sampler.backend.ops.composite_rays(
        density, values, *intervals, sampler.config.min_transmittance
    )
    normals = None
    if with_normals:
        values, normals = values[:, :-3], facing_normals(values[:, -3:], directions)
    light = field.shade(values, opacity, directions)
    return Rendering(light + (1 - opacity)[:, None] * background, opacity, depth, normals, weights)


@torch.no_grad()
def render_image(
    field: Field, sampler: RaySampler, cameras: Cameras, index: int, background: Tensor, with_normals: bool = False
) -> Rendering:
    """Renders one camera's whole image: rgb [H,W,3], opacity [H,W], depth [H,W], on request normals [H,W,3].

    Rays are made and marched RAYS_PER_CHUNK at a time: beyond the finished pixels, memory does not grow with the image.
    """
    pixels, size = cameras.height * cameras.width, RAYS_PER_CHUNK[sampler.backend.device.type]
    chunks = []
    for first in range(0, pixels, size):
        rays = cameras.pixel_range_rays(index, first, first + size)
        samples = visible_samples(field, sampler, sampler.sample(rays))
        chunks.append(render_samples(field, sampler, samples, background, with_normals))
    shape = (cameras.height, cameras.width)
    return Rendering(
        torch.cat([chunk.rgb for chunk in chunks]).view(*shape, 3),
        torch.cat([chunk.opacity for chunk in chunks]).view(shape),
        torch.cat([chunk.depth for chunk in chunks]).view(shape),
        torch.cat([chunk.normals for chunk in chunks]).view(*shape, 3) if with_normals else None,
    )
