"""The training loop. What a step does is TrainStep (nerf/training/step.py); what a run owns is TrainState."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nerf.calibration.pose_refinement import coarse_to_fine
from nerf.config.recipes import fill_in
from nerf.config.schema import Config
from nerf.errors import TrainingStopped
from nerf.ops.backend import Backend
from nerf.training.capacity import raise_capacity
from nerf.training.cuda_graph import StepRunner
from nerf.training.grid_schedule import advance_schedule
from nerf.training.losses import Loss
from nerf.training.nonfinite import SkippedSteps, parameters_finite
from nerf.training.state import TrainState
from nerf.training.step import TrainStep

ALWAYS_LOGGED = (1, 10)  # steps: whether a run has begun well shows early


class NonFiniteLoss(TrainingStopped):
    """Loss or gradient are infinite or NaN step after step, or a parameter is."""

    remedy = "Lower field.lr_density, or look for broken images"


@dataclass(frozen=True)
class TrainMetrics:
    """What training tells each time it logs: means since it last did."""

    step: int
    total_steps: int
    progress: float
    psnr: float
    seconds: float
    rays_per_second: float
    dropped_rays: int
    samples_per_ray: float
    skipped_steps: int  # whose loss or gradient was not finite
    losses: dict[str, float]  # each by its name, times its weight; photometric is the mean squared error


class Callback:
    """Hooks of the training loop; override those that are needed.

    All are called between two steps, by the thread that trains, while the training clock runs: what takes long belongs
    into `with state.paused():`. They may read the field and render it: a recorded CUDA graph stays valid. Neither
    parameters nor the state's random generators may be changed.
    """

    def on_step(self, state: TrainState) -> None:
        """After each step; on a GPU it has been queued, and may still run."""

    def on_log(self, state: TrainState, metrics: TrainMetrics) -> None:
        """Every train.log_every steps, when the device has been waited for; the training clock is stopped."""

    def on_grid_change(self, state: TrainState) -> None:
        """After grids have doubled or an occupancy update: parameters may be new tensors."""

    def wants_log(self, state: TrainState) -> bool:
        """Asked after each step: whether to log now, for what needs the device to be waited for."""
        return False

    def wants_stop(self, state: TrainState) -> bool:
        """Asked after each step, and once before the first: whether to log and leave the loop."""
        return False


class StopWhen(Callback):
    """Leaves the loop once a condition holds."""

    def __init__(self, condition: Callable[[], bool]) -> None:
        self._condition = condition

    def wants_stop(self, state: TrainState) -> bool:
        return self._condition()


def resolve(config: Config, backend: Backend, kind: str | None = None) -> Config:
    """The config with the settings filled in that depend on device, kind of scene and budget (nerf/config/recipes.py).

    kind: what dataset.kind=auto comes to; None: a box. Where poses are learned, grids grow as coarse_to_fine says.
    """
    if kind is None:
        kind = "box" if config.dataset.kind == "auto" else config.dataset.kind
    config = fill_in(config, backend.device.type, kind)
    if config.poses.mode == "fixed":
        return config
    shares = coarse_to_fine(config.poses, config.field.num_voxels)
    return replace(config, field=replace(config.field, upsample_at=shares))


def step_runner(config: Config, state: TrainState, step: Callable[[], None]) -> StepRunner:
    """Runs the step, as a CUDA graph where the settings, the device, the backend and the field allow it."""
    backend = state.field.backend
    # The reference reads sizes back from the device, and so does asking for density point by point: a graph cannot.
    graphed = backend.device.type == "cuda" and backend.name == "native" and state.field.density_grid_view is not None
    graphed = graphed and config.train.cuda_graph
    return StepRunner(step, [state.batches.generator, state.field.noise_generator], graphed)


def train(
    config: Config,
    state: TrainState,
    callbacks: Sequence[Callback] = (),
    losses: Mapping[str, Loss] | None = None,
) -> Iterator[TrainMetrics]:
    """Trains a state to the end of its schedule, yielding TrainMetrics every train.log_every steps.

    losses: of your own, by name, each a function of losses.LossInputs to a scalar tensor; added to those of the config
    and logged by name.

    Steps whose loss or gradient is not finite are left out. Raises NonFiniteLoss at the log where these persist
    (nerf/training/nonfinite.py) and at the first one after a parameter that is not finite, and EmptyGrid where pruning
    leaves nothing.
    """
    clock, on_cpu = state.clock, state.device.type == "cpu"
    step = TrainStep(config, state, losses)
    runner = step_runner(config, state, step)
    last_step, last_seconds, rays, trouble = clock.step, clock.elapsed, 0, SkippedSteps()
    clock.start()
    stopping = any(callback.wants_stop(state) for callback in callbacks)
    while not clock.finished and not stopping:
        if advance_schedule(config, state, runner):
            for callback in callbacks:
                callback.on_grid_change(state)
        state.optimizer.decay.fill_(config.train.lr_decay**clock.progress)
        for learner in state.learners().values():
            learner.advance(clock)
        state.batches.advance(config.train.rays_per_step, state.background)
        runner.step()
        clock.tick()
        rays += config.train.rays_per_step * state.rays_per_pixel
        for callback in callbacks:
            callback.on_step(state)
        stopping = any(callback.wants_stop(state) for callback in callbacks)
        logging = stopping or clock.step in ALWAYS_LOGGED or _is_due(config, clock.step)
        logging = any(callback.wants_log(state) for callback in callbacks) or logging
        if logging or clock.finished or on_cpu:
            seconds = state.read_clock()
        if logging or clock.finished:
            count, sums = clock.step - last_step, step.read()
            trouble.add(sums.left_out, count)
            if trouble.persist:
                found = f"in {trouble.left_out} of the {trouble.steps} steps up to step {clock.step}"
                raise NonFiniteLoss(f"loss or gradient were not finite {found}, which were left out")
            if sums.dropped_rays:
                raise_capacity(state)
                runner.invalidate()
            # Density that is NaN weighs nothing and shows in no loss.
            if not parameters_finite([state.field, *state.learners().values()]):
                raise NonFiniteLoss(f"a parameter was not finite after step {clock.step}")
            taken = count - sums.left_out
            means = {name: value / taken if taken else math.nan for name, value in sums.losses.items()}
            metrics = TrainMetrics(
                step=clock.step,
                total_steps=clock.total_steps,
                progress=clock.progress,
                psnr=-10 * math.log10(max(means["photometric"], 1e-12)) if taken else math.nan,
                seconds=seconds,
                rays_per_second=rays / max(seconds - last_seconds, 1e-9),
                dropped_rays=sums.dropped_rays,
                samples_per_ray=sums.samples / rays,
                skipped_steps=sums.left_out,
                losses=means,
            )
            clock.stop()
            for callback in callbacks:
                callback.on_log(state, metrics)
            yield metrics
            clock.start()
            last_step, last_seconds, rays = clock.step, seconds, 0
    clock.stop()


def _is_due(config: Config, step: int) -> bool:
    every = config.train.log_every, config.train.save_every
    return any(interval and step % interval == 0 for interval in every)
