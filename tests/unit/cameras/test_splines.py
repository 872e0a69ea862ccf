"""Paths through key cameras: they meet every key, stay rigid, run evenly, and take no detours."""

import math

import pytest
import torch
from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.cameras.poses import look_at
from nerf.cameras.se3 import quaternion_from_rotation, rotation_from_quaternion
from nerf.cameras.splines import (
    even_speed,
    interpolate,
    interpolate_poses,
    slerp,
)

ORIGIN = torch.zeros(3, dtype=torch.float64)
UP = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)


def random_rotations(count: int) -> Tensor:
    """Uniform rotations [count,3,3] float64."""
    return rotation_from_quaternion(torch.randn(count, 4, dtype=torch.float64))


def random_poses(count: int) -> Tensor:
    return torch.cat([random_rotations(count), torch.randn(count, 3, 1, dtype=torch.float64)], dim=-1)


def circle(azimuths: list[float], radius: float = 4.0) -> Tensor:
    """Poses that look at the origin from a circle, azimuths in degrees."""
    around = [(math.cos(math.radians(a)), math.sin(math.radians(a))) for a in azimuths]
    positions = [torch.tensor([radius * x, radius * y, 1.0], dtype=torch.float64) for x, y in around]
    return torch.stack([look_at(position, ORIGIN, UP) for position in positions])


def angle(one: Tensor, other: Tensor) -> Tensor:
    """Degrees between rotations [...,3,3]."""
    trace = (one * other).sum((-1, -2))
    return torch.rad2deg(torch.acos(((trace - 1) / 2).clamp(-1, 1)))


def test_slerp_turns_at_an_even_rate_the_shorter_way():
    start, end = quaternion_from_rotation(random_rotations(50)), quaternion_from_rotation(random_rotations(50))
    whole = angle(rotation_from_quaternion(start), rotation_from_quaternion(end))
    for share in (0.0, 0.25, 0.5, 1.0):
        between = rotation_from_quaternion(slerp(start, end, torch.full((50, 1), share, dtype=torch.float64)))
        done, left = angle(rotation_from_quaternion(start), between), angle(between, rotation_from_quaternion(end))
        torch.testing.assert_close(done, share * whole, atol=1e-4, rtol=0)
        torch.testing.assert_close(left, (1 - share) * whole, atol=1e-4, rtol=0)


@pytest.mark.parametrize("keys", [2, 3, 7])
def test_the_path_meets_every_key_and_its_rotations_stay_orthonormal(keys):
    poses = random_poses(keys)
    found = interpolate_poses(poses, torch.arange(keys, dtype=torch.float64))
    torch.testing.assert_close(found, poses, atol=1e-9, rtol=0)
    rotations = interpolate_poses(poses, torch.linspace(0, keys - 1, 101, dtype=torch.float64))[:, :, :3]
    identity = torch.eye(3, dtype=torch.float64).expand(101, 3, 3)
    torch.testing.assert_close(rotations.mT @ rotations, identity)
    assert torch.linalg.det(rotations).min() > 0.999


def test_the_path_is_smooth():
    """Neither place nor rotation jumps at a key: one small step is like the next."""
    poses = circle([0, 20, 60, 80, 140])
    for key in (1, 2, 3):
        u = key + 1e-4 * torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
        before, at, after = interpolate_poses(poses, u)
        steps = (at - before)[:, 3], (after - at)[:, 3]
        cosine = torch.nn.functional.cosine_similarity(*steps, dim=0)
        assert cosine > 0.9999
        turns = before[:, :3].T @ at[:, :3] - torch.eye(3), at[:, :3].T @ after[:, :3] - torch.eye(3)
        torch.testing.assert_close(turns[0], turns[1], atol=1e-3 * turns[0].abs().max().item(), rtol=0)


def test_two_cameras_are_joined_by_a_straight_line():
    poses = random_poses(2)
    found = interpolate_poses(poses, torch.linspace(0, 1, 11, dtype=torch.float64))
    expected = torch.lerp(poses[0, :, 3], poses[1, :, 3], torch.linspace(0, 1, 11, dtype=torch.float64)[:, None])
    torch.testing.assert_close(found[:, :, 3], expected)


@pytest.mark.parametrize("azimuths", [[0, 30, 60, 90], [0, 5, 80, 90, 150]])
def test_the_speed_is_even_however_far_the_keys_are_apart(azimuths):
    poses = circle(azimuths)
    centers = interpolate_poses(poses, even_speed(poses, 60))[:, :, 3]
    steps = centers.diff(dim=0).norm(dim=1)
    assert steps.max() / steps.min() < 1.05  # a chord is shorter than its arc; at an even parameter this is above 10
    torch.testing.assert_close(centers[[0, -1]], poses[[0, -1], :, 3])
    offsets = centers[:, :2].norm(dim=1)
    assert (offsets < 4.2).all(), "no overshoot"


def test_a_turn_on_the_spot_takes_its_time():
    poses = circle([0, 0, 0])
    turned = poses.clone()
    turned[1, :, :3] = poses[1, :, :3] @ rotation_from_quaternion(torch.tensor([[0.8, 0, 0.6, 0]]).double())[0]
    turned[2] = turned[1]
    turned[2, 0, 3] += 3.0
    path = interpolate_poses(turned, even_speed(turned, 40))
    angles = angle(path[:-1, :, :3], path[1:, :, :3])
    assert angles.max() < 30 and path.isfinite().all()


def test_cameras_that_are_all_the_same_stay_there():
    poses = circle([10, 10, 10])
    path = interpolate_poses(poses, even_speed(poses, 5))
    torch.testing.assert_close(path, poses[:1].expand(5, 3, 4))


def test_interpolate_returns_cameras_of_the_same_kind():
    poses = circle([0, 40, 90])
    intrinsics = torch.tensor([[50.0, 50, 32, 24], [60.0, 60, 32, 24], [80.0, 80, 32, 24]])
    path = interpolate(Cameras(poses.float(), intrinsics, 64, 48), 31)
    assert len(path) == 31 and (path.width, path.height) == (64, 48) and path.c2w.dtype == torch.float32
    torch.testing.assert_close(path.c2w[[0, -1]], poses[[0, -1]].float())
    torch.testing.assert_close(path.intrinsics[[0, -1]], intrinsics[[0, -1]])
    assert (path.intrinsics[:, 0].diff() > 0).all() and (path.intrinsics[:, 2] == 32).all()
    # Every key is passed within half a step.
    step = (path.centers[1] - path.centers[0]).norm()
    assert (path.centers - poses[1, :, 3].float()).norm(dim=1).min() <= 0.51 * step


def test_interpolate_needs_two_cameras_and_two_views():
    cameras = Cameras(circle([0, 40]).float(), torch.ones(2, 4), 64, 48)
    with pytest.raises(ValueError, match="cameras: found 1, expected at least 2"):
        interpolate(cameras[0], 5)
    with pytest.raises(ValueError, match="views: found 1, expected at least 2"):
        interpolate(cameras, 1)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 1e13])
def test_a_path_through_a_place_that_is_none_is_refused(wrong: float) -> None:
    poses = circle([0, 40, 90])
    poses[1, 0, 3] = wrong
    cameras = Cameras(poses, torch.tensor([[50.0, 50.0, 32.0, 24.0]]).double().repeat(3, 1), 64, 48)
    with pytest.raises(ValueError, match="c2w: found entries that are not finite or beyond 1e"):
        interpolate(cameras, 4)
    with pytest.raises(ValueError, match="expected poses"):
        interpolate_poses(poses, torch.tensor([0.5]).double())
