"""A command on several processes, as torchrun starts them: rank 0 prints and writes files, the others work along.

What a rank says before it fails is kept; rank 0 shows it, because the others have no voice of their own.
"""

import contextlib
import functools
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import torch

from nerf.cli import hydra_app, signals
from nerf.cli.failures import explain
from nerf.cli.help_text import setting_names
from nerf.cli.overrides import is_sweep
from nerf.config.recipes import flat
from nerf.distributed.agreement import check_agreed, versions
from nerf.distributed.world import RankLost, World, asked_for, join, use_gpus
from nerf.errors import UserError
from nerf.runs.run import TrainingRun

ERROR = "error: "
# Settings that only rank 0 reads, and the folder of the scene, which may be another one on another machine.
OF_RANK_0 = ("log", "viewer", "host", "port", "overwrite", "dataset.root", "resume")


class Listener:
    """A stream that remembers the last error written to it, and passes on what is written if it may."""

    def __init__(self, stream: TextIO, passes_on: bool) -> None:
        self._stream, self._passes_on, self.error = stream, passes_on, ""

    def write(self, text: str) -> int:
        if text.startswith(ERROR):
            self.error = text.removeprefix(ERROR).strip()
        return self._stream.write(text) if self._passes_on else len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def joined() -> Iterator[World]:
    """Meets the other ranks, and tells them how this one ends. Raises UserError where they cannot be met."""
    with signals.deadly():
        world = join()
    listener = Listener(sys.stderr, world.leads)
    with contextlib.ExitStack() as streams:
        streams.enter_context(contextlib.redirect_stderr(listener))
        if not world.leads:
            streams.enter_context(contextlib.redirect_stdout(Listener(sys.stdout, False)))
        streams.callback(world.leave)  # after the others were told
        streams.push(lambda *ended: _say_how_it_ended(world, listener, *ended))
        yield world


def _say_how_it_ended(
    world: World, listener: Listener, kind: type | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    status = error.code if isinstance(error, SystemExit) else None
    if error is None or (kind is SystemExit and status in (0, None)):
        world.watch.leave()
    elif not isinstance(error, RankLost):
        said = listener.error or "".join(traceback.format_exception_only(error)).strip()
        world.watch.fail(said if kind is not SystemExit or listener.error else f"exit status {status}")


def run(config_name: str, cls: type, main: Callable[..., None], doc: str, *after_sweep: Callable) -> None:
    """Runs main(config, output folder, overrides) as hydra_app.run does; with world= too on each of several ranks.

    A mistake of the user ends with one message of rank 0 and exit status 2.
    """
    if not asked_for() or any(argument in ("--help", "-h") for argument in sys.argv[1:]):
        hydra_app.run(config_name, cls, main, doc, *after_sweep)
        return
    try:
        with joined() as world:
            if is_sweep(sys.argv[1:]):
                raise UserError("a sweep (-m) starts its runs one by one; start each of them with torchrun instead.")
            if world.leads:
                hydra_app.run(config_name, cls, functools.partial(main, world=world), doc)
            else:
                _work_along(config_name, cls, functools.partial(main, world=world))
    except RankLost:  # rank 0 has said it
        sys.exit(1)
    except UserError as error:
        print(f"{ERROR}{error}", file=sys.stderr)
        sys.exit(2)


def _work_along(config_name: str, cls: type, main: Callable[[Any, Path, list[str]], None]) -> None:
    """Runs main on a rank that writes no file: its folder is a temporary one."""
    with tempfile.TemporaryDirectory() as folder, signals.raised():
        try:
            main(*hydra_app.composed_as_typed(config_name, cls, Path(folder)))
        except RankLost:
            raise
        except (UserError, OSError, RuntimeError, MemoryError) as error:
            words = error if isinstance(error, UserError) else explain(error, folder, setting_names(cls, ""))
            if words is None:
                raise
            print(f"{ERROR}{words}", file=sys.stderr)
            sys.exit(2)


def prepare_rank(world: World, given: Any) -> None:
    """Before anything is read: the ranks have the same settings and versions, and each has its own device.

    given: the settings of the command. Raises UserError on every rank where that is not so.
    """
    if getattr(given, "dry_run", False):
        raise UserError("dry_run=true trains nothing, so it needs one process: start it without torchrun.")
    check_agreed(world, versions() | _settings(given))
    if given.device == "cuda" or (given.device == "auto" and any(world.all_gather_objects(torch.cuda.is_available()))):
        use_gpus(world)


def _settings(given: Any) -> dict[str, object]:
    """What has to be the same on each rank."""
    return {name: x for name, x in flat(asdict(given)).items() if name not in OF_RANK_0}


def divided(training: TrainingRun, world: World) -> TrainingRun:
    """The run with its scene divided among the ranks.

    Moments and values of 16 bits become float32: they are rounded by the numbers of vertices, which each rank counts in
    its own way, so that replicas would differ. Raises UserError where images or settings of the ranks differ, or
    features are in host memory.
    """
    state, config = training.state, training.config
    if config.train.features == "host":
        raise UserError(
            "train.features=host keeps features in the memory of one host, so it needs one process: start it without "
            "torchrun, or give train.features=device, which divides them among the ranks."
        )
    notes, sources = training.notes, training.sources
    if config.train.moments != "float32":
        if sources.get("train.moments") == "given":
            notes = (*notes, "train.moments=float32: bfloat16 needs one process")
        config = replace(config, train=replace(config.train, moments="float32"))
        sources = {**sources, "train.moments": "several ranks"} if sources else sources
        state.field.store_features_as(torch.float32)
        state.optimizer.widen_moments()
    resolved = _settings(config)  # some follow the memory of a rank's GPU
    facts = {"the checksum of the images": state.batches.checksum(), "the step": state.clock.step}
    check_agreed(world, resolved | facts)
    state.divide(world)
    box = " x ".join(f"{first}-{last}" for first, last in state.parts.division.boxes[world.rank])
    note = f"{world.size} ranks; this one has the cells {box} of {state.field.resolution}"
    return replace(training, config=config, sources=sources, notes=(*notes, note))
