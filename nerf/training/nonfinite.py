"""Steps whose loss or gradient is not finite: detected on the device without waiting for it, skipped and counted."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nerf.optim.adam import MaskedAdam

# Training stops when this many steps were skipped, and this fraction of the steps since the first skipped one.
STOP_AFTER, STOP_FRACTION = 5, 0.25


@torch.no_grad()
def all_finite(loss: Tensor, of_densities: Sequence[Tensor] | None, *optimizers: MaskedAdam) -> Tensor:
    """Whether the loss and the gradients of a step are finite, [] bool on the device.

    of_densities: the gradients [N] of the samples' densities; None: not known. optimizers: of the field, and of the
    auxiliary modules. Of the grids only the density's gradient is checked, because a pixel or sample that is not finite
    shows there: at the samples, which are far fewer than the vertices of a dense grid, or else all of it, which is
    faster than to gather the active vertices. adam_step ignores single values that are not finite in a grid's gradient.
    """
    checked = [loss.detach(), *(of_densities or ())]
    for optimizer in optimizers:
        for group in optimizer.groups:
            grad = group.parameter.grad
            is_density = group.on_vertices and grad is not None and grad.shape[-1] == 1
            if grad is not None and (not group.on_vertices or (is_density and of_densities is None)):
                checked.append(grad)
    return optimizers[0].backend.ops.all_finite(checked)


def parameters_finite(modules: Iterable[torch.nn.Module], away: Sequence[Tensor] = ()) -> bool:
    """Whether all parameters are finite. One pass without a copy: minimum and maximum propagate NaN.

    away: parameters in host memory, which are left out: to read them takes longer than many steps, and a value of
    theirs that is not finite shows in the loss.
    """
    left_out = {id(parameter) for parameter in away}
    parameters = (p for module in modules for p in module.parameters() if id(p) not in left_out)
    extremes = [extreme for p in parameters for extreme in p.detach().aminmax()]
    return bool(torch.stack(extremes).isfinite().all())


@dataclass
class SkippedSteps:
    """Counts skipped steps, from the first log with skipped steps to the next log without any."""

    skipped: int = 0
    steps: int = 0

    def add(self, skipped: int, steps: int) -> None:
        """Adds a log interval: the number of skipped steps, and of all steps."""
        if skipped == 0:
            self.skipped = self.steps = 0
        else:
            self.skipped, self.steps = self.skipped + skipped, self.steps + steps

    @property
    def should_abort(self) -> bool:
        """Whether so many steps were skipped that training should stop."""
        return self.skipped >= STOP_AFTER and self.skipped >= STOP_FRACTION * self.steps
