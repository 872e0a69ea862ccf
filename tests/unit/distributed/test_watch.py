"""Signs of life of ranks, without processes: who counts as lost, whose reason is told, and that a rank ends by it."""

import io
import threading
from types import SimpleNamespace

import pytest

from nerf.distributed import watch
from nerf.distributed.watch import BEAT, GRACE, SILENCE, Watch


class Store:
    """What a TCPStore keeps."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.gone = False

    def set(self, key: str, value: str) -> None:
        if self.gone:
            raise RuntimeError("connection reset")
        self.kept[key] = value.encode()

    def get(self, key: str) -> bytes:
        return self.kept[key]

    def check(self, keys: list[str]) -> bool:
        if self.gone:
            raise RuntimeError("connection reset")
        return all(key in self.kept for key in keys)

    def compare_set(self, key: str, expected: str, value: str) -> bytes:
        if self.kept.get(key, b"") == expected.encode():
            self.set(key, value)
        return self.kept[key]


class Clock:
    """Seconds that pass as they are waited for; `living` beat meanwhile."""

    def __init__(self) -> None:
        self.now, self.living, self.reads = 100.0, [], 0

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        for rank in self.living:
            rank._beat()
        return False

    def time_ns(self) -> int:
        self.reads += 1
        return self.reads


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock, store = Clock(), Store()
    fake = SimpleNamespace(monotonic=lambda: clock.now, sleep=clock.wait, time_ns=clock.time_ns)
    monkeypatch.setattr(watch, "time", fake)
    monkeypatch.setattr(watch.dist, "TCPStore", lambda *_, **__: store)
    thread = SimpleNamespace(start=lambda: None, join=lambda seconds: None)
    event = lambda: SimpleNamespace(set=lambda: None, wait=clock.wait)  # noqa: E731
    fake_threads = SimpleNamespace(Lock=threading.Lock, Event=event, Thread=lambda **_: thread)
    monkeypatch.setattr(watch, "threading", fake_threads)
    clock.store = store
    return clock


def ranks(count: int) -> list[Watch]:
    return [Watch(rank, count, "node0", 1, [f"node{n}" for n in range(count)]) for rank in range(count)]


def test_the_first_reason_is_the_one_that_all_are_told(clock: Clock) -> None:
    first, second, third = ranks(3)
    assert second.fail("no cell is left") and not third.fail("rank 1 does not answer")
    assert first.reason() == third.reason() == "rank 1 of 3 on node1 ended: no cell is left"
    assert clock.now == 100.0, "it is known without waiting"


def test_who_says_nothing_is_lost_after_a_while(clock: Clock) -> None:
    first, second, third = ranks(3)
    clock.living = [first, second]
    assert first.reason() == "rank 2 of 3 on node2 is gone, and it left no reason: it was killed."
    assert SILENCE / 3 <= clock.now - 100 <= SILENCE / 3 + BEAT
    began, clock.living = clock.now, [first, second, third]
    assert first.reason() is None and clock.now - began >= SILENCE


def test_who_has_left_is_not_lost(clock: Clock) -> None:
    first, second = ranks(2)
    clock.living = [first]
    second.leave()
    assert first.reason() is None


def test_the_store_goes_with_the_rank_that_keeps_it(clock: Clock) -> None:
    _, second = ranks(2)
    clock.store.gone = True
    assert second.reason() == "rank 0 of 2 on node0 is gone, and it left no reason: it was killed."
    assert second.fail("it does not answer") and second.leave() is None


@pytest.mark.parametrize("told", [False, True])
def test_a_rank_ends_with_the_words_of_the_lost_one(clock: Clock, monkeypatch: pytest.MonkeyPatch, told: bool) -> None:
    first, second = ranks(2)
    second._out = io.StringIO()

    def ended(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr(watch.os, "_exit", ended)
    if told:
        first.fail("the disk is full")
    with pytest.raises(SystemExit) as end:
        second._watch()
    words = "ended: the disk is full" if told else "is gone, and it left no reason: it was killed."
    assert end.value.code == 1 and second._out.getvalue() == f"\nerror: rank 0 of 2 on node0 {words}\n"
    waited = clock.now - 100 - GRACE
    assert waited == BEAT if told else SILENCE < waited <= SILENCE + 2 * BEAT
