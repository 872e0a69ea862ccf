"""Masked Adam: parameters with a learning rate each, updates of active vertices only, all state on the device.

Step number and learning rates are tensors, so that a replayed CUDA graph uses their current values.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from nerf.ops.backend import Backend
from nerf.ops.branches import Beside, at_once
from nerf.ops.vertex_rows import VertexRows
from nerf.optim import host_rows
from nerf.optim.averages import Averages
from nerf.optim.host_rows import HostRows, copy_rows
from nerf.optim.muon import muon_step

# Steps are counted in float32, which stays at 2^24: from three quarters of that on, a quarter is counted again.
MOST_STEPS, AGAIN = 3 << 22, 1 << 22
EPSILON = 1e-10  # below the gradients of rarely hit voxels; a larger one would shrink their steps


@dataclass(frozen=True)
class ParameterGroup:
    """One parameter with its learning rate: one number, or one per channel of the last dimension."""

    name: str
    parameter: nn.Parameter
    lr: tuple[float, ...]
    on_vertices: bool = False  # a grid [X,Y,Z,C], or [L,C]: only vertices near samples get gradients
    rows: VertexRows | None = None  # where the values of a sparse grid are
    host: HostRows | None = None  # of a grid in host memory: its moments are there too
    lr_rise: float = math.inf  # warm-up: the learning rate of the n-th step is n times this at most
    muon: bool = False  # a matrix whose steps are those of Muon (nerf/optim/muon.py)


class HasParameterGroups(Protocol):
    """Anything that is trained: a field, poses, exposure."""

    def parameter_groups(self) -> list[ParameterGroup]: ...


class MaskedAdam:
    """Adam (Kingma & Ba 2015) that skips values whose gradient is exactly zero: value and moments stay as they are.

    In grids it updates, and keeps moments for, the active vertices only; gradients at other vertices are ignored. If
    the backend adds to gradients in place, the gradient buffers of grids are allocated here and zeroed by each step.

    Matrices that are marked so take steps of Muon instead, of which exp_avg_sq knows nothing.

    A grid in host memory is updated at the rows that the step has brought to the device (nerf/optim/host_rows.py); its
    moments are parts of one tensor there.

    moments: torch.bfloat16 stores those of grids [...,C] so, rounded at random, if C > 1. A float16 grid needs that;
    its gradients are bfloat16 too.
    """

    def __init__(
        self,
        trained: HasParameterGroups,
        beta1: float,
        beta2: float,
        backend: Backend,
        active_vertices: Tensor | None = None,
        moments: torch.dtype = torch.float32,
    ) -> None:
        self.moment_dtype = moments
        self.backend, self.beta1, self.beta2 = backend, beta1, beta2
        self.trained, self.groups = trained, trained.parameter_groups()
        self.base_lr = torch.tensor([rate for g in self.groups for rate in g.lr], device=backend.device)
        rises = [min(rate, g.lr_rise) for g in self.groups for rate in g.lr]
        self.lr_rise = torch.tensor(rises, device=backend.device)
        self.warms_up = any(rate > g.lr_rise for g in self.groups for rate in g.lr)
        self.active_vertices, self.active_rows = active_vertices, self._rows_of(active_vertices)
        self.in_host: dict[str, Tensor] = {}  # both moments of a group together, [2,A,C]
        self.moments = {group.name: self._no_moments(group) for group in self.groups}
        self.averages = Averages()
        self.clear_gradients()
        self.decay = torch.ones(1, device=backend.device)
        self.step_number = torch.zeros(1, device=backend.device)

    def _no_moments(self, group: ParameterGroup) -> tuple[Tensor, Tensor]:
        """Zero moments for a group; of a grid, for the active vertices only."""
        shape = group.parameter.shape
        if group.on_vertices and self.active_vertices is not None:
            shape = (len(self.active_vertices), shape[-1])
        if group.host is not None:
            return self._no_moments_in_host(group, shape[0])
        dtype = group.parameter.dtype
        if group.on_vertices and (dtype == torch.float16 or (dtype == torch.float32 and shape[-1] > 1)):
            dtype = self.moment_dtype
        return group.parameter.new_zeros(shape, dtype=dtype), group.parameter.new_zeros(shape, dtype=dtype)

    def _no_moments_in_host(self, group: ParameterGroup, rows: int) -> tuple[Tensor, Tensor]:
        self.in_host[group.name] = both = group.host.no_moments(rows, group.parameter.shape[-1])
        return both.unbind(0)

    def _rows_of(self, active_vertices: Tensor | None) -> Tensor | None:
        """Where the grids have the values of the active vertices, [L] int64; None: all rows."""
        sparse = next((group.rows for group in self.groups if group.rows is not None), None)
        return active_vertices if active_vertices is None or sparse is None else sparse.rows(active_vertices)

    def set_active(self, active_vertices: Tensor | None, moved: Callable[[Tensor], Tensor] | None = None) -> None:
        """Sets the active vertices, takes over parameters that are new tensors, and clears the gradients.

        active_vertices [L] int64: rising (OccupancyGrid.active_vertices); None: all, and as before where all were
        active already, of grids of the same size then. Vertices that were active before keep their moments; the moments
        of the others start at zero. moved: makes the moments [L,C] of the new active vertices from those [K,C] of the
        old ones in another way.
        """
        before, self.active_vertices = self.active_vertices, active_vertices
        self.groups = self.trained.parameter_groups()
        self.active_rows = self._rows_of(active_vertices)
        for group in self.groups:
            if group.on_vertices and before is not active_vertices:
                shape = group.parameter.shape
                if active_vertices is not None:
                    shape = torch.Size((len(active_vertices), shape[-1]))
                moments = list(self.moments.pop(group.name))
                self.in_host.pop(group.name, None)
                if moved is None:
                    vertices = group.parameter.shape[:-1].numel()
                    places = _places(_rows(before, vertices, active_vertices), _rows(active_vertices, vertices, before))
                    targets = (None, None) if group.host is None else self._no_moments_in_host(group, len(places[0]))
                for i in range(2):  # one at a time: four moments at once may not fit into memory
                    found = moved(moments[i]) if moved is not None else _moved(moments[i], *places, targets[i])
                    moments[i] = found.view(shape)
                self.moments[group.name] = moments[0], moments[1]
                kept = moved if moved is not None else (lambda mean, places=places: _moved(mean, *places, None))
                self.averages.move(group.name, lambda mean, kept=kept, shape=shape: kept(mean).view(shape))
        self.clear_gradients()

    def average(self) -> None:
        """Adds the parameters as they are to their means (nerf/optim/averages.py)."""
        self.averages.add(self.groups, self.active_rows)

    def take_averages(self) -> None:
        """Replaces the parameters by their means, if there are any."""
        self.averages.put_in_place(self.groups, self.active_rows)

    def averaged(self) -> AbstractContextManager[None]:
        """The parameters are their means meanwhile, if there are any."""
        return self.averages.in_place(self.groups, self.active_rows)

    def widen_moments(self) -> None:
        """Moments that bfloat16 holds on the device become float32. Grids must be so by then; gradients are cleared."""
        for name, pair in self.moments.items():
            if name not in self.in_host:
                self.moments[name] = tuple(x.float() if x.dtype == torch.bfloat16 else x for x in pair)
        self.moment_dtype = torch.float32
        self.clear_gradients()

    def clear_gradients(self) -> None:
        """Zeroes the gradients in place where steps add to them, else drops them."""
        for group in self.groups:
            parameter, grad = group.parameter, group.parameter.grad
            if group.host is not None or not (group.on_vertices and self.backend.adds_to_gradients):
                parameter.grad = None
                continue
            dtype = torch.bfloat16 if parameter.dtype == torch.float16 else parameter.dtype
            if grad is not None and grad.dtype == dtype:
                grad.zero_()  # in place, because a captured step knows its address
                continue
            if grad is not None or getattr(parameter, "grad_dtype", dtype) != dtype:
                parameter.grad, parameter.grad_dtype = None, dtype
            parameter.grad = torch.zeros_like(parameter, dtype=dtype)

    def count_on(self) -> None:
        """Keeps the step number where float32 counts. To be called every million steps or more often.

        Biases are corrected and warm-ups over long before; what goes by it in turns goes by powers of two.
        """
        self.step_number.sub_(AGAIN * (self.step_number >= MOST_STEPS))

    @torch.no_grad()
    def step(
        self, apply: Tensor | None = None, beside: Beside = at_once, variation: Mapping[str, float] | None = None
    ) -> None:
        """One step with the current gradients, which are cleared or dropped afterwards.

        apply [] bool, on the device: False skips the step and does not count it. None: True. beside: where what is no
        grid is updated, while the grids are; the caller keeps apply until it has waited for that. variation: by name
        of a grid, the weight of its total variation that is added to gradients that are not zero (adam_step).
        """
        self.step_number += 1 if apply is None else apply
        number = self.step_number if apply is None else self.step_number * apply
        rates = torch.minimum(self.base_lr, self.lr_rise * self.step_number) if self.warms_up else self.base_lr
        rates = (rates * self.decay).split([len(g.lr) for g in self.groups])
        pairs = list(zip(self.groups, rates, strict=True))
        small, grids = ([pair for pair in pairs if pair[0].on_vertices == which] for which in (False, True))
        with beside(number, *rates, *(group.parameter.grad for group, _ in small)):
            self._step_of(small, number, {})
        self._step_of(grids, number, variation or {})

    def _step_of(
        self, groups: Sequence[tuple[ParameterGroup, Tensor]], number: Tensor, variation: Mapping[str, float]
    ) -> None:
        """The step of some groups, each with its learning rates."""
        for group, lr in groups:
            if group.host is not None:
                self._step_of_window(group, lr, number)
                continue
            exp_avg, exp_avg_sq = self.moments[group.name]
            if group.muon:
                muon_step(group.parameter, exp_avg, group.parameter.grad, lr, number, self.beta1)
                group.parameter.grad = None
                continue
            self.backend.ops.adam_step(
                group.parameter,
                exp_avg,
                exp_avg_sq,
                group.parameter.grad,
                lr,
                number,
                self.active_rows if group.on_vertices else None,
                self.beta1,
                self.beta2,
                EPSILON,
                *self._smoothing(group, variation.get(group.name, 0.0)),
            )
            if not (group.on_vertices and self.backend.adds_to_gradients):
                group.parameter.grad = None

    def _smoothing(self, group: ParameterGroup, weight: float) -> tuple:
        """The arguments of adam_step for total variation of this weight, none for 0."""
        if weight == 0 or group.rows is None:
            return (weight,) if weight else ()
        vertices = group.rows.vertices if self.active_vertices is None else self.active_vertices
        return weight, vertices, *group.rows.arguments

    def _step_of_window(self, group: ParameterGroup, lr: Tensor, number: Tensor) -> None:
        """The step of a grid in host memory, at the active vertices that the window has the corners of."""
        window = group.host.end_step()
        place, active = _places(self.active_vertices, window.vertices)
        self.backend.ops.adam_rows(
            group.parameter,
            self.in_host[group.name],
            window.values.detach(),
            window.values.grad,
            window.stored,
            window.corners,
            place.masked_fill(~active, -1),
            lr,
            number,
            self.beta1,
            self.beta2,
            EPSILON,
        )

    def state_dict(self) -> dict[str, Tensor]:
        """Step number, moments and averages. Moments that are in host memory or of 16 bits are copied, as float32."""
        moments = {f"{n}.{i}": m for n, pair in self.moments.items() for i, m in zip(("exp_avg", "exp_avg_sq"), pair)}
        away = [f"{name}.{kind}" for name in self.in_host for kind in ("exp_avg", "exp_avg_sq")]
        for name, moment in moments.items():
            if name in away or moment.dtype == torch.bfloat16:
                moments[name] = copy_rows(moment, torch.empty(moment.shape))
        return {"step_number": self.step_number, **moments, **self.averages.state_dict()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.step_number.copy_(state["step_number"])
        self.averages.load_state_dict(state, list(self.moments), self.backend.device)
        for name, pair in self.moments.items():
            for kind, moment in zip(("exp_avg", "exp_avg_sq"), pair, strict=True):
                if name in self.in_host:
                    copy_rows(state[f"{name}.{kind}"], moment)
                else:
                    moment.copy_(state[f"{name}.{kind}"])


def _rows(rows: Tensor | None, vertices: int, like: Tensor | None) -> Tensor:
    """The active rows; None means all vertices."""
    return torch.arange(vertices, device=like.device) if rows is None else rows


def _places(before: Tensor, now: Tensor) -> tuple[Tensor, Tensor]:
    """The index of each of the rows now [L] in the rows before [K], both rising, and whether it is there, [L] bool."""
    if len(before) == 0:
        return torch.zeros_like(now), torch.zeros_like(now, dtype=torch.bool)
    place = torch.searchsorted(before, now).clamp(max=len(before) - 1)
    return place, before.index_select(0, place) == now


def _moved(moment: Tensor, place: Tensor, there: Tensor, moved: Tensor | None) -> Tensor:
    """Moments [L,C] of the new rows, from those of K old rows; zero where a row is new. moved: zeros to be filled."""
    moment = moment.view(-1, moment.shape[-1])
    moved = moment.new_zeros(len(place), moment.shape[1]) if moved is None else moved
    if len(moment):
        parts = (x.split(host_rows.ROWS_AT_A_TIME) for x in (moved, place, there))
        for part, at, known in zip(*parts, strict=True):
            part.copy_(moment.index_select(0, at).masked_fill_(~known[:, None], 0.0))
    return moved
