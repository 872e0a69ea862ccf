"""Key frames: the path meets each at its time, without a jump in speed, also around the seam of a loop."""

import math

import pytest
import torch
from torch import Tensor

from nerf.cameras.cameras import focal_from_fov
from nerf.cameras.key_frames import LEAST_SECONDS, MOST_SECONDS, KeyFrame, KeyFramePath
from nerf.cameras.poses import look_at

UP = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)


def key(azimuth: float, seconds: float = 2.0, fov: float = 0.8, radius: float = 4.0) -> KeyFrame:
    """On a circle around the origin, azimuth in degrees."""
    angle = math.radians(azimuth)
    position = torch.tensor([radius * math.cos(angle), radius * math.sin(angle), 1.0], dtype=torch.float64)
    return KeyFrame(look_at(position, torch.zeros(3, dtype=torch.float64), UP), fov, seconds)


def path(loop: bool = False) -> KeyFramePath:
    """Uneven in space and in time."""
    return KeyFramePath((key(0, 1.5), key(70, 1.0, 0.5), key(170, 3.0, 1.0, 6.0), key(260, 0.5)), loop)


def times(path: KeyFramePath) -> Tensor:
    return torch.nn.functional.pad(torch.tensor(path.durations, dtype=torch.float64).cumsum(0), (1, 0))


@pytest.mark.parametrize("loop", [False, True])
def test_it_meets_every_key_at_its_time(loop: bool) -> None:
    found, fov = path(loop).at(times(path(loop)))
    keys = path().keys + path().keys[: int(loop)]
    torch.testing.assert_close(found, torch.stack([key.c2w for key in keys]), rtol=0, atol=1e-6)
    torch.testing.assert_close(fov, torch.tensor([key.fov for key in keys], dtype=torch.float64), rtol=0, atol=1e-6)


@pytest.mark.parametrize("loop", [False, True])
def test_the_speed_does_not_jump(loop: bool) -> None:
    step = 1e-3
    ticks = torch.arange(0, path(loop).seconds, step, dtype=torch.float64)
    places = path(loop).at(ticks)[0][:, :, 3]
    if loop:
        places = torch.cat([places, places[:2]])
    velocity = places.diff(dim=0) / step
    assert velocity.norm(dim=1).min() > 0.3
    assert velocity.diff(dim=0).norm(dim=1).max() < 0.02 * velocity.norm(dim=1).max()


def test_equal_keys_in_equal_times_are_passed_at_one_speed() -> None:
    circle = KeyFramePath(tuple(key(60 * index) for index in range(6)), loop=True)
    speed = circle.at(circle.frames(30))[0][:, :, 3].diff(dim=0).norm(dim=1)
    assert speed.max() / speed.min() < 1.01


def test_a_video_has_its_seconds_and_a_loop_does_not_show_its_seam_twice() -> None:
    for loop in (False, True):
        cameras = path(loop).cameras(24, 160, 90)
        assert len(cameras) == round(24 * path(loop).seconds) and cameras.c2w.dtype == torch.float32
        assert (cameras.width, cameras.height) == (160, 90)
        focal = focal_from_fov(90, 0.8)
        torch.testing.assert_close(cameras.intrinsics[0], torch.tensor([focal, focal, 80.0, 45.0]))
        last = cameras.c2w[-1].double()
        assert torch.allclose(last, path().keys[0 if loop else 3].c2w, atol=1e-5) is not loop
    assert path().seconds == 4.5 and path(loop=True).seconds == 6.0


def test_changes_keep_the_rest() -> None:
    before = path()
    a, b, c, d = before.keys
    assert before.moved(3, 0).keys == (d, a, b, c) and before.moved(0, 2).keys == (b, c, a, d)
    assert before.without(1).keys == (a, c, d) and before.inserted(4, a).keys == (a, b, c, d, a)
    assert before.timed(1, 9.0).durations == [9.0, 3.0, 0.5]
    assert [before.timed(1, s).durations[0] for s in (-1.0, 1e9)] == [LEAST_SECONDS, MOST_SECONDS]
    assert before.stretched(9.0).durations == [2.0, 6.0, 1.0]
    for few in (KeyFramePath(), KeyFramePath((a,), loop=True)):
        assert few.seconds == 0 and few.stretched(5.0) == few
        with pytest.raises(ValueError, match="key frames: found"):
            few.at(torch.zeros(1))


def test_key_frames_in_one_place_are_still_a_path() -> None:
    still = KeyFramePath((key(0), key(0), key(0)), loop=True).at(torch.linspace(0, 6, 9, dtype=torch.float64))[0]
    torch.testing.assert_close(still, key(0).c2w.expand(9, 3, 4), rtol=0, atol=1e-6)
