"""What a training step needs before it evaluates its field: a batch of rays, their visible samples, and of features in
host memory the rows that these read.

Where features are in host memory and batches are small, a captured step does that for the next one, on a second branch
of its graph: the bus is free while gradients are computed. Which samples are visible is then seen in the density before
this step, not after it. What the step changes of the rows is carried over on the device.
"""

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from nerf.config.schema import Config
from nerf.distributed.segments import PartSamples
from nerf.ops.branches import Branch
from nerf.optim.host_rows import MOST_RAYS_AHEAD, Window
from nerf.rendering.render import visible_samples
from nerf.rendering.sampler import RaySampler
from nerf.rendering.samples import RaySamples
from nerf.training.batches import RayBatch
from nerf.training.capacity import grow_window
from nerf.training.state import TrainState, make_sampler


@dataclass(frozen=True)
class Prepared:
    """The batch of a step of P pixels, and its samples."""

    batch: RayBatch
    background: Tensor  # [P,3] drawn colors
    samples: RaySamples | PartSamples
    window: Window | None = None  # None: nothing is in host memory, or the step brings it itself


def can_be_captured(config: Config, state: TrainState) -> bool:
    """Whether settings, device, backend and field allow steps that read nothing from the device.

    The PyTorch reference reads from it, and so do density queries point by point and a scene in parts.
    """
    backend = state.field.backend
    on_gpu = backend.device.type == "cuda" and backend.name == "native" and state.field.density_grid_view is not None
    return on_gpu and config.train.cuda_graph and state.parts is None


class Preparation:
    """Has ready what a step needs: what the step before has found, or else what is found now."""

    def __init__(self, config: Config, state: TrainState) -> None:
        self.config, self.state = config, state
        self._branch = Branch(state.device)
        self._found: Prepared | None = None  # by the step at hand
        self._next: Prepared | None = None  # always in the same memory, where a captured step finds it
        self._found_for: tuple[Any, ...] = ()  # the settings of its samples
        self._found_in: list[weakref.ref[Tensor]] = []  # the grids of then, which are not kept alive
        self._changed = False  # self._next is in other memory than before, or a window has more room

    @property
    def is_ahead(self) -> bool:
        """Whether a step finds what the next one needs. Rays of learned poses have a gradient: they are of one step."""
        state, rays = self.state, self.config.train.rays_per_step * self.state.rays_per_pixel
        there = state.field.host_rows is not None and state.poses is None and rays <= MOST_RAYS_AHEAD
        return there and can_be_captured(self.config, state)

    def advance(self) -> None:
        """Call before each step, outside of a CUDA graph."""
        batches, background, count = self.state.batches, self.state.background, self.config.train.rays_per_step
        self._changed = grow_window(self.state) or self._changed
        if batches.drawn_ahead and not (self.is_ahead and self._is_current()):
            batches.stop_prefetch()
        if self.is_ahead and not batches.drawn_ahead:
            batches.advance(count, background)
            self._keep(self._prepare(make_sampler(self.config, self.state)))
            self._found_for, self._found_in = self._settings(), [weakref.ref(grid) for grid in self._grids()]
        batches.advance(count, background, ahead=self.is_ahead)

    def begin_step(self, sampler: RaySampler) -> Prepared:
        """What the step at hand needs. That of the next one is looked for from now on."""
        if not self.is_ahead:
            return self._prepare(sampler)
        with self._branch.beside():
            self._found = self._prepare(sampler)
        return self._next

    def before_update(self) -> None:
        """Call before the optimizer changes what the next step's samples are found in and brought from."""
        self._branch.join()

    def end_step(self, window: Window | None) -> None:
        """Has ready what was found. window: of the step that ends, whose rows have gone back."""
        if self._found is not None:
            self._keep(replace(self._found, window=self.state.field.host_rows.carry_over(window, self._found.window)))
            self._found = None

    def has_changed(self) -> bool:
        """Whether a captured step is not valid any more since this was asked last."""
        changed, self._changed = self._changed, False
        return changed

    def _prepare(self, sampler: RaySampler) -> Prepared:
        config, state = self.config, self.state
        batch, background = state.batches.next(config.train.rays_per_step, state.background, state.rays_per_pixel)
        if state.parts is not None:
            samples = state.parts.visible_samples(state.field, sampler, batch.rays, batch.jitter)
            return Prepared(batch, background, samples)
        samples = visible_samples(state.field, sampler, batch.rays, batch.jitter, state.capacity)
        field, window = state.field, None
        if self.is_ahead:
            coords = samples.coords(sampler.grid_map)
            window = field.host_rows.make_window(field.appearance_grid.detach(), coords, field.rows)
        return Prepared(batch, background, samples, window)

    def _grids(self) -> tuple[Tensor, ...]:
        return self.state.occupancy.occupied, *self.state.field.grids

    def _settings(self) -> tuple[Any, ...]:
        return self.state.capacity, self.state.rays_per_pixel, self.state.field.host_rows.capacity

    def _is_current(self) -> bool:
        """Whether self._next is what would be found now, but for the batch."""
        found, grids = [grid() for grid in self._found_in], self._grids()
        same = len(found) == len(grids) and all(a is b for a, b in zip(found, grids, strict=True))
        return same and self._found_for == self._settings()

    def _keep(self, found: Prepared) -> None:
        sources = _tensors(found)
        targets = [] if self._next is None else _tensors(self._next)
        if [(x.shape, x.dtype) for x in sources] != [(x.shape, x.dtype) for x in targets]:
            self._next, self._changed = _copied(found, {}), True
            return
        for dtype in {x.dtype for x in sources}:  # one kernel for all of a dtype
            pairs = [pair for pair in zip(targets, sources, strict=True) if pair[0].dtype == dtype]
            torch._foreach_copy_(*map(list, zip(*pairs, strict=True)))


def _tensors(tree: Any) -> list[Tensor]:
    """The tensors of a dataclass and of those in it, each once."""
    return list({id(tensor): tensor for tensor in _each(tree)}.values())


def _each(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif is_dataclass(tree):
        for field in fields(tree):
            yield from _each(getattr(tree, field.name))


def _copied(tree: Any, known: dict[int, Tensor]) -> Any:
    """A dataclass with copies of its tensors. known: copies so far by the identity of what they are of."""
    if isinstance(tree, Tensor):
        return known.setdefault(id(tree), tree.clone())
    if not is_dataclass(tree):
        return tree
    return type(tree)(**{field.name: _copied(getattr(tree, field.name), known) for field in fields(tree)})
