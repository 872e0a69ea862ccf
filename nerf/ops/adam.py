"""adam_step: one step of Adam at the values that have a gradient, total variation added before where that is asked."""

import torch
from torch import Tensor

from nerf.ops.registry import call, example, fake, numbers
from nerf.ops.rounding import hashed, narrow_at_random, random_bits
from nerf.ops.total_variation import total_variation_grad

_ops = torch.ops.nerf


def adam_step(
    param: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    grad: Tensor,
    lr: Tensor,
    step: Tensor,
    rows: Tensor | None,
    beta1: float,
    beta2: float,
    eps: float,
    variation: float = 0.0,
    vertices: Tensor | None = None,
    table: Tensor | None = None,
    size_z: int = 0,
) -> None:
    """One step of Adam (Kingma & Ba 2015), in place; clears the gradient.

    A value is left alone where its gradient is exactly zero or its gradient's square is not finite.

    param, grad: one shape [...,C]. rows [L] int64: rows of C values to visit, each once, all others stay as they are,
    the gradient too; None: all. A row that does not exist raises ValueError on the CPU and is passed over on CUDA.
    exp_avg, exp_avg_sq: of the rows, in their order, [L,C]; without rows of param's shape. Of a float32 param they may
    be bfloat16, rounded at random by step, row of theirs and column (nerf/ops/rounding.py). Those of a float16 param
    are, as is grad; param itself is rounded by a hash of the same random bits.
    lr: [1], or [C]. step [1] float32: number of this step, from 1; 0 leaves the step out, but for clearing; a tensor,
    so that a CUDA graph can replay the call.

    variation: the weight of the total variation of param, a grid [X,Y,Z,C], that is added to grad before, at the
    visited values whose gradient is not zero: as total_variation_grad(touched_only=True). 0: none. table, size_z: of a
    sparse grid [L,C], see interpolate_trilinear; then vertices [L] int64 are those of the visited rows, in their order.
    On a CPU, and here, differences are those of the values before the step. On CUDA it is one pass with the step, in
    no fixed order: a neighbor counts with its value before or after this step, and two calls may differ by that. Where
    they must not, call total_variation_grad before instead.
    """
    if variation:
        total_variation_grad(grad, param, variation, True, rows if table is None else vertices, table, size_z)
    whole = (param, grad)
    if rows is not None:
        whole = tuple(x.view(-1, x.shape[-1]) for x in whole)
        param, grad = (x.index_select(0, rows) for x in whole)
    stored_param, stored_grad = param, grad
    param = param.float() if param.dtype == torch.float16 else param
    grad = grad.to(param.dtype)
    touched = (grad != 0) & (grad * grad).isfinite() & (step > 0)
    mean, square = exp_avg.to(param), exp_avg_sq.to(param)
    mean = torch.where(touched, torch.lerp(grad, mean, beta1), mean)
    square = torch.where(touched, torch.lerp(grad * grad, square, beta2), square)
    first, second = 1 - beta1 ** step.double(), 1 - beta2 ** step.double()
    size = lr * (mean / first.to(param)) / ((square / second.to(param)).sqrt() + eps)
    param.sub_(torch.where(touched, size.to(param.dtype), torch.zeros_like(param)))
    if exp_avg.dtype != param.dtype and param.numel():
        channels = param.shape[-1] if param.dim() else 1
        places = torch.arange(param.numel() // channels, device=param.device)
        random = random_bits(step, places, channels).view(param.shape)
        mean = narrow_at_random(mean, exp_avg.dtype, random)
        square = narrow_at_random(square, exp_avg_sq.dtype, random >> 16)
        if stored_param is not param:
            stored_param.copy_(narrow_at_random(param, stored_param.dtype, hashed(random)))
    exp_avg.copy_(mean)
    exp_avg_sq.copy_(square)
    stored_grad.zero_()
    if rows is not None:
        for target, part in zip(whole, (stored_param, stored_grad), strict=True):
            target.index_copy_(0, rows, part)


@call("adam_step")
def _(
    param: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    grad: Tensor,
    lr: Tensor,
    step: Tensor,
    rows: Tensor | None,
    beta1: float,
    beta2: float,
    eps: float,
    variation: float = 0.0,
    vertices: Tensor | None = None,
    table: Tensor | None = None,
    size_z: int = 0,
) -> None:
    smooth = variation, vertices, table, size_z
    _ops.adam_step(param, exp_avg, exp_avg_sq, grad, lr, step, rows, beta1, beta2, eps, *smooth)
    torch.autograd.graph.increment_version([param, exp_avg, exp_avg_sq, grad])


@fake("adam_step")
def _(
    param,
    exp_avg,
    exp_avg_sq,
    grad,
    lr,
    step,
    rows,
    beta1,
    beta2,
    eps,
    variation=0.0,
    vertices=None,
    table=None,
    size_z=0,
):
    return None


@example("adam_step")
def _():
    shape = (30, 12)
    grad = numbers(*shape, low=-1) * (numbers(*shape, seed=1) < 0.5)
    moments = numbers(*shape, low=-0.1, high=0.1, seed=2), numbers(*shape, low=0.001, high=0.1, seed=3)
    return numbers(*shape, seed=4), *moments, grad, torch.full((1,), 0.1), torch.full((1,), 3.0), None, 0.9, 0.99, 1e-8
