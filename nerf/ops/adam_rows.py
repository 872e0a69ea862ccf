"""adam_rows: one step of Adam at rows of a grid that is elsewhere, as in host memory, from copies of their values."""

import torch
from torch import Tensor

from nerf.ops.adam import adam_step
from nerf.ops.registry import call, example, fake, numbers
from nerf.ops.rounding import hashed, narrow_at_random, random_bits

_ops = torch.ops.nerf


def adam_rows(
    param: Tensor,
    moments: Tensor,
    values: Tensor,
    grad: Tensor,
    stored: Tensor,
    rows: Tensor,
    places: Tensor,
    lr: Tensor,
    step: Tensor,
    beta1: float,
    beta2: float,
    eps: float,
) -> None:
    """One step of Adam as adam_step takes it, in place in param [L,C] and moments [2,A,C], exp_avg before exp_avg_sq.

    values, grad [K,C]: copies of some rows of param, which change with them, and their gradient. stored [K] int64:
    which rows of param these are. rows [T] int64: which of the K to visit, each once; places [T] int64: their rows in
    the moments. What one of the lists has no row for, as where it says -1, is passed over.
    lr, step and what is left alone: as of adam_step.

    param may be float16; then the moments are bfloat16, values and grad float32, and what is written is rounded at
    random, by step, row of param and column (nerf/ops/rounding.py). A value beyond 65504 becomes infinite.
    """
    visited = (rows >= 0) & (rows < len(values)) & (places >= 0) & (places < moments.shape[1])
    rows, places = rows[visited], places[visited]
    to = stored.index_select(0, rows)
    visited = (to >= 0) & (to < len(param))
    rows, places, to = rows[visited], places[visited], to[visited]
    value, gradient = values.index_select(0, rows), grad.index_select(0, rows)
    first, second = (x.to(value.dtype, copy=True) for x in moments.index_select(1, places).unbind(0))
    adam_step(value, first, second, gradient, lr, step, None, beta1, beta2, eps)
    random = random_bits(step, to, param.shape[1])
    rounded = narrow_at_random(value, param.dtype, hashed(random))
    param.index_copy_(0, to, rounded)
    values.index_copy_(0, rows, rounded.to(values.dtype))
    first = narrow_at_random(first, moments.dtype, random)
    second = narrow_at_random(second, moments.dtype, random >> 16)
    moments.index_copy_(1, places, torch.stack([first, second]))


@call("adam_rows")
def _(
    param: Tensor,
    moments: Tensor,
    values: Tensor,
    grad: Tensor,
    stored: Tensor,
    rows: Tensor,
    places: Tensor,
    lr: Tensor,
    step: Tensor,
    beta1: float,
    beta2: float,
    eps: float,
) -> None:
    _ops.adam_rows(param, moments, values, grad, stored, rows, places, lr, step, beta1, beta2, eps)
    torch.autograd.graph.increment_version([param, moments, values])


@fake("adam_rows")
def _(param, moments, values, grad, stored, rows, places, lr, step, beta1, beta2, eps):
    return None


@example("adam_rows")
def _():
    param, stored = numbers(40, 8, seed=4), torch.arange(0, 40, 2)
    moments = numbers(2, 30, 8, low=0.001, high=0.1, seed=2)
    grad = numbers(20, 8, low=-1) * (numbers(20, 8, seed=1) < 0.5)
    rows, places = torch.tensor([2, 4, 5, 13, 19, -1]), torch.tensor([1, -1, 7, 20, 29, 3])
    rates = torch.full((1,), 0.1), torch.full((1,), 3.0)
    return param, moments, param[stored], grad, stored, rows, places, *rates, 0.9, 0.99, 1e-8
