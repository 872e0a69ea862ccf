"""world_depth: where rays that bend are at their mean contracted distance."""

import torch
from torch import Tensor
from torch.nn import functional

from nerf.ops.contraction import contracted_to_distance, leave_box
from nerf.ops.registry import derivative, example, fake, numbers

_ops = torch.ops.nerf

# Below this opacity, as math/world_depth.h has it, a pixel is empty; dividing by it would only amplify rounding errors.
MIN_OPACITY = 1e-6


def world_depth(
    depth: Tensor,
    opacity: Tensor,
    origins: Tensor,
    directions: Tensor,
    center: Tensor,
    half: Tensor,
    contraction: float,
) -> Tensor:
    """Composited contracted distance to composited world distance, in a world without end (nerf/ops/contraction.py).

    depth [R]: the mean contracted distance of each ray times its opacity [R], as composite_rays has it. origins,
    directions [R,3] world, unit. center, half [3] world: of the inner box. contraction: thickness of the shell around
    it in halves of the box.

    Returns [R]: the world distance at the mean, times the opacity. The mean is taken in contracted space, where near
    and far count alike and infinity is a number. Differentiable in depth and opacity.
    """
    origins, directions = ((origins - center) / half).detach(), (directions / half).detach()
    leave, limit = leave_box(origins, directions, half.new_full((), contraction))
    return contracted_to_distance(depth / opacity.clamp(min=MIN_OPACITY), leave, limit) * opacity


@fake("world_depth")
def _(depth, opacity, origins, directions, center, half, contraction):
    return depth.new_empty(depth.shape)


@fake("world_depth_backward")
def _(grad_out, depth, opacity, origins, directions, center, half, contraction):
    return depth.new_empty(depth.shape), depth.new_empty(depth.shape)


def _save(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:-1])
    ctx.contraction = inputs[-1]


@derivative("world_depth", of=("depth", "opacity"), save=_save)
def _(ctx, grad_out):
    grads = _ops.world_depth_backward(grad_out, *ctx.saved_tensors, ctx.contraction)
    return *grads, None, None, None, None, None


@example("world_depth")
def _():
    opacity, directions = numbers(60, low=0.1), functional.normalize(numbers(60, 3, low=-1, seed=1), dim=-1)
    origins = numbers(60, 3, low=-0.5, high=0.5, seed=2)
    return 3 * opacity * numbers(60, seed=3), opacity, origins, directions, torch.zeros(3), torch.ones(3), 1.0
