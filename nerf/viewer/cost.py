"""What a viewer costs a run: seconds of a step with nobody there, with a page at rest, and with one that moves.

A page is what the server keeps for each browser, a thread that asks for pictures; they are encoded and then dropped.
"""

import io
import itertools
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image

from nerf.cameras.cameras import Cameras
from nerf.cameras.paths import orbit
from nerf.errors import UserError
from nerf.ops.backend import synchronize
from nerf.runs.run import TrainingRun
from nerf.training.loop import Callback
from nerf.training.state import TrainState
from nerf.viewer.client import ClientRenderer
from nerf.viewer.live import LiveScene
from nerf.viewer.look import ViewCamera, vertical_fov

KINDS = ("nobody", "still", "nobody", "moving")  # parts of a run, in turn
SKIPPED = 4  # parts at the beginning, in which grids are doubled
PARTS = SKIPPED + 3 * len(KINDS)
WINDOW = 1280, 720  # pixels of the browser's window
TURN = 200  # pictures of a full turn of the moving camera
MOVES = 1 / 30  # seconds between two of its positions


@dataclass
class Part:
    """A part of a run: wall-clock seconds with all that pictures took, steps, and pictures that came."""

    kind: str
    seconds: float = 0.0
    steps: int = 0
    pictures: int = 0


class Page:
    """A page without a browser: looks, or turns around the scene, until close()."""

    def __init__(self, live: LiveScene, turn: Cameras, moving: bool) -> None:
        self.pictures, self._moving, self._closed = 0, moving, threading.Event()
        self._client = ClientRenderer(live, self._encode, lambda message: None)
        fov = vertical_fov(turn, 0)
        self._views = itertools.cycle([ViewCamera(pose, fov, *WINDOW) for pose in turn.c2w])
        self._client.show(next(self._views))
        self._thread = threading.Thread(target=self._move, name="moving-camera", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """A picture that is being rendered is dropped when it comes: the training thread, which renders it, is here."""
        self._closed.set()
        self._thread.join()
        self._client.close(timeout=0)

    def _move(self) -> None:
        while not self._closed.wait(MOVES):
            if self._moving:
                self._client.show(next(self._views))

    def _encode(self, picture: np.ndarray, resting: bool) -> None:
        Image.fromarray(picture).save(io.BytesIO(), format="JPEG", quality=75)
        self.pictures += 1


class Parts(Callback):
    """Opens and closes the page between the parts of a run, and measures them."""

    def __init__(self, open_page: Callable[[bool], Page]) -> None:
        self.parts: list[Part] = []
        self._open_page, self._page = open_page, None
        self._began = self._first_step = 0

    def on_step(self, state: TrainState) -> None:
        number = min(PARTS - 1, int(PARTS * state.clock.progress))
        while len(self.parts) <= number:
            self._finish(state)
            place = len(self.parts) - SKIPPED
            kind = KINDS[place % len(KINDS)] if place >= 0 else "nobody"
            self.parts.append(Part(kind))
            if kind != "nobody":
                self._page = self._open_page(kind == "moving")

    def close(self, state: TrainState) -> None:
        """After the last step."""
        self._finish(state)

    def _finish(self, state: TrainState) -> None:
        synchronize(state.device)
        now = time.perf_counter()
        if self.parts:
            part = self.parts[-1]
            part.seconds, part.steps = now - self._began, state.clock.step - self._first_step
        if self._page is not None:
            self.parts[-1].pictures = self._page.pictures
            self._page.close()
            self._page = None
        self._began, self._first_step = time.perf_counter(), state.clock.step


def measure_cost(run: TrainingRun) -> dict:
    """Trains a run to its end, with and without a page in turn.

    Raises UserError where the cameras have no center to turn around, or the run is too short. For each kind of page the
    cost is the share of time by which a step takes longer than in the part before, which had none.
    """
    try:
        turn = orbit(run.state.cameras.to("cpu"), TURN)
    except ValueError as error:
        raise UserError(
            f"a camera cannot turn around this scene ({error}); take one with cameras around it."
        ) from error
    live = LiveScene(run.config, run.state)
    parts = Parts(lambda moving: Page(live, turn, moving))
    try:
        for _ in run.train([live, parts]):
            pass
        parts.close(run.state)
    finally:
        live.close()
    return cost_of(parts.parts) | {"window": list(WINDOW), "steps": run.state.clock.step}


def cost_of(parts: list[Part]) -> dict:
    """The figures of still and moving pages. Raises UserError for parts without a step."""
    measured = parts[SKIPPED:]
    if len(parts) < PARTS or any(part.steps == 0 for part in measured):
        raise UserError(f"the run is too short for {PARTS} parts; give more train.steps or train.max_seconds.")
    found = {}
    for kind in ("still", "moving"):
        pairs = [(alone, part) for alone, part in zip(measured, measured[1:]) if part.kind == kind]
        costs = [part.seconds / part.steps / (alone.seconds / alone.steps) - 1 for alone, part in pairs]
        pictures = sum(part.pictures for _, part in pairs) / sum(part.seconds for _, part in pairs)
        found[kind] = {"cost": statistics.median(costs), "all": costs, "pictures_per_second": pictures}
    alone = [part for part in measured if part.kind == "nobody"]
    step_ms = 1e3 * sum(part.seconds for part in alone) / sum(part.steps for part in alone)
    return {"step_ms": step_ms, **found}
