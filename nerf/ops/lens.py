"""From points before lenses to where they are in the picture and back, as math/lens.h has it, in PyTorch and
differentiable.

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
    aside = (x * x + y * y).clamp(min=SMALLEST**2).sqrt()  # of hypot the derivative on the axis is NaN
    ahead = torch.where(z > 0, torch.maximum(z, LEAST_AHEAD * aside), torch.ones_like(z))
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


def undistort(
    points: Tensor,
    k: tuple[Tensor, ...],
    reach: Tensor,
    rim: Tensor,
    models: Tensor | None,
    known: tuple[int, ...],
    iterations: int,
) -> Tensor:
    """Distorted points [N,2] to directions [N,3] before each a lens, of any length, by Newton's method.

    rim [N]: distorted radius at the reach. k, reach, models, known: as distort has them.
    """
    radius = points.square().sum(-1).clamp(min=SMALLEST**2).sqrt()
    beyond = (radius / rim).clamp(min=1)
    found = points.new_zeros(len(points), 3)
    for model in known:
        if model == PERSPECTIVE:
            x, y = _solve_perspective(k, *(points / beyond[:, None]).unbind(-1), iterations)
            each = torch.stack([x * beyond, y * beyond, torch.ones_like(x)], dim=-1)
        elif model == FISHEYE:
            theta = _solve_fisheye(k, radius / beyond, reach, iterations) * beyond
            each = torch.cat([points * (theta.sin() / radius)[:, None], theta.cos()[:, None]], dim=-1)
        else:
            longitude, latitude = points.unbind(-1)
            level = latitude.cos()
            each = torch.stack([longitude.sin() * level, latitude.sin(), longitude.cos() * level], dim=-1)
        found = each if len(known) == 1 else torch.where((models == model)[:, None], each, found)
    return found


def _solve_perspective(k: tuple[Tensor, ...], bent_x: Tensor, bent_y: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
    """The point that distorts to (bent_x, bent_y), by Newton's method in the plane."""
    k1, k2, p1, p2, k3, k4 = (x.detach() for x in k)
    k1, k2, k3, k4, twice_p1, twice_p2 = 2 * k1, 4 * k2, 6 * k3, 8 * k4, 2 * p1, 2 * p2  # of the derivatives
    x, y = bent_x.detach(), bent_y.detach()
    for iteration in range(iterations):
        with torch.set_grad_enabled(torch.is_grad_enabled() and iteration == iterations - 1):
            found_x, found_y, shared, r2 = perspective(k, x, y)
            error_x, error_y = found_x - bent_x, found_y - bent_y
        with torch.no_grad():
            slope = torch.addcmul(k1, r2, torch.addcmul(k2, r2, torch.addcmul(k3, r2, k4)))
            xx = torch.addcmul(shared, x, torch.addcmul(twice_p2, x, slope) + twice_p2)
            yy = torch.addcmul(shared, y, torch.addcmul(twice_p1, y, slope) + twice_p1)
            xy = torch.addcmul(twice_p2 * y, x, torch.addcmul(twice_p1, y, slope))
            scale = 1 / torch.addcmul(xx * yy, xy, xy, value=-1)
            xx, xy, yy = scale * xx, scale * xy, scale * yy
        x, y = x - (yy * error_x - xy * error_y), y - (xx * error_y - xy * error_x)
    return x, y


def _solve_fisheye(k: tuple[Tensor, ...], radius: Tensor, reach: Tensor, iterations: int) -> Tensor:
    """The angle, up to the reach, whose image radius is `radius`, by Newton's method."""
    theta = radius.detach()
    for iteration in range(iterations):
        theta = torch.minimum(theta.clamp(min=0), reach)  # beyond, the polynomial may turn back
        with torch.set_grad_enabled(torch.is_grad_enabled() and iteration == iterations - 1):
            found, slope = fisheye(k, theta)
            theta = theta - (found - radius) / slope.detach()
    return theta
