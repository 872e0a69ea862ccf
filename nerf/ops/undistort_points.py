"""undistort_points: the directions of pixels that are seen through lenses."""

import torch
from torch import Tensor

from nerf.ops.lens import FISHEYE, PANORAMA, PERSPECTIVE, undistort
from nerf.ops.registry import derivative, example, fake, numbers


def undistort_points(
    points: Tensor, image: Tensor, models: Tensor, coefficients: Tensor, reach: Tensor, rim: Tensor, iterations: int
) -> Tensor:
    """Directions [N,3] in camera space, x right, y down, z forward and of any length, of points in distorted pictures.

    points [N,2]: in focal lengths from the principal point, right and down. image [N] int64: whose lens. models [I]
    int64, coefficients [I,6], reach, rim [I]: as nerf.cameras.distortion.Lenses has them. iterations: of Newton's
    method.

    A point of an image that is none raises ValueError on the CPU and has a direction of NaN on CUDA. Native, points and
    lenses have no derivative.
    """
    k = coefficients.index_select(0, image).unbind(-1)
    of_points = (x.index_select(0, image) for x in (reach, rim, models))
    return undistort(points, k, *of_points, (PERSPECTIVE, FISHEYE, PANORAMA), iterations)


@fake("undistort_points")
def _(points, image, models, coefficients, reach, rim, iterations):
    return points.new_empty(points.shape[0], 3)


@derivative("undistort_points", of=(), save=None)
def _(ctx, *grads):
    raise RuntimeError("undistort_points has no derivative; use backend=torch for one")


@example("undistort_points")
def _():
    coefficients = 0.05 * numbers(3, 6, low=-1)
    models, image = torch.arange(3), (3 * numbers(60, seed=1)).long()
    return numbers(60, 2, low=-0.8, high=0.8, seed=2), image, models, coefficients, *torch.full((2, 3), 1.2), 4
