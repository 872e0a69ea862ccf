"""A scene that is being trained: browsers ask for pictures, the training thread renders them between two steps."""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nerf.config.schema import Config
from nerf.datasets.posed_images import PosedImages
from nerf.runs.open_run import of_state
from nerf.training.loop import Callback, TrainMetrics
from nerf.training.state import TrainState
from nerf.viewer.allowance import Allowance
from nerf.viewer.scene import Scene, SceneClosed
from nerf.viewer.turns import Turns

T = TypeVar("T")
PATIENCE = 0.1  # seconds between two looks at whether a paused run is stopped
FRAME_SECONDS = 0.016  # of a picture while the camera moves: ten of them a second take what Allowance gives


@dataclass
class Job:
    """Something to render, and where its result goes."""

    work: Callable[[Scene], Any]
    resting: bool
    result: Future = field(default_factory=Future)


class LiveScene(Callback):
    """Renders a run while it trains, and what its pages steer: pause, go on, stop. A callback of the training loop.

    Pictures are rendered by the training thread between two steps with the training clock stopped, so that the run ends
    as it would without them; how much longer it takes is bounded by Allowance. After settle() nothing trains any more,
    and whoever asks renders in their own thread.
    """

    def __init__(
        self,
        config: Config,
        state: TrainState,
        photos: PosedImages | None = None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        """photos: of the training cameras, kept in host memory. interrupted: ends a pause, as a signal does."""
        self._config, self._state, self._photos = config, state, photos
        self._interrupted = interrupted
        self._changed, self._turns = threading.Condition(), Turns()
        self._jobs: deque[Job] = deque()
        self._allowance = Allowance()
        self._trained_until: float | None = None
        self._closed = self._settled = self._whole = False
        self.paused = self.stop_asked = False
        self.version = 0
        self.history: list[TrainMetrics] = []
        self.occupied = state.occupancy.occupied_fraction
        self._scene = self._current_scene()

    # What threads of the viewer ask.

    @property
    def changes(self) -> bool:
        """Whether a picture grows old by itself."""
        return not self._settled

    @property
    def frame_seconds(self) -> float | None:
        """The rendering time that a picture of a moving camera may take; None: as long as without training."""
        return None if self.still else FRAME_SECONDS

    @property
    def still(self) -> bool:
        """Whether no step is going to be made, for now."""
        return self._settled or self.paused

    def scene(self) -> Scene:
        """The newest scene. Only run() may render it."""
        return self._scene

    def run(self, work: Callable[[Scene], T], resting: bool = False) -> T:
        """The result of work, done between two steps. Raises SceneClosed after close()."""
        with self._changed:
            if self._closed:
                raise SceneClosed
            job = None if self._settled else Job(work, resting)
            if job is not None:
                self._jobs.append(job)
                self._changed.notify_all()
        if job is not None:
            return job.result.result()
        with self._turns.take(patient=resting):
            return work(self._scene)

    def pause(self, paused: bool) -> None:
        """Stops the training before its next step, or lets it go on; nothing where it has been asked to end."""
        with self._changed:
            self.paused = paused and not self.stop_asked
            self._changed.notify_all()

    def stop(self) -> None:
        """Ends the training after its current step."""
        with self._changed:
            self.stop_asked, self.paused = True, False
            self._changed.notify_all()

    def close(self) -> None:
        """Ends run() for all threads."""
        with self._changed:
            self._closed, self.paused, jobs = True, False, list(self._jobs)
            self._jobs.clear()
            self._changed.notify_all()
        for job in jobs:
            job.result.set_exception(SceneClosed())

    # What the training thread calls.

    def on_step(self, state: TrainState) -> None:
        self.version = state.clock.step
        if not (self._jobs or self.paused) or (state.parts is not None and not self._whole):
            return
        now = time.perf_counter()
        if self._trained_until is not None:
            self._allowance.earn(now - self._trained_until, self._moving())
        if self._allowance.seconds > 0 or self.paused:
            with state.paused():
                self._work_off()
                self._wait_while_paused()
        self._trained_until = time.perf_counter()

    def on_log(self, state: TrainState, metrics: TrainMetrics) -> None:
        self.history.append(metrics)
        self._scene = self._current_scene()  # with what was learned of background and poses

    def on_grid_change(self, state: TrainState) -> None:
        self.occupied = state.occupancy.occupied_fraction
        self._scene = self._current_scene()

    def wants_whole(self, state: TrainState) -> bool:
        self._whole = bool(self._jobs or self.paused)
        return self._whole

    def wants_stop(self, state: TrainState) -> bool:
        return self.stop_asked

    def settle(self) -> None:
        """After the last step: the scene changes no more."""
        with self._changed:
            self._scene, self._settled, self.paused = self._current_scene(), True, False
        with self._turns.take(patient=False):
            while (job := self._next()) is not None:
                self._do(job)
        self.version += 1

    def _current_scene(self) -> Scene:
        given = self._state.cameras if self._photos is None else self._photos.cameras
        now = of_state(self._config, self._state, given)
        return Scene(now.field, now.sampler, now.background, now.cameras, self._photos, now.vignetting)

    def _work_off(self) -> None:
        """Renders what waits, moving cameras first, while the allowance lasts."""
        while self._allowance.seconds > 0 and (job := self._next()) is not None:
            began = time.perf_counter()
            self._do(job)
            self._allowance.spend(time.perf_counter() - began)

    def _wait_while_paused(self) -> None:
        while self.paused and not self._interrupted():
            with self._changed:
                if not self._jobs:
                    self._changed.wait(PATIENCE)
            while self.paused and (job := self._next()) is not None:
                self._do(job)

    def _moving(self) -> bool:
        """Whether a picture of a moving camera waits."""
        with self._changed:
            return any(not job.resting for job in self._jobs)

    def _next(self) -> Job | None:
        """Takes what is to be rendered next, moving cameras first; None if nothing waits."""
        with self._changed:
            job = next((job for job in self._jobs if not job.resting), self._jobs[0] if self._jobs else None)
            if job is not None:
                self._jobs.remove(job)
            return job

    def _do(self, job: Job) -> None:
        try:
            result = job.work(self._scene)
        except Exception as error:  # noqa: BLE001 - it is the asking thread's
            job.result.set_exception(error)
        else:
            job.result.set_result(result)
