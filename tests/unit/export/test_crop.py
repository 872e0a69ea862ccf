"""A crop box that a message names can be typed, wherever in the world the scene lies."""

import pytest
import torch

from nerf.export.crop import as_setting
from nerf.scene.bounds import given_box


@pytest.mark.parametrize(("at", "edge"), [(0.0, 3.0), (0.0, 0.02), (4123.4, 2.5), (412345.0, 30.0), (-6.4e6, 2500.0)])
def test_a_box_that_is_told_is_that_box(at: float, edge: float) -> None:
    box = torch.tensor([[at, -1.0, 0.0], [at + edge, -1.0 + edge, edge]], dtype=torch.float32)
    told = as_setting(box)
    assert told.startswith("crop=[") and "e" not in told[6:]
    read = given_box("crop", [float(x) for x in told[6:-1].split(",")])
    assert (read - box).abs().max() <= 1e-3 * edge


def test_numbers_are_as_short_as_the_box_allows() -> None:
    assert as_setting(torch.tensor([[-1.0, 0.0, 0.5], [1.0, 2.0, 2.123456]])) == "crop=[-1,0,0.5,1,2,2.123]"
