"""Orbits, spirals and tours against rings of cameras whose target, up axis, radius and elevation are known."""

import math

import pytest
import torch
from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.cameras.paths import orbit, spiral, tour
from nerf.cameras.poses import look_at

TARGET = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
Z = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
TILTED = torch.tensor([0.48, 0.36, 0.8], dtype=torch.float64)  # unit, 37 degrees off the nearest world axis


def cameras_around(
    up: Tensor = Z, radius: float = 4.0, elevations: tuple[float, ...] = (30.0,), arc: float = 360.0
) -> Cameras:
    """24 level cameras that look at TARGET from an arc around up; all angles in degrees."""
    side = torch.linalg.cross(up, torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64))
    side = side / side.norm()
    front = torch.linalg.cross(side, up)
    poses = []
    for index in range(24):
        azimuth = math.radians(arc) * index / 24
        elevation = math.radians(elevations[index % len(elevations)])
        around = math.cos(azimuth) * front + math.sin(azimuth) * side
        position = TARGET + radius * (math.cos(elevation) * around + math.sin(elevation) * up)
        poses.append(look_at(position, TARGET, up))
    intrinsics = torch.tensor([[50.0, 60.0, 31.0, 25.0]]).repeat(24, 1)
    return Cameras(torch.stack(poses).float(), intrinsics, width=64, height=48)


def radii_and_elevations(cameras: Cameras, up: Tensor) -> tuple[Tensor, Tensor]:
    offsets = cameras.centers.double() - TARGET
    radii = offsets.norm(dim=1)
    return radii, torch.rad2deg(torch.asin(offsets @ up / radii))


def test_look_at_is_a_rotation_that_sees_the_target_upright():
    position = torch.tensor([3.0, 1.0, 4.0], dtype=torch.float64)
    c2w = look_at(position, TARGET, 5 * Z)
    rotation = c2w[:, :3]
    torch.testing.assert_close(rotation.T @ rotation, torch.eye(3, dtype=torch.float64))
    assert torch.linalg.det(rotation).item() == pytest.approx(1.0)
    assert torch.equal(c2w[:, 3], position)

    cameras = Cameras(c2w[None], torch.tensor([[50.0, 50.0, 32.0, 24.0]]).double(), 64, 48)
    pixels, z = cameras.project(0, torch.stack([TARGET, TARGET + 0.1 * Z]))
    torch.testing.assert_close(pixels[0], torch.tensor([32.0, 24.0]).double())
    assert z[0].item() == pytest.approx((TARGET - position).norm().item())
    assert pixels[1, 0].item() == pytest.approx(32.0)
    assert pixels[1, 1] < 24  # rows run downwards


def test_look_at_along_a_known_axis():
    c2w = look_at(torch.tensor([0.0, -2.0, 0.0]), torch.zeros(3), torch.tensor([0.0, 0.0, 1.0]))
    expected = [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, -1.0, -2.0], [0.0, 1.0, 0.0, 0.0]]
    torch.testing.assert_close(c2w, torch.tensor(expected))


def test_look_at_refuses_what_fixes_no_pose():
    with pytest.raises(ValueError, match="not parallel to up"):
        look_at(TARGET + Z, TARGET, Z)
    with pytest.raises(ValueError, match="not zero"):
        look_at(TARGET, TARGET, Z)
    with pytest.raises(ValueError, match=r"up: found torch.int64 \[3\], expected float \[3\]"):
        look_at(TARGET, TARGET + Z, torch.tensor([0, 1, 0]))
    with pytest.raises(ValueError, match=r"target: found torch.float64 \[1, 3\]"):
        look_at(TARGET, TARGET[None], Z)


@pytest.mark.parametrize("up", [Z, -Z, TILTED])
@pytest.mark.parametrize("arc", [360.0, 90.0])
def test_orbit_recovers_the_ring_it_came_from(up, arc):
    path = orbit(cameras_around(up, radius=4.0, elevations=(20.0, 35.0, 50.0), arc=arc), views=10)
    assert len(path) == 10
    radii, elevations = radii_and_elevations(path, up)
    torch.testing.assert_close(radii, torch.full_like(radii, 4.0), atol=1e-4, rtol=0)
    # The small weight of the up axes may tilt the orbit of a partial ring by a fraction of a degree.
    torch.testing.assert_close(elevations, torch.full_like(elevations, 35.0), atol=0.3, rtol=0)
    for index in range(len(path)):
        pixels, z = path.project(index, torch.stack([TARGET, TARGET + 0.1 * up]).float())
        torch.testing.assert_close(pixels[0], torch.tensor([31.0, 25.0]), atol=1e-3, rtol=0)
        assert z[0].item() == pytest.approx(4.0, abs=1e-4)
        assert pixels[1, 1] < pixels[0, 1]


