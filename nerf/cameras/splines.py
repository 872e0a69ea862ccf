"""A smooth path through given cameras: positions on a Catmull-Rom spline, rotations on a quaternion spline.

Legend: K key cameras, N points of the path. A parameter u runs from 0 to K - 1 and is whole at the key cameras. All
arithmetic is in float64 on the CPU. Quaternions are [..., 4], real part first, unit.
"""

import torch
from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.cameras.limits import FARTHEST
from nerf.cameras.panoramas import views_ahead
from nerf.cameras.se3 import angle_between, quaternion_from_rotation, rotation_from_quaternion

# Speed is measured on this many pieces of the way between two key cameras.
PIECES = 256

# A rotation counts as a move of this fraction of the path's mean turning radius, times the angle. A camera on an orbit
# moves far more than that, so only rotations on the spot are slowed down.
TURNING_FRACTION = 0.25


def interpolate(cameras: Cameras, views: int) -> Cameras:
    """A path of views cameras through all given ones, in their order, at an even speed; it ends on the first and last.

    Intrinsics change in proportion between the key cameras. Returns views pinholes of the dtype and device of cameras,
    of the size of the first, without lenses; in place of panoramas those that look ahead. Raises ValueError for views
    below 2, fewer than 2 cameras, and poses that are not finite or beyond FARTHEST.
    """
    if len(cameras) < 2:
        raise ValueError(f"cameras: found {len(cameras)}, expected at least 2")
    cameras = views_ahead(cameras)
    cameras = cameras.resized(*cameras.size(0))
    c2w = cameras.c2w.double().cpu()
    u = even_speed(c2w, views)
    first, fraction = _segment(u, len(cameras))
    keys = cameras.intrinsics.double().cpu()
    intrinsics = torch.lerp(keys[first], keys[first + 1], fraction)
    return Cameras(
        interpolate_poses(c2w, u).to(cameras.c2w), intrinsics.to(cameras.intrinsics), cameras.width, cameras.height
    )


def even_speed(c2w: Tensor, views: int) -> Tensor:
    """Parameters [views] of points at equal distances along the path through c2w [K,3,4], from 0 to K - 1.

    Raises ValueError for views below 2, and as distances.
    """
    if views < 2:
        raise ValueError(f"views: found {views}, expected at least 2")
    u, traveled = distances(c2w, 0, len(c2w) - 1)
    targets = torch.linspace(0, 1, views, dtype=torch.float64) * traveled[-1]
    return parameters_at(u, traveled, targets)


