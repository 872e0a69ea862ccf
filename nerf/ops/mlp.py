"""mlp: a multilayer perceptron with hidden layers of one width."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from nerf.ops.library import gpu_generations
from nerf.ops.registry import call, derivative, example, fake, numbers

_ops = torch.ops.nerf
FUSED_WIDTHS, FUSED_LAYERS, FUSED_OUTPUTS = (64, 128, 256), 64, 8  # of cuda_ext/cuda/mlp.cu


def mlp(
    inputs: Tensor,
    params: Tensor,
    width: int,
    layers: int,
    outputs: int,
    rounded: bool,
    keep: bool = True,
    needed: Tensor | None = None,
) -> Tensor:
    """relu(... relu(inputs W0^T + b0) ...) Wn^T + bn with n = layers hidden layers: [N,outputs] for inputs [N,I].

    params: weight [O,I] and bias [O] of each layer, flattened, one behind the other. Differentiable in both.

    rounded: products are those of bfloat16 numbers, as tensor cores make them. Rounded are weights, inputs and hidden
    values, and on the way back the gradients of each layer's result before its ReLU, but not that of the last bias.
    Sums, biases and all results are not. The fully fused network of Mueller et al. 2021 ("Real-time Neural
    Radiance Caching for Path Tracing", section 3.4) rounds so in float16.

    keep: whether hidden values are kept for the backward pass, which makes them again otherwise; PyTorch keeps them.

    needed [N]: results are 0 in rows where it is. These take no time where no hidden values are kept. Not
    differentiable in it.
    """
    x, rest = inputs, params
    for layer in range(layers + 1):
        fan_out = outputs if layer == layers else width
        weight, bias, rest = rest.split([fan_out * x.shape[1], fan_out, len(rest) - fan_out * (x.shape[1] + 1)])
        weight = weight.view(fan_out, x.shape[1])
        product = _Rounded.apply(x) @ _Rounded.apply(weight).t() if rounded else x @ weight.t()
        round_gradient = _RoundedGradient.apply if rounded else _as_it_is
        x = round_gradient(product) + bias if layer == layers else functional.relu(round_gradient(product + bias))
    return x if needed is None else x.masked_fill((needed == 0)[:, None], 0.0)


def has_fused_kernel(inputs: int, width: int, layers: int, outputs: int) -> bool:
    """Whether a rounded network of these sizes runs on tensor cores (cuda_ext/cuda/mlp.cu), as one kernel forward.

    Others run correctly, but far slower than PyTorch's own products. inputs: I. The GPU's generation is another matter.
    """
    fits = width in FUSED_WIDTHS and 0 < inputs <= width
    return fits and 0 < layers <= FUSED_LAYERS and 0 < outputs <= FUSED_OUTPUTS


def has_fused_code() -> bool:
    """Whether the native library holds code for tensor cores of bfloat16, of GPUs from Ampere on."""
    return any(generation >= 80 for generation in gpu_generations())


def _as_it_is(x: Tensor) -> Tensor:
    return x


class _Rounded(torch.autograd.Function):
    """Numbers rounded to bfloat16 in their own dtype; the gradient passes as it is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.to(torch.bfloat16).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class _RoundedGradient(torch.autograd.Function):
    """The numbers themselves; the gradient is rounded."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.to(torch.bfloat16).to(grad.dtype)


@call("mlp")
def _(
    inputs: Tensor,
    params: Tensor,
    width: int,
    layers: int,
    outputs: int,
    rounded: bool,
    keep: bool = True,
    needed: Tensor | None = None,
) -> Tensor:
    keep = keep and torch.is_grad_enabled() and (inputs.requires_grad or params.requires_grad)
    return _ops.mlp(inputs, params, width, layers, outputs, rounded, keep, needed)[0]


@fake("mlp")
def _(inputs, params, width, layers, outputs, rounded, keep, needed=None):
    rows = inputs.shape[0]  # len() would make one number of it for the compiler
    kept = inputs.new_empty(layers, rows if keep else 0, width, dtype=torch.bfloat16 if rounded else inputs.dtype)
    return inputs.new_empty(rows, outputs), kept


@fake("mlp_backward")
def _(grad_out, inputs, params, kept, width, layers, outputs, rounded):
    return inputs.new_empty(inputs.shape), params.new_empty(params.shape)


def _save(ctx, inputs, output):
    x, params, *ctx.sizes, ctx.kept, needed = inputs
    ctx.save_for_backward(x, params, output[1], needed)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # of hidden values, which are large


@derivative("mlp", of=("inputs", "params"), save=_save)
def _(ctx, grad_out, grad_kept):
    if grad_out is None:
        return (None,) * 8
    inputs, params, kept, needed = ctx.saved_tensors
    if needed is not None:
        grad_out = grad_out.masked_fill((needed == 0)[:, None], 0.0)
    if not ctx.kept:
        kept = _ops.mlp(inputs, params, *ctx.sizes, True)[1]
    return *_ops.mlp_backward(grad_out, inputs, params, kept, *ctx.sizes), None, None, None, None, None, None


@example("mlp")
def _():
    sizes = [7 * 8, 8, 8 * 8, 8, 3 * 8, 3]
    return numbers(20, 7, low=-1), numbers(sum(sizes), low=-0.5, high=0.5, seed=1), 8, 2, 3, False, True
