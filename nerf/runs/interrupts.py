"""Ctrl-C, a notebook's stop button and a scheduler's signals, between two steps instead of inside one."""

import contextlib
import os
import signal
import stat
import threading
from collections.abc import Sequence
from types import FrameType


class StopOnInterrupt:
    """Turns the first of these signals into a wish to stop after the step.

    A second Ctrl-C interrupts as usual. Other signals are heard once: schedulers repeat them, while the run is being
    saved. A signal that the process was started to ignore (nohup) stays ignored. Only a program's main thread is told
    of signals; in another thread this does nothing.
    """

    def __init__(self, signals: Sequence[int] = (signal.SIGINT,)) -> None:
        self.signal: int | None = None  # the one that asked
        self._signals = signals if threading.current_thread() is threading.main_thread() else ()
        self._previous: dict[int, object] = {}

    @property
    def asked(self) -> bool:
        """Whether to stop after this step."""
        return self.signal is not None

    @property
    def exit_status(self) -> int:
        """128 + the signal's number, as a shell has it; 0 where there was none."""
        return 0 if self.signal is None else 128 + self.signal

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            leave_dead_terminal()
        if self.signal is None:
            self.signal = number
        if signal.SIGINT in self._previous:
            signal.signal(signal.SIGINT, self._previous[signal.SIGINT])

    def __enter__(self) -> "StopOnInterrupt":
        for number in self._signals:
            previous = signal.getsignal(number)
            if previous is not signal.SIG_IGN:
                self._previous[number] = previous
                signal.signal(number, self._ask)
        return self

    def __exit__(self, *error: object) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)
        self._previous = {}


def leave_dead_terminal() -> None:
    """Sends output nowhere that would go to a terminal which was closed: each write to it would be an error."""
    for stream in (1, 2):
        with contextlib.suppress(OSError):  # the stream is closed: nothing is written there
            if stat.S_ISCHR(os.fstat(stream).st_mode) and not os.isatty(stream):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream)
                os.close(nowhere)
