"""From a command line to a checked dataclass, for all commands.

Which settings it gives stands in composition.py; here a run, or each run of a sweep, begins with them.
"""

import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from nerf.cli import signals
from nerf.cli.composition import check_overrides, compose, composed, of_hydra, register, run_job
from nerf.cli.failures import explain, forbidden
from nerf.cli.help_text import help_text, leaves, path_names, setting_names
from nerf.cli.job import Main, SweptJob, problem_of
from nerf.cli.overrides import (
    HYDRA_PATHS,
    is_sweep,
    lists_values,
    quoted,
    runs_of_sweep,
    with_quoted_path,
)
from nerf.cli.sweeps import (
    STOP,
    WITH_SCHEDULER,
    Launch,
    SweptRun,
    chosen_launcher,
    outcomes,
    prepared,
    swept_runs,
    wait_for_ends,
)
from nerf.config import renamed
from nerf.config import schema as settings
from nerf.config.commands import CHECKOUT, as_typed
from nerf.errors import OUT_OF_MEMORY, UserError, is_of_memory
from nerf.files import CONFIGS, clear_left_overs
from nerf.runs.run_folder import new_folder

ROOTS = ("dataset.root", "root")  # folder of the scene, for commands that train and for commands that open a run


def run(
    config_name: str,
    cls: type,
    main: Main,
    doc: str,
    after_sweep: Callable[[Path, list[SweptRun]], None] = lambda folder, runs: None,
) -> None:
    """Runs main(config, output folder, overrides) with the composed config, a checked instance of cls.

    after_sweep: called with the folder of a sweep (-m) and its runs, when all have ended.

    A mistake of the user ends with one message and exit status 2; settings are checked before a folder is made.
    """
    if any(a in ("--help", "-h") for a in sys.argv[1:]):
        print(help_text(cls, doc))
        return
    typed = sys.argv[1:]
    sweep = is_sweep(typed)
    expected: list[list[str]] = []
    try:
        in_new_words = renamed.arguments(typed, renamed.tell)
        arguments = as_hydra_reads(cls, in_new_words)
        launcher = chosen_launcher(arguments, sweep)
        overrides = [a for a in arguments if not a.startswith("-")]
        if sweep:
            expected = _check_sweep(config_name, cls, overrides)
        else:
            settled = composed(config_name, cls, overrides)
            resumed = getattr(settled.checked, "resume", None)
    except UserError as error:
        _fail(error)
    if sweep:
        _add_new_folder("hydra.sweep.dir", time.strftime("multirun/%Y-%m-%d/%H-%M-%S"), arguments)
        folder = _sweep_folder(config_name, arguments)
        job = SweptJob(cls, main, sys.argv[0], Launch("", launcher))
        _sweep(config_name, job, arguments, folder, expected, after_sweep)
        return
    if resumed and Path(resumed).is_dir():  # goes on in its own folder: Hydra shall make no other
        arguments.append(f"hydra.run.dir={quoted(resumed)}")
        folder = resumed
    else:
        folder = _add_new_folder("hydra.run.dir", settled.of_hydra.run.dir, arguments)
    started = []

    def task(_: Any) -> None:
        started.append(True)
        sys.argv[1:] = typed  # what results name as their command
        problem = problem_of(cls, lambda into: main(settled.checked, into, in_new_words), sweep=False)
        if problem is not None:
            _fail(problem)

    asks_hydra = any(a.startswith(("-", "hydra.mode=")) for a in arguments)  # --cfg=job and the like
    with _hydra_arguments(arguments):
        try:
            with signals.raised():
                if asks_hydra:
                    hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=config_name)(task)()
                else:
                    run_job(task, settled, folder)
        except (OSError, HydraException) as error:
            if started:
                raise
            _fail(_before_any_run(error, cls, arguments))
        except signals.Stopped as stopped:  # outside of training, which saves
            print(f"\n{stopped}", file=sys.stderr)
            sys.exit(stopped.exit_status)


def _sweep(
    config_name: str,
    job: SweptJob,
    arguments: list[str],
    folder: Path,
    expected: list[list[str]],
    after_sweep: Callable[[Path, list[SweptRun]], None],
) -> None:
    """Runs a sweep by the job's launcher, names the runs that failed, and hands all to after_sweep."""
    launch, own, notes = prepared(job.launch.launcher, arguments)
    for note in notes:
        print(f"note: {note}.", file=sys.stderr)
    launch = dataclasses.replace(launch, folder=folder)
    job, typed = dataclasses.replace(job, launch=launch), sys.argv[1:]
    asked: list[signals.Stopped] = []
    of_the_program: Exception | None = None

    @hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=config_name)
    def task(composed: Any) -> None:
        job(composed)

    with _hydra_arguments([*arguments, *own]), _importable_elsewhere():
        try:
            with signals.forwarded(launch.stop, asked) if launch.on_this_machine else signals.raised():
                task()
        except (OSError, HydraException, RuntimeError) as error:
            if isinstance(error, RuntimeError) and launch.elsewhere:
                wait_for_ends(folder, launch)
                print(f"error: hydra/launcher={launch.launcher}: {str(error).splitlines()[0]}", file=sys.stderr)
            elif outcomes(folder, launch) or isinstance(error, RuntimeError):
                of_the_program = error
            else:
                _fail(_before_any_run(error, job.cls, arguments))
        except signals.Stopped as stopped:  # outside of training, which saves
            print(f"\n{stopped}", file=sys.stderr)
            if launch.launcher in WITH_SCHEDULER:
                print("The jobs that the scheduler has go on; give the same command when they have ended.")
            asked.append(stopped)
    (folder / STOP).unlink(missing_ok=True)
    runs = swept_runs(folder, launch, expected)
    failed = [one for one in runs if one.problem is not None]
    if failed and config_name == "train":
        named = [a for a in typed if not a.startswith("hydra.sweep.dir=")]
        again = as_typed([job.program, *named, f"hydra.sweep.dir={folder}"])
        print(f"The same command goes on with what is not done: {again}", file=sys.stderr)
    if failed:
        print(f"error: {len(failed)} of the {len(runs)} runs of this sweep failed:", file=sys.stderr)
    for one in failed:
        print(f"  {' '.join(one.overrides)}: {one.problem}", file=sys.stderr)
    if of_the_program is not None:
        raise of_the_program
    if asked:
        sys.exit(asked[-1].exit_status)
    clear_left_overs(folder)
    after_sweep(folder, runs)
    if failed:
        sys.exit(2)


