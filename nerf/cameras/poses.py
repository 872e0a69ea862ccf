"""Poses: look-at, and estimates of a scene's center and up direction from the poses of its cameras.

All estimates are made in float64 on the CPU.
"""

import math

import torch
from torch import Tensor
from torch.linalg import cross
from torch.nn.functional import normalize

from nerf.cameras.limits import FARTHEST

# Optical axes that spread by less than about half a degree do not fix the point where they meet.
MIN_AXIS_SPREAD = math.radians(0.5)
# Weight of the cameras' up axes relative to their right axes; see estimate_up.
UP_AXIS_WEIGHT = 1e-3
# A camera's axes are right, down, forward to OpenCV and COLMAP, right, up, backward here: the signs between them.
OPENCV_SIGNS = (1.0, -1.0, -1.0)


def look_at(position: Tensor, target: Tensor, up: Tensor) -> Tensor:
    """Pose c2w [3,4] of a camera at position that sees target in the middle of its image.

    position, target, up: float [3] in world space; the image is upright with respect to up, of any length.
    Raises ValueError for other shapes, for numbers whose squares are not finite, if position is target, or if up is
    parallel to the viewing direction.
    """
    for name, vector in (("position", position), ("target", target), ("up", up)):
        if vector.shape != (3,) or not vector.is_floating_point():
            raise ValueError(f"{name}: found {vector.dtype} {list(vector.shape)}, expected float [3]")
    backward = normalize(position - target, dim=0)
    right = cross(normalize(up, dim=0), backward)
    # The length of right is the sine of the angle between up and the viewing direction.
    if not right.norm() >= 1e-4:  # NaN is no length
        raise ValueError(
            f"position, target, up: found {position.tolist()}, {target.tolist()}, {up.tolist()}, "
            "expected finite numbers and a viewing direction that is not zero and not parallel to up"
        )
    right = normalize(right, dim=0)
    return torch.stack([right, cross(backward, right), backward, position], dim=1)


def estimate_target(c2w: Tensor) -> Tensor:
    """The point [3] with the least sum of squared distances to the optical axes of c2w [I,3,4].

    The distance of p from the axis through c along the unit vector d is |(1 - d d^T)(p - c)|; setting the
    gradient of the mean square to zero gives the 3x3 system that is solved here.

    Raises ValueError where there are no cameras, for poses that are not finite or beyond FARTHEST, for parallel axes,
    and for cameras that do not look at a common point.
    """
    _check_poses(c2w)
    forward, centers = -c2w[:, :, 2], c2w[:, :, 3]
    across = torch.eye(3, dtype=c2w.dtype) - forward[:, :, None] * forward[:, None, :]
    normal_matrix = across.mean(dim=0)
    # The smallest eigenvalue is the mean squared sine of the angles between the axes and their common direction; for
    # small angles the sine equals the angle.
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


def estimate_up(c2w: Tensor) -> Tensor:
    """World up [3], unit, from the horizons of c2w [I,3,4].

    A camera held level has a right axis perpendicular to up, however far it is tilted up or down. So up is
    the direction most nearly perpendicular to all right axes, and cameras on one side of the scene fix it as
    well as a full ring. The mean of the cameras' own up axes would lean towards the scene there. It still
    chooses the sign and, with a small weight, decides if all right axes are parallel. The result is not snapped to a
    world axis: for Blender scenes it is z anyway, and the axes of a reconstructed scene are arbitrary.

    Raises ValueError where there are no cameras, and for poses that are not finite or beyond FARTHEST.
    """
    _check_poses(c2w)
    right, mean_up = c2w[:, :, 0], c2w[:, :, 1].mean(dim=0)
    votes = right.T @ right / len(right) - UP_AXIS_WEIGHT * torch.outer(mean_up, mean_up)
    up = torch.linalg.eigh(votes).eigenvectors[:, 0]
    return up if up @ mean_up > 0 else -up


def _check_poses(c2w: Tensor) -> None:
    """Raises ValueError where nothing can be estimated of c2w [I,3,4]; NaN would end in a solver's error."""
    usable = (c2w.abs() <= FARTHEST).flatten(1).all(1)
    if not len(c2w) or not usable.all():
        raise ValueError(
            f"cameras: found {len(c2w)}, {int(usable.sum())} of them with finite poses up to {FARTHEST:g}, expected at "
            "least one and no other"
        )
