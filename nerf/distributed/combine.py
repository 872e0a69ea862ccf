"""What the parts of a ray composite, put together front to back (NeRF-XL, Li et al. 2024, section 3.3).

A segment is a stretch of a ray inside one part. With transmittance T_k in front of segment k, the sums over the whole
ray are those of the segments, each as if light came to it undimmed:

    T_k = prod_{i<k} (1 - opacity_i)     values = sum T_k values_k     opacity = sum T_k opacity_k     depth likewise
    distortion = sum_k T_k^2 distortion_k + 2 sum_{i<k} (W_i M_k - W_k M_i),  W = T opacity, M = T depth

The last line: the distortion loss is a sum over pairs of samples of weight_i weight_j |m_i - m_j|, and between two
segments the order of the midpoints m is known, so that the absolute value falls away.

Legend: N ranks, R rays, S segments of a ray in one part, K = N * S segments of a ray, C channels.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nerf.distributed.world import World

ALWAYS = 2  # numbers of a segment beside its values: opacity and depth


@dataclass(frozen=True)
class Order:
    """The segments of each ray from front to back."""

    order: Tensor  # [R,K] int64, into the segments of all ranks: rank * S + segment
    transmittance: Tensor  # [R,S] in front of this rank's segments


def front_to_back(world: World, through: Tensor, first: Tensor) -> Order:
    """The order of all ranks' segments, and the transmittance in front of one's own.

    through [R,S]: the transmittance of a segment, by all its samples, visible or not. first [R,S]: t of its first
    sample, infinite for a segment without any. Both of this rank; two numbers of each segment are exchanged.
    """
    found = world.all_gather(torch.stack([through, first]), "transmittance")  # [N,2,R,S]
    segments, firsts = (x.transpose(0, 1).flatten(1) for x in found.unbind(1))  # [R,K]
    order = firsts.argsort(dim=1, stable=True)
    light, lights = torch.ones_like(segments[:, 0]), []
    for segment in segments.gather(1, order).unbind(1):  # a scan by cumprod promises no order on a GPU
        lights.append(light)
        light = light * segment
    before = torch.empty_like(segments).scatter_(1, order, torch.stack(lights, dim=1))
    count = through.shape[1]
    return Order(order, before[:, world.rank * count : (world.rank + 1) * count])


def exchange(world: World, own: Tensor) -> Tensor:
    """own [R,S,D] of every rank, [R,K,D]; differentiable in one's own.

    Every rank computes the same loss from the result, each a share of 1 / N of it. So the gradient of one's own numbers
    is N times what comes back here, and nothing is sent in the backward pass.
    """
    return _Exchange.apply(own, world)


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, world: World) -> Tensor:
        ctx.world, ctx.segments = world, own.shape[1]
        return world.all_gather(own.detach(), "composited").transpose(0, 1).flatten(1, 2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        first = ctx.world.rank * ctx.segments
        return ctx.world.size * grad[:, first : first + ctx.segments], None


def combine(segments: Tensor, order: Tensor, channels: int) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Values [R,C], opacity [R], depth [R] and distortion [R] of rays, from those of their segments.

    segments [R,K,D]: values, opacity, depth and, where D has room for it, distortion (None if not). order [R,K]: from
    front to back. Differentiable in the segments.
    """
    rays, count, width = segments.shape
    rows = segments.gather(1, order[..., None].expand(rays, count, width))
    with_distortion = width > channels + ALWAYS
    light = rows.new_ones(rays)
    sums = rows.new_zeros(rays, channels + ALWAYS)
    spread = rows.new_zeros(rays) if with_distortion else None
    for k in range(count):
        row = rows[:, k]
        own = light[:, None] * row[:, : channels + ALWAYS]
        if spread is not None:
            between = sums[:, channels] * own[:, channels + 1] - own[:, channels] * sums[:, channels + 1]
            spread = spread + light.square() * row[:, -1] + 2 * between
        sums = sums + own
        light = light * (1 - row[:, channels])
    return sums[:, :channels], sums[:, channels], sums[:, channels + 1], spread
