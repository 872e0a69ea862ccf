"""interpolate_trilinear: a grid at points, and interpolate_trilinear_grad, its adjoint added to a gradient."""

import torch
from torch import Tensor

from nerf.ops.registry import call, derivative, example, fake, numbers
from nerf.ops.vertex_rows import rows_at

_ops = torch.ops.nerf


def interpolate_trilinear(
    grid: Tensor,
    coords: Tensor,
    grad: Tensor | None = None,
    deterministic: bool = False,
    table: Tensor | None = None,
    size_z: int = 0,
) -> Tensor:
    """Trilinear interpolation of a grid at points.

    grid [X,Y,Z,C]: values at the vertices. coords [N,3]: grid units, vertex (x, y, z) at (x, y, z); outside, the
    nearest point of the surface counts. Returns [N,C] of coords' dtype, which is grid's; of a float16 grid float32, or
    bfloat16 where grad is given. Differentiable in grid and coords.

    grad: grid.grad where there is one. The native backward pass adds to it in place, which saves a gradient of the
    whole grid, and hands autograd no gradient of the grid; in PyTorch autograd does the adding. A float16 grid has no
    other gradient: it is bfloat16, as is then what is interpolated (interpolate_trilinear_grad).

    deterministic: the native backward pass adds to the grid in one order, so that a GPU gives the same bits every
    time. On a CPU it always does.

    table [X,Y,ceil(Z/32)] int64, size_z Z: the grid is sparse, [L,C] (nerf/ops/vertex_rows.py). A vertex without a row
    counts as 0, and its gradient is dropped.
    """
    sizes = grid.shape[:3] if table is None else (*table.shape[:2], size_z)
    rows = grid.flatten(0, 2) if table is None else torch.nn.functional.pad(grid, (0, 0, 0, 1))
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
        if table is None:
            term = w[:, None] * rows.index_select(0, (x * sizes[1] + y) * sizes[2] + z)
        else:
            row = rows_at(table.flatten(0, 1), len(grid), x * sizes[1] + y, z)
            there = row >= 0  # row L is the zero behind the last one
            term = (w[:, None] * rows.index_select(0, torch.where(there, row, len(grid)))).where(there[:, None], 0)
        out = term if out is None else out + term
    return out.bfloat16() if _is_short(grid, grad) else out


def interpolate_trilinear_grad(
    grad: Tensor,
    grad_out: Tensor,
    coords: Tensor,
    deterministic: bool = False,
    table: Tensor | None = None,
    size_z: int = 0,
) -> None:
    """Adds to grad [X,Y,Z,C], in place, what grad_out [N,C] at coords [N,3] means for the grid.

    grad and grad_out may be bfloat16 where coords are float32: sums are rounded as they are added to grad.
    deterministic: in one order, without atomic additions (docs/kernels/scatter.md); on CUDA for dense float32 and
    float64 grids alone.
    table, size_z: of a sparse grid, see interpolate_trilinear; grad is [L,C].
    """
    with torch.enable_grad():
        # The result is linear in the grid, so any grid will do.
        leaf = torch.zeros_like(grad, dtype=coords.dtype, requires_grad=True)
        (slope,) = torch.autograd.grad(
            interpolate_trilinear(leaf, coords.detach(), table=table, size_z=size_z), leaf, grad_out.to(coords.dtype)
        )
    grad += slope


def _is_short(grid: Tensor, grad: Tensor | None) -> bool:
    """Whether what is interpolated is bfloat16."""
    return grid.dtype == torch.float16 and grad is not None


@call("interpolate_trilinear")
def _(
    grid: Tensor,
    coords: Tensor,
    grad: Tensor | None = None,
    deterministic: bool = False,
    table: Tensor | None = None,
    size_z: int = 0,
) -> Tensor:
    if (grad is None and not deterministic) or not torch.is_grad_enabled():
        return _ops.interpolate_trilinear(grid, coords, table, size_z, _is_short(grid, grad))
    return _InterpolateInto.apply(grid, coords, grad, deterministic, table, size_z)


@call("interpolate_trilinear_grad")
def _add_gradient(
    grad: Tensor,
    grad_out: Tensor,
    coords: Tensor,
    deterministic: bool = False,
    table: Tensor | None = None,
    size_z: int = 0,
) -> None:
    _ops.interpolate_trilinear_grad(grad, grad_out, coords, deterministic, table, size_z)
    torch.autograd.graph.increment_version(grad)


class _InterpolateInto(torch.autograd.Function):
    """Interpolation whose backward pass adds to a gradient that is there, or to a new one where none is.

    coords get theirs through autograd.
    """

    @staticmethod
    def forward(ctx, grid, coords, grad, deterministic, table, size_z):
        ctx.save_for_backward(grid, coords)
        ctx.grad, ctx.deterministic, ctx.table = grad, deterministic, (table, size_z)
        return _ops.interpolate_trilinear(grid, coords, table, size_z, _is_short(grid, grad))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_out):
        grid, coords = ctx.saved_tensors
        grad_grid = grad_coords = None
        if ctx.needs_input_grad[0]:
            if ctx.grad is None:
                grad_grid = torch.zeros_like(grid, memory_format=torch.contiguous_format)
            into = grad_grid if ctx.grad is None else ctx.grad
            _add_gradient(into, grad_out, coords, ctx.deterministic, *ctx.table)
        if ctx.needs_input_grad[1]:
            grad_coords = _ops.interpolate_trilinear_backward(grad_out, grid, coords, False, True, *ctx.table)[1]
        return grad_grid, grad_coords, None, None, None, None


@fake("interpolate_trilinear")
def _(grid, coords, table=None, size_z=0, to_bfloat16=False):
    dtype = torch.bfloat16 if to_bfloat16 else coords.dtype
    return coords.new_empty(coords.shape[0], grid.shape[-1], dtype=dtype)


@fake("interpolate_trilinear_backward")
def _(grad_out, grid, coords, needs_grid, needs_coords, table=None, size_z=0):
    return (
        grid.new_empty(grid.shape) if needs_grid else grid.new_empty(0),
        coords.new_empty(coords.shape) if needs_coords else grid.new_empty(0),
    )


@fake("interpolate_trilinear_grad")
def _(grad, grad_out, coords, deterministic=False, table=None, size_z=0):
    return None


def _save(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.table = inputs[2:4]


@derivative("interpolate_trilinear", of=("grid", "coords"), save=_save)
def _(ctx, grad_out):
    grid, coords = ctx.saved_tensors
    needs_grid, needs_coords = ctx.needs_input_grad[:2]
    grads = _ops.interpolate_trilinear_backward(grad_out, grid, coords, needs_grid, needs_coords, *ctx.table)
    return grads[0] if needs_grid else None, grads[1] if needs_coords else None, None, None, None


@example("interpolate_trilinear")
def _example():
    return numbers(5, 4, 6, 12, low=-1), numbers(200, 3, low=-1, high=6, seed=1)


@example("interpolate_trilinear_grad")
def _():
    grid, coords = _example()
    return grid, numbers(len(coords), grid.shape[3], low=-1, seed=2), coords
