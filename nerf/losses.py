"""What training minimises. Each loss is a scalar tensor."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nerf.config import LossConfig
from nerf.metrics import SSIM_C2
from nerf.ops.backend import Backend
from nerf.rays import RaySamples

if TYPE_CHECKING:
    from nerf.fields.field import Field
    from nerf.rendering import Rendering

TURNS = 8  # steps in which total variation everywhere comes around: all vertices at once cost what Adam costs


def of_rendering(
    config: LossConfig,
    rendering: "Rendering",
    samples: RaySamples,
    field: "Field",
    rgb: Tensor,
    truth: Tensor,
    alpha: Tensor,
) -> tuple[Tensor, Tensor]:
    """What a batch is trained on, each loss by its weight, and the squared error alone.

    rgb, truth: [P,3] colours of its pixels; rgb is the rendering's, or what its exposure makes of it. alpha: [P] of the
    photo. The error of opacity is what a colour behind the scene that is drawn for each ray would add to the error of
    colours in the mean, by its variance; so much of it that the scene fills with what is not known is too much.
    """
    error = photometric(rgb, truth)
    loss = error
    if config.structure > 0:
        loss = loss + config.structure * structure(rgb, truth)
    if config.opacity > 0:
        loss = loss + config.opacity * photometric(rendering.opacity, alpha)
    if config.opacity_entropy > 0:
        loss = loss + config.opacity_entropy * opacity_entropy(rendering.opacity)
    if config.distortion > 0:
        loss = loss + config.distortion * distortion(rendering.weights, samples, field.box.size.norm(), field.backend)
    return loss, error


def photometric(rgb: Tensor, truth: Tensor) -> Tensor:
    """Mean squared error of colours [R,3], of which minus ten times the logarithm is the PSNR, or of opacity [R]."""
    return (rgb - truth).square().mean()


def structure(rgb: Tensor, truth: Tensor) -> Tensor:
    """One minus SSIM's contrast and structure (Wang et al. 2004, eqs. 9 and 10) of pairs of pixels, their mean.

    rgb, truth [R,3]: the last R // 2 are near the first ones, in their order (RayBatches.paired). A pair is a window of
    two pixels: their difference d has the variance d^2 / 2, two differences have the covariance d d' / 2. So
    1 - (d d' + C) / ((d^2 + d'^2) / 2 + C), which is the squared error of the difference where there is no contrast,
    and less of it where there is much: what a photo shows faintly counts as what it shows boldly.
    """
    pairs = len(rgb) // 2
    seen, true = (x[:pairs] - x[len(x) - pairs :] for x in (rgb, truth))
    apart = (seen - true).square() / (seen.square() + true.square() + 2 * SSIM_C2)
    return apart.sum() / max(apart.numel(), 1)


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
    grid: torch.nn.Parameter,
    weight: float,
    backend: Backend,
    vertex_rows: Tensor | None = None,
    touched_only: bool = True,
) -> None:
    """Adds the gradient of weight * total variation to grid.grad, at vertices where the batch left a gradient.

    vertex_rows [L] int64: the vertices to look at, counted as OccupancyGrid.vertex_rows does; None: all. Where these
    are all at which it may have left one, the result is the same, without a look at the others. touched_only=False adds
    it at each of them.
    """
    if weight > 0:
        backend.ops.total_variation_grad(grid.grad, grid, weight, touched_only, vertex_rows)


def rows_of_turn(vertex_rows: Tensor, step_number: Tensor) -> Tensor:
    """One of TURNS equal parts of vertices [L], so that each has its turn in as many steps; L % TURNS never have.

    step_number [1]: stays on the device.
    """
    parts = vertex_rows[: len(vertex_rows) // TURNS * TURNS].view(TURNS, -1)
    return parts.index_select(0, (step_number % TURNS).long())[0]