def distances(c2w: Tensor, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Parameters of the path from one key camera to another, and the distance traveled from the first to each.

    Both are [PIECES * (last - first) + 1], strictly rising, and have every key camera at a multiple of PIECES. Turning
    on the spot counts as a distance, too (TURNING_FRACTION). Raises ValueError unless 0 <= first < last < K, and as
    interpolate_poses.
    """
    if not 0 <= first < last < len(c2w):
        raise ValueError(f"first, last: found {first}, {last}, expected two of {len(c2w)} poses in their order")
    c2w = c2w.double()
    u = torch.linspace(first, last, PIECES * (last - first) + 1, dtype=torch.float64)
    poses = interpolate_poses(c2w, u)
    moved = poses[:, :, 3].diff(dim=0).norm(dim=1)
    turned = angle_between(poses[:-1, :, :3], poses[1:, :, :3])
    turning_radius = moved.sum() / turned.sum() if moved.sum() > 0 and turned.sum() > 0 else moved.new_tensor(1.0)
    length = torch.maximum(moved, TURNING_FRACTION * turning_radius * turned)
    length = length + 1e-9 * length.sum() / len(length) + 1e-30  # strictly rising, even for identical cameras
    return u, torch.nn.functional.pad(length.cumsum(0), (1, 0))


def parameters_at(u: Tensor, traveled: Tensor, targets: Tensor) -> Tensor:
    """Parameters [N] at distances targets [N], by what distances() returned, of at least 2 places."""
    if len(u) < 2:
        raise ValueError(f"u: found {len(u)} places, expected at least 2")
    piece = torch.searchsorted(traveled, targets, right=True).clamp(1, len(u) - 1) - 1
    fraction = (targets - traveled[piece]) / (traveled[piece + 1] - traveled[piece])
    return torch.lerp(u[piece], u[piece + 1], fraction.clamp(0, 1))


def interpolate_poses(c2w: Tensor, u: Tensor) -> Tensor:
    """Poses [N,3,4] float64 at parameters u [N] of the path through c2w [K,3,4].

    Raises ValueError for K below 2, and for poses that are not finite or beyond FARTHEST.
    """
    if len(c2w) < 2:
        raise ValueError(f"c2w: found {len(c2w)} poses, expected at least 2")
    if not (c2w.abs() <= FARTHEST).all():  # NaN is in no range
        raise ValueError(f"c2w: found entries that are not finite or beyond {FARTHEST:g}, expected poses")
    positions = _catmull_rom(c2w[:, :, 3], u)
    rotations = rotation_from_quaternion(_squad(quaternion_from_rotation(c2w[:, :, :3]), u))
    return torch.cat([rotations, positions[:, :, None]], dim=-1)


def _segment(u: Tensor, keys: int) -> tuple[Tensor, Tensor]:
    """Index [N] of the key camera before each parameter, and the fraction [N,1] of the way to the next."""
    first = u.floor().long().clamp(0, keys - 2)
    return first, (u - first)[:, None]


def _catmull_rom(points: Tensor, u: Tensor) -> Tensor:
    """Centripetal Catmull-Rom spline [N,3] through points [K,3] (Catmull and Rom 1974; Yuksel et al. 2011).

    The time between two points is the square root of their distance, which avoids loops and overshoot at unequal
    distances. At the ends, the missing neighbor is the mirrored last but one.
    """
    points = torch.cat([2 * points[:1] - points[1:2], points, 2 * points[-1:] - points[-2:-1]])
    times = points.diff(dim=0).norm(dim=1).sqrt()
    times = times.clamp(min=1e-6 * times.max().item() or 1.0)[:, None]
    speeds = points.diff(dim=0) / times
    around = (points[2:] - points[:-2]) / (times[1:] + times[:-1])
    tangents = speeds[:-1] - around + speeds[1:]  # of the quadratic through a point and its two neighbors

    first, x = _segment(u, len(points) - 2)
    start, end, time = points[first + 1], points[first + 2], times[first + 1]
    from_start = (1 + 2 * x) * start + x * time * tangents[first]
    from_end = (3 - 2 * x) * end - (1 - x) * time * tangents[first + 1]
    return (1 - x).square() * from_start + x.square() * from_end


def _squad(keys: Tensor, u: Tensor) -> Tensor:
    """Quaternion spline [N,4] through keys [K,4]: spherical quadrangle interpolation (Shoemake 1987).

    q and -q are the same rotation; slerp takes the shorter arc for either.
    """
    conjugate = _conjugate(keys)
    inner = keys.clone()
    to_next = _log(_multiply(conjugate[1:-1], keys[2:]))
    to_previous = _log(_multiply(conjugate[1:-1], keys[:-2]))
    inner[1:-1] = _multiply(keys[1:-1], _exp(-0.25 * (to_next + to_previous)))
    first, x = _segment(u, len(keys))
    outer_arc = slerp(keys[first], keys[first + 1], x)
    inner_arc = slerp(inner[first], inner[first + 1], x)
    return slerp(outer_arc, inner_arc, 2 * x * (1 - x))


def slerp(start: Tensor, end: Tensor, fraction: Tensor) -> Tensor:
    """Quaternion [N,4] at a fraction [N,1] of the great arc from start to end [N,4] (Shoemake 1985)."""
    return _multiply(start, _exp(fraction * _log(_multiply(_conjugate(start), end))))


def _multiply(a: Tensor, b: Tensor) -> Tensor:
    """Hamilton product of quaternions [N,4]."""
    aw, av, bw, bv = a[:, :1], a[:, 1:], b[:, :1], b[:, 1:]
    real = aw * bw - (av * bv).sum(-1, keepdim=True)
    return torch.cat([real, aw * bv + bw * av + torch.linalg.cross(av, bv)], dim=-1)


def _conjugate(q: Tensor) -> Tensor:
    return torch.cat([q[:, :1], -q[:, 1:]], dim=-1)


def _log(q: Tensor) -> Tensor:
    """Half the rotation vector [N,3] of unit quaternions [N,4], by the shorter way around."""
    q = torch.where(q[:, :1] < 0, -q, q)
    sine = q[:, 1:].norm(dim=-1, keepdim=True)
    return q[:, 1:] * torch.where(sine > 1e-12, torch.atan2(sine, q[:, :1]) / sine.clamp(min=1e-12), 1.0)


def _exp(half: Tensor) -> Tensor:
    """Unit quaternions [N,4] of half rotation vectors [N,3]."""
    angle = half.norm(dim=-1, keepdim=True)
    return torch.cat([torch.cos(angle), half * torch.sinc(angle / torch.pi)], dim=-1)
