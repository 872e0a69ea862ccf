"""Interrupts (Ctrl-C, a notebook's stop button, a scheduler's signals) that take effect between two steps."""

import signal
import threading
from collections.abc import Sequence
from types import FrameType

from nerf.training.loop import Callback
from nerf.training.state import TrainState


class StopOnInterrupt(Callback):
    """Ends training after the step in which one of the signals arrives: a context, and a callback of train().

    It handles the signals while the context is active; the context may be entered again.

    A second Ctrl-C interrupts at once. Other signals count only once, because schedulers repeat them while the run is
    saved. Signals that the process was started to ignore (nohup) stay ignored. Python handles signals in the main
    thread only; in another thread this does nothing.
    """

    def __init__(self, signals: Sequence[int] = (signal.SIGINT,)) -> None:
        self.signal: int | None = None  # the signal that requested the stop
        self._signals = signals if threading.current_thread() is threading.main_thread() else ()
        self._previous: dict[int, object] = {}

    @property
    def asked(self) -> bool:
        """Whether a stop was requested."""
        return self.signal is not None

    @property
    def exit_status(self) -> int:
        """The exit status by the convention of shells: 128 + the signal's number; 0 without a signal."""
        return 0 if self.signal is None else 128 + self.signal

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal = number
        if signal.SIGINT in self._previous:
            signal.signal(signal.SIGINT, self._previous[signal.SIGINT])

    def wants_stop(self, state: TrainState) -> bool:
        return self.asked

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
