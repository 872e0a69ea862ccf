"""Harmonics of Gaussians by least squares: the colors in which the pictures show their centers.

Legend: V views, N Gaussians, K coefficients per color.
"""

import torch
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from nerf.export.splats.pictures import Pictures
from nerf.fields.spherical_harmonics import num_coefficients, sh_basis

GAUSSIANS_AT_A_TIME = 1 << 15
SMOOTHNESS = 0.3  # weight of the prior on coefficients of degree 1, in views; it grows with the degree
TOLERANCE = 3.0  # how far behind the pictured surface a center may lie and still be seen, in spacings
OPAQUE = 0.5  # opacity of a pixel from which its color is one of the surface


@torch.no_grad()
def fit_harmonics(points: Tensor, spacing: Tensor, pictures: Pictures, degree: int) -> Tensor:
    """Coefficients [N,K,3] of points [N,3]. spacing [N]: world distance between neighbors.

    A point is seen by a picture if it lies at the pictured depth. What no picture sees becomes gray.
    """
    basis_size = num_coefficients(degree)
    order = torch.arange(basis_size, device=points.device).float().sqrt().floor()
    prior = (SMOOTHNESS * order * (order + 1)).clamp(min=1e-3)
    fitted = []
    for first in tqdm(range(0, len(points), GAUSSIANS_AT_A_TIME), desc="colors", unit="part", leave=False):
        part = slice(first, first + GAUSSIANS_AT_A_TIME)
        some, tolerance = points[part], TOLERANCE * spacing[part]
        square = points.new_zeros(len(some), basis_size, basis_size)
        product = points.new_zeros(len(some), basis_size, 3)
        for view in range(len(pictures)):
            seen, colors = _seen(some, tolerance, pictures, view)
            towards = functional.normalize(some - pictures.cameras.centers[view], dim=-1)
            basis = sh_basis(towards, degree) * seen[:, None]
            square.baddbmm_(basis[:, :, None], basis[:, None, :])
            product.baddbmm_(basis[:, :, None], (colors - 0.5)[:, None, :])
        fitted.append(torch.linalg.solve(square + torch.diag(prior), product))
    return torch.cat(fitted)


def _seen(points: Tensor, tolerance: Tensor, pictures: Pictures, view: int) -> tuple[Tensor, Tensor]:
    """Whether a picture shows points [N,3], and the colors [N,3] of their pixels."""
    (width, height), (at, z) = pictures.cameras.size(view), pictures.cameras.project(view, points)
    column, row = at.nan_to_num(-1.0).clamp(-1, 1 << 20).floor().long().unbind(-1)
    inside = (z > 0) & (column >= 0) & (column < width) & (row >= 0) & (row < height)
    pixel = torch.where(inside, row * width + column, 0)
    opacity = pictures.opacity[view].view(-1)[pixel].float() / 255
    behind = (points - pictures.cameras.centers[view]).norm(dim=-1) - pictures.depth[view].view(-1)[pixel]
    light = pictures.light[view].view(-1, 3)[pixel].float() / 255
    colors = (light / opacity.clamp(min=OPAQUE)[:, None]).clamp(max=1)
    return inside & (opacity >= OPAQUE) & (behind < tolerance), colors
