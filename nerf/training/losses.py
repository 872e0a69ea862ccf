"""What training minimises. Each loss is a scalar tensor."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nerf.config.schema import LossConfig
from nerf.errors import UserError
from nerf.images.metrics import SSIM_C2
from nerf.ops.backend import Backend
from nerf.rendering.samples import RaySamples

if TYPE_CHECKING:
    from nerf.fields.field import Field
    from nerf.rendering.render import Rendering


@dataclass(frozen=True)
class LossInputs:
    """What a loss may look at: the P pixels of a batch, as the images have them and as they are rendered."""

    rgb: Tensor  # [P,3] rendered, with its exposure where exposures are learned
    target: Tensor  # [P,3] of the images, over the batch's background
    alpha: Tensor  # [P] of the images
    rendering: "Rendering"  # opacity, depth, weights of the samples
    samples: RaySamples
    pixels: Tensor  # [P] int64, as Cameras.rays_through counts them
    field: "Field"


Loss = Callable[[LossInputs], Tensor]  # to a scalar, weighted


def names(config: LossConfig, extra: Mapping[str, Loss]) -> list[str]:
    """The names of terms(), in their order. Raises UserError where an extra loss has the name of another."""
    own = ["photometric", *(name for name in WEIGHTED if getattr(config, name) > 0)]
    taken = [name for name in extra if name in ("photometric", *WEIGHTED)]
    if taken:
        raise UserError(f"there is a loss '{taken[0]}' already; give yours another name.")
    return own + list(extra)


def terms(config: LossConfig, inputs: LossInputs, extra: Mapping[str, Loss] | None = None) -> dict[str, Tensor]:
    """Each loss of a batch by its name, times its weight; a loss whose weight is 0 is not computed."""
    found = {"photometric": photometric(inputs.rgb, inputs.target)}
    for name, loss in WEIGHTED.items():
        weight = getattr(config, name)
        if weight > 0:
            found[name] = weight * loss(inputs)
    return found | {name: loss(inputs) for name, loss in (extra or {}).items()}


def total(found: Mapping[str, Tensor]) -> Tensor:
    """What is minimised: the sum of the losses."""
    return functools.reduce(torch.add, found.values())


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


# The losses that have a weight in LossConfig, under its name. The error of opacity is what a color behind the scene
# that is drawn for each ray would add to the error of colors in the mean, by its variance.
WEIGHTED: dict[str, Loss] = {
    "structure": lambda inputs: structure(inputs.rgb, inputs.target),
    "opacity": lambda inputs: photometric(inputs.rendering.opacity, inputs.alpha),
    "opacity_entropy": lambda inputs: opacity_entropy(inputs.rendering.opacity),
    "distortion": lambda inputs: distortion(
        inputs.rendering.weights, inputs.samples, inputs.field.box.size.norm(), inputs.field.backend
    ),
}
