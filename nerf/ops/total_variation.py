"""total_variation_grad: adds the gradient of the total variation of a grid to one that is there."""

import torch
from torch import Tensor

from nerf.ops.registry import call, example, fake, numbers

_ops = torch.ops.nerf


def total_variation(grid: Tensor) -> Tensor:
    """Total variation of a grid [X,Y,Z,C]: the sum of the Huber function (delta = 1) of all neighbour differences."""
    edges = [grid.diff(dim=axis) for axis in range(3)]
    return sum(torch.nn.functional.huber_loss(d, torch.zeros_like(d), reduction="sum") for d in edges)


def total_variation_grad(
    grad: Tensor, grid: Tensor, weight: float, touched_only: bool, rows: Tensor | None = None
) -> None:
    """Adds weight * d total_variation(grid) / d grid to grad [X,Y,Z,C], in place.

    touched_only leaves values alone whose gradient is zero: regions that no ray of the batch met. rows [L] int64:
    vertices to visit, each once, counted (x * Y + y) * Z + z; all others stay as they are. None: all. One that
    does not exist raises ValueError on the CPU and is passed over on CUDA.
    """
    with torch.enable_grad():
        leaf = grid.detach().requires_grad_()
        (slope,) = torch.autograd.grad(total_variation(leaf), leaf)
    if touched_only:
        slope = slope.masked_fill(grad == 0, 0)
    if rows is not None:
        others = torch.ones(grid.shape[:3].numel(), dtype=torch.bool, device=rows.device).index_fill_(0, rows, False)
        slope = slope.masked_fill(others.view(*grid.shape[:3], 1), 0)
    grad.add_(slope, alpha=weight)


@call("total_variation_grad")
def _(grad: Tensor, grid: Tensor, weight: float, touched_only: bool, rows: Tensor | None = None) -> None:
    _ops.total_variation_grad(grad, grid.detach(), weight, touched_only, rows)
    torch.autograd.graph.increment_version(grad)


@fake("total_variation_grad")
def _(grad, grid, weight, touched_only, rows=None):
    return None


@example("total_variation_grad")
def _():
    grad = numbers(5, 4, 6, 3, low=-1) * (numbers(5, 4, 6, 3, seed=1) < 0.5)
    return grad, numbers(5, 4, 6, 3, low=-2, high=2, seed=2), 0.3, True, torch.arange(0, 120, 2)
