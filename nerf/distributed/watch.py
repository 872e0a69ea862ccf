"""Whether the other ranks live: each tells the common store that it does, and why it ends if it ends early.

A collective waits for ranks that are gone, on GPUs without end. So a thread looks at the store every second, and ends
this process with words where another rank gave its reason or has been silent too long.
"""

import datetime
import os
import sys
import threading
import time

import torch.distributed as dist

BEAT = 1.0  # seconds between two signs of life
SILENCE = 15.0  # seconds without one, after which a rank counts as lost
GRACE = 5.0  # seconds in which the main thread may end by itself, with its files closed
FAILED = "nerf/failed"


class Watch:
    """Tells the others that this rank lives, and looks whether they do. A connection to the store of its own."""

    def __init__(self, rank: int, size: int, host: str, port: int, hosts: list[str]) -> None:
        self._rank, self._size, self._hosts = rank, size, hosts
        # A group's own store is behind a lock that a blocked wait keeps.
        self._store = dist.TCPStore(host, port, is_master=False, timeout=datetime.timedelta(seconds=SILENCE))
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._out = sys.stderr  # of the process, before anything redirects it
        self._beat()
        self._thread = threading.Thread(target=self._watch, name="watch", daemon=True)
        self._thread.start()

    def fail(self, reason: str) -> bool:
        """Says why this rank ends early; returns whether it is the first that does."""
        self._ended.set()
        words = f"rank {self._rank} of {self._size} on {self._hosts[self._rank]} ended: {reason}"
        try:
            with self._lock:
                return self._store.compare_set(FAILED, "", words).decode() == words
        except RuntimeError:  # the store is gone with the rank that kept it
            return True

    def leave(self) -> None:
        """This rank has done its work: the others go on without it."""
        self._ended.set()
        self._thread.join(GRACE)  # not in the store while the process takes that down
        try:
            with self._lock:
                self._store.set(self._key(self._rank), "left")
        except RuntimeError:
            return

    def reason(self, seconds: float = SILENCE + 2 * BEAT) -> str | None:
        """Why another rank has ended, waiting so long for it to be told; None if nothing is known."""
        until = time.monotonic() + seconds
        silent = _Silence()
        while time.monotonic() < until:
            try:
                found = self._told() or self._lost(silent, SILENCE / 3)  # a connection broke: one of them is gone
            except RuntimeError:
                return f"rank 0 of {self._size} on {self._hosts[0]} is gone, and it left no reason: it was killed."
            if found:
                return found
            time.sleep(BEAT / 2)
        return None

    def _key(self, rank: int) -> str:
        return f"nerf/alive/{rank}"

    def _beat(self) -> None:
        with self._lock:
            self._store.set(self._key(self._rank), str(time.time_ns()))

    def _told(self) -> str | None:
        with self._lock:
            return self._store.get(FAILED).decode() if self._store.check([FAILED]) else None

    def _lost(self, silent: "_Silence", patience: float) -> str | None:
        for rank in range(self._size):
            if rank == self._rank:
                continue
            with self._lock:
                beat = self._store.get(self._key(rank)).decode() if self._store.check([self._key(rank)]) else ""
            if beat != "left" and silent.lasts(rank, beat) > patience:
                where = self._hosts[rank]
                return f"rank {rank} of {self._size} on {where} is gone, and it left no reason: it was killed."
        return None

    def _watch(self) -> None:
        silent = _Silence()
        while not self._ended.wait(BEAT):
            try:
                self._beat()
                found = self._told() or self._lost(silent, SILENCE)
            except RuntimeError:
                found = f"rank 0 of {self._size} on {self._hosts[0]} is gone, and it left no reason: it was killed."
            if found and not self._ended.wait(GRACE):
                print(f"\nerror: {found}", file=self._out, flush=True)
                os._exit(1)


class _Silence:
    """How long each rank has said nothing new."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[str, float]] = {}

    def lasts(self, rank: int, beat: str) -> float:
        now = time.monotonic()
        before, since = self._last.get(rank, (None, now))
        if beat != before:
            since = now
        self._last[rank] = beat, since
        return now - since
