"""Masked Adam over parameters that say their own learning rates, with all of its state on the device.

Step number and learning rates are tensors, so that a CUDA graph replays a step with the values of the day.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from nerf.ops.backend import Backend

EPSILON = 1e-10  # below the gradients of a rarely met voxel, or its steps would shrink with the batch


@dataclass(frozen=True)
class ParameterGroup:
    """One parameter with its learning rate: one number, or one per channel of the last dimension."""

    name: str
    parameter: nn.Parameter
    lr: tuple[float, ...]
    on_vertices: bool = False  # a grid [X,Y,Z,C]: only vertices near samples get gradients


class HasParameterGroups(Protocol):
    """What is trained: a field, poses, exposure."""

    def parameter_groups(self) -> list[ParameterGroup]: ...


class MaskedAdam:
    """Adam (Kingma & Ba 2015) that leaves a value and its moments alone while its gradient is exactly zero.

    Of the grids it visits the given vertices alone, and has moments for these alone. Where the backend adds to
    gradients in place, theirs are made here and cleared by the step; what a rounding leaves at other vertices is never
    read.
    """

    def __init__(
        self,
        trained: HasParameterGroups,
        beta1: float,
        beta2: float,
        backend: Backend,
        vertex_rows: Tensor | None = None,
    ) -> None:
        self.backend, self.beta1, self.beta2 = backend, beta1, beta2
        self.groups = trained.parameter_groups()
        self.base_lr = torch.tensor([rate for g in self.groups for rate in g.lr], device=backend.device)
        self.vertex_rows = vertex_rows
        self.moments = {group.name: self._no_moments(group) for group in self.groups}
        self._clear_gradients()
        self.decay = torch.ones(1, device=backend.device)
        self.step_number = torch.zeros(1, device=backend.device)

    def _no_moments(self, group: ParameterGroup) -> tuple[Tensor, Tensor]:
        """Zeros for the moments of a group: of grids, for the vertices that are visited."""
        shape = group.parameter.shape
        if group.on_vertices and self.vertex_rows is not None:
            shape = (len(self.vertex_rows), shape[-1])
        return group.parameter.new_zeros(shape), group.parameter.new_zeros(shape)

    def visit(self, vertex_rows: Tensor | None) -> None:
        """From now on vertices [L] int64, rising (OccupancyGrid.vertex_rows); None: all. Clears the gradients.

        Moments stay with their vertices. They start at zero where a vertex was not visited before.
        """
        before, self.vertex_rows = self.vertex_rows, vertex_rows
        for group in self.groups:
            if group.on_vertices and before is not vertex_rows:
                vertices = group.parameter.shape[:-1].numel()
                places = _places(_rows(before, vertices, vertex_rows), _rows(vertex_rows, vertices, before))
                shape = group.parameter.shape if vertex_rows is None else (len(vertex_rows), group.parameter.shape[-1])
                moments = list(self.moments.pop(group.name))
                for i in range(2):  # one after the other: four of them at once are what a fine grid has no memory for
                    moments[i] = _moved(moments[i], *places).view(shape)
                self.moments[group.name] = moments[0], moments[1]
        self._clear_gradients()

    def _clear_gradients(self) -> None:
        for group in self.groups:
            grad = group.parameter.grad
            if not (group.on_vertices and self.backend.adds_to_gradients):
                group.parameter.grad = None
            elif grad is None:
                group.parameter.grad = torch.zeros_like(group.parameter)
            else:  # a recorded step knows its address
                grad.zero_()

    @torch.no_grad()
    def step(self, taken: Tensor | None = None) -> None:
        """One step with the gradients in place, which are zero or dropped afterwards.

        taken [] bool, on the device: False leaves the step out and does not count it. None: it is taken.
        """
        self.step_number += 1 if taken is None else taken
        number = self.step_number if taken is None else self.step_number * taken
        rates = (self.base_lr * self.decay).split([len(g.lr) for g in self.groups])
        for group, lr in zip(self.groups, rates, strict=True):
            exp_avg, exp_avg_sq = self.moments[group.name]
            self.backend.ops.adam_step(
                group.parameter,
                exp_avg,
                exp_avg_sq,
                group.parameter.grad,
                lr,
                number,
                self.vertex_rows if group.on_vertices else None,
                self.beta1,
                self.beta2,
                EPSILON,
            )
            if not (group.on_vertices and self.backend.adds_to_gradients):
                group.parameter.grad = None

    def state_dict(self) -> dict[str, Tensor]:
        moments = {f"{n}.{i}": m for n, pair in self.moments.items() for i, m in zip(("exp_avg", "exp_avg_sq"), pair)}
        return {"step_number": self.step_number, **moments}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.step_number.copy_(state["step_number"])
        for name, pair in self.moments.items():
            pair[0].copy_(state[f"{name}.exp_avg"])
            pair[1].copy_(state[f"{name}.exp_avg_sq"])


def _rows(rows: Tensor | None, vertices: int, like: Tensor | None) -> Tensor:
    """Rows that are visited, where None says all."""
    return torch.arange(vertices, device=like.device) if rows is None else rows


def _places(before: Tensor, now: Tensor) -> tuple[Tensor, Tensor]:
    """Where each of the rows now [L] was among those before [K], both rising; and whether it was there, [L] bool."""
    if len(before) == 0:
        return torch.zeros_like(now), torch.zeros_like(now, dtype=torch.bool)
    place = torch.searchsorted(before, now).clamp(max=len(before) - 1)
    return place, before.index_select(0, place) == now


def _moved(moment: Tensor, place: Tensor, there: Tensor) -> Tensor:
    """Moments of K rows for L others, [L,C]."""
    moment = moment.view(-1, moment.shape[-1])
    if len(moment) == 0:
        return moment.new_zeros(len(place), moment.shape[1])
    return moment.index_select(0, place).masked_fill_(~there[:, None], 0.0)
