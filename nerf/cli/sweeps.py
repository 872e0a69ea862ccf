"""The runs of a sweep, wherever they run: each leaves its outcome in its folder, and the table is made of these files.

Hydra's launchers start runs in other processes (joblib, submitit_local) or on other machines (submitit_slurm). What
they share with the command that started them is the sweep's folder alone.
"""

import dataclasses
import json
import os
import secrets
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nerf.cli.gpu_lease import visible_gpus
from nerf.errors import UserError
from nerf.files import METRICS, write_text
from nerf.runs.archive import PREVIOUS_FILE, RESUME_FILE
from nerf.runs.run_folder import holds_run
from nerf.system import is_installed

OUTCOME = "outcome.json"
OUTCOME_DEPTH = 3  # folders below that of the sweep: hydra.sweep.subdir may be a path
POLL_SECONDS = 1.0
STOP = ".stopped"  # in the folder of a sweep, while its runs end: the start's name and the signal
PLUGINS = {  # the package that brings a launcher
    "joblib": "hydra_joblib_launcher",
    "submitit_local": "hydra_submitit_launcher",
    "submitit_slurm": "hydra_submitit_launcher",
}
WITH_SCHEDULER = ("submitit_slurm",)  # it gives each job its GPU, and starts it again after a preemption
# Settings of the launcher that ask Slurm for GPUs.
ASK_FOR_GPUS = ("gpus_per_node", "gpus_per_task", "gres", "cpus_per_gpu", "mem_per_gpu", "additional_parameters")
NOT_A_SETTING = ("hydra.", "hydra/", "overwrite=", "log=", "viewer=", "host=", "port=")  # they change no result

WAITING, RUNNING, FINISHED, FAILED, STOPPED = "waiting", "running", "finished", "failed", "stopped"


@dataclass(frozen=True)
class SweptRun:
    """One run of a sweep."""

    folder: Path
    overrides: list[str]
    problem: object | None  # why it failed; None if it did not


@dataclass(frozen=True)
class Launch:
    """One start of a sweep."""

    name: str  # unlike that of any other start
    launcher: str  # of Hydra; basic = one run after the other in this process
    gpus: tuple[str, ...] = ()  # to be shared out among jobs; empty: there are none, or a scheduler does it
    folder: Path | None = None  # of the sweep

    @property
    def elsewhere(self) -> bool:
        """Whether runs are started in other processes."""
        return self.launcher != "basic"

    @property
    def on_this_machine(self) -> bool:
        """Whether these processes are this machine's."""
        return self.elsewhere and self.launcher not in WITH_SCHEDULER

    def stop(self, number: int) -> list[int]:
        """Tells runs that begin that a signal has stopped this start; returns the processes of those that go on.

        A run first says which process it is, and then looks whether it was stopped: one of the two reaches it.
        """
        with suppress(UserError, OSError):  # on a full disk those that begin are not reached
            self.folder.mkdir(parents=True, exist_ok=True)
            write_text(self.folder / STOP, f"{self.name} {number}\n")
        return [outcome.process for _, outcome in outcomes(self.folder, self) if outcome.is_alive]

    @property
    def stopped_by(self) -> int | None:
        """The signal that has stopped this start, as long as its runs end; None without one."""
        try:
            name, number = (self.folder / STOP).read_text(encoding="utf-8").split()
        except (OSError, ValueError):
            return None
        return int(number) if name == self.name and number.isdigit() else None


@dataclass(frozen=True)
class Outcome:
    """What became of a run, as its folder says it."""

    launch: str
    number: int  # in the sweep, from 0
    overrides: list[str]
    state: str
    problem: str | None = None
    gpu: str | None = None  # as CUDA_VISIBLE_DEVICES names it; None: not shared out
    process: int = dataclasses.field(default_factory=os.getpid)
    host: str = dataclasses.field(default_factory=socket.gethostname)

    @property
    def is_alive(self) -> bool:
        """Whether the run goes on, in a process of this machine."""
        if self.state not in (WAITING, RUNNING) or self.host != socket.gethostname():
            return False
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    def write(self, folder: Path) -> None:
        write_text(folder / OUTCOME, json.dumps(dataclasses.asdict(self), indent=2) + "\n")


def read_outcome(folder: Path) -> Outcome | None:
    """The outcome that a folder holds; None if there is none that can be read."""
    try:
        found: Mapping[str, Any] = json.loads((folder / OUTCOME).read_text(encoding="utf-8"))
        return Outcome(**{field.name: found[field.name] for field in dataclasses.fields(Outcome)})
    except (OSError, ValueError, LookupError, TypeError):
        return None


def chosen_launcher(arguments: Sequence[str], sweep: bool) -> str:
    """The launcher that the command line asks for, basic without one.

    Raises UserError where its package is missing, and without -m, where no launcher has anything to do.
    """
    names = [value for name, _, value in (a.partition("=") for a in arguments) if name == "hydra/launcher"]
    launcher = names[-1] if names else "basic"
    if names and not sweep:
        raise UserError(f"hydra/launcher={launcher} starts the runs of a sweep; give -m too.")
    plugin = PLUGINS.get(launcher)
    if plugin is not None and not is_installed(f"hydra_plugins.{plugin}"):
        raise UserError(
            f"hydra/launcher={launcher} needs the package {plugin.replace('_', '-')}, which is not installed; get it "
            "with: pip install 'nerf-voxel[sweep]'."
        )
    return launcher


