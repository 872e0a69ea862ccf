"""Rigid motions: the exponential map of SE(3), and rotations as angles and as quaternions.

Legend: N motions, I cameras. Quaternions are [..., 4], real part first.
"""

import torch
from torch import Tensor

from nerf.cameras.limits import FARTHEST

SMALL_ANGLE = 0.05  # radians; below it four terms of the series are exact to 1e-16, and the closed forms are not

RIGID_TOLERANCE = 1e-3  # largest entry of |R^T R - I| of a rotation that comes from a file


def exponential(increments: Tensor) -> tuple[Tensor, Tensor]:
    """Rotations [N,3,3] and translations [N,3] of increments [N,6]: axis times angle in radians, then translation.

    x' = rotation @ x + translation is the matrix exponential of [[w]x u; 0 0] (Eade 2013, "Lie groups for 2D and 3D
    transformations", section 3.2). Differentiable everywhere, at zero too: small angles are computed by their series.
    """
    omega, velocity = increments[:, :3], increments[:, 3:]
    square = omega.square().sum(-1)
    small = square < SMALL_ANGLE**2
    safe = torch.where(small, torch.ones_like(square), square)  # no root or division at zero, nor a gradient of one
    angle = safe.sqrt()
    sine, versine = torch.sin(angle), 2 * torch.sin(0.5 * angle).square()
    a = torch.where(small, _series(square, 1, (6, 20, 42)), sine / angle)
    b = torch.where(small, _series(square, 1 / 2, (12, 30, 56)), versine / safe)
    c = torch.where(small, _series(square, 1 / 6, (20, 42, 72)), (angle - sine) / (angle * safe))
    cross = _cross_matrix(omega)
    squared = cross @ cross
    identity = torch.eye(3, dtype=increments.dtype, device=increments.device)
    rotation = identity + a[:, None, None] * cross + b[:, None, None] * squared
    left = identity + b[:, None, None] * cross + c[:, None, None] * squared
    return rotation, (left @ velocity[:, :, None])[:, :, 0]


def rotation_angle(rotations: Tensor) -> Tensor:
    """Angles [N] in radians, 0 to pi, of rotations [N,3,3]; exact for small ones, where the trace is not."""
    return angle_between(torch.eye(3, dtype=rotations.dtype, device=rotations.device), rotations)


def angle_between(one: Tensor, other: Tensor) -> Tensor:
    """Angles [N] in radians, 0 to pi, of the rotations that take one [N,3,3] to other; exact for small ones too."""
    chord = (one - other).flatten(1).norm(dim=-1)  # 2 sqrt(2) sin(angle / 2)
    return 2 * torch.asin((chord / 8**0.5).clamp(max=1))


def quaternion_from_rotation(rotations: Tensor) -> Tensor:
    """Unit quaternions [N,4] of rotation matrices [N,3,3], their real part not negative.

    The quaternion is the eigenvector of the largest eigenvalue of a symmetric matrix (Bar-Itzhack 2000): matrices that
    are rotations only up to rounding give the nearest one, with no special case for half turns. Raises ValueError for
    matrices with entries that are not finite, or beyond FARTHEST: no eigenvector is found of them.
    """
    if not (rotations.abs() <= FARTHEST).all():
        raise ValueError(f"rotations: found entries that are not finite or beyond {FARTHEST:g}, expected rotations")
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = (row.unbind(-1) for row in rotations.unbind(-2))
    rows = [
        [xx + yy + zz, zy - yz, xz - zx, yx - xy],
        [zy - yz, xx - yy - zz, xy + yx, xz + zx],
        [xz - zx, xy + yx, yy - xx - zz, yz + zy],
        [yx - xy, xz + zx, yz + zy, zz - xx - yy],
    ]
    symmetric = torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)
    found = torch.linalg.eigh(symmetric).eigenvectors[..., -1]
    return torch.where(found[..., :1] < 0, -found, found)


def rotation_from_quaternion(quaternions: Tensor) -> Tensor:
    """Rotation matrices [N,3,3] of quaternions [N,4] of any length; differentiable."""
    w, x, y, z = torch.nn.functional.normalize(quaternions, dim=-1).unbind(-1)
    entries = [
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    ]  # fmt: skip
    return torch.stack(entries, dim=-1).unflatten(-1, (3, 3))


def _series(square: Tensor, first: float, divisors: tuple[int, int, int]) -> Tensor:
    """first * (1 - x/d0 * (1 - x/d1 * (1 - x/d2))): sin, versine and what is left of them, as power series in x."""
    d0, d1, d2 = divisors
    return first * (1 - square / d0 * (1 - square / d1 * (1 - square / d2)))


def _cross_matrix(v: Tensor) -> Tensor:
    """Matrices [N,3,3] that take the cross product with vectors [N,3]."""
    x, y, z = v.unbind(-1)
    zero = torch.zeros_like(x)
    return torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], dim=-1).view(-1, 3, 3)
