"""Ctrl-C, and the stop button of a notebook, between two steps instead of inside one."""

import signal
import threading
from types import FrameType


class StopOnInterrupt:
    """Turns the first interrupt into a wish to stop after the step; the second one interrupts as usual.

    Only a program's main thread is told of interrupts; in another thread this does nothing.
    """

    def __init__(self) -> None:
        self.asked = False
        self._installed = threading.current_thread() is threading.main_thread()

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, self._previous)

    def __enter__(self) -> "StopOnInterrupt":
        if self._installed:
            self._previous = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *error: object) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, self._previous)
