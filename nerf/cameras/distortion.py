"""Lens distortion and its inverse: OpenCV's perspective and fisheye models, and panoramas.

Points are on the plane one unit in front of the camera: x right, y down, z forward (OpenCV's axes, the only place that
uses them); a distorted point times the focal length, plus the principal point, is a pixel.

perspective: k1, k2, p1, p2, k3, k4. (x, y) is distorted to radial (x, y) + (2 p1 x y + p2 (r^2 + 2 x^2),
    p1 (r^2 + 2 y^2) + 2 p2 x y), with radial = 1 + k1 r^2 + k2 r^4 + k3 r^6 + k4 r^8: OpenCV's model without its
    denominator; k4 as nerfstudio has it.
fisheye: k1 to k4. A ray at the angle theta to the axis has the image radius theta (1 + k1 theta^2 + k2 theta^4 + ...)
    (Kannala and Brandt 2006).
equirectangular: none. The point (x, y) of the plane is the direction at the longitude x, rightwards from the axis, and
    the latitude y, downwards from the horizon, in radians: (sin x cos y, sin y, cos x cos y). With fx = width / 2 pi,
    fy = height / pi and the principal point in the middle, a picture is the whole sphere, the axis in its middle and
    the direction behind on its left and right edge: nerfstudio's CameraType.EQUIRECTANGULAR (nerfstudio/cameras/
    cameras.py), which counts both angles in units of pi.

A polynomial that was fitted to a lens is not monotone outside of the images it was fitted to. So it is continued
linearly from the radius where its slope falls below MIN_SLOPE. This undistorted radius (or angle) is the lens's reach,
its distorted radius is the rim. Where Newton's method does not find its way back from a picture's pixels up to there,
the reach is as far as it does. Thus every pixel has exactly one ray, undistortion converges, and points far to the side
do not appear in the image.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from nerf.cameras.limits import LARGEST_COEFFICIENT
from nerf.ops.lens import distort, undistort

PERSPECTIVE = ("k1", "k2", "p1", "p2", "k3", "k4")
FISHEYE = ("k1", "k2", "k3", "k4")
COEFFICIENTS = {"perspective": PERSPECTIVE, "fisheye": FISHEYE, "equirectangular": ()}
NUMBER_OF = {model: number for number, model in enumerate(COEFFICIENTS)}
MIN_SLOPE = 0.1
FARTHEST = 1e4  # reach of a perspective polynomial that is monotone, as the tangent of the angle to the axis
# Newton's method doubles the digits with each iteration: two to four are enough for most lenses, this many where the
# polynomial is about to turn back.
MAX_ITERATIONS = 10
ALONG = 128  # places from the middle to the corner or the rim at which undistortion is tried
INVERSE = 1e-6  # of a focal length: a pixel whose direction is distorted to within this has been found
CONVERGED = 1e-8  # of a focal length; float32 resolves 6e-8
DOUBTFUL = 0.25  # of a picture's pixels beyond the rim; none is, of calibrated lenses
SAMPLED = 16  # pixels along each side that are asked


@dataclass(frozen=True)
class Lenses:
    """The lenses of I images; at least one of them distorts."""

    coefficients: Tensor  # [I,6] as PERSPECTIVE lists them; fisheye: k1 to k4, 0, 0; equirectangular: 0
    reach: Tensor  # [I] end of the polynomial: undistorted radius (perspective) or angle in radians (fisheye)
    rim: Tensor  # [I] distorted radius at the reach
    numbers: Tensor  # [I] int64: the model of each, as NUMBER_OF has it
    kinds: tuple[str, ...]  # the models that occur, in NUMBER_OF's order; on the host, so no step reads from the device
    iterations: int = MAX_ITERATIONS

    @staticmethod
    def of(
        models: Sequence[str], coefficients: Sequence[Sequence[float]], radii: Sequence[float] | None = None
    ) -> "Lenses | None":
        """The lenses of I images by the names of their models and their coefficients; None where nothing distorts.

        Coefficients that are left out are 0. radii: how far the corner of each picture is from its middle, in focal
        lengths; undistortion converges up to there and iterates as often as it takes, without them MAX_ITERATIONS
        times. Raises ValueError for an unknown model, and for more coefficients than it has or one that is not finite.
        """
        rows = np.zeros((len(models), len(PERSPECTIVE)))
        for row, model, values in zip(rows, models, coefficients, strict=True):
            if model not in COEFFICIENTS:
                raise ValueError(f"models: found {model!r}, expected one of {', '.join(COEFFICIENTS)}")
            if len(values) > len(COEFFICIENTS[model]) or not (np.abs(values) <= LARGEST_COEFFICIENT).all():
                most = len(COEFFICIENTS[model])
                expected = f"at most {most} finite numbers: {', '.join(COEFFICIENTS[model])}" if most else "none"
                raise ValueError(f"coefficients: found {list(values)} of a {model} lens, expected {expected}")
            row[: len(values)] = values
        rows = rows.astype(np.float32).astype(np.float64)  # as they are kept: coefficients below 1e-45 are 0
        numbers = np.array([NUMBER_OF[model] for model in models], dtype=np.int64)
        if not rows.any() and not numbers.any():
            return None
        fisheye = numbers == NUMBER_OF["fisheye"]
        radial = np.where(fisheye[:, None], rows[:, :4], rows[:, [0, 1, 4, 5]])
        tangential = np.where(fisheye, 0, np.hypot(rows[:, 2], rows[:, 3]))
        farthest = np.where(fisheye, math.pi, FARTHEST)
        different, where = np.unique(np.column_stack([radial, tangential, farthest]), axis=0, return_inverse=True)
        ends = np.array([_end(row[:4], *row[4:]) for row in different])[where.reshape(-1)]
        tensors = (torch.from_numpy(x) for x in (rows, ends[:, 0], ends[:, 1]))
        kinds = tuple(sorted(set(models), key=NUMBER_OF.__getitem__))
        lenses = Lenses(*(x.float() for x in tensors), torch.from_numpy(numbers), kinds)
        if radii is None:
            return lenses
        lenses = _shortened(lenses, radii)
        return replace(lenses, iterations=_enough_iterations(lenses, radii))

    def __getitem__(self, rows: slice | Sequence[int] | Tensor) -> "Lenses":
        tensors = (x[rows] for x in (self.coefficients, self.reach, self.rim, self.numbers))
        return Lenses(*tensors, self.kinds, self.iterations)

    @property
    def models(self) -> list[str]:
        """The model of each lens, as of() takes them."""
        names = list(COEFFICIENTS)
        return [names[number] for number in self.numbers.tolist()]

    def to(self, device: torch.device | str) -> "Lenses":
        tensors = (x.to(device) for x in (self.coefficients, self.reach, self.rim, self.numbers))
        return Lenses(*tensors, self.kinds, self.iterations)

    def distort(self, image: Tensor, points: Tensor) -> Tensor:
        """Points [N,3] in camera space to distorted points [N,2]. image [N] int64: whose lens.

        Differentiable in points and coefficients. A fisheye may see what is beside or behind it, a panorama sees all;
        of a perspective lens, points with z <= 0 come out finite and mean nothing.
        """
        k, reach = self._coefficients(image, points), self.reach.index_select(0, image).to(points)
        return distort(points, k, reach, *self._models(image))

    def undistort(self, image: Tensor, points: Tensor) -> Tensor:
        """Distorted points [N,2] to directions [N,3] in camera space, of any length. image [N] int64: whose lens.

        A fixed number of Newton's iterations, without a host read. The last one alone is recorded for differentiation:
        at the solution its derivative in points and coefficients is that of the inverse (implicit function theorem).
        """
        k, reach, rim = (
            self._coefficients(image, points),
            *(x.index_select(0, image).to(points) for x in (self.reach, self.rim)),
        )
        return undistort(points, k, reach, rim, *self._models(image), self.iterations)

    def _models(self, image: Tensor) -> tuple[Tensor | None, tuple[int, ...]]:
        """The models of the images named [N], None where all lenses have one, and those that occur."""
        known = tuple(NUMBER_OF[kind] for kind in self.kinds)
        return None if len(known) == 1 else self.numbers.index_select(0, image), known

    def _coefficients(self, image: Tensor, points: Tensor) -> tuple[Tensor, ...]:
        """Each of the six, [N], of the images named, in the precision of points."""
        return self.coefficients.index_select(0, image).to(points).T.contiguous().unbind(0)


def _end(radial: np.ndarray, tangential: float, farthest: float) -> tuple[float, float]:
    """The reach of a lens, at most farthest, and its rim, in the direction in which they are smallest.

    radial: a, b, c, d of r (1 + a r^2 + b r^4 + c r^6 + d r^8). tangential: length of (p1, p2); along the radius the
    tangential part takes away at most 3 r^2 times that.
    """
    a, b, c, d = radial
    bent = np.polynomial.Polynomial([0, 1, -3 * tangential, a, 0, b, 0, c, 0, d])
    roots = (bent.deriv() - MIN_SLOPE).trim().roots()
    crossed = [root.real for root in roots if root.real > 0 and abs(root.imag) <= 1e-9 * abs(root.real)]
    reach = min([*crossed, farthest])
    return reach, float(bent(reach))


def _spokes(radii: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Points [I*count*8,2] on eight spokes up to the radii [I], those of one distance together, and their images."""
    angle = torch.arange(8, dtype=torch.float64) * (math.pi / 4)
    fraction = torch.arange(1, count + 1, dtype=torch.float64) / count
    spokes = torch.stack([torch.outer(fraction, angle.cos()), torch.outer(fraction, angle.sin())], dim=-1).view(-1, 2)
    return (radii[:, None, None] * spokes).view(-1, 2), torch.arange(len(radii)).repeat_interleave(len(spokes))