def _sweep_folder(config_name: str, arguments: list[str]) -> Path:
    """The folder of the sweep, and that in the arguments in place of what Hydra makes it of: dates, and settings."""
    alike = [a for a in arguments if not a.startswith("-") and not lists_values(a)]
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        try:
            found = hydra.compose(config_name, alike, return_hydra_config=True).hydra.sweep.dir
        except (HydraException, OmegaConfBaseException) as error:
            _fail(f"hydra.sweep.dir: {str(error).splitlines()[0]}; give hydra.sweep.dir=FOLDER.")
    arguments[:] = [a for a in arguments if not a.lstrip("+").startswith("hydra.sweep.dir=")]
    arguments.append(f"hydra.sweep.dir={quoted(found)}")
    return Path.cwd() / found


@contextlib.contextmanager
def _hydra_arguments(arguments: list[str]) -> Iterator[None]:
    """What Hydra reads as its command line; sys.argv is brought back."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # else Hydra answers itself where it cannot make the folder
    typed = sys.argv[1:]
    sys.argv[1:] = [*(a for a in arguments if a.startswith("-")), *(a for a in arguments if not a.startswith("-"))]
    try:
        yield
    finally:
        sys.argv[1:] = typed


@contextlib.contextmanager
def _importable_elsewhere() -> Iterator[None]:
    """A checkout that is not installed is found by the processes that launchers start."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(CHECKOUT), *([before] if before else [])])
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _before_any_run(error: Exception, cls: type, arguments: list[str]) -> object:
    """The words for an error of Hydra before a run began."""
    if is_of_memory(error):
        return OUT_OF_MEMORY
    if isinstance(error, HydraException):
        return of_hydra(error)
    place = next(a for a in arguments if a.startswith(("hydra.run.dir=", "hydra.sweep.dir="))).partition("=")[2]
    return explain(error, place.strip("'"), setting_names(cls, "")) or forbidden(error, place)


def _add_new_folder(setting: str, folder: str, arguments: list[str]) -> str | None:
    """Creates a new folder, passes it to Hydra and returns it, unless the command line names one."""
    if any(a.lstrip("+").startswith(f"{setting}=") for a in arguments):
        return None
    try:
        made = str(new_folder(Path(folder)))
    except OSError as error:
        _fail(forbidden(error, folder))
    arguments.append(f"{setting}={quoted(made)}")
    return made


def composed_as_typed(config_name: str, cls: type, folder: Path) -> tuple[Any, Path, list[str]]:
    """What run() would give main for this command line, and the given folder. Raises UserError."""
    typed = renamed.arguments(sys.argv[1:])
    return composed(config_name, cls, as_hydra_reads(cls, typed)).checked, folder, typed


def _check_sweep(config_name: str, cls: type, overrides: list[str]) -> list[list[str]]:
    """The overrides of each run; empty if only Hydra's sweeper knows them.

    Raises UserError if a name in the overrides of a sweep is wrong, or none of its runs can be composed.
    """
    check_overrides(cls, overrides, sweep=True)
    try:
        runs = runs_of_sweep(overrides)
    except HydraException as error:
        raise UserError(of_hydra(error)) from error
    problems = {}
    for index, run_overrides in enumerate(runs):
        try:
            compose(config_name, cls, run_overrides)
        except UserError as error:
            problems[index] = error
    if runs and len(problems) == len(runs):
        raise problems[0]
    register(config_name, cls)
    return runs


def as_hydra_reads(cls: type, arguments: list[str]) -> list[str]:
    """The typed arguments in Hydra's grammar: `none` becomes null, and paths are quoted."""
    paths = {*HYDRA_PATHS, *(name for field in settings.FIELDS for name in path_names(cls, field))}
    sweep = is_sweep(arguments)
    return [with_quoted_path(none_as_null(cls, own_root(cls, argument)), paths, sweep) for argument in arguments]


def own_root(cls: type, argument: str) -> str:
    """Maps dataset.root=FOLDER and root=FOLDER to the name that the command has: every command accepts both."""
    name, equals, value = argument.partition("=")
    known = setting_names(cls, "")
    if name in ROOTS and name not in known:
        name = next((other for other in ROOTS if other in known), name)
    return name + equals + value


def none_as_null(cls: type, argument: str) -> str:
    """name=none, as --help writes it, in Hydra's words; some settings have it as one of their choices."""
    name, _, value = argument.partition("=")
    known = (f for field in settings.FIELDS for n, f in leaves(cls, field) if n == name)
    open_to_none = any("none" not in (f.metadata.get("choices") or ()) or "None" in str(f.type) for f in known)
    return f"{name}=null" if value == "none" and open_to_none else argument


def _fail(message: object) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)
