"""One run of a command: its composed settings become a checked dataclass, its errors become words.

Hydra's launchers send SweptJob to other processes; what it needs there travels with it.
"""

import contextlib
import dataclasses
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from omegaconf.errors import MissingMandatoryValue

from nerf.cli import signals
from nerf.cli.failures import explain
from nerf.cli.gpu_lease import leased
from nerf.cli.help_text import setting_names
from nerf.cli.sweeps import FAILED, FINISHED, RUNNING, STOPPED, WAITING, WITH_SCHEDULER, Launch, Outcome, taken_up
from nerf.config import renamed
from nerf.config import schema as settings
from nerf.errors import UserError
from nerf.files import clear_left_overs

EXIT_OF_ONE_RUN = (0, 1, 2)  # a sweep continues after these; other statuses come from signals and end the sweep
LOG = "log.txt"
SIGNAL_SECONDS = 1.0  # a signal that was sent to a run that is beginning has arrived by then
Main = Callable[[Any, Path, list[str]], None]

FOUND: set[Path] = set()  # folders of runs that were there before a command
_stopped: list[int] = []  # the signal that stopped a run in this process: no other begins after it


def build(cls: type, composed: Any, overrides: list[str]) -> Any:
    """The composed settings as a checked instance of cls. Raises UserError."""
    typed = {override.lstrip("+").partition("=")[0] for override in overrides}
    if "dataset" in composed:
        _name_scene(composed.dataset, typed)
    try:
        values = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise UserError(
            f"{str(error).splitlines()[0]}; give it as name=value, for example dataset.scene=lego or "
            "dataset.root=FOLDER."
        ) from error
    values.pop("experiment", None)
    return settings.build(cls, renamed.composed(values, cls(), typed, renamed.tell))


def _name_scene(dataset: Any, typed: set[str]) -> None:
    """Where a folder is given and no scene, the scene is called like the folder, in whatever format it is."""
    if OmegaConf.is_missing(dataset, "root") or not dataset.root:
        return
    root = Path(str(dataset.root)).expanduser().resolve()
    if OmegaConf.is_missing(dataset, "scene"):
        dataset.scene = root.name
    elif "dataset.root" in typed and not typed & {"dataset", "dataset.scene"} and not (root / dataset.scene).is_dir():
        dataset.scene = root.name
        if "dataset.format" not in typed:
            dataset.format = "auto"


