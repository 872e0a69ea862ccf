"""Lens distortion: where a ray falls on a real lens's picture, and back. OpenCV's two models.

Points are on the plane one unit in front of the camera: x right, y down, z forward (OpenCV's axes, the only place that
uses them); a distorted point times the focal length, plus the principal point, is a pixel.

perspective: k1, k2, p1, p2, k3, k4. (x, y) falls at radial (x, y) + (2 p1 x y + p2 (r^2 + 2 x^2),
    p1 (r^2 + 2 y^2) + 2 p2 x y), with radial = 1 + k1 r^2 + k2 r^4 + k3 r^6 + k4 r^8: OpenCV's model without its
    denominator; k4 as nerfstudio has it.
fisheye: k1 to k4. A ray at the angle theta to the axis falls at theta (1 + k1 theta^2 + k2 theta^4 + ...) from the
    middle (Kannala and Brandt 2006).

A polynomial fitted to a lens turns back somewhere outside of the picture it was fitted to. Before it does, where a step
of the ray moves its image by less than MIN_SLOPE of a step, it goes on as a straight line: so every pixel has one ray,
undistortion always converges, and what lies far to the side never appears in the picture.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

PERSPECTIVE = ("k1", "k2", "p1", "p2", "k3", "k4")
FISHEYE = ("k1", "k2", "k3", "k4")
COEFFICIENTS = {"perspective": PERSPECTIVE, "fisheye": FISHEYE}
MIN_SLOPE = 0.1
FARTHEST = 1e4  # tangent of the angle to the axis: where a perspective polynomial that never turns back ends
# Newton's method doubles the digits with each iteration; float32 is reached after three or four where the lens bends
# little, and later only where the polynomial is about to turn back.
ITERATIONS = 8
SMALLEST = 1e-12  # keeps quotients and their derivatives finite in the middle of the picture


@dataclass(frozen=True)
class Lenses:
    """The lenses of I images; at least one of them distorts."""

    coefficients: Tensor  # [I,6] as PERSPECTIVE lists them; fisheye: k1 to k4, 0, 0
    reach: Tensor  # [I] up to where the polynomial is used: radius (perspective) or angle in radians (fisheye)
    fisheye: Tensor  # [I] bool
    kinds: tuple[str, ...]  # the models among them: known on the host, so that no step asks the device

    @staticmethod
    def of(models: Sequence[str], coefficients: Sequence[Sequence[float]]) -> "Lenses | None":
        """The lenses of I images by the names of their models and their coefficients; None where nothing distorts.

        Coefficients that are left out are 0. Raises ValueError for an unknown model, and for more coefficients than it
        has or one that is not finite.
        """
        rows = np.zeros((len(models), len(PERSPECTIVE)))
        for row, model, values in zip(rows, models, coefficients, strict=True):
            if model not in COEFFICIENTS:
                raise ValueError(f"models: found {model!r}, expected one of {', '.join(COEFFICIENTS)}")
            if len(values) > len(COEFFICIENTS[model]) or not np.isfinite(values).all():
                expected = f"at most {len(COEFFICIENTS[model])} finite numbers: {', '.join(COEFFICIENTS[model])}"
                raise ValueError(f"coefficients: found {list(values)} of a {model} lens, expected {expected}")
            row[: len(values)] = values
        fisheye = np.array([model == "fisheye" for model in models], dtype=bool)
        if not rows.any() and not fisheye.any():
            return None
        radial = np.where(fisheye[:, None], rows[:, :4], rows[:, [0, 1, 4, 5]])
        different, where = np.unique(np.column_stack([radial, fisheye]), axis=0, return_inverse=True)
        reach = np.array([_reach(row[:4], math.pi if row[4] else FARTHEST) for row in different])[where.reshape(-1)]
        tensors = (torch.from_numpy(x) for x in (rows, reach))
        return Lenses(*(x.float() for x in tensors), torch.from_numpy(fisheye), tuple(sorted(set(models))))

    def __getitem__(self, rows: slice | Sequence[int] | Tensor) -> "Lenses":
        return Lenses(self.coefficients[rows], self.reach[rows], self.fisheye[rows], self.kinds)

    @property
    def models(self) -> list[str]:
        """The model of each lens, as of() takes them."""
        return ["fisheye" if fisheye else "perspective" for fisheye in self.fisheye.tolist()]

    def to(self, device: torch.device | str) -> "Lenses":
        return Lenses(self.coefficients.to(device), self.reach.to(device), self.fisheye.to(device), self.kinds)

    def distort(self, image: Tensor, points: Tensor) -> Tensor:
        """Points [N,3] in camera space to distorted points [N,2]. image [N] int64: whose lens.

        Differentiable in points and coefficients. A fisheye may see what is beside or behind it; of a perspective lens,
        points with z <= 0 come out finite and mean nothing.
        """
        x, y, z = points.unbind(-1)
        k, reach = self._rows(image, points)
        found = []
        if "perspective" in self.kinds:
            ahead = torch.where(z > 0, z, torch.ones_like(z))
            found.append(torch.stack(_perspective(k, reach, x / ahead, y / ahead)[:2], dim=-1))
        if "fisheye" in self.kinds:
            radius = (x * x + y * y).clamp(min=SMALLEST**2).sqrt()
            theta = torch.atan2(radius, z)
            found.append(points[:, :2] * (_fisheye(k, reach, theta)[0] / radius)[:, None])
        return self._choose(image, found)

    def undistort(self, image: Tensor, points: Tensor) -> Tensor:
        """Distorted points [N,2] to directions [N,3] in camera space, of any length. image [N] int64: whose lens.

        A fixed number of Newton's iterations, without a host read. The last one alone is recorded for differentiation:
        at the solution its derivative in points and coefficients is that of the inverse (implicit function theorem).
        """
        k, reach = self._rows(image, points)
        found = []
        if "perspective" in self.kinds:
            x, y = _solve_perspective(k, reach, *points.unbind(-1))
            found.append(torch.stack([x, y, torch.ones_like(x)], dim=-1))
        if "fisheye" in self.kinds:
            radius = points.square().sum(-1).clamp(min=SMALLEST**2).sqrt()
            theta = _solve_fisheye(k, reach, radius)
            found.append(torch.cat([points * (theta.sin() / radius)[:, None], theta.cos()[:, None]], dim=-1))
        return self._choose(image, found)

    def _rows(self, image: Tensor, points: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Coefficients, each [N], and reach [N] of the images named, in the precision of points."""
        k = self.coefficients.index_select(0, image).to(points).unbind(-1)
        return k, self.reach.index_select(0, image).to(points)

    def _choose(self, image: Tensor, found: list[Tensor]) -> Tensor:
        if len(found) == 1:
            return found[0]
        return torch.where(self.fisheye.index_select(0, image)[:, None], found[1], found[0])