def _shortened(lenses: Lenses, radii: Sequence[float]) -> Lenses:
    """The lenses; those of which undistortion fails before the corner and the rim reach as far as it does not."""
    key = torch.cat([lenses.coefficients, lenses.numbers[:, None], torch.tensor(radii)[:, None]], dim=1)
    _, where = key.unique(dim=0, return_inverse=True)
    first = torch.full((int(where.max()) + 1,), len(radii)).scatter_reduce(0, where, torch.arange(len(radii)), "amin")
    some = lenses[first]
    ends = torch.minimum(torch.tensor(radii, dtype=torch.float64)[first], some.rim.double())
    points, image = _spokes(ends, ALONG)
    back = some.distort(image, some.undistort(image, points))
    failed = ((back - points).norm(dim=-1) > INVERSE * (1 + points.norm(dim=-1))).view(-1, ALONG, 8).any(-1)
    if not failed.any():
        return lenses
    good = torch.where(failed.any(1), (failed.int().argmax(1) - 1).clamp(min=1), ALONG)  # a step before the first
    rim = torch.where(failed.any(1), ends * good / ALONG, some.rim.double())
    points, image = _spokes(rim, 1)
    x, y, z = some.undistort(image, points).unbind(-1)
    radius = torch.hypot(x, y)
    radius = torch.where(some.numbers[image] == NUMBER_OF["fisheye"], torch.atan2(radius, z), radius)
    reach = torch.where(failed.any(1), radius.view(-1, 8).amin(1), some.reach.double())
    return replace(lenses, reach=reach.float()[where], rim=rim.float()[where])


