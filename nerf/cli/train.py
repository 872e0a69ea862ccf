"""Train a radiance field and score it.

    python scripts/train.py                                   the bundled scene
    python scripts/train.py dataset=lego                      Synthetic-NeRF lego
    python scripts/train.py dataset=blender dataset.scene=NAME
    python scripts/train.py dataset=capture dataset.root=DIR  photos with poses: COLMAP, nerfstudio, LLFF, NSVF, ...
    python scripts/train.py dataset=lego train.max_seconds=60 in a minute
    python scripts/train.py dataset=lego poses=refine         learns the cameras' poses with the scene
    python scripts/train.py dataset=lego poses.from_run=RUN   trains with the poses that another run learned
    python scripts/train.py -m field=voxel_sh,voxel_deferred  several runs, and a table that compares them
    python scripts/train.py resume=outputs/RUN                go on with a stopped run
    python scripts/train.py resume=outputs/RUN train.steps=N  train a finished one further, to N steps in all
    python scripts/train.py dataset=lego dry_run=true         checks poses, box, memory and time, as one HTML page
    python scripts/train.py dataset=lego viewer=true          watch it learn at http://localhost:8080; pause, stop
    torchrun --nproc-per-node=2 scripts/train.py dataset=lego on two GPUs (docs/distributed.md)

The run folder gets config.yaml, model.pt (for rendering), resume.pt (for resuming; may be deleted after the end),
metrics.json, test renders, a contact sheet, an orbit video, and curves where TensorBoard is installed. Ctrl-C, SIGTERM,
SIGHUP, SIGUSR1 and SIGXCPU save the run and print the command that resumes it. The exit status is then 128 +
the signal's number, so that a scheduler can start the run again with resume=.
"""

import contextlib
import dataclasses
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from nerf.cli.compare_runs import compare_sweep
from nerf.cli.ranks import World, divided, prepare_rank, run
from nerf.cli.report import MoreVoxels, RunReport, progress_bar, save_config
from nerf.cli.resumed_settings import BUDGET, resumed_config
from nerf.cli.signals import STOPPING, Stopped, preemption
from nerf.cli.trackers import CHOICES as TRACKER_CHOICES
from nerf.cli.trackers import Tracking, chosen_tracker
from nerf.cli.view import HOST, PORT, check_viewer
from nerf.cli.watch import watching
from nerf.config.commands import assignment, program
from nerf.config.schema import Config
from nerf.config.settings import setting
from nerf.datasets.load import check_split, load_split
from nerf.diagnostics.dry_run_page import write_dry_run
from nerf.errors import TrainingStopped, UserError
from nerf.runs.autosave import AutoSave
from nerf.runs.interrupts import StopOnInterrupt
from nerf.runs.notes import run_notes
from nerf.runs.run import TrainingRun, resume, start
from nerf.runs.run_folder import RunLock, forget_run, refuse_to_write_over
from nerf.training.loop import train


@dataclass
class TrainScriptConfig(Config):
    resume: str | None = setting(None, "folder of a stopped run to go on with", path=True)
    dry_run: bool = setting(False, "write dry_run.html, a report on data, cameras, memory and time, and train nothing")
    overwrite: bool = setting(False, "write over the run in the folder that hydra.run.dir names")
    log: str = setting(
        "auto", "where curves and pictures go; auto = tensorboard if it is installed", choices=TRACKER_CHOICES
    )
    viewer: bool = setting(False, "show the run in a browser while it trains; needs the extra [view]")
    host: str = setting(HOST, "address that the viewer listens on; 127.0.0.1 is this machine alone")
    port: int = setting(PORT, "port that the viewer listens on", low=1, high=65535)


def main(given: TrainScriptConfig, folder: Path, overrides: list[str], world: World | None = None) -> None:
    if world is not None:
        prepare_rank(world, given)
    if given.resume is not None and given.dry_run:
        raise UserError("dry_run=true checks a new run, resume= continues an old one; drop one of the two.")
    if given.dry_run:
        check_split(given.dataset, given.evaluation.split)
        sys.exit(write_dry_run(_run_config(given), folder))
    if given.resume is not None:
        folder = Path(given.resume)
        if folder.is_file():
            raise UserError(
                f"resume={folder} is a file, expected the folder of a run; give "
                f"{assignment('resume', folder.parent)} instead."
            )
    chosen_tracker(given.log)  # before anything is read
    if given.viewer and (world is None or world.leads):
        check_viewer(given.host, given.port)
    if world is not None and not world.leads:
        _train_along(_begin(given, folder, overrides, world))
        return
    with RunLock(folder) as lock:
        _train(given, folder, lock, overrides, world)