def _reach(radial: np.ndarray, farthest: float) -> float:
    """Smallest r > 0 where r (1 + a r^2 + b r^4 + c r^6 + d r^8) rises by less than MIN_SLOPE, or farthest."""
    slope = np.polynomial.Polynomial([1 - MIN_SLOPE, *(np.array([3, 5, 7, 9]) * radial)])  # in r^2
    roots = slope.trim().roots()
    crossed = [root.real for root in roots if root.real > 0 and abs(root.imag) <= 1e-9 * abs(root.real)]
    return min([math.sqrt(root) for root in crossed] + [farthest])


def _perspective(k: tuple[Tensor, ...], reach: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Distorted x and y, and their derivatives dx/dx, dx/dy, dy/dx, dy/dy.

    Beyond reach the point is brought back along its radius, distorted there, and stretched by as much.
    """
    k1, k2, p1, p2, k3, k4 = k
    inside = (reach * reach / (x * x + y * y).clamp(min=SMALLEST)).clamp(max=1).sqrt()
    x, y = inside * x, inside * y
    r2 = x * x + y * y
    radial = 1 + r2 * (k1 + r2 * (k2 + r2 * (k3 + r2 * k4)))
    slope = 2 * (k1 + r2 * (2 * k2 + r2 * (3 * k3 + r2 * (4 * k4))))
    bent_x = x * (radial + 2 * p1 * y + 2 * p2 * x) + p2 * r2
    bent_y = y * (radial + 2 * p1 * y + 2 * p2 * x) + p1 * r2
    xx = radial + x * x * slope + 2 * p1 * y + 6 * p2 * x
    xy = x * y * slope + 2 * p1 * x + 2 * p2 * y
    yy = radial + y * y * slope + 6 * p1 * y + 2 * p2 * x
    # Beyond reach the derivative along the radius is the quotient of the distances, across it what it is at reach.
    beyond, unit_x, unit_y = inside < 1, x / reach, y / reach
    along_x, along_y = xx * unit_x + xy * unit_y, xy * unit_x + yy * unit_y
    change_x = torch.where(beyond, bent_x / reach - along_x, torch.zeros_like(x))
    change_y = torch.where(beyond, bent_y / reach - along_y, torch.zeros_like(x))
    derivatives = (xx + change_x * unit_x, xy + change_x * unit_y, xy + change_y * unit_x, yy + change_y * unit_y)
    return bent_x / inside, bent_y / inside, *derivatives


def _solve_perspective(k: tuple[Tensor, ...], reach: Tensor, bent_x: Tensor, bent_y: Tensor) -> tuple[Tensor, Tensor]:
    """The point that distorts to (bent_x, bent_y)."""
    x, y = bent_x.detach(), bent_y.detach()
    with torch.no_grad():
        for _ in range(ITERATIONS - 1):
            x, y = _newton(x, y, bent_x, bent_y, *_perspective(k, reach, x, y))
    found_x, found_y, *derivatives = _perspective(k, reach, x, y)
    return _newton(x, y, bent_x, bent_y, found_x, found_y, *(d.detach() for d in derivatives))


def _newton(
    x: Tensor, y: Tensor, bent_x: Tensor, bent_y: Tensor,
    found_x: Tensor, found_y: Tensor, xx: Tensor, xy: Tensor, yx: Tensor, yy: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(x, y) less the error of what was found, by the inverse of its derivatives."""
    error_x, error_y = found_x - bent_x, found_y - bent_y
    scale = 1 / (xx * yy - xy * yx)
    return x - scale * (yy * error_x - xy * error_y), y - scale * (xx * error_y - yx * error_x)


def _fisheye(k: tuple[Tensor, ...], reach: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Distance from the middle at the angle theta, and its derivative."""
    k1, k2, k3, k4 = k[:4]
    t = torch.minimum(theta, reach)
    t2 = t * t
    ratio = 1 + t2 * (k1 + t2 * (k2 + t2 * (k3 + t2 * k4)))
    slope = 1 + t2 * (3 * k1 + t2 * (5 * k2 + t2 * (7 * k3 + t2 * (9 * k4))))
    return theta * ratio, torch.where(theta < reach, slope, ratio)


def _solve_fisheye(k: tuple[Tensor, ...], reach: Tensor, radius: Tensor) -> Tensor:
    """The angle that falls at radius."""
    theta = radius.detach()
    with torch.no_grad():
        for _ in range(ITERATIONS - 1):
            found, slope = _fisheye(k, reach, theta)
            theta = theta - (found - radius) / slope
    found, slope = _fisheye(k, reach, theta)
    return theta - (found - radius) / slope.detach()
