"""The native operations with interpolate_trilinear unfused, for the ablation: it measures the gain of fusion.

Forward: gather the eight corner rows of each point, then interpolate within its cell. Backward:
interpolate_cells_backward, then index_add into the grid's gradient. This writes and reads [N,8,C] numbers that the
fused operation keeps in registers.
"""

import inspect
from types import ModuleType, SimpleNamespace

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from nerf.benchmarks.torch_variants import Variant, cell_rows


class _GatherRows(torch.autograd.Function):
    """values[rows]: values [V,C], rows [N] -> [N,C]. The backward pass adds to grad [V,C], or allocates it if None."""

    @staticmethod
    def forward(ctx: FunctionCtx, native: ModuleType, values: Tensor, rows: Tensor, grad: Tensor | None) -> Tensor:
        ctx.native, ctx.shape, ctx.grad = native, values.shape, grad
        ctx.save_for_backward(rows)
        return values.index_select(0, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad_out: Tensor) -> tuple[None, Tensor | None, None, None]:
        (rows,) = ctx.saved_tensors
        grad = grad_out.new_zeros(ctx.shape) if ctx.grad is None else ctx.grad
        ctx.native.index_add(grad, 0, rows, grad_out.to(grad.dtype), 1.0)
        return None, grad if ctx.grad is None else None, None, None


def unfused(native: ModuleType) -> Variant:
    """The unfused variant. native: the module nerf.ops.native, an argument because importing it loads the library."""

    def interpolate_trilinear(grid: Tensor, coords: Tensor, grad: Tensor | None = None) -> Tensor:
        """See reference.interpolate_trilinear."""
        rows, fractions = cell_rows(grid, coords)
        into = None if grad is None else grad.view(-1, grid.shape[3])
        feats = _GatherRows.apply(native, grid.reshape(-1, grid.shape[3]), rows.view(-1), into)
        return native.interpolate_cells(feats.view(-1, 8, grid.shape[3]), 2 * torch.stack(fractions, -1) - 1)

    functions = {n: f for n, f in vars(native).items() if inspect.isfunction(f) and not n.startswith("_")}
    return Variant(
        "gather + interpolate_cells + index_add",
        SimpleNamespace(**functions | {"interpolate_trilinear": interpolate_trilinear}),
    )
