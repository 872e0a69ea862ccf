"""Camera paths for videos: an orbit, a spiral and a turn on the spot, derived from the training cameras.

Center and up direction of the scene are estimated from the poses (nerf/cameras/poses.py), in float64 on the CPU.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.linalg import cross
from torch.nn.functional import normalize

from nerf.cameras.cameras import Cameras
from nerf.cameras.panoramas import common_target, views_ahead
from nerf.cameras.poses import estimate_up, look_at

MIN_ELEVATION = math.radians(10)
MAX_ELEVATION = math.radians(60)


# The spiral: number of turns; amplitude of the distance to the scene and largest sideways swing, both as fractions of
# that distance.
SPIRAL_TURNS = 2
SPIRAL_BREATH = 0.15
SPIRAL_SWING = 0.35
SPIRAL_MAX_ELEVATION = math.radians(75)

# Cameras whose directions, seen along the up axis, have a mean at least this long (1 = all agree) stand on one side of
# the scene.
MIN_AGREEMENT = 0.5


def orbit(cameras: Cameras, views: int) -> Cameras:
    """A closed circle of views around what the training cameras look at, on their own level and distance.

    The target is the point nearest to all optical axes, up comes from the cameras' horizons, and radius and
    elevation are the medians over the cameras, the elevation clamped to 10..60 degrees. The views are evenly
    spaced and counterclockwise seen from above; view 0 follows the last without a jump or a repeated frame.

    views: number of views. Returns views cameras of the dtype and device of cameras with the size and the
    intrinsics of camera 0, without its lens. Raises ValueError for views below 1, and if the cameras do not surround a
    target: only one camera, parallel optical axes, cameras that look outwards, or panoramas.
    """
    ring = _viewpoints(cameras, views)
    elevation = ring.elevations.quantile(0.5).clamp(MIN_ELEVATION, MAX_ELEVATION)
    # Start in the direction of the camera farthest from the up axis, the one whose azimuth is best defined.
    start = normalize(ring.horizontal[ring.horizontal.norm(dim=1).argmax()], dim=0)
    azimuth = torch.arange(views, dtype=torch.float64)[:, None] * (2 * math.pi / views)
    around = torch.cos(azimuth) * start + torch.sin(azimuth) * cross(ring.up, start)
    offsets = ring.radius * (torch.cos(elevation) * around + torch.sin(elevation) * ring.up)
    return _looking_inwards(cameras, ring, offsets)


def spiral(cameras: Cameras, views: int) -> Cameras:
    """A closed spiral of views around the mean training camera, all looking at what the training cameras look at.

    The camera swings on an ellipse across the mean viewing direction, as wide as 90 percent of the training cameras
    spread there but not beyond SPIRAL_SWING of the distance, for SPIRAL_TURNS turns, while that distance grows and
    shrinks once by SPIRAL_BREATH (as the paths of Mildenhall et al. 2019, Local Light Field Fusion). If the cameras
    surround the scene, their mean direction is not meaningful; then the direction of the camera farthest from the up
    axis is used, at the median elevation. No view is steeper than SPIRAL_MAX_ELEVATION: over the pole it would roll.

    views, result and errors: see orbit.
    """
    ring = _viewpoints(cameras, views)
    ahead, elevation = _mean_direction(ring)
    right = cross(ring.up, ahead)
    upward = torch.cos(elevation) * ring.up - torch.sin(elevation) * ahead
    widest = SPIRAL_SWING * ring.radius
    across, along = ((ring.offsets @ axis).abs().quantile(0.9).clamp(max=widest) for axis in (right, upward))
    steepest = SPIRAL_MAX_ELEVATION - torch.atan2(along, ring.radius).item()
    elevation = elevation.clamp(-steepest, steepest)
    middle = torch.cos(elevation) * ahead + torch.sin(elevation) * ring.up
    upward = torch.cos(elevation) * ring.up - torch.sin(elevation) * ahead
    turn = torch.arange(views, dtype=torch.float64)[:, None] * (2 * math.pi / views)
    swing = across * torch.cos(SPIRAL_TURNS * turn) * right + along * torch.sin(SPIRAL_TURNS * turn) * upward
    distance = ring.radius * (1 + SPIRAL_BREATH * torch.sin(turn))
    return _looking_inwards(cameras, ring, distance * normalize(ring.radius * middle + swing, dim=1))


@dataclass(frozen=True)
class _Viewpoints:
    """The training cameras as seen from what they look at; float64, world units, on the CPU."""

    target: Tensor  # [3]
    up: Tensor  # [3] unit
    offsets: Tensor  # [I,3] from the target to the cameras
    horizontal: Tensor  # [I,3] the part of the offsets across up
    elevations: Tensor  # [I] radians above the target's horizon
    radius: Tensor  # [] median distance


def _viewpoints(cameras: Cameras, views: int) -> _Viewpoints:
    if views < 1:
        raise ValueError(f"views: found {views}, expected at least 1")
    c2w = cameras.c2w.double().cpu()
    target, up = common_target(cameras), estimate_up(c2w)
    offsets = c2w[:, :, 3] - target
    altitude = offsets @ up
    horizontal = offsets - altitude[:, None] * up
    elevations = torch.atan2(altitude, horizontal.norm(dim=1))
    return _Viewpoints(target, up, offsets, horizontal, elevations, offsets.norm(dim=1).quantile(0.5))


def _mean_direction(ring: _Viewpoints) -> tuple[Tensor, Tensor]:
    """The direction from the target to the mean camera: unit [3] across the up axis, and the elevation above it."""
    mean = normalize(ring.offsets, dim=1).mean(dim=0)
    across = mean - (mean @ ring.up) * ring.up
    elevation = torch.atan2(mean @ ring.up, across.norm())
    if across.norm() < MIN_AGREEMENT:
        across = ring.horizontal[ring.horizontal.norm(dim=1).argmax()]
        elevation = ring.elevations.quantile(0.5)
    return normalize(across, dim=0), elevation


def _looking_inwards(cameras: Cameras, ring: _Viewpoints, offsets: Tensor) -> Cameras:
    """Upright pinholes at offsets [views,3] from the target that look at it, otherwise as the first of cameras."""
    poses = torch.stack([look_at(ring.target + offset, ring.target, ring.up) for offset in offsets])
    intrinsics = cameras.intrinsics[:1].repeat(len(offsets), 1)
    return Cameras(poses.to(cameras.c2w), intrinsics, *cameras.size(0))


def turn(cameras: Cameras, views: int) -> Cameras:
    """A full turn on the spot of the camera nearest to the middle of all, from where it looks to the right.

    The views are level, evenly spaced and as large as the first camera's; in place of a panorama a pinhole of 90
    degrees. So panoramas are shown, which have no target to circle. views, result: see orbit. Raises ValueError for
    views below 1.
    """
    if views < 1:
        raise ValueError(f"views: found {views}, expected at least 1")
    c2w, up = cameras.c2w.double().cpu(), estimate_up(cameras.c2w.double().cpu())
    centers = c2w[:, :, 3]
    middle = int((centers - centers.mean(0)).norm(dim=1).argmin())
    level = c2w[middle, :, :3] - up[:, None] * (up @ c2w[middle, :, :3])
    ahead = -level[:, 2] if level[:, 2].norm() > MIN_AGREEMENT else level[:, 1]  # it looks up or down
    ahead = normalize(ahead, dim=0)
    angle = torch.arange(views, dtype=torch.float64)[:, None] * (2 * math.pi / views)
    looks = torch.cos(angle) * ahead + torch.sin(angle) * cross(ahead, up)
    place = centers[middle]
    poses = torch.stack([look_at(place, place + look, up) for look in looks])
    one = views_ahead(cameras[:1])
    return Cameras(poses.to(cameras.c2w), one.intrinsics.repeat(views, 1), *one.size(0))


def tour(cameras: Cameras, count: int) -> list[int]:
    """Indices of up to count cameras for a path around the scene without long moves across it. count: at least 1.

    They are evenly spaced among all cameras sorted by azimuth around the target, starting after the widest gap. Cameras
    without a common target, as in a walk-through, keep their order. Raises ValueError for a count below 1 and where
    there are no cameras.
    """
    if count < 1 or not len(cameras):
        raise ValueError(f"count, cameras: found {count}, {len(cameras)}, expected at least 1")
    order = torch.arange(len(cameras))
    if looks_at_something(cameras):
        ring = _viewpoints(cameras, views=1)
        east = normalize(ring.horizontal[ring.horizontal.norm(dim=1).argmax()], dim=0)
        azimuth = torch.atan2(ring.horizontal @ cross(ring.up, east), ring.horizontal @ east)
        azimuth, order = azimuth.sort()
        gaps = torch.remainder(azimuth - azimuth.roll(1), 2 * math.pi)  # in front of each camera
        order = order.roll(-int(gaps.argmax()))
    steps = torch.linspace(0, len(order) - 1, min(count, len(order))).round().long()
    return order[steps].tolist()


def looks_at_something(cameras: Cameras) -> bool:
    """Whether the cameras surround a target that they look at, as orbit and spiral need it."""
    try:
        common_target(cameras)
    except ValueError:
        return False
    return True