def test_orbit_is_closed_with_equal_steps_counterclockwise():
    path = orbit(cameras_around(), views=12)
    offsets = path.centers.double() - TARGET
    azimuth = torch.atan2(offsets[:, 1], offsets[:, 0])
    steps = torch.remainder(azimuth.roll(-1) - azimuth, 2 * math.pi)  # includes the step from last to first
    torch.testing.assert_close(steps, torch.full_like(steps, 2 * math.pi / 12), atol=1e-5, rtol=0)


@pytest.mark.parametrize("elevation, clamped", [(-40.0, 10.0), (3.0, 10.0), (80.0, 60.0)])
def test_orbit_stays_between_the_horizon_and_the_zenith(elevation, clamped):
    _, elevations = radii_and_elevations(orbit(cameras_around(elevations=(elevation,)), views=5), Z)
    torch.testing.assert_close(elevations, torch.full_like(elevations, clamped), atol=1e-3, rtol=0)


def test_radius_is_the_median_distance():
    cameras = cameras_around(radius=4.0)
    poses = cameras.c2w.clone()
    poses[:5, :, 3] += 100 * poses[:5, :, 2]  # five cameras step far back along their axes
    radii, _ = radii_and_elevations(orbit(Cameras(poses, cameras.intrinsics, 64, 48), views=4), Z)
    torch.testing.assert_close(radii, torch.full_like(radii, 4.0), atol=1e-3, rtol=0)


def test_cameras_on_one_meridian_take_up_from_their_up_axes():
    """All right axes are parallel here, so that horizons alone leave up undecided.

    The up axes of cameras at 15 and 45 degrees have their mean 30 degrees off z; seen from there the cameras
    are at -15 and 15 degrees, so that the orbit lies at the lowest elevation it may have.
    """
    low, high = cameras_around(elevations=(15.0,)), cameras_around(elevations=(45.0,))
    pair = Cameras(torch.stack([low.c2w[0], high.c2w[0]]), low.intrinsics[:2], 64, 48)
    mean_up = TARGET.new_tensor([-0.5, 0.0, math.sqrt(0.75)])
    _, elevations = radii_and_elevations(orbit(pair, views=4), mean_up)
    torch.testing.assert_close(elevations, torch.full_like(elevations, 10.0), atol=1e-2, rtol=0)


def test_orbit_takes_size_and_intrinsics_from_the_first_camera():
    cameras = cameras_around()
    cameras.intrinsics[1:] = 1.0
    path = orbit(cameras, views=3)
    assert (path.width, path.height) == (64, 48)
    torch.testing.assert_close(path.intrinsics, torch.tensor([[50.0, 60.0, 31.0, 25.0]] * 3))


def test_orbit_refuses_cameras_without_a_common_target():
    ring = cameras_around()
    with pytest.raises(ValueError, match="cameras: found 1 with optical axes that spread by 0.0"):
        orbit(ring[0], views=4)

    parallel = ring.c2w[:1].repeat(5, 1, 1)
    parallel[:, 0, 3] += torch.arange(5)
    with pytest.raises(ValueError, match="cameras: found 5 with optical axes that spread"):
        orbit(Cameras(parallel, ring.intrinsics[:5], 64, 48), views=4)

    outwards = ring.c2w * torch.tensor([-1.0, 1.0, -1.0, 1.0])  # half a turn around each up axis
    with pytest.raises(ValueError, match="expected cameras that surround a target"):
        orbit(Cameras(outwards, ring.intrinsics, 64, 48), views=4)

    panorama = ring.c2w.clone()
    panorama[:, :, 3] = TARGET + 1e-6 * panorama[:, :, 2]  # apart, and facing inwards, by rounding only
    with pytest.raises(ValueError, match="expected cameras that surround a target"):
        orbit(Cameras(panorama, ring.intrinsics, 64, 48), views=4)


@pytest.mark.parametrize("path", [orbit, spiral])
def test_a_path_has_at_least_one_view(path):
    with pytest.raises(ValueError, match="views: found 0, expected at least 1"):
        path(cameras_around(), views=0)


# spiral


