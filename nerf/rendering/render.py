"""From samples to pixels: evaluates the field at the samples, composites along the rays and adds the background.

Legend: R rays, P pixels, M samples, H W image height and width.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from nerf.cameras.cameras import Cameras
from nerf.cameras.rays import Rays
from nerf.fields.field import Field
from nerf.images.metrics import MIN_OPACITY
from nerf.ops.branches import Beside, at_once
from nerf.rendering.normals import facing_normals, falling_density
from nerf.rendering.sampler import RaySampler
from nerf.rendering.samples import RaySamples

Shade = Callable[[Tensor, Tensor, Tensor], Tensor]  # as Field.shade

# On a GPU an 800x800 frame is one chunk; on a CPU a chunk fits into the caches.
RAYS_PER_CHUNK = {"cuda": 1 << 22, "cpu": 1 << 14}
SAMPLED_RAYS_PER_CHUNK = {"cuda": 1 << 17, "cpu": 1 << 14}  # if the samples are stored
MAX_PIXELS_PER_CHUNK = 1 << 20  # an MLP's activations take about 1 KiB per pixel


@dataclass(frozen=True)
class Rendering:
    """P rendered pixels, each the mean of its rays."""

    rgb: Tensor  # [P,3] over the background
    opacity: Tensor  # [P]
    depth: Tensor | None  # [P] expected world distance along the ray times opacity; see distance(). None: not asked for
    normals: Tensor | None = None  # [P,3] unit, world axes, facing the camera; zero for empty rays
    weights: Tensor | None = None  # [M] of the samples; None for a whole image, whose samples are not stored
    distortion: Tensor | None = None  # [R] distortion loss of the rays, where it was asked for
    spread: Tensor | None = None  # [P] standard deviation of rgb among the runs of an ensemble

    def __repr__(self) -> str:
        """One line, without the pixels."""
        kept = [name for name in ("normals", "weights", "spread") if getattr(self, name) is not None]
        extra = f" with {' and '.join(kept)}" if kept else ""
        return f"Rendering(rgb {list(self.rgb.shape)} on {self.rgb.device}{extra})"

    def distance(self) -> Tensor:
        """Expected distance along the ray, [P] in world units; 0 for empty rays."""
        return torch.where(self.opacity > MIN_OPACITY, self.depth / self.opacity.clamp(min=MIN_OPACITY), 0.0)


@dataclass(frozen=True)
class Composited:
    """What P pixels see, each the mean of its rays, before it is shaded."""

    values: Tensor  # [P,C] of the field
    opacity: Tensor  # [P]
    depth: Tensor | None = None  # [P]; this and the following as Rendering has them
    normals: Tensor | None = None
    weights: Tensor | None = None
    distortion: Tensor | None = None


def visible_samples(
    field: Field,
    sampler: RaySampler,
    rays: Rays,
    jitter: Tensor | None = None,
    capacity: int = 0,
    min_weight: float | None = None,
) -> RaySamples:
    """The samples of the rays with a weight of at least min_weight; color is computed only for these (Sun et al. 2022,
    section 4.3).

    Most samples lie in empty space or behind a surface. Their weights follow from density alone, which is one channel.
    jitter, capacity: see RaySampler.sample. min_weight: None means that of the sampler's settings.
    """
    min_weight = sampler.config.min_weight if min_weight is None else min_weight
    grid = field.density_grid_view
    if grid is None:
        samples = sampler.sample(rays, jitter)
        return samples.select(sample_weights(field, sampler, samples) >= min_weight, capacity)
    path, march = sampler.march(rays, jitter)
    density, limits = (grid.values, grid.shift, grid.scale), (sampler.config.min_transmittance, min_weight)
    ray_offsets, ray_indices, t_starts, t_ends, midpoints, overflow = sampler.backend.ops.march_visible(
        *march, *density, *limits, capacity, sampler.grid_map.space.contraction, grid.table, **sampler.grid_arguments
    )
    return RaySamples(rays, ray_offsets, ray_indices, t_starts, t_ends, overflow, path, midpoints)


@torch.no_grad()
def sample_weights(field: Field, sampler: RaySampler, samples: RaySamples) -> Tensor:
    """The weights of all samples, [M], from density alone."""
    density = field.density(samples.coords(sampler.grid_map))
    nothing = density.new_empty(len(density), 0)
    intervals = (samples.t_starts, samples.t_ends, samples.ray_offsets)
    return sampler.backend.ops.composite_rays(density, nothing, *intervals, sampler.config.min_transmittance)[3]


def select_visible(field: Field, sampler: RaySampler, samples: RaySamples, capacity: int = 0) -> RaySamples:
    """visible_samples in separate steps, from marched samples, for the ablation. capacity: see RaySamples.select."""
    return samples.select(sample_weights(field, sampler, samples) >= sampler.config.min_weight, capacity)


def render_samples(
    field: Field,
    sampler: RaySampler,
    samples: RaySamples,
    background: Tensor,
    with_normals: bool = False,
    with_distortion: bool = False,
    with_depth: bool = True,
) -> Rendering:
    """Renders packed samples. background: [3] or [P,3]. For the rest see composite_samples and shaded_pixels."""
    seen = composite_samples(field, sampler, samples, with_normals, with_distortion, with_depth)
    return shaded_pixels(field, samples.rays, seen, background)


def composite_samples(
    field: Field,
    sampler: RaySampler,
    samples: RaySamples,
    with_normals: bool = False,
    with_distortion: bool = False,
    with_depth: bool = True,
    beside: Beside = at_once,
) -> Composited:
    """What pixels see, from packed samples. Differentiable in the field's parameters, and in the rays through the
    positions of the samples; not in the normals.

    with_distortion: also the distortion loss of each ray. with_depth: else depth is None. beside: where distortion and
    depth are computed, which shading does not wait for.
    """
    density, values = evaluated_samples(field, sampler, samples)
    channels = values.shape[1]
    if with_normals:
        values = torch.cat([values, falling_density(field, samples)], dim=-1)
        values = functional.pad(values, (0, -values.shape[1] % 4))  # a channel count that has a fast kernel
    intervals = (samples.t_starts, samples.t_ends, samples.ray_offsets)
    values, opacity, depth, weights = sampler.backend.ops.composite_rays(
        density, values, *intervals, sampler.config.min_transmittance, field.full_gradient_from
    )
    seen = Composited(*(samples.rays.pixel_means(x) for x in (values, opacity)), weights=weights)
    with beside(weights, depth, opacity):
        if with_distortion:
            seen = replace(seen, distortion=sampler.backend.ops.distortion_loss(weights, *intervals))
        if with_depth:
            seen = replace(seen, depth=pixel_depths(field, samples, depth, opacity))
    if not with_normals:
        return seen
    slopes = seen.values[:, channels : channels + 3]
    normals = facing_normals(slopes, samples.rays.pixel_directions().detach(), field.box.unit)
    return replace(seen, values=seen.values[:, :channels], normals=normals)


def evaluated_samples(field: Field, sampler: RaySampler, samples: RaySamples) -> tuple[Tensor, Tensor]:
    """Density [M] and values [M,C] of packed samples."""
    directions = samples.rays.directions.detach()
    return field(samples.coords(sampler.grid_map), directions, samples.ray_indices)


def pixel_depths(field: Field, samples: RaySamples, depth: Tensor, opacity: Tensor) -> Tensor:
    """Depth [P] as Rendering has it, from depth in scene space and opacity [R]."""
    return samples.rays.pixel_means(samples.path.world_depth(depth, opacity, field.backend.ops))


def shaded_pixels(
    field: Field, rays: Rays, seen: Composited, background: Tensor, shade: Shade | None = None
) -> Rendering:
    """Pixels from what they see. background: [3] or [P,3]. Not differentiable in the view direction.

    shade: in place of field.shade.
    """
    directions = _pixel_directions(field, rays)
    if shade is None:
        rgb = field.colors(seen.values, seen.opacity, directions, background)
    else:
        light = shade(seen.values, seen.opacity, directions)
        rgb = torch.addcmul(light, 1 - seen.opacity[:, None], background)
    return Rendering(rgb, seen.opacity, seen.depth, seen.normals, seen.weights, seen.distortion)


@torch.no_grad()
def render_rays(field: Field, sampler: RaySampler, rays: Rays, background: Tensor) -> Rendering:
    """Renders rays without gradients and without storing samples, if the field has a deferred_grid."""
    if field.density_grid_view is None or field.deferred_grid is None:
        return render_samples(field, sampler, visible_samples(field, sampler, rays), background)
    values, opacity, depth = composited_grid(field, sampler, rays, field.deferred_grid)
    return Rendering(_colors(field, values, opacity, _pixel_directions(field, rays), background), opacity, depth)


@torch.no_grad()
def composited_grid(
    field: Field, sampler: RaySampler, rays: Rays, values_grid: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What rays composite of a grid beside the density grid of the field, which must have one.

    values_grid: [X,Y,Z,C], or [L,C] if the field's grids are sparse.

    Returns values [P,C], opacity [P] and depth [P] as Rendering has it, means of each pixel's rays.
    """
    if not field.reads_in_place(values_grid):  # what is seen of it is brought from host memory
        samples = visible_samples(field, sampler, rays)
        coords = samples.coords(sampler.grid_map)
        intervals = (samples.t_starts, samples.t_ends, samples.ray_offsets)
        values, opacity, depth, _ = sampler.backend.ops.composite_rays(
            field.density(coords), field.interpolate(values_grid, coords), *intervals, sampler.config.min_transmittance
        )
        depth = samples.path.world_depth(depth, opacity, sampler.backend.ops)
        return tuple(rays.pixel_means(x) for x in (values, opacity, depth))
    grid = field.density_grid_view
    path, march = sampler.march(rays, None)
    limits = sampler.config.min_transmittance, sampler.config.min_weight
    density = grid.values, grid.shift, grid.scale
    values, opacity, depth = sampler.backend.ops.render_rays(
        *march,
        *density,
        *limits,
        values_grid,
        sampler.grid_map.space.contraction,
        rays.per_pixel,
        grid.table,
        **sampler.grid_arguments,
    )
    depth = path.world_depth(depth, opacity, sampler.backend.ops)
    return values, rays.pixel_means(opacity), rays.pixel_means(depth)


