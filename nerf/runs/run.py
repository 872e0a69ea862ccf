"""A run that trains, from its settings to its checkpoint: what commands and notebooks share (`import nerf` brings it).

Files go through nerf/runs/checkpoint.py; a trained run that renders is nerf/runs/open_run.py.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from nerf.config import recipes
from nerf.config.schema import Config, build
from nerf.datasets.load import found_again, load_split, located
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.ops.backend import Backend, select
from nerf.runs import checkpoint
from nerf.runs.initial_poses import cameras_to_begin_with
from nerf.runs.interrupts import StopOnInterrupt
from nerf.runs.open_run import OpenRun, in_words
from nerf.runs.ready import make_ready, ready
from nerf.runs.run_folder import RunLock
from nerf.training.grid_schedule import occupancy_updates
from nerf.training.initial_state import prepare
from nerf.training.loop import Callback, StopWhen, TrainMetrics, train
from nerf.training.losses import Loss
from nerf.training.memory import MemoryPlan, TooLittleMemory, plan_memory
from nerf.training.state import TrainState, make_sampler


@dataclass(frozen=True)
class TrainingRun:
    """A run that trains: its settings, resolved for the device, its images, and what changes while it trains."""

    config: Config
    images: PosedImages
    state: TrainState
    reasons: tuple[str, ...] = ("as it was begun",)  # for the kind of scene
    notes: tuple[str, ...] = ()  # what else its user should know
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of its settings; of a resumed run: none

    def __repr__(self) -> str:
        """One line."""
        clock = self.state.clock
        return (
            f"TrainingRun({in_words(self.config, self.state.field)}, {len(self.images)} training views; "
            f"step {clock.step}, {clock.progress:.0%} of the schedule)"
        )

    @property
    def finished(self) -> bool:
        """Whether the schedule is at its end."""
        return self.state.clock.finished

    def train(
        self, callbacks: Sequence[Callback] = (), losses: Mapping[str, Loss] | None = None
    ) -> Iterator[TrainMetrics]:
        """Trains to the end of the schedule, yielding TrainMetrics every train.log_every steps.

        callbacks: see nerf.training.Callback. losses: of your own, by name, beside those of the settings
        (nerf.training.losses.Loss).

        It may be left at any time: by break, by an exception, or by an interrupt (Ctrl-C, a notebook's stop button),
        which arrives as KeyboardInterrupt between two steps. The next call goes on as if there had been no stop.

        Raises nerf.training.TrainingStopped where it cannot go on: a number that is not finite, an empty grid.
        """
        reports = train(self.config, self.state, [StopWhen(lambda: interrupt.asked), *callbacks], losses)
        while True:
            with StopOnInterrupt() as interrupt:
                look = next(reports, None)
            if interrupt.asked:
                raise KeyboardInterrupt(f"stopped after step {self.state.clock.step}; train() goes on")
            if look is None:
                return
            yield look

    def memory_plan(self) -> MemoryPlan:
        """What the run needs of a GPU's memory at its finest grids, as it was reckoned before training."""
        box = self.state.field.box
        finest = box.resolution(box.size.double().prod().item() / self.state.finest_voxel**3)
        return plan_memory(self.config, finest, self.images)

    def save(self, folder: str | Path) -> Path:
        """Writes what load() and resume() read; returns the folder.

        Raises UserError where it cannot be written, or another process trains the run in it.
        """
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{folder} cannot be made: {error.strerror}; save into another folder.") from error
        with RunLock(folder):
            checkpoint.save(folder, self.config, self.state, self.images.cameras)
        return folder

    def open(self) -> OpenRun:
        """The run as it is now, to render; further training shows in it until the grids double."""
        sampler, learned = make_sampler(self.config, self.state), self.state.cameras.to("cpu")
        return OpenRun(None, self.config, self.state.field, sampler, learned, self.images.cameras)


def start(config: Config) -> TrainingRun:
    """A fresh run: chooses backend and device, reads the images, finds the scene's box. Nothing is written.

    Raises UserError for settings out of range, a scene that is not there or cannot be used.
    """
    config = build(Config, asdict(config))  # attributes may have been set to anything
    run = start_on(config, load_split(config.dataset, "train"), select(config.backend, config.device))
    dataset = located(run.config.dataset)
    known = run.sources
    if dataset.root != config.dataset.root:
        known = {**known, "dataset.root": "where the scene was found"}
    return replace(run, config=replace(run.config, dataset=dataset), sources=known)


def start_on(config: Config, images: PosedImages, backend: Backend) -> TrainingRun:
    """A fresh run on training images that are in memory, for many runs in one process. Raises as start does.

    Where a GPU's memory is too small for a recipe's grids and field.num_voxels is none, the largest that fit are taken.
    """
    resolved, described = make_ready(config, images, backend)
    try:
        begin = cameras_to_begin_with(resolved.poses, images.cameras)
        state = prepare(resolved, images, backend, described, begin)
        known = recipes.sources(config, resolved, backend.device.type)
        return TrainingRun(resolved, images, state, described.reasons, sources=known)
    except TooLittleMemory as error:
        if config.field.num_voxels is not None or error.num_voxels is None:
            raise
        run = start_on(replace(config, field=replace(config.field, num_voxels=error.num_voxels)), images, backend)
        note = f"field.num_voxels={error.num_voxels}, not {resolved.field.num_voxels}: what fits this GPU's memory"
        known = {**run.sources, "field.num_voxels": "what fits this GPU's memory"}
        return replace(run, reasons=(*run.reasons, note), sources=known)


def resume(
    folder: str | Path,
    change: Callable[[Config], Config] = lambda saved: saved,
    steps: int | None = None,
    max_seconds: float | None = None,
) -> TrainingRun:
    """A saved run, to go on as if it had never stopped; or a finished one, to train further.

    change: gives the settings to go on with from the saved ones; what decides the result has to stay as it is.
    steps, max_seconds: the new budget of a finished run, what it has done counted in. It goes on with the second half
    of a schedule of that length (schedule.RunClock.extend).
    Raises UserError where there is no such run, it is damaged, or its images have changed; where a run that is not
    finished is given another budget, or a finished one a budget that is used up.
    """
    content = checkpoint.load_resume(Path(folder))
    config = change(checkpoint.restore_config(content))
    config = replace(config, dataset=located(found_again(config.dataset)))
    backend, images = select(config.backend, config.device), load_split(config.dataset, "train")
    config = ready(config, images, backend)
    run = TrainingRun(config, images, checkpoint.restore_run(content, config, images, backend))
    budget = (config.train.steps, config.train.max_seconds)
    asked = (steps, max_seconds)
    if all(new in (None, old) for new, old in zip(asked, budget, strict=True)):
        return run
    return _extended(run, steps, max_seconds)


def _extended(run: TrainingRun, steps: int | None, max_seconds: float | None) -> TrainingRun:
    """A finished run with a larger budget. Raises as resume does."""
    config, state, clock = run.config, run.state, run.state.clock
    asked = {"train.steps": steps, "train.max_seconds": max_seconds}
    asked = {name: value for name, value in asked.items() if value is not None}
    given = ", ".join(f"{name}={value:g}" for name, value in asked.items())
    if not clock.finished:
        had = " and ".join(f"{name}={getattr(config.train, name.split('.')[1])}" for name in asked)
        raise UserError(
            f"a run that is not finished keeps its settings, so that it ends as if never stopped; drop {given} "
            f"(of this run: {had}), and give it when the run has finished."
        )
    done = {"train.steps": clock.step, "train.max_seconds": clock.elapsed}
    for name, value in asked.items():
        if value <= done[name]:
            raise UserError(f"{name}={value:g} is used up: this run has done {done[name]:.6g}; give more than that.")
    clock.extend(steps, max_seconds)
    # Occupancy updates are counted from the beginning of a schedule.
    state.num_occupancy_updates = occupancy_updates(config, clock.progress)
    config = replace(config, train=replace(config.train, steps=steps, max_seconds=max_seconds))
    note = (
        f"the run was finished; it goes on from step {clock.step} to {given} with the second half of a new schedule: "
        f"learning rates start again at {config.train.lr_decay**clock.progress:.2g} times their first value"
    )
    return replace(run, config=config, notes=(note,))
