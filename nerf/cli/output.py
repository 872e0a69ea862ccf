"""What a command prints where it cannot be printed any more: a closed terminal, a pipe without a reader, a full disk.

The first write that fails is the last: the rest goes nowhere and the command goes on, because its result is in files.
The exit status tells at the end.
"""

import errno
import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

STDERR = 2


class _Stream(io.FileIO):
    """A standard stream that takes everything after its first error, and remembers it."""

    def __init__(self, file: int) -> None:
        super().__init__(file, "w", closefd=False)
        self.error: OSError | None = None

    def write(self, content: bytes) -> int:
        if self.error is None:
            try:
                return super().write(content)
            except OSError as error:
                self.error = error
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self.fileno())  # for what child processes and libraries print
                os.close(nowhere)
        return len(content)


@contextmanager
def outlasting() -> Iterator["Output"]:
    """A context in which sys.stdout and sys.stderr raise no errors of their files.

    Streams that were replaced, as in a notebook, stay as they are.
    """
    _open_closed_ones()
    before = sys.stdout, sys.stderr
    output = Output()
    sys.stdout, sys.stderr = (output.wrap(stream, number) for number, stream in enumerate(before, start=1))
    try:
        yield output
    finally:
        output.flush()
        sys.stdout, sys.stderr = before


def _open_closed_ones() -> None:
    """Opens standard files that the process was started without: else the next files opened would take their place,
    a checkpoint say, and what a library prints would be written into them."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


class Output:
    """The standard streams of a command."""

    def __init__(self) -> None:
        self._streams: list[tuple[_Stream, TextIO]] = []

    def wrap(self, stream: TextIO | None, number: int) -> TextIO:
        """A stream that outlasts its file. stream: as Python started with it, None for a closed one."""
        if stream not in (None, sys.__stdout__, sys.__stderr__):
            return stream
        if stream is not None:
            stream.flush()
        raw = _Stream(number)
        text = io.TextIOWrapper(
            io.BufferedWriter(raw),
            encoding=getattr(stream, "encoding", "utf-8"),
            errors=getattr(stream, "errors", "replace"),
            line_buffering=number == STDERR or raw.isatty(),
        )
        self._streams.append((raw, text))
        return text

    def flush(self) -> None:
        for _, text in self._streams:
            text.flush()

    def exit_status(self, status: int) -> int:
        """The exit status of a command that ended with status, which counts if it is an error; says what failed."""
        self.flush()
        for raw, _ in self._streams:
            if raw.error is None or status:
                continue
            if raw.error.errno == errno.EPIPE:  # `nerf doctor | head`: who reads has seen enough
                return 128 + getattr(signal, "SIGPIPE", 13)  # of a number that Windows has no name for
            print(f"error: the output could not be written ({raw.error.strerror}).", file=sys.stderr)
            return 2
        return status
