"""interpolate_cells: trilinear interpolation within cells of their own."""

import torch
from torch import Tensor

from nerf.ops.registry import derivative, example, fake, numbers

_ops = torch.ops.nerf


def interpolate_cells(feats: Tensor, points: Tensor) -> Tensor:
    """Trilinear interpolation within cells of their own.

    feats [N,8,F]: values at the corners of each point's cell, corner k = 4x + 2y + z. points [N,3]: -1 at the low
    corner, 1 at the high one; the formula goes on outside. Returns [N,F]. Differentiable in feats and points.
    """
    weights = points.new_ones(len(points), 1)
    for axis in range(3):
        fraction = 0.5 + 0.5 * points[:, axis]
        weights = (weights[:, :, None] * torch.stack([1 - fraction, fraction], -1)[:, None]).flatten(1)
    return (feats * weights[..., None]).sum(1)


@fake("interpolate_cells")
def _(feats, points):
    return feats.new_empty(feats.shape[0], feats.shape[2])


@fake("interpolate_cells_backward")
def _(grad_out, feats, points, needs_feats, needs_points):
    return (
        feats.new_empty(feats.shape) if needs_feats else feats.new_empty(0),
        feats.new_empty(points.shape) if needs_points else feats.new_empty(0),
    )


@derivative("interpolate_cells", of=("feats", "points"))
def _(ctx, grad_out):
    feats, points = ctx.saved_tensors
    needs_feats, needs_points = ctx.needs_input_grad
    grad_feats, grad_points = _ops.interpolate_cells_backward(grad_out, feats, points, needs_feats, needs_points)
    return grad_feats if needs_feats else None, grad_points if needs_points else None


@example("interpolate_cells")
def _():
    return numbers(200, 8, 12, low=-1), numbers(200, 3, low=-1, seed=1)
