"""Steps whose loss or gradient is not finite: found on the device without waiting, left out and counted."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from nerf.optim.adam import MaskedAdam

# Training stops when so many steps, and this share of those since trouble began, were left out.
STOP_AFTER, STOP_SHARE = 5, 0.25


@torch.no_grad()
def all_finite(loss: Tensor, *optimizers: MaskedAdam) -> Tensor:
    """Whether the loss and the gradients of a step are finite, [] bool on the device; optimizers: of all that learns.

    Of grids it looks at density, one channel, at the vertices that are visited: what is wrong in a pixel or a sample
    shows there. A gradient that is not finite in a colour grid alone is passed over by adam_step, value by value.
    """
    small, sums = [loss.detach().view(1)], []
    for optimizer in optimizers:
        for group in optimizer.groups:
            grad = group.parameter.grad
            if grad is None or (group.on_vertices and grad.shape[-1] > 1):
                continue
            if group.on_vertices and optimizer.vertex_rows is not None:
                sums.append(grad.view(-1).index_select(0, optimizer.vertex_rows).sum())
            else:
                small.append(grad.view(-1))
    return sum(sums, torch.cat(small).sum()).isfinite()  # infinity and NaN survive a sum


def parameters_finite(modules: Iterable[torch.nn.Module]) -> bool:
    """Whether every parameter is, in one pass without a copy: minimum and maximum are NaN where anything is."""
    extremes = [extreme for module in modules for p in module.parameters() for extreme in p.detach().aminmax()]
    return bool(torch.stack(extremes).isfinite().all())


@dataclass
class SkippedSteps:
    """Steps left out since the first of them that no clean look has followed."""

    left_out: int = 0
    steps: int = 0

    def add(self, left_out: int, steps: int) -> None:
        """What a look found: so many of the steps since the look before."""
        if left_out == 0:
            self.left_out = self.steps = 0
        else:
            self.left_out, self.steps = self.left_out + left_out, self.steps + steps

    @property
    def persist(self) -> bool:
        """Whether it is no accident any more."""
        return self.left_out >= STOP_AFTER and self.left_out >= STOP_SHARE * self.steps