def prepared(launcher: str, arguments: list[str]) -> tuple[Launch, list[str], list[str]]:
    """The start of a sweep, the launcher's settings that nobody gave, and notes for the user."""
    name = f"{time.strftime('%Y-%m-%d_%H-%M-%S')}_{secrets.token_hex(4)}"
    on_cpu = "device=cpu" in arguments
    given = {a.lstrip("+").partition("=")[0].removeprefix("hydra.launcher.") for a in arguments}
    if launcher in WITH_SCHEDULER:
        own = [] if on_cpu or given.intersection(ASK_FOR_GPUS) else ["hydra.launcher.gpus_per_node=1"]
        if "max_num_timeout" not in given:  # a run that its time limit stopped goes on from where it was saved
            own.append("hydra.launcher.max_num_timeout=100")
        return Launch(name, launcher), own, []
    if launcher not in PLUGINS:
        return Launch(name, launcher), [], []
    gpus = () if on_cpu else tuple(visible_gpus())
    own, notes = [], []
    if launcher == "joblib":
        if "batch_size" not in given:
            own.append("hydra.launcher.batch_size=1")
        if "n_jobs" not in given and gpus:
            own.append(f"hydra.launcher.n_jobs={len(gpus)}")
        asked = [a.partition("=")[2] for a in arguments if a.startswith("hydra.launcher.n_jobs=")]
        if gpus and asked and asked[-1].lstrip("-").isdigit() and not 0 < int(asked[-1]) <= len(gpus):
            notes.append(
                f"hydra.launcher.n_jobs={asked[-1]}, and {len(gpus)} GPU{'s'[: len(gpus) > 1]}: each run has a GPU of "
                "its own, so the others wait for one"
            )
    return Launch(name, launcher, gpus), own, notes


def taken_up(config: Any, folder: Path, own: list[str]) -> Any | None:
    """The settings with which a run of a sweep begins or goes on in its folder; None if it has been done already.

    Only training runs go on. A run of the same settings that was stopped resumes from its last checkpoint; one that
    has no checkpoint begins anew. Raises UserError if the folder contains the run of other settings.
    """
    before = read_outcome(folder)
    asks_otherwise = getattr(config, "resume", "") is not None or config.overwrite or config.dry_run
    if before is None or asks_otherwise:
        return config
    if _settings(before.overrides) != _settings(own):
        if not holds_run(folder):
            return config
        raise UserError(
            f"{folder} contains the run of {' '.join(before.overrides)}; give the same settings to go on with it, set "
            "hydra.sweep.dir to another folder, or set overwrite=true to lose it."
        )
    if before.state == FINISHED and (folder / METRICS).is_file():
        return None
    if any((folder / name).is_file() for name in (RESUME_FILE, PREVIOUS_FILE)):
        return dataclasses.replace(config, resume=str(folder))
    return dataclasses.replace(config, overwrite=True)


def _settings(overrides: Iterable[str]) -> set[str]:
    return {override for override in overrides if not override.startswith(NOT_A_SETTING)}


def outcomes(folder: Path, launch: Launch) -> list[tuple[Path, Outcome]]:
    """The folders and outcomes of this start in the folder of a sweep, in the runs' order."""
    patterns = ("/".join(["*"] * level + [OUTCOME]) for level in range(1, OUTCOME_DEPTH + 1))
    places = [path.parent for pattern in patterns for path in folder.glob(pattern)]
    found = [(place, outcome) for place in places if (outcome := read_outcome(place)) is not None]
    return sorted((pair for pair in found if pair[1].launch == launch.name), key=lambda pair: pair[1].number)


def swept_runs(folder: Path, launch: Launch, expected: Sequence[Sequence[str]]) -> list[SweptRun]:
    """The runs of this start, by their outcomes, and those that have none: they were never started.

    expected: the overrides of each run; empty where only Hydra's sweeper knows them.
    """
    found = {outcome.number: (place, outcome) for place, outcome in outcomes(folder, launch)}
    runs = []
    for number in sorted({*found, *range(len(expected))}):
        if number in found:
            place, outcome = found[number]
            runs.append(SweptRun(place, outcome.overrides, _problem(outcome)))
        else:
            own = [override for override in expected[number] if not override.startswith(("hydra.", "hydra/"))]
            runs.append(SweptRun(folder / str(number), own, "it was not started"))
    return runs


def _problem(outcome: Outcome) -> str | None:
    if outcome.state == FINISHED:
        return None
    if outcome.state in (FAILED, STOPPED):
        return outcome.problem or outcome.state
    if outcome.is_alive:
        return f"it still runs, process {outcome.process}"
    return f"its process {outcome.process} on {outcome.host} ended without a word: it was killed, or memory was short"


def wait_for_ends(folder: Path, launch: Launch) -> None:
    """Waits until no run of this start goes on, on this machine: a launcher may give up with the first that dies."""
    while any(outcome.is_alive for _, outcome in outcomes(folder, launch)):
        time.sleep(POLL_SECONDS)
