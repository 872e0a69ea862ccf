"""all_finite: one look at all numbers of several tensors."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nerf.ops.registry import call, example, fake, numbers

_ops = torch.ops.nerf


def all_finite(tensors: Sequence[Tensor]) -> Tensor:
    """Whether every number of all tensors is finite, [] bool on their device; of empty ones it is true.

    tensors: at least one, float32 or float64, of any shapes, all of the first one's dtype and device, else ValueError.
    Nothing waits for the device. Not differentiable.
    """
    return torch.stack([x.isfinite().all() for x in tensors]).all()


@call("all_finite")
def _(tensors):
    if not tensors:  # PyTorch, which picks the device by the tensors, would list all that there are
        raise ValueError("tensors has no tensor, expected at least one")
    return _ops.all_finite(tensors)


@fake("all_finite")
def _(tensors):
    return tensors[0].new_empty((), dtype=torch.bool)


@example("all_finite")
def _():
    return ([numbers(5000), numbers(3, 4, seed=1)],)
