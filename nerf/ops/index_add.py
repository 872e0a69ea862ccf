"""index_add: rows of one tensor added to chosen rows of another, in place."""

import torch
from torch import Tensor

from nerf.ops.registry import call, example, fake, numbers

_ops = torch.ops.nerf


def index_add(
    dst: Tensor, dim: int, index: Tensor, src: Tensor, alpha: float = 1.0, deterministic: bool = False
) -> None:
    """Adds rows of src to rows of dst, in place: dst[..., index[i], ...] += alpha * src[..., i, ...] along dim.

    dst and src: one shape but for dim, any strides, float32, float64 or bfloat16; no memory in common, and no
    element of dst twice in memory. index [I]: int64 or int32, from 0 to the rows of dst - 1; I rows in src.
    Not recorded for differentiation; the gradient of src is alpha * grad.index_select(dim, index).
    A row whose index is outside of dst raises ValueError on the CPU and is left out on CUDA.
    deterministic: one order of additions on CUDA too, at the cost of a walk of the whole index for each row of dst;
    for few rows of dst. On a CPU there always is one.
    """
    with torch.no_grad():
        dst.index_add_(dim, index, src, alpha=alpha)


@call("index_add")
def _(dst: Tensor, dim: int, index: Tensor, src: Tensor, alpha: float = 1.0, deterministic: bool = False) -> None:
    _ops.index_add(dst, dim, index, src.detach(), alpha, deterministic)
    torch.autograd.graph.increment_version(dst)


@fake("index_add")
def _(dst, dim, index, src, alpha, deterministic=False):
    return None


@example("index_add")
def _():
    return numbers(7, 5, low=-1), 0, (7 * numbers(100, seed=1)).long(), numbers(100, 5, low=-1, seed=2), 0.5
