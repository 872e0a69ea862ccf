"""The training loop. One step is TrainStep (nerf/training/step.py); the data of a run are TrainState."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nerf.config.schema import Config
from nerf.errors import TrainingStopped
from nerf.training.averaging import average_if_due, finish
from nerf.training.capacity import plan_capacity, raise_capacity
from nerf.training.cuda_graph import StepRunner
from nerf.training.grid_schedule import advance_schedule
from nerf.training.losses import Loss
from nerf.training.nonfinite import SkippedSteps, parameters_finite
from nerf.training.prepared import can_be_captured
from nerf.training.state import TrainState
from nerf.training.step import TrainStep

ALWAYS_LOGGED = (1, 10)  # steps; early logs show whether training works at all


class NonFiniteLoss(TrainingStopped):
    """Loss or gradient were infinite or NaN in many steps, or a parameter became infinite or NaN."""

    remedy = "Lower field.lr_density, or check the images for broken ones"


@dataclass(frozen=True)
class TrainMetrics:
    """One log entry: means over the steps since the previous entry."""

    step: int
    total_steps: int
    progress: float
    psnr: float
    seconds: float
    rays_per_second: float
    dropped_rays: int
    samples_per_ray: float
    skipped_steps: int  # steps whose loss or gradient was not finite
    losses: dict[str, float]  # by name, weighted; photometric is the mean squared error


class Callback:
    """Hooks of the training loop; override the ones you need.

    Hooks are called by the training thread between two steps. The training clock runs meanwhile: put long work into
    `with state.paused():`. A hook may read and render the field without invalidating a captured CUDA graph. It must not
    change parameters or the state's random generators.
    """

    def on_step(self, state: TrainState) -> None:
        """Called after each step. On a GPU the step is queued and may still run."""

    def on_log(self, state: TrainState, metrics: TrainMetrics) -> None:
        """Called every train.log_every steps, after the device has finished; the training clock is stopped."""

    def on_grid_change(self, state: TrainState) -> None:
        """Called after a grid doubling or an occupancy update. Parameters may be new tensors."""

    def wants_log(self, state: TrainState) -> bool:
        """Asked after each step: True makes the loop wait for the device and log now."""
        return False

    def wants_stop(self, state: TrainState) -> bool:
        """Asked before the first step and after each step: True makes the loop log and end."""
        return False

    def wants_whole(self, state: TrainState) -> bool:
        """Asked after each step: True has the parts of a scene on several ranks together at the next on_step.

        Whoever renders in on_step needs that. In on_log they are together if this callback asked for the log.
        """
        return False


class StopWhen(Callback):
    """Ends training when a condition becomes true."""

    def __init__(self, condition: Callable[[], bool]) -> None:
        self._condition = condition

    def wants_stop(self, state: TrainState) -> bool:
        return self._condition()


def step_runner(config: Config, state: TrainState, step: TrainStep) -> StepRunner:
    """A runner for the step: a CUDA graph if settings, device, backend and field allow one, else plain calls."""
    generators = state.batches.generator, state.field.noise_generator
    return StepRunner(step, generators, can_be_captured(config, state), step.preparation.has_changed)


def train(
    config: Config,
    state: TrainState,
    callbacks: Sequence[Callback] = (),
    losses: Mapping[str, Loss] | None = None,
) -> Iterator[TrainMetrics]:
    """Trains a state to the end of its schedule, yielding TrainMetrics every train.log_every steps.

    losses: additional losses by name, each a function from losses.LossInputs to a scalar tensor, already weighted. They
    are added to the losses of the config and logged by name.

    On several ranks (state.parts) each calls this with its own callbacks; what one of them wants happens on all ranks.

    Steps whose loss or gradient is not finite are skipped. At a log, raises NonFiniteLoss if too many steps were
    skipped (nerf/training/nonfinite.py) or a parameter is not finite. Raises EmptyGrid if pruning leaves no cell.
    """
    try:
        yield from _train(config, state, callbacks, losses)
    finally:  # of an error too: what follows is no training, and the next call starts the clock
        state.clock.stop()


def _train(
    config: Config, state: TrainState, callbacks: Sequence[Callback], losses: Mapping[str, Loss] | None
) -> Iterator[TrainMetrics]:
    clock, on_cpu = state.clock, state.device.type == "cpu"
    host = state.field.host_rows
    unplanned = state.capacity == 0 or (host is not None and not host.capacity[0])
    if unplanned and state.parts is None:  # a run that was saved by several ranks, which have none, or goes on
        plan_capacity(config, state)
    step = TrainStep(config, state, losses)
    runner = step_runner(config, state, step)
    for optimizer in state.optimizers():
        optimizer.clear_gradients()  # of a step that an error ended
    last_step, last_seconds, rays, skips = clock.step, clock.elapsed, 0, SkippedSteps()
    clock.start()
    stopping, _, whole = _wishes(callbacks, state)
    if clock.finished:  # of a run that was stopped as its time was up
        finish(state)
    while not clock.finished and not stopping:
        if advance_schedule(config, state, runner):
            for callback in callbacks:
                callback.on_grid_change(state)
        state.optimizer.decay.fill_(config.train.rate_factor(clock.progress))
        state.field.set_progress(clock.progress)
        for module in state.auxiliary_modules().values():
            module.set_progress(clock)
        step.advance()
        runner.step()
        clock.tick()
        average_if_due(config, state)
        rays += config.train.rays_per_step * state.rays_per_pixel
        if whole:
            state.collect(with_moments=False)
        for callback in callbacks:
            callback.on_step(state)
        stopping, asked, whole = _wishes(callbacks, state)
        due = clock.step in ALWAYS_LOGGED or _is_due(config, clock.step)
        logging = asked or due or stopping
        if logging or clock.finished or on_cpu:
            seconds = state.read_clock()
        if clock.finished:
            finish(state)
        if logging or clock.finished:
            count, sums = clock.step - last_step, step.read()
            skips.add(sums.skipped, count)
            if skips.should_abort:
                found = f"in {skips.skipped} of the {skips.steps} steps up to step {clock.step}"
                raise NonFiniteLoss(f"loss or gradient were not finite {found}, which were skipped")
            state.dropped_rays += sums.dropped_rays
            # A log that a clock or a stop asked for changes nothing of a run that is to be repeated.
            if due or not config.deterministic:
                state.optimizer.count_on()
            if state.dropped_rays and (due or not config.deterministic):
                state.dropped_rays = 0
                raise_capacity(state)
                runner.invalidate()
            # Samples with NaN density get no weight, so the losses do not show them.
            modules = state.field, *state.auxiliary_modules().values()
            away = [group.parameter for group in state.optimizer.groups if group.host is not None]
            if not _all(state, parameters_finite(modules, away)):
                raise NonFiniteLoss(f"a parameter was not finite after step {clock.step}")
            applied = count - sums.skipped - sums.without_room
            means = {name: value / applied if applied else math.nan for name, value in sums.losses.items()}
            metrics = TrainMetrics(
                step=clock.step,
                total_steps=clock.total_steps,
                progress=clock.progress,
                psnr=-10 * math.log10(max(means["photometric"], 1e-12)) if applied else math.nan,
                seconds=seconds,
                rays_per_second=rays / max(seconds - last_seconds, 1e-9),
                dropped_rays=sums.dropped_rays + sums.without_room * config.train.rays_per_step * state.rays_per_pixel,
                samples_per_ray=sums.samples / rays,
                skipped_steps=sums.skipped,
                losses=means,
            )
            clock.stop()
            if stopping or asked or clock.finished:
                state.collect()
            for callback in callbacks:
                callback.on_log(state, metrics)
            yield metrics
            clock.start()
            last_step, last_seconds, rays = clock.step, seconds, 0
    if state.parts is not None and state.parts.whole_optimizer is None:  # nothing was left to train
        state.collect()


def _wishes(callbacks: Sequence[Callback], state: TrainState) -> tuple[bool, bool, bool]:
    """Whether a callback, on any rank, wants to stop, to log, or to have the scene whole after the next step."""
    # All are asked, not up to the first that wants it: they remember what they said.
    stops = [callback.wants_stop(state) for callback in callbacks]
    logs = [callback.wants_log(state) for callback in callbacks]
    if state.parts is None:
        return any(stops), any(logs), False
    wholes = [callback.wants_whole(state) for callback in callbacks]
    stop, log, whole = (wish > 0 for wish in state.parts.world.all_reduce_max(any(stops), any(logs), any(wholes)))
    return stop, log, whole


def _all(state: TrainState, condition: bool) -> bool:
    """Whether a condition holds on every rank."""
    return condition if state.parts is None else not any(state.parts.world.all_reduce_max(not condition))


def _is_due(config: Config, step: int) -> bool:
    every = config.train.log_every, config.train.save_every
    return any(interval and step % interval == 0 for interval in every)
