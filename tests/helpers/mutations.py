"""Damaged and forged files, as hypothesis draws them, and limits for what reads them.

Functions that take draw are called from strategies: strategies of their own would be printed with all their bytes.
"""

import contextlib
import copy
import ctypes
import gc
import json
import resource
import signal
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

EVIL_NUMBERS = (
    0.0, -1.0, 0.5, 1e-30, 1e-9, 1e-320, 1e9, 2.0**31, 2.0**63, 1e20, 1e30, 3.3e38, 1e39, -1e39, 1e300, -1e300,
    float("nan"), float("inf"), -float("inf"),
)  # fmt: skip
EVIL_INTEGERS = (0, -1, 1, 2, 255, 2**15, 2**31 - 1, -(2**31), 2**32, 2**62, -(2**63), 2**63 - 1)
EVIL_WORDS = (
    "", "nan", "inf", "-inf", "1e39", "1e300", "-1e300", "1e-30", "0", "-1", "0.5", "9" * 40, "9" * 5000, "1_0", "0x10",
    "\x00", "\ud800", "x" * 300, "/" * 5000, "..", "/dev/null", "PINHOLE", "FULL_OPENCV", "é", "²", "٣", "#",
    "\n", "\x85",
)  # fmt: skip
EVIL_JSON = (
    None, True, False, [], {}, [[]], [None], {"a": None}, "", "x", "\x00", "\ud800", "x" * 300, "a/" * 3000, "../..",
    "/dev/zero", "images", ".", [1.0] * 16, [[0.0] * 4] * 4, [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]],
    [["1"] * 4] * 4, 10**400, *EVIL_NUMBERS, *EVIL_INTEGERS,
)  # fmt: skip
MEGABYTE = 1 << 20
ROOM = 1536 * MEGABYTE  # of address space: a thread's stack and heap reserve far more of it than they use
GROWTH = 48 * MEGABYTE  # of memory that is in use, beside ten times the file
SECONDS = 30  # of the processor, which a busy machine's memory slows too
PATIENCE = 200  # seconds that pass, on a busy machine too


class TooSlow(BaseException):
    """Not an Exception, or a reader could answer it."""


def collect() -> None:
    """Collects all garbage. While another thread does that, gc.collect() does nothing, and says that it found none."""
    found = 0
    while not found:
        garbage: list = []
        garbage.append(garbage)
        del garbage
        found = gc.collect()


@contextlib.contextmanager
def limited(size: int | None) -> Iterator[None]:
    """Ends what takes longer than SECONDS or waits, with an error that no reader answers, or more memory than ROOM.

    size: bytes of what is read; memory in use may grow by ten times as much and GROWTH; None: by anything.
    What the heap has free already is room beyond ROOM, as nerf/ops/backend.py lets it keep what was freed.
    """

    def stop(*_: object) -> None:
        raise TooSlow(f"no answer after {SECONDS} s of work, or {PATIENCE} s")

    if size is None:
        collect()  # or a test's garbage, collected within, would give ROOM to what is taken now; of a file too slow
    ctypes.CDLL(None).malloc_trim(0)  # or what was freed before would hide what is taken now
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = {number: signal.signal(number, stop) for number in (signal.SIGALRM, signal.SIGPROF)}
    used = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    signal.alarm(PATIENCE)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, hard))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        grown = _memory("VmHWM") - used
        if size is not None:
            MOST_GROWN.append(grown)  # whether it was read or answered
        assert size is None or grown <= 10 * size + GROWTH, f"memory grew by {grown >> 20} MiB"


MOST_GROWN: list[int] = []  # bytes, of each file that was read


def _memory(name: str) -> int:
    """Bytes of this process: VmRSS in use, VmHWM at most since the peak began."""
    text = Path("/proc/self/status").read_text()
    return 1024 * int(next(line.split()[1] for line in text.splitlines() if line.startswith(f"{name}:")))


