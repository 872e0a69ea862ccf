"""The losses. Each is a scalar tensor.

Legend: R rays or pixels, P pixels of a batch, M samples.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nerf.cameras.rays import Rays
from nerf.config.schema import LossConfig
from nerf.errors import UserError
from nerf.rendering.samples import RaySamples
from nerf.training.multi_view import ViewsBeside

if TYPE_CHECKING:
    from nerf.fields.field import Field
    from nerf.rendering.render import Rendering


DEPTH_DELTA = 0.02  # relative error of depth from which it counts linearly
LEAST_DEPTH = 1e-12  # world units; what is nearer counts as not known: a division by it may overflow
LEAST_OPACITY = 0.01  # of a ray whose expected depth means something


@dataclass(frozen=True)
class LossInputs:
    """The inputs of a loss: P pixels of a batch, rendered and as ground truth."""

    rgb: Tensor  # [P,3] rendered; with exposure and vignetting, where these are learned
    target: Tensor  # [P,3] ground truth, composited over the batch's background
    alpha: Tensor  # [P] ground truth
    rendering: "Rendering"  # opacity, weights of the samples; depth for loss.depth and for losses of your own
    samples: RaySamples
    pixels: Tensor  # [P] int64, as Cameras.rays_through counts them
    field: "Field"
    depth: Tensor | None = None  # [P] ground truth, world distance along the ray, 0 = not known; None: no depth files
    beside: ViewsBeside | None = None  # the photos; None: no loss reads them
    rays: Rays | None = None  # of the pixels, where a loss reads the photos


Loss = Callable[[LossInputs], Tensor]  # returns a scalar; a loss of your own includes its weight


def names(config: LossConfig, extra: Mapping[str, Loss]) -> list[str]:
    """The names of terms(), in the same order. Raises UserError if an extra loss has the name of a built-in one."""
    own = ["photometric", *(name for name in WEIGHTED if getattr(config, name) > 0)]
    taken = [name for name in extra if name in ("photometric", *WEIGHTED)]
    if taken:
        raise UserError(f"there is a loss '{taken[0]}' already; give yours another name.")
    return own + list(extra)


def terms(config: LossConfig, inputs: LossInputs, extra: Mapping[str, Loss] | None = None) -> dict[str, Tensor]:
    """The weighted losses of a batch by name. A loss with weight 0 is not computed."""
    found = {"photometric": photometric(inputs.rgb, inputs.target)}
    for name, loss in WEIGHTED.items():
        weight = getattr(config, name)
        if weight > 0:
            found[name] = weight * loss(inputs)
    return found | {name: loss(inputs) for name, loss in (extra or {}).items()}


def total(found: Mapping[str, Tensor]) -> Tensor:
    """The training objective: the sum of the losses."""
    return functools.reduce(torch.add, found.values())


def photometric(rgb: Tensor, target: Tensor) -> Tensor:
    """Mean squared error of colors [R,3], for which PSNR = -10 log10(MSE), or of opacity [R]."""
    return torch.nn.functional.mse_loss(rgb, target)


def pair_ssim(rgb: Tensor, target: Tensor, ops: ModuleType) -> Tensor:
    """Mean pairwise SSIM loss over pixel pairs and channels (nerf/ops/pair_ssim.py); 0 without a pair.

    rgb, target [R,3]: pixel i and pixel R - R // 2 + i are a pair of neighboring pixels (RayBatches.paired).
    ops: a backend's operations.
    """
    of_pairs = ops.pair_ssim(rgb, target)
    return of_pairs.sum() / max(3 * len(of_pairs), 1)


def opacity_entropy(opacity: Tensor) -> Tensor:
    """Mean binary entropy of the rays' opacity [R]; small if every ray is opaque or clear (Sun et al. 2022, eq. 12)."""
    p = opacity.clamp(1e-6, 1 - 1e-6)
    return -(p * p.log() + (1 - p) * (1 - p).log()).mean()


def distortion(of_rays: Tensor, unit: Tensor | float) -> Tensor:
    """Mean distortion loss of rays (Barron et al. 2022, eq. 15), each in of_rays [R]; small if a ray hits one thin
    surface.

    unit []: the length that counts as 1, in world units. With the diagonal of the scene box as unit, the loss does not
    change when the whole scene is scaled.
    """
    return of_rays.mean() / unit


def depth_error(depth: Tensor, opacity: Tensor, known: Tensor) -> Tensor:
    """Mean robust error of expected depth: Huber's loss of (expected - known) / known, over the pixels that are known.

    depth, opacity [P] as Rendering has them; known [P], 0 = not known. Expected depth is depth / opacity. Errors beyond
    DEPTH_DELTA count linearly, so a few wrong values of a depth file do not bend the surfaces.
    """
    there = known > LEAST_DEPTH
    expected = depth / opacity.clamp(min=LEAST_OPACITY)
    relative = (expected - known) / torch.where(there, known, 1.0)
    loss = torch.nn.functional.huber_loss(relative, torch.zeros_like(relative), reduction="none", delta=DEPTH_DELTA)
    return torch.where(there, loss, 0.0).sum() / (DEPTH_DELTA * there.sum().clamp(min=1))


def multi_view(inputs: LossInputs) -> Tensor:
    """How much the photos disagree at the rendered depths (nerf/training/multi_view.py)."""
    depth, opacity = inputs.rendering.depth, inputs.rendering.opacity
    return inputs.beside.disagreement(inputs.pixels, inputs.rays, depth, opacity, inputs.field.backend.ops)


# The losses whose weight is a setting of LossConfig, by that setting's name. "opacity" compares opacity with the
# image's alpha: in expectation the penalty that a random background per ray adds to the photometric loss, without its
# noise.
WEIGHTED: dict[str, Loss] = {
    "pair_ssim": lambda inputs: pair_ssim(inputs.rgb, inputs.target, inputs.field.backend.ops),
    "alpha": lambda inputs: photometric(inputs.rendering.opacity, inputs.alpha),
    "opacity_entropy": lambda inputs: opacity_entropy(inputs.rendering.opacity),
    "distortion": lambda inputs: distortion(inputs.rendering.distortion, inputs.field.box_diagonal),
    "depth": lambda inputs: depth_error(inputs.rendering.depth, inputs.rendering.opacity, inputs.depth),
    "multi_view": multi_view,
}
