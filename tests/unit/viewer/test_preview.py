"""A preview moves a camera along the path, to its end or until it is stopped."""

import threading

import torch
from viewed import tiny_scene

from nerf.cameras.key_frames import KeyFrame, KeyFramePath
from nerf.viewer.preview import Preview

PATIENCE = 120  # seconds until a condition counts as never met
ROUNDS = 5


class Camera:
    """Notes every move, and whether the angle of view has become wide so often as that many rounds have it."""

    def __init__(self) -> None:
        self.moves: list[tuple[torch.Tensor, float]] = []
        self.went_around = threading.Event()

    def move(self, c2w: torch.Tensor, fov: float) -> None:
        self.moves.append((c2w, fov))
        wide = [fov > 0.7 for _, fov in self.moves]
        if sum(later > earlier for earlier, later in zip(wide, wide[1:])) >= ROUNDS:
            self.went_around.set()


def path(loop: bool) -> KeyFramePath:
    poses = tiny_scene().cameras.c2w
    return KeyFramePath((KeyFrame(poses[0], 0.5, 0.1), KeyFrame(poses[1], 0.9, 0.1)), loop)


def test_it_ends_at_the_last_key_frame() -> None:
    camera, ended = Camera(), threading.Event()
    Preview(path(loop=False), camera.move, ended.set)
    assert ended.wait(PATIENCE)
    for (c2w, fov), key in zip((camera.moves[0], camera.moves[-1]), path(loop=False).keys):
        torch.testing.assert_close(c2w.float(), key.c2w, rtol=0, atol=1e-5)
        assert abs(fov - key.fov) < 1e-6


def test_a_loop_goes_on_until_it_is_stopped() -> None:
    camera, ended = Camera(), threading.Event()
    preview = Preview(path(loop=True), camera.move, ended.set)
    assert camera.went_around.wait(PATIENCE) and not ended.is_set()
    preview.close(PATIENCE)
    assert ended.is_set() and not preview._thread.is_alive()
