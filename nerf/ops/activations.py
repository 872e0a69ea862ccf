"""Elementwise functions of a training step that give the same bits on a CPU for any number of threads.

PyTorch cuts a tensor of more than 32768 numbers into as many pieces as there are threads. What is left over at the end
of a piece, where no whole vector fits, its sigmoid, softplus, atan2 and hypot compute by another formula, with another
last bit. Its exp and logsigmoid use one formula everywhere. On a GPU each number has a thread of its own, so there
PyTorch's functions are taken as they are.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

PIECE = 1 << 15  # at::internal::GRAIN_SIZE: PyTorch cuts no tensor of at most so many numbers


def activate_density(raw_density: Tensor, shift: float, scale: float) -> Tensor:
    """softplus(raw_density + shift) * scale, [N] like raw_density. Differentiable."""
    if raw_density.is_cuda:
        return functional.softplus(raw_density + shift) * scale
    return functional.logsigmoid(-shift - raw_density) * -scale  # softplus(x) = -logsigmoid(-x)


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)), of any shape. Differentiable."""
    return torch.sigmoid(x) if x.is_cuda or x.numel() <= PIECE else _Sigmoid.apply(x)


def in_pieces(function: Callable[..., Tensor], *arguments: Tensor) -> Tensor:
    """An elementwise function of tensors [N], on a CPU called for PIECE numbers at a time.

    For what is not called in every step, as a piece is computed by one thread.
    """
    if arguments[0].is_cuda or len(arguments[0]) <= PIECE:
        return function(*arguments)
    return torch.cat([function(*piece) for piece in zip(*(x.split(PIECE) for x in arguments), strict=True)])


class _Sigmoid(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.neg(x).exp_().add_(1).reciprocal_()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return torch.ops.aten.sigmoid_backward(grad, y)