@pytest.mark.parametrize("up", [Z, TILTED])
@pytest.mark.parametrize("arc", [360.0, 60.0])
def test_spiral_looks_at_the_center_upright_while_its_radius_breathes(up, arc):
    path = spiral(cameras_around(up, radius=4.0, elevations=(20.0, 35.0, 50.0), arc=arc), views=40)
    radii, elevations = radii_and_elevations(path, up)
    assert radii.max().item() == pytest.approx(4.0 * 1.15, abs=1e-3)
    assert radii.min().item() == pytest.approx(4.0 * 0.85, abs=1e-3)
    assert elevations.max() > 40 and 5 < elevations.min() < 30
    for index in range(len(path)):
        pixels, z = path.project(index, torch.stack([TARGET, TARGET + 0.1 * up]).float())
        torch.testing.assert_close(pixels[0], torch.tensor([31.0, 25.0]), atol=1e-3, rtol=0)
        assert z[0].item() == pytest.approx(radii[index].item(), abs=1e-4)
        assert pixels[1, 1] < pixels[0, 1] and abs(pixels[1, 0] - pixels[0, 0]) < 0.01


def test_spiral_swings_around_the_mean_camera_of_those_on_one_side():
    cameras = cameras_around(arc=60.0)  # azimuths from 0 to 57.5 degrees
    path = spiral(cameras, views=64)
    mean = (cameras.centers.double() - TARGET).mean(0)
    offsets = path.centers.double() - TARGET
    found = offsets / offsets.norm(dim=1, keepdim=True)
    azimuths = torch.rad2deg(torch.atan2(found[:, 1], found[:, 0]) - torch.atan2(mean[1], mean[0]))
    assert azimuths.max().item() == pytest.approx(-azimuths.min().item(), abs=1.0)
    assert 15 < azimuths.max() < 29, "not wider than the cameras themselves"


def test_spiral_is_closed_and_has_no_jump():
    centers = spiral(cameras_around(), views=100).centers
    steps = (centers.roll(-1, dims=0) - centers).norm(dim=1)  # includes the step from last to first
    assert steps.max() < 2.5 * steps.median() and steps.min() > 0


def test_spiral_of_cameras_at_the_zenith_is_upright():
    rotation = look_at(TARGET + 4 * Z, TARGET, torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64))
    poses = rotation.repeat(5, 1, 1)
    for index in range(5):  # each a little off the zenith
        position = TARGET + torch.tensor([0.3 * math.cos(index), 0.3 * math.sin(index), 4.0], dtype=torch.float64)
        poses[index] = look_at(position, TARGET, rotation[:, 1])
    path = spiral(Cameras(poses.float(), torch.tensor([[50.0, 50.0, 32.0, 24.0]]).repeat(5, 1), 64, 48), views=8)
    assert path.c2w.isfinite().all()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("elevation", [40.0, 55.0, 65.0, 72.0, 78.0, 85.0])
@pytest.mark.parametrize("arc", [360.0, 60.0])
def test_spiral_does_not_swing_over_the_pole(sign: int, elevation: float, arc: float) -> None:
    cameras = cameras_around(elevations=tuple(sign * (elevation + offset) for offset in (-4, 0, 4)), arc=arc)
    path = spiral(cameras, views=120)
    _, elevations = radii_and_elevations(path, Z)
    assert elevations.abs().max() < 75.5  # the up axis is an estimate
    assert elevations.abs().max() > min(elevation, 70), "no lower than it has to be"
    rights = path.c2w[:, :, 0].double()
    rolls = torch.rad2deg(torch.acos((rights * rights.roll(1, dims=0)).sum(1).clamp(-1, 1)))
    assert rolls.max() < 12, "from frame to frame"


# tour


def test_a_tour_goes_around_once():
    cameras = cameras_around(elevations=(20.0, 40.0))
    shuffled = cameras.c2w[torch.randperm(24)]
    chosen = tour(Cameras(shuffled, cameras.intrinsics, 64, 48), 8)
    offsets = shuffled[chosen, :, 3].double() - TARGET
    azimuth = torch.rad2deg(torch.atan2(offsets[:, 1], offsets[:, 0]))
    steps = torch.remainder(azimuth.diff() + 180, 360) - 180
    assert len(set(chosen)) == 8 and (steps.sign() == steps[0].sign()).all() and steps.abs().max() < 61


def test_a_tour_along_an_arc_does_not_cross_its_gap():
    cameras = cameras_around(arc=330.0)
    cameras.c2w[1, :, 3] += cameras.c2w[1, :, 2]  # the farthest one, from which azimuths count, is near an end
    order = torch.arange(24).roll(9)
    chosen = tour(Cameras(cameras.c2w[order], cameras.intrinsics, 64, 48), 24)
    assert order[chosen].tolist() in (list(range(24)), list(range(23, -1, -1)))


def test_a_tour_of_cameras_without_a_target_keeps_their_order():
    poses = cameras_around().c2w[:1].repeat(9, 1, 1)
    poses[:, 0, 3] += torch.arange(9)
    row = Cameras(poses, torch.ones(9, 4), 64, 48)
    assert tour(row, 3) == [0, 4, 8] and tour(row, 100) == list(range(9))
