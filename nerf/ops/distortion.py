"""distortion_loss: how far the weights of each ray are spread."""

import torch
from torch import Tensor

from nerf.ops.composite import composite_example
from nerf.ops.registry import derivative, example, fake, numbers

_ops = torch.ops.nerf


def distortion_loss(weights: Tensor, t_starts: Tensor, t_ends: Tensor, ray_offsets: Tensor) -> Tensor:
    """How far the weights of each ray are spread (Barron et al. 2022, eq. 15), in O(N) (Sun et al. 2022b).

    Sum over pairs of samples of weight_i * weight_j * |midpoint_i - midpoint_j|, plus a third of the sum of
    weight_i^2 * length_i. Zero is one infinitely thin surface. The loss is linear in t: with t in world units it is a
    length; dividing it by a length of the scene gives the paper's loss on normalized distances.

    weights [M]. t_starts, t_ends [M]: any unit of length, midpoints rising along each ray. ray_offsets [R+1] int64:
    as composite_rays has them, and answers wrong ones.
    Returns [R] in the unit of t, 0 for rays without samples. Differentiable in weights.
    """
    num_rays = len(ray_offsets) - 1
    counts = ray_offsets.diff()
    ray = torch.repeat_interleave(torch.arange(num_rays, device=weights.device), counts)
    slot = torch.arange(len(ray), device=weights.device) - ray_offsets[ray]
    weight, starts, ends = (x[: len(ray)] for x in (weights, t_starts, t_ends))
    gap = 0.5 * ((starts - starts.roll(1)) + (ends - ends.roll(1)))  # between this midpoint and the one before
    gap = torch.where(slot > 0, gap, 0)
    longest = int(counts.max().item()) if num_rays else 0

    def rows(x: Tensor) -> Tensor:
        return x.new_zeros(num_rays, longest).index_put((ray, slot), x)

    row = rows(weight)
    passed = torch.nn.functional.pad(row.cumsum(1)[:, :-1], (1, 0)) if longest else row
    reach = (passed * rows(gap)).cumsum(1)  # of sample i: sum over j < i of weight_j * (midpoint_i - midpoint_j)
    return 2 * (row * reach).sum(1) + (row.square() * rows(ends - starts)).sum(1) / 3


@fake("distortion_loss")
def _(weights, t_starts, t_ends, ray_offsets):
    return weights.new_empty(ray_offsets.shape[0] - 1)


@fake("distortion_loss_backward")
def _(grad_loss, weights, t_starts, t_ends, ray_offsets):
    return weights.new_empty(weights.shape)


@derivative("distortion_loss", of=("weights",))
def _(ctx, grad_loss):
    return _ops.distortion_loss_backward(grad_loss, *ctx.saved_tensors), None, None, None


@example("distortion_loss")
def _():
    _, _, starts, ends, offsets, _ = composite_example()
    return numbers(110), starts, ends, offsets
