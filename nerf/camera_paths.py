"""Camera paths for videos: an orbit that is read off the training cameras.

A scene carries no note of where its middle is or which way is up, but the person or script that took the
pictures knew both, so the poses tell. All estimates are made in float64 on the CPU.
"""

import math

import torch
from torch import Tensor
from torch.linalg import cross
from torch.nn.functional import normalize

from nerf.cameras import Cameras

MIN_ELEVATION = math.radians(10)
MAX_ELEVATION = math.radians(60)

# Optical axes that spread by less than about half a degree do not fix the point where they meet.
MIN_AXIS_SPREAD = math.radians(0.5)

# Share of the vote of the cameras' up axes against that of their right axes; see _estimate_up.
UP_AXIS_WEIGHT = 1e-3


def look_at(position: Tensor, target: Tensor, up: Tensor) -> Tensor:
    """Pose c2w [3,4] of a camera at position that sees target in the middle of its image.

    position, target, up: float [3] in world space; the image is upright with respect to up, of any length.
    Raises ValueError for other shapes, if position is target, or if up is parallel to the viewing direction.
    """
    for name, vector in (("position", position), ("target", target), ("up", up)):
        if vector.shape != (3,) or not vector.is_floating_point():
            raise ValueError(f"{name}: found {vector.dtype} {list(vector.shape)}, expected float [3]")
    backward = normalize(position - target, dim=0)
    right = cross(normalize(up, dim=0), backward)
    # The length of right is the sine of the angle between up and the viewing direction.
    if right.norm() < 1e-4:
        raise ValueError(
            f"position, target, up: found {position.tolist()}, {target.tolist()}, {up.tolist()}, "
            "expected a viewing direction that is not zero and not parallel to up"
        )
    right = normalize(right, dim=0)
    return torch.stack([right, cross(backward, right), backward, position], dim=1)


def orbit(cameras: Cameras, views: int, width: int | None = None, height: int | None = None) -> Cameras:
    """A closed circle of views around what the training cameras look at, on their own level and distance.

    The target is the point nearest to all optical axes, up comes from the cameras' horizons, and radius and
    elevation are the medians over the cameras, the elevation clamped to 10..60 degrees. The views are evenly
    spaced and counterclockwise seen from above; view 0 follows the last without a jump or a repeated frame.

    views: number of views; width, height: image size in pixels, by default that of cameras. One alone keeps
    the aspect ratio. Intrinsics are those of camera 0, rescaled so that its field of view stays the same.
    Returns views cameras with the dtype and device of cameras.
    Raises ValueError for views or sizes below 1, and if the cameras do not surround a target: only one
    camera, parallel optical axes, or cameras that look outwards.
    """
    for name, count in (("views", views), ("width", width), ("height", height)):
        if count is not None and count < 1:
            raise ValueError(f"{name}: found {count}, expected at least 1")
    c2w = cameras.c2w.double().cpu()
    target = estimate_target(c2w)
    up = _estimate_up(c2w)

    offsets = c2w[:, :, 3] - target
    radius = offsets.norm(dim=1).quantile(0.5)
    altitude = offsets @ up
    horizontal = offsets - altitude[:, None] * up
    distance_to_axis = horizontal.norm(dim=1)
    elevation = torch.atan2(altitude, distance_to_axis).quantile(0.5).clamp(MIN_ELEVATION, MAX_ELEVATION)

    # Start in the direction of the camera farthest from the up axis, the one whose azimuth is best defined.
    start = normalize(horizontal[distance_to_axis.argmax()], dim=0)
    azimuth = torch.arange(views, dtype=torch.float64)[:, None] * (2 * math.pi / views)
    around = torch.cos(azimuth) * start + torch.sin(azimuth) * cross(up, start)
    positions = target + radius * (torch.cos(elevation) * around + torch.sin(elevation) * up)
    poses = torch.stack([look_at(position, target, up) for position in positions])

    width, height = _output_size(cameras, width, height)
    scale_x, scale_y = width / cameras.width, height / cameras.height
    intrinsics = cameras.intrinsics[:1] * cameras.intrinsics.new_tensor([scale_x, scale_y, scale_x, scale_y])
    return Cameras(poses.to(cameras.c2w), intrinsics.repeat(views, 1), width, height)


def estimate_target(c2w: Tensor) -> Tensor:
    """The point [3] with the least sum of squared distances to the optical axes of c2w [I,3,4].

    The distance of p from the axis through c along the unit vector d is |(1 - d d^T)(p - c)|; setting the
    gradient of the mean square to zero gives the 3x3 system that is solved here.
    """
    forward, centers = -c2w[:, :, 2], c2w[:, :, 3]
    across = torch.eye(3, dtype=c2w.dtype) - forward[:, :, None] * forward[:, None, :]
    normal_matrix = across.mean(dim=0)
    # The least eigenvalue is the mean squared sine of the angle between the axes and their common direction;
    # where it matters that sine is as good as the angle.
    spread = torch.linalg.eigvalsh(normal_matrix)[0].clamp(min=0).sqrt().item()
    if spread < MIN_AXIS_SPREAD:
        raise ValueError(
            f"cameras: found {len(c2w)} with optical axes that spread by {math.degrees(spread):.2f} degrees, "
            f"expected at least 2 that spread by {math.degrees(MIN_AXIS_SPREAD)} to find what they look at"
        )
    target = torch.linalg.solve(normal_matrix, (across @ centers[:, :, None]).mean(dim=0)[:, 0])

    ahead = ((target - centers) * forward).sum(dim=1).quantile(0.5).item()
    rounding = 1e-5 * centers.abs().max().item()  # poses are float32: cameras in one place meet almost there
    if ahead <= rounding:
        raise ValueError(
            f"cameras: found their axes meeting {ahead:.3g} in front of the median camera, "
            "expected cameras that surround a target and look at it"
        )
    return target


def _estimate_up(c2w: Tensor) -> Tensor:
    """World up [3], unit, from the horizons of c2w [I,3,4].

    A camera held level has a right axis perpendicular to up, however far it is tilted up or down. So up is
    the direction most nearly perpendicular to all right axes, and cameras on one side of the scene fix it as
    well as a full ring. The mean of the cameras' own up axes would lean towards the scene there. It still
    chooses the sign and, with a small weight, decides where all right axes are parallel. The result is not
    snapped to a world axis: Blender scenes come out at z anyway, and the axes of a reconstructed scene mean
    nothing.
    """
    right, mean_up = c2w[:, :, 0], c2w[:, :, 1].mean(dim=0)
    votes = right.T @ right / len(right) - UP_AXIS_WEIGHT * torch.outer(mean_up, mean_up)
    up = torch.linalg.eigh(votes).eigenvectors[:, 0]
    return up if up @ mean_up > 0 else -up


def _output_size(cameras: Cameras, width: int | None, height: int | None) -> tuple[int, int]:
    """Width and height in pixels, a missing one filled in by the aspect ratio of cameras."""
    if width is None and height is None:
        return cameras.width, cameras.height
    if width is None:
        width = max(1, round(height * cameras.width / cameras.height))
    if height is None:
        height = max(1, round(width * cameras.height / cameras.width))
    return width, height
