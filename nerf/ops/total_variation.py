"""total_variation_grad: adds the gradient of the total variation of a grid to one that is there."""

import torch
from torch import Tensor

from nerf.ops.registry import call, example, fake, numbers
from nerf.ops.vertex_rows import VertexRows, listed_vertices

_ops = torch.ops.nerf


def total_variation(grid: Tensor, there: Tensor | None = None) -> Tensor:
    """Total variation of a grid [X,Y,Z,C]: the sum of the Huber function (delta = 1) of all neighbor differences.

    there [X,Y,Z,1] bool: count only neighbors that both are there.
    """
    edges = [grid.diff(dim=axis) for axis in range(3)]
    if there is not None:
        both = [there.narrow(a, 1, n - 1) & there.narrow(a, 0, n - 1) for a, n in enumerate(there.shape[:3])]
        edges = [edge.where(pair, 0) for edge, pair in zip(edges, both, strict=True)]
    return sum(torch.nn.functional.huber_loss(d, torch.zeros_like(d), reduction="sum") for d in edges)


def total_variation_grad(
    grad: Tensor,
    grid: Tensor,
    weight: float,
    touched_only: bool,
    rows: Tensor | None = None,
    table: Tensor | None = None,
    size_z: int = 0,
) -> None:
    """Adds weight * d total_variation(grid) / d grid to grad [X,Y,Z,C], in place.

    Of a float16 grid grad is bfloat16, and sums are rounded.

    touched_only leaves values alone whose gradient is zero: regions that no ray of the batch met. rows [L] int64:
    vertices to visit, each once, counted (x * Y + y) * Z + z; all others stay as they are. None: all. One that
    does not exist raises ValueError on the CPU and is passed over on CUDA.

    table, size_z: of a sparse grid, see interpolate_trilinear; grad and grid are [L,C] and rows must be given. Only
    neighbors that both have a row count, and a vertex without one is passed over, as is -1, which stands for none.
    """
    grid = grid.detach().float() if grid.dtype == torch.float16 else grid.detach()
    if table is not None:
        size = (*table.shape[:2], size_z)
        found = VertexRows(size, listed_vertices(table, size_z)[: len(grid)], table)
        values = grid[: len(found.vertices)]  # there may be more than the table has vertices
        there = found.expanded(values.new_ones(len(values), 1)) > 0
        with torch.enable_grad():
            leaf = found.expanded(values).requires_grad_()
            (slope,) = torch.autograd.grad(total_variation(leaf, there), leaf)
        rows = rows[rows >= 0]
        visited = rows[found.rows(rows) >= 0]
        row = found.rows(visited)
        slope = slope.flatten(0, 2)[visited]
        if touched_only:
            slope = slope.masked_fill(grad[row] == 0, 0)
        grad.index_copy_(0, row, torch.add(grad[row].to(slope.dtype), slope, alpha=weight).to(grad.dtype))
        return
    with torch.enable_grad():
        leaf = grid.requires_grad_()
        (slope,) = torch.autograd.grad(total_variation(leaf), leaf)
    if touched_only:
        slope = slope.masked_fill(grad == 0, 0)
    if rows is not None:
        others = torch.ones(grid.shape[:3].numel(), dtype=torch.bool, device=rows.device).index_fill_(0, rows, False)
        slope = slope.masked_fill(others.view(*grid.shape[:3], 1), 0)
    grad.add_(slope, alpha=weight)


@call("total_variation_grad")
def _(
    grad: Tensor,
    grid: Tensor,
    weight: float,
    touched_only: bool,
    rows: Tensor | None = None,
    table: Tensor | None = None,
    size_z: int = 0,
) -> None:
    _ops.total_variation_grad(grad, grid.detach(), weight, touched_only, rows, table, size_z)
    torch.autograd.graph.increment_version(grad)


@fake("total_variation_grad")
def _(grad, grid, weight, touched_only, rows=None, table=None, size_z=0):
    return None


@example("total_variation_grad")
def _():
    grad = numbers(5, 4, 6, 3, low=-1) * (numbers(5, 4, 6, 3, seed=1) < 0.5)
    return grad, numbers(5, 4, 6, 3, low=-2, high=2, seed=2), 0.3, True, torch.arange(0, 120, 2)
