"""What training minimises. Each function returns a scalar tensor."""

import torch
from torch import Tensor

from nerf.ops.backend import Backend
from nerf.rays import RaySamples


def photometric(rgb: Tensor, truth: Tensor) -> Tensor:
    """Mean squared error of rgb [R,3]; minus ten times its logarithm is the PSNR."""
    return (rgb - truth).square().mean()


def opacity_entropy(opacity: Tensor) -> Tensor:
    """Mean binary entropy of each ray's opacity [R]: low where rays either hit or miss (Sun et al. 2022, eq. 12)."""
    p = opacity.clamp(1e-6, 1 - 1e-6)
    return -(p * p.log() + (1 - p) * (1 - p).log()).mean()


def distortion(weights: Tensor, samples: RaySamples, unit: Tensor, backend: Backend) -> Tensor:
    """Mean distortion of each ray's weights [M] (Barron et al. 2022, eq. 15): low where a ray meets one thin surface.

    unit []: the length that counts as 1, in world units. With the diagonal of the scene box no ray is longer than 1,
    and the loss is the same for a scene that is scaled as a whole.
    """
    intervals = (samples.t_starts, samples.t_ends, samples.ray_offsets)
    return backend.ops.distortion_loss(weights, *intervals).mean() / unit


@torch.no_grad()
def add_total_variation(
    grid: torch.nn.Parameter, weight: float, backend: Backend, vertex_rows: Tensor | None = None
) -> None:
    """Adds the gradient of weight * total variation to grid.grad, where the batch left a gradient.

    vertex_rows [L] int64: the vertices where it may have left one, counted as OccupancyGrid.vertex_rows does; None:
    any. The result is the same, without a look at all others.
    """
    if weight > 0:
        backend.ops.total_variation_grad(grid.grad, grid, weight, True, vertex_rows)
