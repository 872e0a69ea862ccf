"""Autosave: saves a run at intervals while it trains, while the training clock is stopped, and at its end.

A failed save does not end the run. If the final save fails, the run is saved in another folder.
"""

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from nerf.cameras.cameras import Cameras
from nerf.config.schema import Config
from nerf.errors import TrainingStopped, UserError, is_out_of_memory
from nerf.files import make_folder
from nerf.runs import checkpoint
from nerf.runs.run_folder import RunLock, new_folder
from nerf.training.loop import Callback, TrainMetrics
from nerf.training.state import TrainState

COST = 0.02  # fraction of a run's time that saving may take
FAILURES = (UserError, OSError, MemoryError, RuntimeError)  # of the last kind those that are of memory
SHARED_MEMORY = Path("/dev/shm")  # of Linux: the last resort where every disk is full


class AutoSave(Callback):
    """Saves a run into its folder every train.save_seconds, or every train.save_every steps, and at its end."""

    def __init__(
        self,
        config: Config,
        cameras: Cameras,
        folder: Path,
        lock: RunLock,
        describe: Callable[[Path], None],
        log: Callable[[str], None],
    ) -> None:
        """cameras: the given training cameras. lock: the folder's lock, acquired.

        describe: writes the settings into a folder. log: shows the user a message of one or more sentences.
        """
        self._config, self._cameras, self._folder, self._lock = config, cameras, folder, lock
        self._describe, self._log = describe, log
        self._wait, self._last_try = config.train.save_seconds, time.perf_counter()
        self._saved_step: int | None = None
        self._due = False

    def wants_log(self, state: TrainState) -> bool:
        """Whether a save is due. A log waits for the device, which a save needs."""
        every = self._config.train.save_every
        in_time = bool(self._wait) and time.perf_counter() - self._last_try >= self._wait
        self._due = state.clock.step % every == 0 if every else in_time
        return self._due

    def on_log(self, state: TrainState, metrics: TrainMetrics) -> None:
        """Saves if that was due when this callback was asked. A failure is logged, and the next save tries again."""
        if not self._due:  # on several ranks nothing else brings the parts together
            return
        self._due = False
        began, failure = time.perf_counter(), None
        try:
            self._save(state)
        except FAILURES as error:
            failure = _of_the_machine(error)
        self._last_try = time.perf_counter()
        self._wait = max(self._config.train.save_seconds, (self._last_try - began) / COST)
        if failure is not None:
            every = self._config.train.save_every
            later = f"in {every} steps" if every else f"in {self._wait:.0f} seconds"
            self._log(f"{_sentence(failure)} Training goes on; the next save is due {later}.")

    def explain(self, error: TrainingStopped) -> UserError:
        """The message for a training that cannot continue: the reason, what is saved, and the remedy."""
        saved = (self._folder / checkpoint.RESUME_FILE).exists()
        kept = f"the last good checkpoint is kept in {self._folder}" if saved else "no checkpoint was saved yet"
        return UserError(f"{error}; {kept}. {error.remedy}.")

    def finish(self, state: TrainState) -> Path:
        """Saves the current state; returns the folder. It is a different folder if the run's own cannot be written.

        A finished run keeps one resume state, the last.

        Raises UserError if the run cannot be saved anywhere.
        """
        try:
            if self._saved_step != state.clock.step or not checkpoint.is_whole(self._folder):
                self._save(state)
            if state.clock.finished:
                checkpoint.drop_previous(self._folder)
            return self._folder
        except FAILURES as error:
            return self._save_elsewhere(state, _of_the_machine(error))

    def _save(self, state: TrainState) -> None:
        gone = not self._folder.is_dir()
        if gone:
            make_folder(self._folder)
        if gone or not self._lock.in_place():
            self._lock.acquire()
        if gone:
            self._describe(self._folder)
            self._log(f"{self._folder} was deleted or moved during training; it is created again.")
        checkpoint.save(self._folder, self._config, state, self._cameras)
        self._saved_step = state.clock.step

    def _save_elsewhere(self, state: TrainState, why: Exception) -> Path:
        """Saves into the first possible place. Raises UserError if there is none; the model alone may still be kept."""
        tried, model = [], getattr(why, "model", None)
        for place in other_places():
            folder = None
            try:
                folder = new_folder(place / f"{self._folder.name}_rescued")
                self._describe(folder)
                checkpoint.save(folder, self._config, state, self._cameras)
            except FAILURES as error:
                _of_the_machine(error)
                tried.append(str(place))
                if model is None and getattr(error, "model", None) is not None:
                    model = error.model
                elif folder is not None:
                    shutil.rmtree(folder, ignore_errors=True)
                continue
            in_memory = " That is in memory: copy it before the machine restarts." if place == SHARED_MEMORY else ""
            self._log(f"{_sentence(why)} The run is saved in {folder} instead.{in_memory}")
            return folder
        kept = f" Only the model is saved, {model}." if model else ""
        raise UserError(f"{_sentence(why)} It could not be saved in {', '.join(tried)} either.{kept}") from why


def other_places() -> list[Path]:
    """Parent folders for a run that cannot be saved in its own folder, best first."""
    places = []
    for find in (lambda: Path.cwd() / "outputs", lambda: Path(tempfile.gettempdir()), lambda: SHARED_MEMORY):
        try:
            place = find()
        except FileNotFoundError:  # the current folder was deleted, or there is no temporary one
            continue
        if place not in places and (place.parent.is_dir() or place.is_dir()):
            places.append(place)
    return places


def _of_the_machine(error: Exception) -> Exception:
    """The error, if it is one of the disk or of memory; raises it if it is one of the program."""
    if isinstance(error, RuntimeError) and not is_out_of_memory(error):
        raise error
    return error


def _sentence(error: Exception) -> str:
    """The error as a sentence."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be written ({error.strerror})."
    reason = (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
    return (
        f"The run could not be saved, memory is exhausted ({reason}): close other programs that use it, or lower "
        "field.num_voxels."
    )