def _enough_iterations(lenses: Lenses, radii: Sequence[float]) -> int:
    """The number of Newton iterations after which directions change by no more than CONVERGED."""
    points, image = _spokes(torch.tensor(radii, dtype=torch.float64), 10)
    exact = replace(lenses, iterations=2 * MAX_ITERATIONS).undistort(image, points)
    for iterations in range(1, MAX_ITERATIONS):
        found = replace(lenses, iterations=iterations).undistort(image, points)
        if (found - exact).abs().max() <= CONVERGED:
            return iterations
    return MAX_ITERATIONS


def doubtful_lenses(lenses: Lenses | None, intrinsics: Tensor, sizes: Tensor) -> tuple[str, ...]:
    """A sentence where pictures have many pixels beyond the rim of their perspective lens, which nothing was fitted to.

    intrinsics [I,4], sizes [I,2] (width, height): as Cameras has them.
    """
    if lenses is None or len(sizes) == 0:
        return ()
    steps = (torch.arange(SAMPLED, device=intrinsics.device) + 0.5) / SAMPLED
    across, down = ((steps * sizes[:, i, None] - intrinsics[:, 2 + i, None]) / intrinsics[:, i, None] for i in (0, 1))
    beyond = (across[:, None] ** 2 + down[:, :, None] ** 2 > lenses.rim[:, None, None] ** 2).float().mean((1, 2))
    beyond[lenses.numbers != NUMBER_OF["perspective"]] = 0.0
    worst, count = int(beyond.argmax()), int((beyond > DOUBTFUL).sum())
    if count == 0:
        return ()
    given = ", ".join(
        f"{k} {value:.4g}" for k, value in zip(PERSPECTIVE, lenses.coefficients[worst].tolist()) if value != 0
    )
    return (
        f"The lens of {count} photos cannot be right: by {given}, {beyond[worst]:.0%} of a picture lies where its "
        "distortion has turned back, expected nothing; correct its coefficients, or leave them out for a pinhole.",
    )
