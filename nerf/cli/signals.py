"""Ctrl-C and a scheduler's signals outside of training: one line of output and exit status 128 + the signal's number.

During training they stop the run after the current step (nerf/runs/interrupts.py). This module needs only the standard
library, so that it works before anything heavy is imported.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType

# Signals that stop a run which is resumed later: Ctrl-C, docker stop and Slurm, a closed terminal, Slurm's
# --signal=USR1, and a limit on processor time. Windows has the first two.
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGXCPU")
STOPPING = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))


def preemption() -> tuple[int, ...]:
    """The signal by which submitit tells a job that it is preempted or at its time limit; () outside of its jobs."""
    if "SUBMITIT_EXECUTOR" not in os.environ:
        return ()
    name = f"SIG{os.environ.get('SUBMITIT_PREEMPT_SIGNAL', 'USR2')}"
    return (int(getattr(signal, name)),) if hasattr(signal, name) else ()


class Stopped(KeyboardInterrupt):
    """Raised for one of these signals, as KeyboardInterrupt is for Ctrl-C."""

    def __init__(self, number: int, consequence: str = "") -> None:
        super().__init__(f"{words(number)}; {consequence}" if consequence else words(number))
        self.number = number
        self.exit_status = 128 + number


def words(number: int) -> str:
    """The line of output."""
    return "interrupted" if number == signal.SIGINT else f"stopped by {signal.Signals(number).name}"


def ended_at_once() -> AbstractContextManager[None]:
    """A context in which a signal ends the process at once with its line, for the time of imports.

    It raises no exception, because half-imported modules would turn it into other errors.
    """
    return _handled_by(_end)


def raised() -> AbstractContextManager[None]:
    """A context in which a signal raises Stopped."""
    return _handled_by(_raise)


def deadly() -> AbstractContextManager[None]:
    """A context in which a signal ends the process at once without a word.

    It is for waiting in a library, which returns to no handler of Python's before it has waited.
    """
    return _handled_by(signal.SIG_DFL)


@contextmanager
def forwarded(stop: Callable[[int], Sequence[int]], asked: list[Stopped]) -> Iterator[None]:
    """A context in which a signal goes on to the processes of a sweep, which save their runs and end.

    It is added to asked. stop: is told the signal's number, and returns the processes. Ctrl-C reaches them without
    help; the second one raises Stopped.
    """

    def forward(number: int, frame: FrameType | None) -> None:
        if asked and number == signal.SIGINT:
            raise Stopped(number)
        if asked:
            return
        asked.append(Stopped(number))
        waits = "waiting until the running jobs are saved; Ctrl-C again ends this at once"
        os.write(2, f"\n{words(number)}: {waits}\n".encode())
        for process in stop(number):
            if number != signal.SIGINT:
                with suppress(ProcessLookupError):
                    os.kill(process, number)

    with _handled_by(forward):
        yield


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> Iterator[None]:
    before = _listen(handler)
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


def _listen(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> dict[int, object]:
    """Installs the handler, except for signals that were ignored at the start (nohup); returns the previous ones."""
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
