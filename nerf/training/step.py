"""One training step: batch, samples, rendering, losses, gradients, Adam. No part of it waits for the device.

Batch and samples may have been found while the step before ran (nerf/training/prepared.py).

Legend: P pixels of a batch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from nerf.config.schema import Config
from nerf.distributed.segments import PartSamples
from nerf.ops.branches import Beside, Branch, at_once
from nerf.optim.host_rows import Window
from nerf.rendering.render import composite_samples, shaded_pixels
from nerf.rendering.sampler import RaySampler
from nerf.rendering.samples import RaySamples
from nerf.training import losses
from nerf.training.batches import RayBatch
from nerf.training.losses import GeometryInputs, Loss, LossInputs, Objective
from nerf.training.nonfinite import all_finite
from nerf.training.prepared import Preparation
from nerf.training.state import TrainState, make_sampler
from nerf.training.total_variation import regularize_grids

COUNTS = 4  # steps that were left out, those of them without room, dropped rays, samples


@dataclass(frozen=True)
class StepSums:
    """Sums over several steps."""

    losses: dict[str, float]  # by name, weighted; of steps that were applied
    skipped: int  # steps whose loss or gradient was not finite
    without_room: int  # steps that needed more rows of host memory than there was room for, and were left out
    dropped_rays: int
    samples: float


class TrainStep:
    """Queues one training step per call, each after advance(). The call can be captured as a CUDA graph."""

    def __init__(self, config: Config, state: TrainState, extra: Mapping[str, Loss] | None = None) -> None:
        """extra: losses in addition to those of the config, by name (losses.Loss)."""
        self.config, self.state, self.extra = config, state, dict(extra or {})
        self.objective = Objective(config.loss, state.device, self.extra)
        self.preparation = Preparation(config, state)
        self._branch = Branch(state.device, first=True)
        self._sums = torch.zeros(len(self.objective.names) + COUNTS, device=state.device)
        self._zero, self._none = self._sums.new_zeros(1), self._sums.new_zeros((), dtype=torch.int64)
        # What a step adds to the sums of losses, and to the number of steps left out, where it is one of these.
        self._left_out = torch.tensor([*[0.0] * len(self.objective.names), 1.0], device=state.device)

    def advance(self) -> None:
        """Call before each step, outside of a CUDA graph."""
        self.preparation.advance()

    def __call__(self) -> None:
        config, state = self.config, self.state
        if state.parts is not None:
            state.parts.begin_step(state.field, state.optimizer)
        sampler = make_sampler(config, state)
        now = self.preparation.begin_step(sampler)
        state.field.begin_step(now.window)
        samples = now.samples
        found = forward(config, state, sampler, now.batch, now.background, samples, self.extra, self._branch)
        with self._branch.beside():
            terms = self.objective.terms(found)
            loss = terms.sum()
        backward(state, self.objective, found)
        variation = add_regularization(config, state)
        self._branch.wait()
        window = step_window(state)
        self.preparation.before_update()
        update(
            state,
            loss,
            before_adam=lambda applied: self._add_to_sums(applied, terms, window, samples),
            beside=self._branch.beside,
            variation=variation,
        )
        if state.parts is not None:
            state.parts.end_step(state.field)
        self._branch.join()
        self.preparation.end_step(window)

    @torch.no_grad()
    def _add_to_sums(
        self, applied: Tensor, terms: Tensor, window: Window | None, samples: RaySamples | PartSamples
    ) -> None:
        """Queues the sums of a step. Before Adam, so that they run beside its large kernels and not behind them."""
        with self._branch.beside(applied):
            self._sums[:-3].add_(torch.where(applied, torch.cat([terms, self._zero]), self._left_out))
            without_room = self._none if window is None or window.fits is None else (~window.fits).long()
            self._sums[-3:].add_(torch.stack([without_room, samples.overflow[0], samples.ray_offsets[-1]]))

    def read(self) -> StepSums:
        """The sums over the steps since the previous read(). Waits for the device."""
        if self.state.parts is not None:
            self.state.parts.all_reduce_sum_(self._sums[-2:], "decisions")  # rays and samples of each part
        *terms, left_out, without_room, dropped, samples = self._sums.tolist()
        self._sums.zero_()
        named = dict(zip(self.objective.names, terms, strict=True))
        return StepSums(named, int(left_out - without_room), int(without_room), int(dropped), samples)


def step_window(state: TrainState) -> Window | None:
    """What the step has brought from host memory, until its optimizer has taken it."""
    return None if state.field.host_rows is None else state.field.host_rows.window


def forward(
    config: Config,
    state: TrainState,
    sampler: RaySampler,
    batch: RayBatch,
    drawn: Tensor,
    samples: RaySamples | PartSamples,
    extra: Mapping[str, Loss] | None = None,
    branch: Branch | None = None,
) -> dict[str, Tensor]:
    """The losses of a batch by name, before their weights, from its samples.

    drawn [P,3]: the batch's background colors. branch: where losses of geometry are computed, while pixels are shaded;
    it has not been waited for, as their part of the backward pass runs there too. Not beside losses of one's own, which
    may read the same tensors.
    """
    background = state.background.train(drawn)
    alpha = batch.rgba[:, 3:]
    with_depth = config.loss.depth > 0 or config.loss.multi_view > 0 or bool(extra)
    wanted = {"with_distortion": config.loss.distortion > 0, "with_depth": with_depth}
    beside = at_once if branch is None or extra else branch.beside
    shade = None
    if state.parts is None:
        seen = composite_samples(state.field, sampler, samples, **wanted, beside=beside)
    else:
        seen = state.parts.composite(state.field, sampler, samples, **wanted)
        shade = state.parts.shade_of(state.field)
    geometry = GeometryInputs(
        alpha=alpha[:, 0],
        seen=seen,
        samples=samples,
        pixels=batch.pixels,
        field=state.field,
        depth=state.batches.depth_of(batch.pixels),
        beside=state.batches.beside,
        rays=batch.rays,
    )
    with beside(alpha, seen.opacity, geometry.depth, batch.pixels, batch.rays.origins, batch.rays.directions):
        found = losses.of_geometry(config.loss, geometry)
    rendering = shaded_pixels(state.field, batch.rays, seen, background, shade)
    rgb = rendering.rgb
    if state.vignetting is not None:
        rgb = state.vignetting(rgb, alpha, batch.pixels)
    if state.exposure is not None:
        rgb = state.exposure(rgb, alpha, state.batches.cameras.image_of(batch.pixels))
    behind = background.detach().expand(len(alpha), 3)
    target = torch.lerp(behind, batch.rgba[:, :3].to(behind), alpha.to(behind))
    inputs = LossInputs(**vars(geometry), target=target, rgb=rgb, rendering=rendering)
    return found | losses.of_colors(config.loss, inputs, extra)


def backward(state: TrainState, objective: Objective, found: Mapping[str, Tensor]) -> None:
    """The gradients of a batch's losses. On several ranks each takes its share of what all have."""
    if state.parts is None:
        objective.backward(found)
        return
    objective.backward(found, state.parts.world.size)
    state.parts.sum_gradients(state.optimizer, *(module.optimizer for module in state.auxiliary_modules().values()))


