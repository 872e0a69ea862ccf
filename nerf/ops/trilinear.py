"""interpolate_trilinear: a grid at points, and interpolate_trilinear_grad, its adjoint added to a gradient."""

import torch
from torch import Tensor

from nerf.ops.registry import call, derivative, example, fake, numbers

_ops = torch.ops.nerf


def interpolate_trilinear(
    grid: Tensor, coords: Tensor, grad: Tensor | None = None, deterministic: bool = False
) -> Tensor:
    """Trilinear interpolation of a grid at points.

    grid [X,Y,Z,C]: values at the vertices. coords [N,3]: grid units, vertex (x, y, z) at (x, y, z); outside, the
    nearest point of the surface counts. Returns [N,C]. Differentiable in grid and coords.

    grad: grid.grad where there is one. The native backward pass adds to it in place, which saves a gradient of the
    whole grid, and hands autograd no gradient of the grid; in PyTorch autograd does the adding.

    deterministic: the native backward pass adds to the grid in one order, so that a GPU gives the same bits every
    time. On a CPU it always does.
    """
    sizes = grid.shape[:3]
    rows = grid.flatten(0, 2)
    low, high, weight = [], [], []
    for axis, size in enumerate(sizes):
        x = coords[:, axis].clamp(0, size - 1)
        base = x.detach().floor().clamp(0, max(size - 2, 0))
        low.append(base.long())
        high.append((base.long() + 1).clamp(max=size - 1))
        weight.append((1 - (x - base), x - base))
    out = None
    for corner in range(8):
        bits = (corner >> 2 & 1, corner >> 1 & 1, corner & 1)
        x, y, z = (high[axis] if bit else low[axis] for axis, bit in enumerate(bits))
        w = weight[0][bits[0]] * weight[1][bits[1]] * weight[2][bits[2]]
        term = w[:, None] * rows.index_select(0, (x * sizes[1] + y) * sizes[2] + z)
        out = term if out is None else out + term
    return out


def interpolate_trilinear_grad(grad: Tensor, grad_out: Tensor, coords: Tensor, deterministic: bool = False) -> None:
    """Adds to grad [X,Y,Z,C], in place, what grad_out [N,C] at coords [N,3] means for the grid.

    deterministic: in one order, without atomic additions (docs/kernels/scatter.md).
    """
    with torch.enable_grad():
        leaf = torch.zeros_like(grad, requires_grad=True)  # the result is linear in the grid, so any grid will do
        (slope,) = torch.autograd.grad(interpolate_trilinear(leaf, coords.detach()), leaf, grad_out)
    grad += slope


@call("interpolate_trilinear")
def _(grid: Tensor, coords: Tensor, grad: Tensor | None = None, deterministic: bool = False) -> Tensor:
    if (grad is None and not deterministic) or not torch.is_grad_enabled():
        return _ops.interpolate_trilinear(grid, coords)
    return _InterpolateInto.apply(grid, coords, grad, deterministic)


@call("interpolate_trilinear_grad")
def _add_gradient(grad: Tensor, grad_out: Tensor, coords: Tensor, deterministic: bool = False) -> None:
    _ops.interpolate_trilinear_grad(grad, grad_out, coords, deterministic)
    torch.autograd.graph.increment_version(grad)


class _InterpolateInto(torch.autograd.Function):
    """Interpolation whose backward pass adds to a gradient that is there, or to a new one where none is.

    coords get theirs through autograd.
    """

    @staticmethod
    def forward(ctx, grid, coords, grad, deterministic):
        ctx.save_for_backward(grid, coords)
        ctx.grad, ctx.deterministic = grad, deterministic
        return _ops.interpolate_trilinear(grid, coords)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_out):
        grid, coords = ctx.saved_tensors
        grad_grid = grad_coords = None
        if ctx.needs_input_grad[0]:
            if ctx.grad is None:
                grad_grid = torch.zeros_like(grid)
            _add_gradient(grad_grid if ctx.grad is None else ctx.grad, grad_out, coords, ctx.deterministic)
        if ctx.needs_input_grad[1]:
            grad_coords = _ops.interpolate_trilinear_backward(grad_out, grid, coords, False, True)[1]
        return grad_grid, grad_coords, None, None


@fake("interpolate_trilinear")
def _(grid, coords):
    return grid.new_empty(coords.shape[0], grid.shape[3])


@fake("interpolate_trilinear_backward")
def _(grad_out, grid, coords, needs_grid, needs_coords):
    return (
        grid.new_empty(grid.shape) if needs_grid else grid.new_empty(0),
        grid.new_empty(coords.shape) if needs_coords else grid.new_empty(0),
    )


@fake("interpolate_trilinear_grad")
def _(grad, grad_out, coords, deterministic=False):
    return None


@derivative("interpolate_trilinear", of=("grid", "coords"))
def _(ctx, grad_out):
    grid, coords = ctx.saved_tensors
    needs_grid, needs_coords = ctx.needs_input_grad
    grad_grid, grad_coords = _ops.interpolate_trilinear_backward(grad_out, grid, coords, needs_grid, needs_coords)
    return grad_grid if needs_grid else None, grad_coords if needs_coords else None


@example("interpolate_trilinear")
def _example():
    return numbers(5, 4, 6, 12, low=-1), numbers(200, 3, low=-1, high=6, seed=1)


@example("interpolate_trilinear_grad")
def _():
    grid, coords = _example()
    return grid, numbers(len(coords), grid.shape[3], low=-1, seed=2), coords
