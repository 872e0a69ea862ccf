"""A training run, from settings to checkpoint, for commands and notebooks (exported by `import nerf`).

Files are written and read by nerf/runs/checkpoint.py. Rendering and scoring: nerf/runs/open_run.py.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from nerf.config import recipes
from nerf.config.schema import Config, DatasetConfig, build
from nerf.datasets.load import found_again, load_split, located
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.files import make_folder
from nerf.ops.backend import Backend, select
from nerf.runs import checkpoint
from nerf.runs.initial_poses import cameras_to_begin_with
from nerf.runs.interrupts import StopOnInterrupt
from nerf.runs.open_run import LoadedRun, in_words, of_state
from nerf.runs.resolve import (
    check_features,
    check_learned_poses,
    check_repeatable,
    photo_facts,
    resolve_for_run,
    why_background,
    without_effect,
)
from nerf.runs.run_folder import RunLock, forget_run, holds_run
from nerf.scene.bounds import describe, why_turned
from nerf.training.grid_schedule import occupancy_updates
from nerf.training.initial_state import init_state
from nerf.training.loop import Callback, TrainMetrics, train
from nerf.training.losses import Loss
from nerf.training.memory import MemoryPlan, TooLittleMemory, plan_memory
from nerf.training.state import TrainState

WHAT_FITS = "what fits this GPU's memory"


@dataclass(frozen=True)
class TrainingRun:
    """A training run: resolved settings, training images and training state."""

    config: Config
    images: PosedImages
    state: TrainState
    reasons: tuple[str, ...] = ("as in the resumed run",)  # for the kind of scene
    notes: tuple[str, ...] = ()  # messages for the user
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of each setting; empty for a resumed run
    own: set[Path] = dataclasses.field(default_factory=set, repr=False, compare=False)  # folders that it may write over

    def __repr__(self) -> str:
        """One line."""
        clock = self.state.clock
        return (
            f"TrainingRun({in_words(self.config, self.state.field)}, {len(self.images)} training views; "
            f"step {clock.step}, {clock.progress:.0%} of the schedule)"
        )

    @property
    def finished(self) -> bool:
        """Whether the whole schedule is done."""
        return self.state.clock.finished

    def train(
        self, callbacks: Sequence[Callback] = (), losses: Mapping[str, Loss] | None = None
    ) -> Iterator[TrainMetrics]:
        """Trains to the end of the schedule, yielding TrainMetrics every train.log_every steps.

        callbacks: see nerf.training.Callback. losses: additional losses by name (nerf.training.Loss).

        The loop may be left at any time: by break, by an exception, or by an interrupt (Ctrl-C, a notebook's stop
        button), which is raised as KeyboardInterrupt between two steps. The next call continues exactly there; only an
        error within a step, as of a loss of one's own, costs the pixels of that step.

        Raises nerf.training.TrainingStopped if training cannot continue: values that are not finite, an empty grid.
        """
        interrupt = StopOnInterrupt()
        entries = train(self.config, self.state, [interrupt, *callbacks], losses)
        while True:
            with interrupt:  # not while the caller has the entry
                metrics = next(entries, None)
            if interrupt.asked:
                raise KeyboardInterrupt(f"stopped after step {self.state.clock.step}; train() goes on")
            if metrics is None:
                return
            yield metrics

    def memory_plan(self) -> MemoryPlan:
        """The estimated GPU memory of the run at its finest grids."""
        box = self.state.field.box
        finest = box.resolution(box.num_voxels(self.state.finest_voxel))
        return plan_memory(self.config, finest, self.images, self.state.most_voxels)

    def save(self, folder: str | Path, overwrite: bool = False) -> Path:
        """Saves the run for load() and resume(); returns the folder.

        overwrite: also over another run, whose files are lost. Raises UserError if the folder contains another run, if
        it cannot be written, or if another process trains a run in it.
        """
        folder = Path(folder)
        over_another = holds_run(folder) and folder.resolve() not in self.own
        if over_another and not overwrite:
            raise UserError(
                f"{folder} contains another run, which would be overwritten; save into another folder, or give "
                "overwrite=True to lose it."
            )
        try:
            make_folder(folder)
        except OSError as error:
            raise UserError(f"{folder} cannot be created: {error.strerror}; save into another folder.") from error
        with RunLock(folder):  # which is refused, before anything is lost, where another process trains
            if over_another:
                forget_run(folder, lose_it=True)
            checkpoint.save(folder, self.config, self.state, self.images.cameras)
        self.own.add(folder.resolve())
        return folder

    def open(self) -> LoadedRun:
        """The current state of the run, for rendering. It shares the field's tensors, until the next grid doubling."""
        return of_state(self.config, self.state, self.images.cameras)


Load = Callable[[DatasetConfig, str], PosedImages]


def start(
    config: Config, images: PosedImages | None = None, backend: Backend | None = None, load: Load = load_split
) -> TrainingRun:
    """Prepares a fresh run: chooses the backend, reads the images, computes the scene box. Writes no files.

    images: of the training, where they are in memory already; None: those of config.dataset. backend: None: that of the
    config. load: how images are read.

    If field.num_voxels is None and the recipe's grids do not fit into the GPU's memory, takes the largest that fit.

    Raises UserError for settings out of range or without effect, and for a scene that is missing or cannot be used.
    """
    config = build(Config, asdict(config))  # attributes may have been set to anything
    check_learned_poses(config)
    read = images is None
    if read:
        images = load(config.dataset, "train")
    run = _start(config, images, backend or select(config.backend, config.device, config.deterministic))
    dataset = located(run.config.dataset) if read else run.config.dataset
    known = run.sources
    if dataset.root != config.dataset.root:
        known = {**known, "dataset.root": "where the scene was found"}
    return replace(run, config=replace(run.config, dataset=dataset), sources=known)


