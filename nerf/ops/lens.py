"""From points before lenses to where they are in the picture, as math/lens.h has it, in PyTorch and differentiable.

The models, their coefficients and their reach: nerf/cameras/distortion.py. Legend: N points.
"""

import math

import torch
from torch import Tensor

from nerf.ops.activations import in_pieces

PERSPECTIVE, FISHEYE, PANORAMA = range(3)  # numbers of the models
LEAST_AHEAD = 1e-9  # slope of the directions that are distorted; those more sideways count as this one
SMALLEST = 1e-12  # keeps quotients and their derivatives finite at the image center


def distort(
    points: Tensor, k: tuple[Tensor, ...], reach: Tensor, models: Tensor | None, known: tuple[int, ...]
) -> Tensor:
    """Points [N,3] before each a lens, x right, y down, z forward, to distorted points [N,2] in focal lengths.

    k: the six coefficients, each [N]. reach [N]: where the polynomial ends. models [N] int64, by which of those that
    are known each goes; None: all by the only one. A fisheye may see what is beside or behind it, a panorama sees all;
    of a perspective lens, points with z <= 0 come out finite and mean nothing.
    """
    found = torch.zeros_like(points[:, :2])
    for model in known:
        each = (_perspective_points, _fisheye_points, _angles)[model](points, k, reach)
        found = each if len(known) == 1 else torch.where((models == model)[:, None], each, found)
    return found


def _perspective_points(points: Tensor, k: tuple[Tensor, ...], reach: Tensor) -> Tensor:
    x, y, z = points.unbind(-1)
    ahead = torch.where(z > 0, torch.maximum(z, LEAST_AHEAD * in_pieces(torch.hypot, x, y)), torch.ones_like(z))
    x, y = x / ahead, y / ahead
    inside = (reach * reach / (x * x + y * y).clamp(min=SMALLEST)).clamp(max=1).sqrt()
    return torch.stack(perspective(k, inside * x, inside * y)[:2], dim=-1) / inside[:, None]


def _fisheye_points(points: Tensor, k: tuple[Tensor, ...], reach: Tensor) -> Tensor:
    radius = points[:, :2].square().sum(-1).clamp(min=SMALLEST**2).sqrt()
    theta = in_pieces(torch.atan2, radius, points[:, 2])
    used = torch.minimum(theta, reach)
    return points[:, :2] * (fisheye(k, used)[0] * theta / used / radius)[:, None]


def _angles(points: Tensor, k: tuple[Tensor, ...], reach: Tensor) -> Tensor:
    """Longitude in [-pi, pi) and latitude in [-pi/2, pi/2] [N,2] of points [N,3] in camera space; 0 where it is any."""
    x, y, z = points.unbind(-1)
    longitude = in_pieces(torch.atan2, x, z)
    # What is straight behind is on the left edge, not one pixel to the right of the picture.
    longitude = torch.where(longitude >= math.pi, -longitude, longitude)
    level = (x * x + z * z).clamp(min=SMALLEST**2).sqrt()
    return torch.stack([longitude, in_pieces(torch.atan2, y, level)], dim=-1)


def perspective(k: tuple[Tensor, ...], x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Distorted x and y, and common terms of their derivatives: 1 + radial + tangential part, and r^2."""
    k1, k2, p1, p2, k3, k4 = k
    r2 = torch.addcmul(x * x, y, y)
    radial = 1 + r2 * torch.addcmul(k1, r2, torch.addcmul(k2, r2, torch.addcmul(k3, r2, k4)))
    shared = torch.addcmul(torch.addcmul(radial, p1, y, value=2), p2, x, value=2)
    return torch.addcmul(x * shared, p2, r2), torch.addcmul(y * shared, p1, r2), shared, r2


def fisheye(k: tuple[Tensor, ...], theta: Tensor) -> tuple[Tensor, Tensor]:
    """Distance from the middle at the angle theta, and its derivative."""
    k1, k2, k3, k4 = k[:4]
    t2 = theta * theta
    ratio = 1 + t2 * (k1 + t2 * (k2 + t2 * (k3 + t2 * k4)))
    slope = 1 + t2 * (3 * k1 + t2 * (5 * k2 + t2 * (7 * k3 + t2 * (9 * k4))))
    return theta * ratio, slope
