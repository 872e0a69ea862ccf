"""Where a web page begins, and that no page is written which could not begin."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.linalg import cross
from torch.nn.functional import normalize

from nerf.cameras.cameras import Cameras
from nerf.cameras.poses import look_at
from nerf.errors import UserError
from nerf.export.web.export import _start
from nerf.export.web.page import write_page

UP = torch.tensor([0.0, 0.0, 1.0])


def ring(first: Tensor) -> Cameras:
    """Level cameras all around, after one with the pose [3,4]."""
    places = [torch.tensor([3 * math.cos(a), 3 * math.sin(a), 1.5]) for a in range(6)]
    poses = torch.stack([first, *(look_at(place, torch.zeros(3), UP) for place in places)])
    return Cameras(poses, torch.tensor([[50.0, 50.0, 20.0, 15.0]]).expand(7, 4), 40, 30)


def begins(cameras: Cameras) -> Tensor:
    """The axes [3,3] with which the page begins, in columns, as axes() of controls.js makes them."""
    start = _start(cameras)
    center, target, up = (torch.tensor(start[name], dtype=torch.float64) for name in ("center", "target", "up"))
    backward = normalize(center - target, dim=0)
    right = normalize(cross(up, backward), dim=0)
    return torch.stack([right, cross(backward, right), backward], dim=1)


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("lean", [0.0, 1e-3, 0.05])
@pytest.mark.parametrize("turn", [0.3, 1.5, 4.0])
def test_a_picture_straight_down_or_up_is_not_turned(
    turn: float, lean: float, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a drone, or of a ceiling. Up tells nothing of how these are turned."""
    monkeypatch.setattr("nerf.export.web.export.estimate_up", lambda poses: UP.double())
    top = torch.tensor([math.cos(turn), math.sin(turn), 0.0])
    pose = look_at(torch.tensor([4 * lean, 0.0, 4.0 * side]), torch.zeros(3), top)
    axes = begins(ring(pose))
    for found, axis in zip(axes.T, pose[:, :3].T.double(), strict=True):
        assert found @ axis > math.cos(0.15)


def test_a_camera_that_leans_to_a_side_begins_level() -> None:
    pose = look_at(torch.tensor([3.0, 0.0, 1.0]), torch.zeros(3), torch.tensor([0.0, 0.5, 1.0]))
    axes = begins(ring(pose))
    assert abs(pose[2, 0]) > 0.4 and abs(axes[2, 0]) < 0.15
    torch.testing.assert_close(axes[:, 2], pose[:, 2].double(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_page_without_finite_numbers_is_refused(value: float, tmp_path: Path) -> None:
    path = tmp_path / "scene.html"
    with pytest.raises(UserError, match=r"not finite.*web_steps"):
        write_page(path, "scene", {"network": {"weights": [0.0, value]}}, "", b"")
    assert not path.exists()
