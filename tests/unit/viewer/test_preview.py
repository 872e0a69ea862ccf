"""A preview moves the client's camera along the path, to its end or until it is stopped."""

import contextlib
import threading

import numpy as np
from viewed import tiny_scene

from nerf.cameras.key_frames import KeyFrame, KeyFramePath
from nerf.viewer.look import page_pose
from nerf.viewer.preview import Preview

PATIENCE = 120  # seconds until a condition counts as never met
ROUNDS = 5


class Camera:
    """What a preview sets of a client's camera."""

    wxyz = position = np.zeros(3)
    fov = 0.0


class Client:
    """Notes every move, and whether the angle of view has become wide so often."""

    def __init__(self) -> None:
        self.camera, self.moves, self.went_around = Camera(), [], threading.Event()

    @contextlib.contextmanager
    def atomic(self):
        yield
        self.moves.append((self.camera.wxyz, self.camera.position, self.camera.fov))
        wide = [fov > 0.7 for _, _, fov in self.moves]
        if sum(later > earlier for earlier, later in zip(wide, wide[1:])) >= ROUNDS:
            self.went_around.set()


def path(loop: bool) -> KeyFramePath:
    poses = tiny_scene().cameras.c2w
    return KeyFramePath((KeyFrame(poses[0], 0.5, 0.1), KeyFrame(poses[1], 0.9, 0.1)), loop)


def test_it_ends_at_the_last_key_frame() -> None:
    client, ended = Client(), threading.Event()
    Preview(client, path(loop=False), ended.set)
    assert ended.wait(PATIENCE)
    for (wxyz, position, fov), key in zip((client.moves[0], client.moves[-1]), path(loop=False).keys):
        expected, place = page_pose(key.c2w)
        assert abs(abs(wxyz @ expected) - 1) < 1e-6 and np.allclose(position, place, atol=1e-6)
        assert abs(fov - key.fov) < 1e-6


def test_a_loop_goes_on_until_it_is_stopped() -> None:
    client, ended = Client(), threading.Event()
    preview = Preview(client, path(loop=True), ended.set)
    assert client.went_around.wait(PATIENCE) and not ended.is_set()
    preview.close(PATIENCE)
    assert ended.is_set() and not preview._thread.is_alive()
