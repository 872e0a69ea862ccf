"""Ctrl-C and a scheduler's signals outside of training: one line, and 128 + the signal's number as exit status.

Training itself turns them into a stop after the step (nerf/runs/interrupts.py). It needs the standard library
alone, to be there before anything heavy is imported.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

# What ends a run that is to go on later: Ctrl-C, docker stop and Slurm, a closed terminal, Slurm's --signal=USR1, and
# a limit on processor time.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGXCPU)


class Stopped(KeyboardInterrupt):
    """One of these signals, where a KeyboardInterrupt would come for Ctrl-C."""

    def __init__(self, number: int, consequence: str = "") -> None:
        super().__init__(f"{words(number)}; {consequence}" if consequence else words(number))
        self.number = number
        self.exit_status = 128 + number


def words(number: int) -> str:
    """What the line says."""
    return "interrupted" if number == signal.SIGINT else f"stopped by {signal.Signals(number).name}"


def ended_at_once() -> AbstractContextManager[None]:
    """Within it a signal ends the process with its line: while modules are imported there is nothing to save.

    No exception is raised, which modules that are half imported would turn into other errors.
    """
    return _handled_by(_end)


def raised() -> AbstractContextManager[None]:
    """Within it a signal raises Stopped, where Python raises KeyboardInterrupt for Ctrl-C."""
    return _handled_by(_raise)


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = _listen(handler)
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


def _listen(handler: Callable[[int, FrameType | None], None]) -> dict[int, object]:
    """The handlers before; signals that the process was started to ignore (nohup) stay ignored."""
    before = {number: signal.getsignal(number) for number in STOPPING}
    before = {number: previous for number, previous in before.items() if previous is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, handler)
    return before


def _end(number: int, frame: FrameType | None) -> None:
    try:
        os.write(2, f"\n{words(number)}\n".encode())
    finally:
        os._exit(128 + number)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Stopped(number)