def add_regularization(config: Config, state: TrainState) -> dict[str, float]:
    """Adds the gradients of the grids' total variation and of priors to the gradients of the losses.

    Returns the weights of total variation that is left to update(), by name of the grid (regularize_grids).
    """
    schedule = state.clock.progress, config.train.rays_per_step
    vertices = state.optimizer.active_vertices, state.optimizer.step_number
    weights = regularize_grids(state.field, config.loss, *schedule, *vertices, state.parts)
    if state.vignetting is not None:
        state.vignetting.add_prior()
    of_grids = [group.name for group in state.optimizer.groups if group.on_vertices]
    return dict(zip(of_grids, weights or (), strict=False))


def update(
    state: TrainState,
    loss: Tensor,
    before_adam: Callable[[Tensor], None],
    beside: Beside = at_once,
    variation: Mapping[str, float] | None = None,
) -> None:
    """An Adam step of the field and the auxiliary modules, skipped if the loss or a gradient is not finite.

    It is skipped too where a window has no room for all rows of host memory that the step needs. before_adam: called
    with whether the step is applied, [] bool on the device, before that begins. beside, variation: see MaskedAdam.step.
    """
    modules = state.auxiliary_modules().values()
    of_densities = state.field.take_density_gradients()
    finite = all_finite(loss, of_densities, state.optimizer, *(module.optimizer for module in modules))
    if state.parts is not None:
        finite = state.parts.all_true(finite)
    window = step_window(state)
    if window is not None and window.fits is not None:
        finite = finite & window.fits
    before_adam(finite)
    state.optimizer.step(finite, beside, variation)
    for module in modules:
        module.step(finite)
