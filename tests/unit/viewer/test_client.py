"""The thread of one client: the newest request wins, a camera at rest gets the whole picture, closing ends it."""

import math
import threading
from collections.abc import Callable

import numpy as np
import pytest
from viewed import tiny_scene

from nerf.viewer.client import ClientRenderer
from nerf.viewer.look import Look, ViewCamera
from nerf.viewer.scene import Scene, SceneClosed, StillScene

PATIENCE = 120  # seconds until a condition counts as never met


class Gate(StillScene):
    """A scene whose rendering waits until it is let through."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.open, self.asked = threading.Event(), threading.Semaphore(0)

    def run(self, work: Callable, resting: bool = False) -> object:
        self.asked.release()
        assert self.open.wait(PATIENCE)
        return super().run(work, resting)


class Inbox:
    """The pictures that a client got."""

    def __init__(self) -> None:
        self.pictures: list[tuple[np.ndarray, bool]] = []
        self.messages: list[str] = []
        self._came = threading.Condition()

    def send(self, picture: np.ndarray, resting: bool) -> None:
        with self._came:
            self.pictures.append((picture, resting))
            self._came.notify_all()

    def fail(self, message: str) -> None:
        with self._came:
            self.messages.append(message)
            self._came.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self._came:
            assert self._came.wait_for(condition, PATIENCE)


def camera(width: int = 160, height: int = 120) -> ViewCamera:
    return ViewCamera(tiny_scene().cameras.c2w[0], 0.8, width, height)


def rests(inbox: Inbox) -> bool:
    return bool(inbox.pictures) and inbox.pictures[-1][1]


def test_it_gets_a_coarse_picture_then_the_whole_one() -> None:
    inbox = Inbox()
    renderer = ClientRenderer(StillScene(tiny_scene()), inbox.send, inbox.fail)
    renderer.show(camera())
    inbox.wait_for(lambda: rests(inbox))
    renderer.close()
    assert [resting for _, resting in inbox.pictures] == [False, True]
    small, full = (picture for picture, _ in inbox.pictures)
    assert full.shape == (120, 160, 3) and full.dtype == np.uint8
    assert small.shape[0] < full.shape[0]


def test_a_picture_of_a_moving_camera_is_one_job() -> None:
    class Counted(StillScene):
        moving = 0

        def run(self, work: Callable, resting: bool = False) -> object:
            self.moving += not resting
            return super().run(work, resting)

    source, inbox = Counted(tiny_scene()), Inbox()
    renderer = ClientRenderer(source, inbox.send, inbox.fail)
    for pictures in (2, 4):  # the second time the speed is known, by which pictures at rest are cut into parts
        renderer.show(camera())
        inbox.wait_for(lambda most=pictures: len(inbox.pictures) >= most and rests(inbox))
    renderer.close()
    assert source.moving == sum(not resting for _, resting in inbox.pictures)


def test_the_newest_request_overtakes_the_others() -> None:
    inbox, gate = Inbox(), Gate(tiny_scene())
    renderer = ClientRenderer(gate, inbox.send, inbox.fail)
    renderer.show(camera())
    assert gate.asked.acquire(timeout=PATIENCE)  # rendering
    for size in range(20, 60):
        renderer.show(camera(size, size))
    gate.open.set()
    inbox.wait_for(lambda: rests(inbox))
    renderer.close()
    assert len(inbox.pictures) == 3  # the one that was begun, the newest coarse, the newest whole
    assert inbox.pictures[-1][0].shape == (59, 59, 3)


def test_closing_ends_its_thread_while_it_renders() -> None:
    inbox, gate = Inbox(), Gate(tiny_scene())
    renderer = ClientRenderer(gate, inbox.send, inbox.fail)
    renderer.show(camera())
    assert gate.asked.acquire(timeout=PATIENCE)
    gate.close()
    gate.open.set()
    renderer.close(PATIENCE)
    assert not renderer._thread.is_alive()
    assert inbox.pictures == []
    with pytest.raises(SceneClosed):
        gate.run(lambda scene: scene)


def test_a_client_that_is_slow_or_fails_keeps_no_other_from_its_pictures() -> None:
    source, stuck, other = StillScene(tiny_scene()), threading.Event(), Inbox()
    slow = ClientRenderer(source, lambda *_: stuck.wait(PATIENCE), other.fail)
    quick = ClientRenderer(source, other.send, other.fail)
    slow.show(camera())
    quick.show(camera())
    other.wait_for(lambda: rests(other))
    stuck.set()
    slow.close()
    quick.close()


def test_what_goes_wrong_is_told_and_the_next_picture_comes() -> None:
    class Full(StillScene):
        broken = True

        def run(self, work: Callable, resting: bool = False) -> object:
            if self.broken:
                raise RuntimeError("out of memory\nand much more")
            return super().run(work, resting)

    source, inbox = Full(tiny_scene()), Inbox()
    renderer = ClientRenderer(source, inbox.send, inbox.fail)
    renderer.show(camera())
    inbox.wait_for(lambda: bool(inbox.messages))
    source.broken = False
    renderer.show(look=Look("depth", far=math.inf))
    inbox.wait_for(lambda: rests(inbox))
    renderer.close()
    assert inbox.messages == ["out of memory"]