def _train_along(training: TrainingRun) -> None:
    """Trains a part of the scene; rank 0 saves, scores and prints."""
    interrupt = StopOnInterrupt(STOPPING)
    with interrupt:
        try:
            for _ in train(training.config, training.state, [interrupt]):
                pass
        except TrainingStopped as error:
            raise UserError(f"{error}. {error.remedy}.") from error


def _begin(given: TrainScriptConfig, folder: Path, overrides: list[str], world: World | None) -> TrainingRun:
    """The run of these settings: a fresh one, or a saved one with resume=."""
    load = load_split if world is None else (lambda *what: world.once_a_host(lambda: load_split(*what)))
    if given.resume is not None:
        direct = {override.lstrip("+").partition("=")[0] for override in overrides}
        budget = {name: getattr(given.train, name) for name in BUDGET if f"train.{name}" in direct}
        training = resume(folder, lambda saved: resumed_config(given, saved, overrides), **budget, load=load)
        check_split(training.config.dataset, training.config.evaluation.split)
        return training if world is None else divided(training, world)
    if not given.overwrite:
        refuse_to_write_over(folder)
    check_split(given.dataset, given.evaluation.split)
    training = start(_run_config(given), load=load)
    forget_run(folder, lose_it=given.overwrite)
    return training if world is None else divided(training, world)


def _run_config(given: TrainScriptConfig) -> Config:
    return Config(**{f.name: getattr(given, f.name) for f in dataclasses.fields(Config)})


def _train(
    given: TrainScriptConfig, folder: Path, lock: RunLock, overrides: list[str], world: World | None = None
) -> None:
    """Trains to the end of the run or until a signal, then writes scores and images into the folder."""
    training = _begin(given, folder, overrides, world)
    config, state, sources = training.config, training.state, training.sources
    cameras, photos = training.images.cameras, training.images if given.viewer else None
    save_config(folder, config, sources)
    _describe(training)
    del training  # frees host memory: the state has its own copy of the pixels

    interrupt, log = StopOnInterrupt((*STOPPING, *preemption())), []
    report = RunReport(folder, config, state.field.backend)
    name, trained = chosen_tracker(given.log), state.clock.step
    tracking = Tracking(name, folder, config, report.note, trained, required=given.log != "auto")

    def describe(where: Path) -> None:
        save_config(where, config, sources)
        tracking.describe(where)

    saver = AutoSave(config, cameras, folder, lock, describe, report.note)
    with contextlib.closing(tracking), watching(given, config, state, photos, folder, interrupt) as live:
        hooks = [interrupt, saver, tracking, MoreVoxels(config, report.note), *([live] if live else [])]
        with interrupt, progress_bar() as bar:
            try:
                for metrics in train(config, state, hooks):
                    bar.show(metrics)
                    log.append(metrics)
            except TrainingStopped as error:
                raise saver.explain(error) from error
            peak_memory = report.peak_memory()
            report.folder = folder = saver.finish(state)
        if interrupt.asked or not state.clock.finished:  # by a signal, or by a button of the viewer
            known = interrupt.signal in (None, signal.SIGINT)
            by = "" if known else f" by {signal.Signals(interrupt.signal).name}"
            print(f"\nStopped{by} at step {state.clock.step}, saved in {folder}.")
            print(f"Resume it with: {program('scripts/train.py', f'resume={folder}')}")
            sys.exit(interrupt.exit_status)
        if live:
            live.settle()
        state.batches.drop_images()
        try:
            scores, sheet = report.finish(state, cameras, peak_memory)
        except Stopped as stopped:
            score = program("scripts/evaluate.py", f"run={folder}")
            left = "without its orbit video" if report.scored else f"score it with: {score}"
            saved = f"the trained run is saved in {folder}; {left}"
            raise Stopped(stopped.number, saved) from stopped
        tracking.finish(config.evaluation.split, scores.summary(), sheet, state.clock.step)
        for note in run_notes(config, state, log, scores):
            print(f"note: {note}", file=sys.stderr)


def _describe(training: TrainingRun) -> None:
    """Says what is trained, and on what."""
    config, images, backend = training.config, training.images, training.state.field.backend
    for note in (*training.notes, *images.notes):
        print(note, file=sys.stderr)
    size = images.cameras.described_size
    print(f"{len(images)} training views {size} on the {config.train.images}; {backend}", file=sys.stderr)
    print(
        f"scene kind {config.dataset.kind}: {'; '.join(reason.rstrip('.') for reason in training.reasons)}",
        file=sys.stderr,
    )
    if backend.device.type == "cuda":
        print(f"memory plan: {training.memory_plan()}", file=sys.stderr)


def command() -> None:
    run("train", TrainScriptConfig, main, __doc__, compare_sweep)
