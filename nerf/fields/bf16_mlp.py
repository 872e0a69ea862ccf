"""The color MLP in bfloat16: it uses tensor cores and halves the memory traffic of activations.

Products are accumulated in float32. Parameters and their gradients are float32. bfloat16 has the range of float32, so
the loss needs no scaling. The backward pass is written by hand because that of autograd takes twice as long: the
gradients of three biases alone, sums over all rays, took a fifteenth of a step.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

WIDE = 8  # bfloat16 numbers in 16 bytes; tensor cores need rows of a multiple of this
RAYS_PER_SUM = 256


class Bf16Mlp(torch.autograd.Function):
    """relu(... relu(inputs W0^T + b0) ...) Wn^T + bn for inputs [N,I]: [N,O] float32.

    layers: weight [O,I] and bias [O] of each layer, float32. Inputs beyond the first layer's I columns are ignored;
    with round_up(I) columns the inputs need not be copied.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, *layers: Tensor) -> Tensor:
        weights = [w.to(torch.bfloat16) for w in layers[::2]]
        biases = [b.to(torch.bfloat16) for b in layers[1::2]]
        kept = [inputs.to(torch.bfloat16)]
        ctx.inputs = weights[0].shape[1]
        weights[0] = functional.pad(weights[0], (0, inputs.shape[1] - ctx.inputs))
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            kept.append(torch._addmm_activation(bias, kept[-1], weight.t()))  # product, bias and ReLU in one kernel
        ctx.outputs = len(weights[-1])
        weights[-1] = _with_whole_rows(weights[-1])
        ctx.save_for_backward(*kept, *weights)
        return _product(kept[-1], weights[-1].t())[:, : ctx.outputs] + layers[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        count = len(ctx.saved_tensors) // 2
        kept, weights = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        grads: list[Tensor] = [grad.sum(0)]
        grad = functional.pad(grad, (0, len(weights[-1]) - ctx.outputs)).to(torch.bfloat16)
        for layer in reversed(range(count)):
            if layer < count - 1:
                grads.append(_sum_of_rows(grad))
            of_weight = _product(grad.t(), kept[layer])
            if layer == 0:
                of_weight = of_weight[:, : ctx.inputs]
            grads.append(of_weight if layer < count - 1 else of_weight[: ctx.outputs])
            grad = grad @ weights[layer]
            if layer > 0:
                grad = torch.ops.aten.threshold_backward(grad, kept[layer], 0)
        return grad.float(), *reversed(grads)


def bf16_mlp_without_gradient(inputs: Tensor, *layers: Tensor) -> Tensor:
    """Bf16Mlp without gradients: no activation is stored."""
    x = inputs.to(torch.bfloat16)
    weights = [w.to(torch.bfloat16) for w in layers[::2]]
    weights[0] = functional.pad(weights[0], (0, inputs.shape[1] - weights[0].shape[1]))
    for weight, bias in zip(weights[:-1], layers[1:-2:2], strict=True):
        x = torch._addmm_activation(bias.to(torch.bfloat16), x, weight.t())
    return _product(x, _with_whole_rows(weights[-1]).t())[:, : len(weights[-1])] + layers[-1]


def round_up(count: int) -> int:
    """The smallest multiple of WIDE that is at least count."""
    return -(-count // WIDE) * WIDE


def has_bf16_tensor_cores(device: torch.device) -> bool:
    """Whether the device has tensor cores for bfloat16: NVIDIA GPUs from Ampere on."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def _with_whole_rows(weight: Tensor) -> Tensor:
    """The last layer's weights [O,I] padded with zero rows, so that a row of outputs fills 16 bytes."""
    return functional.pad(weight, (0, 0, 0, round_up(len(weight)) - len(weight)))


def _product(a: Tensor, b: Tensor) -> Tensor:
    """The float32 product a @ b of bfloat16 matrices."""
    return torch.mm(a, b, out_dtype=torch.float32) if a.is_cuda else a.float() @ b.float()


def _sum_of_rows(x: Tensor) -> Tensor:
    """Sum [C] of rows [N,C] in float32. In two steps, because PyTorch's single step uses few threads per column."""
    whole = len(x) // RAYS_PER_SUM * RAYS_PER_SUM
    parts = x[:whole].unflatten(0, (whole // RAYS_PER_SUM, RAYS_PER_SUM)).sum(1, dtype=torch.float32).sum(0)
    return parts if whole == len(x) else parts + x[whole:].sum(0, dtype=torch.float32)
