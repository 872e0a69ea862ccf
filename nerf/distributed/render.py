"""Training pixels from the samples of all ranks.

Every rank composites its own samples and exchanges what that gives. On CPUs, where a small MLP takes as long as the
grids, each shades its share of the pixels, which costs an exchange of colors and one of gradients. A GPU shades all
pixels in the time of these two.

Legend: R rays, P pixels, S segments of a ray in one part, M samples.
"""

import functools
from typing import Any

import torch
from torch import Tensor

from nerf.distributed.combine import combine, exchange
from nerf.distributed.segments import PartSamples
from nerf.distributed.world import World
from nerf.fields.field import Field
from nerf.rendering.render import Composited, Shade, evaluated_samples, pixel_depths
from nerf.rendering.sampler import RaySampler


def composite_parts(
    world: World, field: Field, sampler: RaySampler, part: PartSamples, with_distortion: bool, with_depth: bool
) -> Composited:
    """What the pixels of a batch see, the same on every rank, as rendering.composite_samples has it.

    with_distortion: also the distortion loss of each ray, which no rank could compute alone. with_depth: else depth is
    None. Differentiable like composite_samples, for a loss that every rank computes from the result and takes 1 / N of
    (combine.exchange). There are no weights of samples, because most are on other ranks.
    """
    samples = part.samples
    density, values = evaluated_samples(field, sampler, samples)
    channels, ops = values.shape[1], sampler.backend.ops
    intervals = (samples.t_starts, samples.t_ends, part.offsets)
    values, opacity, depth, weights = ops.composite_rays(density, values, *intervals, 0.0, field.full_gradient_from)
    columns = [values, opacity[:, None], depth[:, None]]
    if with_distortion:
        columns.append(ops.distortion_loss(weights, *intervals)[:, None])
    own = torch.cat(columns, dim=1).unflatten(0, (-1, part.segments))
    values, opacity, depth, distortion = combine(exchange(world, own), part.order.order, channels)
    seen = (samples.rays.pixel_means(x) for x in (values, opacity))
    return Composited(
        *seen, pixel_depths(field, samples, depth, opacity) if with_depth else None, distortion=distortion
    )


def shade_of(world: World, field: Field) -> Shade | None:
    """How ranks shade pixels that all of them have; None: each shades all."""
    if field.shading != "alone" or field.backend.device.type == "cuda":
        return None
    return functools.partial(shaded_in_shares, world, field)


def shaded_in_shares(world: World, field: Field, values: Tensor, opacity: Tensor, directions: Tensor) -> Tensor:
    """The light [P,3] of field.shade, of which each rank computes the N-th part of the pixels."""
    count = len(values)
    size = -(-count // world.size)
    first = min(world.rank * size, count)
    last = min(first + size, count)
    own = _Share.apply(torch.cat([values, opacity[:, None]], dim=1), world, first, last, size)
    light = field.shade(own[:, :-1], own[:, -1], directions[first:last])
    light = torch.nn.functional.pad(light, (0, 0, 0, size - len(light)))
    return exchange(world, light[:, None]).transpose(0, 1).flatten(0, 1)[:count]


class _Share(torch.autograd.Function):
    """Rows of x [P,C], which every rank has; the gradient of each share comes from the rank that took it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, world: World, first: int, last: int, size: int) -> Tensor:
        ctx.world, ctx.count, ctx.size = world, len(x), size
        return x[first:last].clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        padded = torch.nn.functional.pad(grad, (0, 0, 0, ctx.size - len(grad)))
        whole = ctx.world.all_gather(padded, "gradients of pixels").flatten(0, 1)[: ctx.count]
        return whole / ctx.world.size, None, None, None, None
