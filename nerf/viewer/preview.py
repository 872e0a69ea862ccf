"""Plays a path: a camera moves along it, in real time."""

import threading
import time
from collections.abc import Callable

import torch
from torch import Tensor

from nerf.cameras.key_frames import KeyFramePath

RATE = 20  # moves a second


class Preview:
    """A thread that moves a camera from the start of a path to its end; a loop goes on until it is stopped."""

    def __init__(self, path: KeyFramePath, move: Callable[[Tensor, float], None], ended: Callable[[], None]) -> None:
        """path: of at least 2 key frames. move: called with a pose [3,4] and a vertical angle of view in radians.

        ended: called after the last move. Both are called in the thread.
        """
        self._seconds, self._loop, self._move, self._ended = path.seconds, path.loop, move, ended
        ticks = torch.linspace(0, path.seconds, max(2, round(RATE * path.seconds) + 1), dtype=torch.float64)
        self._poses, self._fov = path.at(ticks)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="viewer-preview", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends it at the next move; the camera stays where it is then."""
        self._stopped.set()

    def close(self, timeout: float | None = None) -> None:
        """Stops, and waits at most timeout seconds for the thread."""
        self.stop()
        self._thread.join(timeout)

    def _run(self) -> None:
        start, last = time.monotonic(), len(self._poses) - 1
        tick = 0
        while not self._stopped.is_set():
            self._move(self._poses[tick], self._fov[tick].item())
            if tick == last and not self._loop:
                break
            self._stopped.wait(1 / RATE)
            passed = time.monotonic() - start
            passed = passed % self._seconds if self._loop else passed
            tick = min(last, round(passed / self._seconds * last))
        self._ended()
