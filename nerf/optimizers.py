"""Masked Adam over a field's parameters, with all of its state on the device.

Step number and learning rates are tensors, so that a CUDA graph replays a step with the values of the day.
"""

import torch
from torch import Tensor

from nerf.fields.field import Field
from nerf.ops.backend import Backend

EPSILON = 1e-10  # below the gradients of a rarely met voxel, or its steps would shrink with the batch


class MaskedAdam:
    """Adam (Kingma & Ba 2015) that leaves a value and its moments alone while its gradient is exactly zero.

    Of the grids it visits the given vertices alone. Where the backend adds to gradients in place, theirs are made here
    and cleared by the step; what a rounding leaves at other vertices is never read.
    """

    def __init__(
        self, field: Field, beta1: float, beta2: float, backend: Backend, vertex_rows: Tensor | None = None
    ) -> None:
        self.backend, self.beta1, self.beta2 = backend, beta1, beta2
        self.groups = field.parameter_groups()
        self.moments = {g.name: (torch.zeros_like(g.parameter), torch.zeros_like(g.parameter)) for g in self.groups}
        self.base_lr = torch.tensor([rate for g in self.groups for rate in g.lr], device=backend.device)
        self.visit(vertex_rows)
        self.decay = torch.ones(1, device=backend.device)
        self.step_number = torch.zeros(1, device=backend.device)

    def visit(self, vertex_rows: Tensor | None) -> None:
        """From now on vertices [L] int64 (OccupancyGrid.vertex_rows); None: all. Clears the gradients."""
        self.vertex_rows = vertex_rows
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