def _start(config: Config, images: PosedImages, backend: Backend) -> TrainingRun:
    described = describe(config.dataset, images.scene, images.has_alpha)
    resolved = resolve_for_run(config, images, backend, described)
    try:
        begin = cameras_to_begin_with(resolved.poses, images.cameras)
        state = init_state(resolved, images, backend, described, begin)
        facts = photo_facts(resolved, images, backend, described)
        known = recipes.sources(config, resolved, backend.device.type, facts)
        why = why_background(config, resolved)
        if why:
            known = {**known, "dataset.background": "the edges of the images"}
        reasons = (*described.reasons, *why, *why_turned(state.field.box))
        return TrainingRun(resolved, images, state, reasons, without_effect(config, resolved), known)
    except TooLittleMemory as error:
        if config.deterministic:
            raise  # what is free now is not what was or will be: a run that is to be repeated says its voxels
        voxels = config.field.num_voxels
        if error.sparse and config.field.sparse is None:
            name, value, note = "field.sparse", True, "field.sparse=true"
        elif error.num_voxels is not None and voxels is None:
            name, value = "field.num_voxels", error.num_voxels
            note = f"field.num_voxels={value}, not {resolved.field.num_voxels}"
        elif error.in_host and voxels is not None and _may_be_in_host(config):
            name, value, note = "train.features", "host", "train.features=host"
        else:
            raise
        group, leaf = name.split(".")
        config = replace(config, **{group: replace(getattr(config, group), **{leaf: value})})
        run = _start(config, images, backend)
        return replace(run, reasons=(*run.reasons, f"{note}: {WHAT_FITS}"), sources={**run.sources, name: WHAT_FITS})


def _may_be_in_host(config: Config) -> bool:
    """Whether features may be in host memory without a setting that was given becoming another. config: as given."""
    smoothed = config.loss.tv_until not in (None, 1.0) and config.loss.tv_global != 0
    visits_all = smoothed or config.train.average_from not in (None, 1.0)
    return config.train.features == "auto" and config.field.sparse is not False and not visits_all


def resume(
    folder: str | Path,
    change: Callable[[Config], Config] = lambda saved: saved,
    steps: int | None = None,
    max_seconds: float | None = None,
    images: PosedImages | None = None,
    load: Load = load_split,
) -> TrainingRun:
    """Loads a saved run for further training: a stopped run continues as if never stopped, a finished one is extended.

    change: maps the saved settings to those to continue with; it must not change settings that affect the result.
    steps, max_seconds: the new total budget of a finished run, including what it has done. It continues with the second
    half of a schedule of that length (RunClock.extend). images: of the training, where they are in memory already.
    load: how they are read.

    Raises UserError if there is no such run, it is damaged, or its images have changed; if an unfinished run is given a
    new budget, or a finished run a budget that is already used up.
    """
    content = checkpoint.load_resume(Path(folder))
    config = change(checkpoint.restore_config(content))
    if images is None:
        config = replace(config, dataset=located(found_again(config.dataset)))
        images = load(config.dataset, "train")
    backend = select(config.backend, config.device, config.deterministic)
    notes = ()
    if config.train.features == "host" and config.train.average_from < 1:  # they were elsewhere before
        config = replace(config, train=replace(config.train, average_from=1.0))
        notes = ("features in host memory are not averaged: train.average_from=1",)
    check_features(config, resumed=True)
    config = resolve_for_run(config, images, backend)
    state = checkpoint.restore_run(content, config, images, backend)
    run = TrainingRun(config, images, state, notes=notes, own={Path(folder).resolve()})
    budget = (config.train.steps, config.train.max_seconds)
    asked = (steps, max_seconds)
    if all(new in (None, old) for new, old in zip(asked, budget, strict=True)):
        return run
    return _extended(run, steps, max_seconds)


def _extended(run: TrainingRun, steps: int | None, max_seconds: float | None) -> TrainingRun:
    """A finished run with a larger budget. Raises UserError like resume."""
    config, state, clock = run.config, run.state, run.state.clock
    asked = {"train.steps": steps, "train.max_seconds": max_seconds}
    asked = {name: value for name, value in asked.items() if value is not None}
    given = ", ".join(f"{name}={value:g}" for name, value in asked.items())
    if not clock.finished:
        had = " and ".join(f"{name}={getattr(config.train, name.split('.')[1])}" for name in asked)
        raise UserError(
            f"an unfinished run keeps its budget, so that it ends as if never stopped; drop {given} (of this run: "
            f"{had}), and give it when the run has finished."
        )
    if config.deterministic:
        check_repeatable(max_seconds)
    done = {"train.steps": clock.step, "train.max_seconds": clock.elapsed}
    for name, value in asked.items():
        if value <= done[name]:
            raise UserError(f"{name}={value:g} is used up: this run has done {done[name]:.6g}; give more than that.")
    for optimizer in state.optimizers():
        optimizer.take_averages()  # where it was stopped as its time was up
    clock.extend(steps, max_seconds)
    # The counts must match the new progress, or updates would be missed.
    state.num_occupancy_updates, state.num_averages = occupancy_updates(config, clock.progress), 0
    config = replace(config, train=replace(config.train, steps=steps, max_seconds=max_seconds))
    note = (
        f"the run was finished; it continues from step {clock.step} to {given} with the second half of a new schedule: "
        f"learning rates restart at {config.train.rate_factor(clock.progress):.2g} times their initial value"
    )
    return replace(run, config=config, notes=(*run.notes, note))
