"""A lock for many renderers: whoever waits gets a turn."""

import contextlib
import heapq
import itertools
import threading
from collections.abc import Iterator


class Turns:
    """One thread at a time; who is in a hurry before who is patient, and each kind in the order of its arrival.

    threading.Lock knows no order: a thread that takes it again at once, as that of a video does, would keep it.
    """

    def __init__(self) -> None:
        self._changed, self._taken = threading.Condition(), False
        self._waiting: list[tuple[bool, int]] = []  # a heap
        self._arrivals = itertools.count()

    @contextlib.contextmanager
    def take(self, patient: bool) -> Iterator[None]:
        with self._changed:
            mine = patient, next(self._arrivals)
            heapq.heappush(self._waiting, mine)
            self._changed.wait_for(lambda: not self._taken and self._waiting[0] == mine)
            heapq.heappop(self._waiting)
            self._taken = True
        try:
            yield
        finally:
            with self._changed:
                self._taken = False
                self._changed.notify_all()
