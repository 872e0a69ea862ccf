"""Stochastic weight averaging (Izmailov et al. 2018): means of parameters over the last part of a run.

With learning rates that stay high, parameters move about a wide minimum; their mean lies in its middle.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

ROWS_AT_A_TIME = 1 << 20  # of a grid, to bound memory


class Averaged(Protocol):
    """What of a parameter group its mean needs (nerf.optim.adam.ParameterGroup)."""

    name: str
    parameter: nn.Parameter
    on_vertices: bool


class Averages:
    """The means of parameters, float32, by name of the group; those of grids at the active rows alone."""

    def __init__(self) -> None:
        self.values: dict[str, Tensor] = {}
        self.count = 0  # of values in each mean

    @torch.no_grad()
    def add(self, groups: Sequence[Averaged], rows: Tensor | None) -> None:
        """Adds the parameters as they are to the means. rows [L] int64: the active rows of grids; None: all."""
        self.count += 1
        for group in groups:
            if self.count == 1:
                count = len(rows) if group.on_vertices and rows is not None else None
                shape = group.parameter.shape if count is None else (count, group.parameter.shape[-1])
                dtype = torch.promote_types(group.parameter.dtype, torch.float32)
                self.values[group.name] = group.parameter.new_zeros(shape, dtype=dtype)
            for mean, values, some in _pieces(self.values[group.name], group, rows):
                now = values if some is None else values.index_select(0, some)
                mean.lerp_(now.to(mean.dtype), 1 / self.count)

    @torch.no_grad()
    def put_in_place(self, groups: Sequence[Averaged], rows: Tensor | None) -> None:
        """Replaces the parameters by their means, in the same memory, and begins anew."""
        for group in groups if self.count else ():
            for mean, values, some in _pieces(self.values[group.name], group, rows):
                if some is None:
                    values.copy_(mean)
                else:
                    values.index_copy_(0, some, mean.to(values.dtype))
        self.clear()

    @contextlib.contextmanager
    def in_place(self, groups: Sequence[Averaged], rows: Tensor | None) -> Iterator[None]:
        """The parameters are their means meanwhile, in the same memory; as they are where there are none."""
        values, count, kept = self.values, self.count, []
        try:
            # In host memory: on a GPU all else may just fit.
            kept += [group.parameter.detach().to("cpu", copy=True) for group in groups if count]
            self.put_in_place(groups, rows)
            yield
        finally:
            self.values, self.count = values, count
            for group, before in zip(groups, kept, strict=False):  # fewer where host memory ended before
                group.parameter.detach().copy_(before)

    def clear(self) -> None:
        self.values, self.count = {}, 0

    def move(self, name: str, moved: Callable[[Tensor], Tensor]) -> None:
        """The active rows of a grid have changed. moved: makes the values [L,C] of the new ones from [K,C]."""
        if name in self.values:
            self.values[name] = moved(self.values[name])

    def state_dict(self) -> dict[str, Tensor]:
        """The means and their count, as entries beside Adam's moments; none where nothing was averaged."""
        return packed(self.values, self.count)

    def load_state_dict(self, state: dict[str, Tensor], names: Sequence[str], device: torch.device) -> None:
        """Restores the content of state_dict. names: of the groups."""
        self.clear()
        if COUNT in state:
            self.count = int(state[COUNT])
            self.values = {name: state[f"{name}.{MEAN}"].to(device, copy=True) for name in names}


MEAN, COUNT = "average", "averaged"


def packed(values: dict[str, Tensor], count: int) -> dict[str, Tensor]:
    """Means by name and how many values are in each, as entries of a state of the optimizer."""
    if not count:
        return {}
    return {COUNT: torch.tensor([count]), **{f"{name}.{MEAN}": mean for name, mean in values.items()}}


def _pieces(mean: Tensor, group: Averaged, rows: Tensor | None) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Pieces of a mean, the values that they belong to, and the rows among these; None: the values themselves."""
    values = group.parameter.detach()
    if not group.on_vertices:
        yield mean, values, None
        return
    channels = values.shape[-1]
    mean, values = mean.view(-1, channels), values.view(-1, channels)
    for first in range(0, len(mean), ROWS_AT_A_TIME):
        piece = slice(first, first + ROWS_AT_A_TIME)
        yield (mean[piece], values[piece], None) if rows is None else (mean[piece], values, rows[piece])