def problem_of(cls: type, run: Callable[[Path], None], sweep: bool) -> object | None:
    """Calls run with the folder that Hydra gave it; returns the message of the error that ended it, None without."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    try:
        clear_left_overs(folder)
        run(folder)
    except SystemExit as end:
        if not sweep or end.code not in (None, *EXIT_OF_ONE_RUN):
            raise
        return f"exit status {end.code}" if end.code else None
    except (UserError, OSError, RuntimeError, MemoryError) as error:
        message = error if isinstance(error, UserError) else explain(error, folder, setting_names(cls, ""))
        if message is None:
            raise
        if folder not in FOUND:
            with contextlib.suppress(OSError):  # goes only if it is empty
                folder.rmdir()
        return message
    return None


def _write(outcome: Outcome, folder: Path) -> None:
    """Writes the outcome; on a full disk the run itself may still succeed."""
    try:
        outcome.write(folder)
    except UserError as error:
        print(f"note: {error}", file=sys.stderr)


@dataclass(frozen=True)
class SweptJob:
    """What a launcher calls with the settings of each run of a sweep. The run's folder says what became of it."""

    cls: type
    main: Main
    program: str  # the first of sys.argv, which results name as their command
    launch: Launch

    def __call__(self, composed: Any) -> None:
        """Runs to the end. A failure is an outcome, no exception; of an error of the program it is both.

        Raises SystemExit or Stopped for a signal where the runs share one process, which ends the sweep; in a process
        of its own the outcome says it.
        """
        hydra = HydraConfig.get()
        own = list(hydra.overrides.task)
        sys.argv = [self.program, *own]  # what results name as their command
        folder = Path(hydra.runtime.output_dir)
        outcome = Outcome(self.launch.name, int(hydra.job.num), own, WAITING)
        with signals.raised() if self.launch.elsewhere else contextlib.nullcontext(), self._logged(folder, outcome):
            self._to_the_end(composed, folder, outcome)

    def _to_the_end(self, composed: Any, folder: Path, outcome: Outcome) -> None:
        again = True
        while again:
            again = False
            try:
                self._one_try(composed, folder, outcome)
            except SystemExit as end:
                again = self._goes_on(end.code - 128 if isinstance(end.code, int) else 0, folder, outcome)
                if not self.launch.elsewhere:
                    raise
            except signals.Stopped as stopped:
                again = self._goes_on(stopped.number, folder, outcome)
                if not self.launch.elsewhere:
                    raise

    def _one_try(self, composed: Any, folder: Path, outcome: Outcome) -> None:
        given = ""
        try:
            config = self._settings(composed, folder, outcome.overrides)
            if isinstance(config, UserError) or config is None:
                problem = config
                if config is None:
                    print(f"{' '.join(outcome.overrides)}: done already, {folder}", flush=True)
            elif _stopped:
                raise signals.Stopped(_stopped[0])
            else:
                problem = self._run(config, folder, outcome)
            if problem is not None:  # the other runs go on
                given = str(problem)
                print(f"error: {problem}", file=sys.stderr)
            _write(dataclasses.replace(outcome, state=FAILED if given else FINISHED, problem=given or None), folder)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            words = traceback.format_exception_only(error)[-1].strip().splitlines()[0]
            _write(dataclasses.replace(outcome, state=FAILED, problem=f"an error of the program: {words}"), folder)
            if self.launch.elsewhere:
                traceback.print_exc()
            raise

    def _settings(self, composed: Any, folder: Path, own: list[str]) -> Any:
        """The checked settings of the run; None where it is done already, a UserError that says what is wrong."""
        try:
            return taken_up(build(self.cls, composed, own), folder, own)
        except UserError as error:
            return error

    def _run(self, config: Any, folder: Path, outcome: Outcome) -> object | None:
        on_gpu = self.launch.gpus and getattr(config, "device", "auto") != "cpu"
        _write(outcome, folder)
        stopped = self.launch.stopped_by if self.launch.on_this_machine else None
        if stopped is not None:
            time.sleep(SIGNAL_SECONDS)  # it raises the same
            raise signals.Stopped(stopped)
        with leased(self.launch.gpus, print) if on_gpu else contextlib.nullcontext() as gpu:
            _write(dataclasses.replace(outcome, state=RUNNING, gpu=gpu), folder)
            resumed = getattr(config, "resume", None) == str(folder)
            own = [] if resumed else outcome.overrides  # a resumed run has its settings, which were compared
            return problem_of(self.cls, lambda into: self.main(config, into, own), sweep=True)

    def _goes_on(self, number: int, folder: Path, outcome: Outcome) -> bool:
        """Whether a run that a signal stopped, and that is saved if it trained, goes on at once in this process.

        A job of submitit that is preempted or at its time limit is handed to submitit, which starts it again: this does
        not return. SIGTERM of Slurm announces a preemption that Slurm answers itself by starting the job again, unless
        it has ended: the run goes on until it is killed.
        """
        known = number in {one.value for one in signal.Signals}
        words = signals.words(number) if known else f"exit status {number + 128}"
        _write(
            dataclasses.replace(outcome, state=STOPPED, problem=f"{words}; the same command goes on with it"), folder
        )
        handler = signal.getsignal(number) if number in signals.preemption() else None
        if callable(handler):
            handler(number, None)
        if self.launch.launcher in WITH_SCHEDULER and number == signal.SIGTERM:
            return True
        if self.launch.elsewhere:
            _stopped[:] = [number]
        return False

    @contextlib.contextmanager
    def _logged(self, folder: Path, outcome: Outcome) -> Iterator[None]:
        """Of runs side by side, what each prints goes into its own file; submitit does that by itself."""
        if self.launch.launcher != "joblib":
            yield
            return
        name = " ".join(outcome.overrides) or folder.name
        print(f"{name}: process {os.getpid()}, output in {folder / LOG}", flush=True)
        with contextlib.ExitStack() as stack:
            file = stack.enter_context((folder / LOG).open("a", encoding="utf-8", buffering=1))
            stack.enter_context(contextlib.redirect_stdout(file))
            stack.enter_context(contextlib.redirect_stderr(file))
            yield
        print(f"{name}: ended", flush=True)
