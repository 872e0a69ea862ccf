"""Saving a run while it trains: now and then, off its clock. A save that fails does not end the run, and at the end
another place is found.
"""

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from nerf.cameras.cameras import Cameras
from nerf.config.schema import Config
from nerf.errors import UserError
from nerf.runs import checkpoint
from nerf.runs.run_folder import RunLock, new_folder
from nerf.training.loop import Callback, TrainMetrics
from nerf.training.state import TrainState

COST = 0.02  # fraction of a run's time that saving may take
FAILURES = (UserError, OSError, MemoryError, torch.OutOfMemoryError)
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
        say: Callable[[str], None],
    ) -> None:
        """cameras: the training cameras as they were given. lock: of the folder, held.

        describe: writes what else belongs into a folder, the settings. say: tells the user, in sentences.
        """
        self._config, self._cameras, self._folder, self._lock = config, cameras, folder, lock
        self._describe, self._say = describe, say
        self._wait, self._last_try = config.train.save_seconds, time.perf_counter()
        self._saved_step: int | None = None

    def wants_log(self, state: TrainState) -> bool:
        """Whether a save is due; it needs finished steps."""
        every = self._config.train.save_every
        if every:
            return state.clock.step % every == 0
        return bool(self._wait) and time.perf_counter() - self._last_try >= self._wait

    def on_log(self, state: TrainState, metrics: TrainMetrics) -> None:
        """Saves if it is due; where that fails, says so, and a later one tries again."""
        if not self.wants_log(state):
            return
        began, failure = time.perf_counter(), None
        try:
            self._save(state)
        except FAILURES as error:
            failure = error
        self._last_try = time.perf_counter()
        self._wait = max(self._config.train.save_seconds, (self._last_try - began) / COST)
        if failure is not None:
            every = self._config.train.save_every
            later = f"in {every} steps" if every else f"in {self._wait:.0f} seconds"
            self._say(f"{_told(failure)} The run trains on, and is saved again {later}.")

    def finish(self, state: TrainState) -> Path:
        """Saves the run as it is now; returns the folder, which is another one where the run's own cannot be written.

        Raises UserError where no place takes it.
        """
        try:
            if self._saved_step != state.clock.step or not checkpoint.is_whole(self._folder):
                self._save(state)
            return self._folder
        except FAILURES as error:
            return self._save_elsewhere(state, error)

    def _save(self, state: TrainState) -> None:
        gone = not self._folder.is_dir()
        if gone:
            self._folder.mkdir(parents=True)
        if gone or not self._lock.in_place():
            self._lock.acquire()
        if gone:
            self._describe(self._folder)
            self._say(f"{self._folder} was deleted or moved while the run trained; it is made again.")
        checkpoint.save(self._folder, self._config, state, self._cameras)
        self._saved_step = state.clock.step

    def _save_elsewhere(self, state: TrainState, why: Exception) -> Path:
        """Into the first place that takes the run. Raises UserError where none does; the model is kept if that fits."""
        tried, model = [], getattr(why, "model", None)
        for place in other_places():
            folder = None
            try:
                folder = new_folder(place / f"{self._folder.name}_rescued")
                self._describe(folder)
                checkpoint.save(folder, self._config, state, self._cameras)
            except FAILURES as error:
                tried.append(str(place))
                if model is None and getattr(error, "model", None) is not None:
                    model = error.model
                elif folder is not None:
                    shutil.rmtree(folder, ignore_errors=True)
                continue
            in_memory = " That is in memory: copy it before the machine restarts." if place == SHARED_MEMORY else ""
            self._say(f"{_told(why)} The run is saved in {folder} instead.{in_memory}")
            return folder
        kept = f" The model alone is kept, {model}." if model else ""
        raise UserError(f"{_told(why)} Nor could it be saved in {', '.join(tried)}.{kept}") from why


def other_places() -> list[Path]:
    """Where a run may be saved that its own folder does not take, best first."""
    places = []
    for find in (lambda: Path.cwd() / "outputs", lambda: Path(tempfile.gettempdir()), lambda: SHARED_MEMORY):
        try:
            place = find()
        except FileNotFoundError:  # the current folder was deleted, or no temporary one is to be had
            continue
        if place not in places and (place.parent.is_dir() or place.is_dir()):
            places.append(place)
    return places


def _told(error: Exception) -> str:
    """What went wrong, as a sentence."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be written ({error.strerror})."
    reason = (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
    return f"{reason}."
