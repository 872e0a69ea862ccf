"""A video of a path: what the page shows, whole or not at all, and no other client has to wait for it."""

import threading
from collections.abc import Callable
from pathlib import Path

import imageio.v2 as imageio
import pytest
import torch
from tiny_runs import tiny_config, tiny_images, tiny_state
from viewed import tiny_scene

from nerf.cameras.cameras import Cameras
from nerf.images.metrics import psnr
from nerf.rendering.render import render_image
from nerf.training.loop import train
from nerf.viewer.client import ClientRenderer
from nerf.viewer.live import LiveScene
from nerf.viewer.look import Look, ViewCamera
from nerf.viewer.path_folder import PathFolder
from nerf.viewer.scene import SceneSource, StillScene
from nerf.viewer.video import CANCELLED, VideoOrder, VideoRendering

PATIENCE = 120  # seconds until a condition counts as never met


class Video:
    """A rendering whose end can be waited for. progress: called with the number of frames that are done."""

    def __init__(
        self,
        source: SceneSource,
        run: Path,
        frames: int = 3,
        look: Look | None = None,
        progress: Callable[[int], None] = lambda frames: None,
    ) -> None:
        self.file, self.ended, self.reason, self.counts = run / "paths" / "flight.mp4", threading.Event(), None, []
        self._progress = progress
        order = VideoOrder(look or Look(), cameras()[:frames], 10, self.file)
        self.rendering = VideoRendering(source, PathFolder(run), order, self._count, self._end)

    def _count(self, frames: int) -> None:
        self.counts.append(frames)
        self._progress(frames)

    def _end(self, reason: str | None) -> None:
        self.reason = reason
        self.ended.set()

    def wait(self) -> str | None:
        assert self.ended.wait(PATIENCE)
        return self.reason


def cameras() -> Cameras:
    return tiny_scene().cameras.resized(width=64, height=48)


def left_in(run: Path) -> list[Path]:
    return [path for path in run.rglob("*") if path.is_file()]


def test_its_frames_are_those_of_render_image(tmp_path: Path) -> None:
    video = Video(StillScene(tiny_scene()), tmp_path)
    assert video.wait() is None and video.counts == [1, 2, 3]
    assert left_in(tmp_path) == [video.file]
    with imageio.get_reader(video.file) as reader:
        frames = [torch.from_numpy(frame).float() / 255 for frame in reader]
    assert len(frames) == 3
    for index, frame in enumerate(frames):
        scene = tiny_scene()
        expected = render_image(scene.field, scene.sampler, cameras(), index, scene.background)
        assert psnr(frame, expected.rgb.clamp(0, 1)) > 30


def test_it_shows_what_the_page_shows(tmp_path: Path) -> None:
    video = Video(StillScene(tiny_scene()), tmp_path, 1, Look(near=1e3, background=(0.0, 0.0, 1.0)))
    assert video.wait() is None
    assert imageio.mimread(video.file)[0].mean((0, 1)) == pytest.approx([0, 0, 255], abs=4)


def test_cancelled_it_leaves_no_file_and_no_thread(tmp_path: Path) -> None:
    begun = threading.Event()
    video = Video(StillScene(tiny_scene()), tmp_path, 8, progress=lambda _: begun.set() or video.rendering.cancel())
    assert video.wait() == CANCELLED and begun.is_set() and len(video.counts) < 8
    video.rendering.close(PATIENCE)
    assert not video.rendering._thread.is_alive() and left_in(tmp_path) == []


def test_a_viewer_that_closes_ends_it(tmp_path: Path) -> None:
    source = StillScene(tiny_scene())
    video = Video(source, tmp_path, 8, progress=lambda _: source.close())
    assert video.wait() == CANCELLED and left_in(tmp_path) == []


def test_what_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "paths").touch()
    assert "flight.mp4 cannot be written" in Video(StillScene(tiny_scene()), tmp_path).wait()

    def full(video: Path, frames: int) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "paths").unlink()
    monkeypatch.setattr("nerf.images.write._check_video", full)
    assert "No space left" in Video(StillScene(tiny_scene()), tmp_path).wait()
    assert left_in(tmp_path) == []


def test_a_lack_of_memory_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("out of memory\nand much more")

    monkeypatch.setattr("nerf.viewer.video.timed_part", fail)
    assert Video(StillScene(tiny_scene()), tmp_path).wait() == "out of memory" and left_in(tmp_path) == []


def test_pictures_come_while_it_renders_and_a_slow_client_does_not_matter(tmp_path: Path) -> None:
    source, stuck, seen, whole = StillScene(tiny_scene()), threading.Event(), threading.Event(), threading.Event()
    slow = ClientRenderer(source, lambda *_: stuck.wait(PATIENCE), lambda _: None)
    quick = ClientRenderer(source, lambda _, resting: whole.set() if resting else None, lambda _: None)
    view = ViewCamera(cameras().c2w[0], 0.8, 160, 120)

    def hold(frames: int) -> None:
        """After the first frame the clients ask; after the second a whole picture has come."""
        if frames == 1:
            slow.show(view)
            quick.show(view)
        elif frames == 7 and whole.wait(PATIENCE):
            seen.set()

    video = Video(source, tmp_path, 8, progress=hold)
    assert video.wait() is None and seen.is_set()
    stuck.set()
    slow.close()
    quick.close()


def test_a_run_that_trains_again_ends_it(tmp_path: Path) -> None:
    config, state = tiny_state(tiny_config(steps=1000))
    live = LiveScene(config, state, tiny_images())
    live.pause(True)
    training = threading.Thread(target=lambda: list(train(config, state, [live])))
    training.start()
    try:
        assert Video(live, tmp_path).wait() is None  # paused
        (tmp_path / "paths" / "flight.mp4").unlink()
        again = Video(live, tmp_path, 8, progress=lambda frames: live.pause(False) if frames == 2 else None)
        assert "trains again since frame 3 of 8" in again.wait() and left_in(tmp_path) == []
    finally:
        live.stop()
        training.join(PATIENCE)
        live.close()
