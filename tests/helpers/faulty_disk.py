"""Commands on a disk that fails on demand: each in a fork of one process, which has paid for the imports.

faulty_disk.c counts the calls that change files below a folder, and lets one of them fail or kill the process.
"""

import contextlib
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
KINDS = {"open": 1, "write": 2, "fsync": 4, "rename": 8, "mkdir": 16, "link": 32, "unlink": 64, "truncate": 128}
EVERY_KIND = tuple(KINDS)
KINDS["memory"] = 512  # allocations, which every kind of a disk's calls does not include
MARK = 256  # of a record: something was promised


@dataclass(frozen=True)
class Fault:
    """Which call fails, counted from 1; 0 = none. error: errno, or 0 for kill -9 in its place."""

    at: int = 0
    error: int = 0
    lasting: bool = False
    kinds: tuple[str, ...] = EVERY_KIND


NO_FAULT = Fault()


@dataclass(frozen=True)
class Outcome:
    """status: the exit status, negative for a signal. calls: counted to the end. failed: path of the failed call."""

    status: int
    out: str
    err: str
    calls: int
    failed: str | None
    kind: str | None

    @property
    def said(self) -> str:
        return self.out + self.err


@cache
def library() -> Path:
    """faulty_disk.so, compiled."""
    path = Path(tempfile.mkdtemp()) / "faulty_disk.so"
    source = str(HERE / "faulty_disk.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-w", "-o", str(path), source, "-ldl"], check=True)
    return path


class Commands:
    """Runs commands in forks of one warm process (faulty_commands.py)."""

    def __init__(self, process: subprocess.Popen) -> None:
        self._process = process

    def run(
        self,
        folder: Path,
        words: Sequence[str],
        fault: Fault = NO_FAULT,
        record: Path | None = None,
        output: str = "",
        room: int | None = None,
    ) -> Outcome:
        """Runs `nerf WORDS` in folder, the one that the fault is about. record: a file for what was done to the disk.

        output: where it prints, if not into the outcome: a file, "closed", or "pipe", which has no reader. room: MiB
        of address space that it may take (RLIMIT_AS) beyond what a process has that has imported all; None: any.
        """
        job = {"folder": str(folder), "words": list(words), "fault": asdict(fault), "record": str(record or "")}
        self._process.stdin.write(json.dumps(job | {"output": output, "room": room}) + "\n")
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the process of the commands ended")
        return Outcome(**json.loads(answer))


@contextlib.contextmanager
def commands() -> Iterator[Commands]:
    program = [sys.executable, str(HERE / "faulty_commands.py")]
    environment = os.environ | {"LD_PRELOAD": str(library()), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment
    ) as process:
        try:
            yield Commands(process)
        finally:
            process.stdin.close()


@dataclass(frozen=True)
class Call:
    """A recorded call. offset: of a write or the new size; for open 1 if the file is new; for a mark its number."""

    kind: str
    path: str
    other: str
    offset: int
    data: bytes


def read_record(path: Path) -> list[Call]:
    """The calls of a record, in order."""
    content, at, calls = path.read_bytes(), 0, []
    words = {number: word for word, number in KINDS.items()} | {MARK: "mark"}
    while at < len(content):
        kind, first, second, size, offset = (ctypes.c_int64 * 5).from_buffer_copy(content, at)
        at += 40
        parts = []
        for length in (first, second, size):
            parts.append(content[at : at + length])
            at += length
        calls.append(Call(words[kind], parts[0].decode(), parts[1].decode(), offset, parts[2]))
    return calls
