"""Pictures of a moving camera take the time that they may, at any speed of the machine."""

import pytest

from nerf.viewer.resolution import FEWEST_PIXELS, FIRST_PIXELS, Resolution

FULL = (1600, 900)


@pytest.mark.parametrize("seconds_per_pixel", [1e-8, 1e-6, 1e-5])
def test_a_moving_picture_takes_its_time(seconds_per_pixel: float) -> None:
    resolution = Resolution(frame_seconds=0.08)
    for _ in range(20):
        width, height = resolution.moving(FULL)
        resolution.measured(width * height, width * height * seconds_per_pixel)
    assert width * height * seconds_per_pixel <= 0.081
    assert (width, height) == FULL or width * height * seconds_per_pixel >= 0.079
    assert width / height == pytest.approx(FULL[0] / FULL[1], rel=0.02)


def test_the_first_picture_is_small_and_none_is_tiny() -> None:
    resolution = Resolution()
    width, height = resolution.moving(FULL)
    assert width * height == pytest.approx(FIRST_PIXELS, rel=0.02)
    resolution.measured(100, 1000.0)
    width, height = resolution.moving(FULL)
    assert width * height == pytest.approx(FEWEST_PIXELS, rel=0.02)


def test_it_is_never_larger_than_the_window() -> None:
    resolution = Resolution()
    resolution.measured(10**6, 1e-9)
    assert resolution.moving((30, 20)) == (30, 20)