def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes of a file after one to three accidents, or after numbers and words in it were replaced."""
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 3)))):
        data = draw(st.sampled_from(ACCIDENTS))(draw, data)
    return data


def _place(draw: st.DrawFn, data: bytes) -> int:
    """Heads are as likely as the rest: there stand counts and types."""
    return draw(st.one_of(st.integers(0, min(len(data), 160)), st.integers(0, len(data))))


def _flipped(draw: st.DrawFn, data: bytes) -> bytes:
    place, bit = _place(draw, data), draw(st.integers(0, 7))
    return data[:place] + bytes(byte ^ 1 << bit for byte in data[place : place + 1]) + data[place + 1 :]


def _truncated(draw: st.DrawFn, data: bytes) -> bytes:
    return data[: _place(draw, data)]


def _without(draw: st.DrawFn, data: bytes) -> bytes:
    place = _place(draw, data)
    return data[:place] + data[place + draw(st.integers(1, 64)) :]


def _duplicated(draw: st.DrawFn, data: bytes) -> bytes:
    place, length = _place(draw, data), draw(st.integers(1, 200))
    return data[:place] + data[place : place + length] * 2 + data[place + length :]


def _spliced(draw: st.DrawFn, data: bytes) -> bytes:
    start, place, length = _place(draw, data), _place(draw, data), draw(st.integers(1, 64))
    piece = data[start : start + length]
    return data[:place] + piece + data[place + len(piece) :]


def _with_number(draw: st.DrawFn, data: bytes) -> bytes:
    place, layout = _place(draw, data), draw(st.sampled_from("dfqi"))
    values = EVIL_NUMBERS if layout in "df" else EVIL_INTEGERS
    number = draw(st.sampled_from(values))
    if layout == "f":
        number = max(-3.4e38, min(3.4e38, number)) if abs(number) < float("inf") else number
    if layout == "i":
        number = max(-(2**31), min(2**31 - 1, number))
    packed = struct.pack(f"<{layout}", number)
    return data[:place] + packed + data[place + len(packed) :]


def _with_word(draw: st.DrawFn, data: bytes) -> bytes:
    words = data.split(b" ")
    index = draw(st.integers(0, len(words) - 1))
    words[index] = draw(st.sampled_from(EVIL_WORDS)).encode("utf-8", "surrogatepass")
    return b" ".join(words)


def _with_line(draw: st.DrawFn, data: bytes) -> bytes:
    lines = data.split(b"\n")
    index, other = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
    lines[index] = draw(st.sampled_from((b"", lines[other], lines[index] + b" 1", b"1" * 70000)))
    return b"\n".join(lines)


ACCIDENTS = (_flipped, _truncated, _without, _duplicated, _spliced, _with_number, _with_word, _with_word, _with_line)


def forged(draw: st.DrawFn, content: Any, evil: tuple = EVIL_JSON) -> Any:
    """Nested lists and dicts in which one to three values were replaced, removed, doubled or given another's place."""
    content = copy.deepcopy(content)
    for _ in range(draw(st.sampled_from((1, 1, 2, 3)))):
        found = list(places(content))
        if not found:
            break
        holder, key = draw(st.sampled_from(found))
        action = draw(st.sampled_from(("replace", "replace", "replace", "remove", "double", "swap")))
        if action == "remove":
            del holder[key]
        elif action == "double" and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif action == "swap":
            other, at = draw(st.sampled_from(found))
            holder[key] = copy.deepcopy(other[at])
        else:
            holder[key] = copy.deepcopy(draw(st.sampled_from(evil)))
    return content


def places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Every list or dict with a key in it."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield content, key
        yield from places(value)


def forged_json(draw: st.DrawFn, data: bytes) -> bytes:
    """A JSON file with other values, or what only looks like one."""
    if draw(st.integers(0, 3)) == 0:
        return damaged(draw, data)
    return json.dumps(forged(draw, json.loads(data))).encode()
