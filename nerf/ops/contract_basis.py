"""contract_basis: three colors of every sample from coefficients and basis functions."""

import torch
from torch import Tensor

from nerf.ops.registry import derivative, example, fake, numbers

_ops = torch.ops.nerf


def contract_basis(values: Tensor, basis: Tensor, ray_indices: Tensor) -> Tensor:
    """Three colors of every sample: sums of coefficients times basis functions of its ray (Yu et al. 2021, eq. 1).

    values [N,C]: K coefficients of the first color, of the second, of the third, then padding. basis [R,K].
    ray_indices [N] int64. Returns [N,3]. Differentiable in values; in basis too, but not natively.
    A ray index outside the basis raises ValueError on the CPU and reads NaN on CUDA.
    """
    count = basis.shape[1]
    coefficients = values[:, : 3 * count].reshape(-1, 3, count)
    return (coefficients * basis.index_select(0, ray_indices)[:, None, :]).sum(-1)


@fake("contract_basis")
def _(values, basis, ray_indices):
    return values.new_empty(values.shape[0], 3)


@fake("contract_basis_backward")
def _(grad_out, basis, ray_indices, channels):
    return grad_out.new_empty(grad_out.shape[0], channels)


def _save(ctx, inputs, output):
    values, basis, ray_indices = inputs
    ctx.channels = values.shape[1]
    ctx.save_for_backward(basis, ray_indices)


@derivative("contract_basis", of=("values",), save=_save)
def _(ctx, grad_out):
    if ctx.needs_input_grad[1]:
        raise RuntimeError("contract_basis has no derivative with respect to basis; use backend=torch for one")
    return _ops.contract_basis_backward(grad_out, *ctx.saved_tensors, ctx.channels), None, None


@example("contract_basis")
def _():
    return numbers(100, 28, low=-1), numbers(7, 9, low=-1, seed=1), (7 * numbers(100, seed=2)).long()