def _pixel_directions(field: Field, rays: Rays) -> Tensor:
    """rays.pixel_directions(), without a gradient, in one kernel where the backend has one."""
    directions = rays.directions.detach()
    return directions if rays.per_pixel == 1 else field.backend.ops.pixel_directions(directions, rays.per_pixel)


def _colors(field: Field, values: Tensor, opacity: Tensor, directions: Tensor, background: Tensor) -> Tensor:
    """The colors [P,3] of pixels over the background [3] or [P,3]; many may be empty.

    On a CPU empty pixels are not shaded. On a GPU, finding them would wait for the device; the field's network leaves
    them out itself.
    """
    if values.is_cuda:
        return field.colors(values, opacity, directions, background)
    hit = (opacity > 0).nonzero()[:, 0]
    background = background.expand_as(directions)
    of_hit = (x.index_select(0, hit) for x in (values, opacity, directions, background))
    return background.index_copy(0, hit, field.colors(*of_hit))


def _pixels_per_chunk(field: Field, sampler: RaySampler, with_normals: bool) -> int:
    rays_per_chunk = SAMPLED_RAYS_PER_CHUNK if with_normals or field.deferred_grid is None else RAYS_PER_CHUNK
    return min(rays_per_chunk[sampler.backend.device.type] // sampler.rays_per_pixel, MAX_PIXELS_PER_CHUNK)


def is_one_chunk(field: Field, sampler: RaySampler, cameras: Cameras, index: int) -> bool:
    """Whether render_image renders all of that camera's pixels at once."""
    return math.prod(cameras.size(index)) <= _pixels_per_chunk(field, sampler, with_normals=False)


@torch.no_grad()
def render_image(
    field: Field, sampler: RaySampler, cameras: Cameras, index: int, background: Tensor, with_normals: bool = False
) -> Rendering:
    """Renders one camera's whole image: rgb [H,W,3], opacity [H,W], depth [H,W], on request normals [H,W,3].

    Each pixel is the mean of sampler.rays_per_pixel rays. Rays are processed in chunks, so apart from the finished
    pixels memory does not grow with the image.
    """
    width, height = cameras.size(index)
    pixels, per_pixel, size = height * width, sampler.rays_per_pixel, _pixels_per_chunk(field, sampler, with_normals)
    chunks = []
    for first in range(0, pixels, size):
        rays = cameras.pixel_range_rays(index, first, first + size, per_pixel, sampler.backend.ops)
        if with_normals:
            samples = visible_samples(field, sampler, rays)
            chunks.append(render_samples(field, sampler, samples, background, with_normals))
        else:
            chunks.append(render_rays(field, sampler, rays, background))
    shape = (height, width)
    return Rendering(
        torch.cat([chunk.rgb for chunk in chunks]).view(*shape, 3),
        torch.cat([chunk.opacity for chunk in chunks]).view(shape),
        torch.cat([chunk.depth for chunk in chunks]).view(shape),
        torch.cat([chunk.normals for chunk in chunks]).view(*shape, 3) if with_normals else None,
    )
