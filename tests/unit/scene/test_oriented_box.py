"""Boxes that are turned to the object: their axes, and the scene's box of views whose world has any axes."""

from pathlib import Path

import pytest
import torch
from carving import find_box
from torch import Tensor
from turning import turned

from nerf.cameras.se3 import exponential, rotation_angle
from nerf.datasets.blender import load_blender
from nerf.scene.box import SceneBox
from nerf.scene.oriented_box import oriented_box
from nerf.scene.space import WorldSpace
from nerf.scene.visual_hull import SMALLER

BRICKS = Path(__file__).parents[3] / "data" / "bricks"
EDGES = torch.tensor([24.0, 14.0, 8.0])
AROUND = SceneBox(torch.tensor([[-20.0] * 3, [20.0] * 3]))


def turn(*vector: float) -> Tensor:
    """The rotation by a vector of radians, [3,3]."""
    return exponential(torch.tensor([[*vector, 0.0, 0.0, 0.0]]))[0][0]


def cuboid(rotation: Tensor) -> Tensor:
    """Which of 40^3 cells of length 1 have their center in a cuboid that is turned so."""
    steps = torch.arange(40) - 19.5
    centers = torch.cartesian_prod(steps, steps, steps) @ rotation
    return (centers.abs() < EDGES / 2).all(-1).view(40, 40, 40)


@pytest.mark.parametrize("vector", [(0.7, 0.5, 0.2), (0.0, 0.0, 0.4), (-0.3, 0.6, 0.0)])
def test_the_axes_of_a_cuboid_are_found(vector: tuple[float, ...]) -> None:
    rotation = turn(*vector)
    occupied = cuboid(rotation)
    box = oriented_box(occupied, AROUND)
    axes = box.space.axes
    torch.testing.assert_close(axes.T @ axes, torch.eye(3), rtol=0, atol=1e-6)
    assert torch.det(axes) > 0
    # Each found axis is one of the cuboid's, as near as cells tell, and cells reach out of it by most of one.
    assert (rotation.T @ axes).abs().amax(0).min() > 0.99
    assert (EDGES + 0.5).prod() <= box.size.prod() < (EDGES + 2).prod()
    corners = torch.cat([occupied.nonzero() - 20 + step for step in (0.0, 1.0)])
    along = box.space.to_scene(corners)
    assert (box.aabb[0] - 1e-4 <= along).all() and (along <= box.aabb[1] + 1e-4).all()
    assert torch.equal(oriented_box(occupied, AROUND).aabb, box.aabb)


def test_a_cuboid_along_the_axes_keeps_them() -> None:
    box = oriented_box(cuboid(torch.eye(3)), AROUND)
    assert torch.equal(box.space.axes, torch.eye(3))
    torch.testing.assert_close(box.aabb, torch.stack([-EDGES / 2, EDGES / 2]))


def test_the_axes_are_those_that_turn_least() -> None:
    """A small turn stays one, though the same box has 24 sets of axes."""
    box = oriented_box(cuboid(turn(0.0, 0.1, 0.25)), AROUND)
    assert rotation_angle(box.space.axes[None]).item() < 0.35


def test_views_of_a_turned_world_have_a_turned_box() -> None:
    images, rotation = load_blender(BRICKS, "train", 2), turn(-0.3, 0.6, 0.0)
    straight, box = find_box(images), find_box(turned(images, rotation))
    assert straight.space.axes is None and isinstance(box.space, WorldSpace)
    assert (rotation.T @ box.space.axes).abs().amax(0).min() > 0.97
    assert box.size.prod() < 1.05 * straight.size.prod()
    torch.testing.assert_close(box.center, rotation @ straight.center, rtol=0, atol=0.1 * straight.size.min().item())
    # What is found is worth it: along the axes of the world the box would be larger.
    corners = box.space.to_world(torch.cartesian_prod(*box.aabb.T))
    assert box.size.prod() < SMALLER * (corners.amax(0) - corners.amin(0)).prod()
