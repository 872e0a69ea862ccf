"""The losses. Each is a scalar tensor.

Legend: R rays or pixels, P pixels of a batch, M samples.
"""

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
    from nerf.rendering.render import Composited, Rendering


DEPTH_DELTA = 0.02  # relative error of depth from which it counts linearly
LEAST_DEPTH = 1e-12  # world units; what is nearer counts as not known: a division by it may overflow
LEAST_OPACITY = 0.01  # of a ray whose expected depth means something


@dataclass(frozen=True, kw_only=True)
class GeometryInputs:
    """The inputs of a loss that does not read colors: P pixels of a batch, as they are and as ground truth."""

    alpha: Tensor  # [P] ground truth
    seen: "Composited"  # opacity, depth and distortion, where a loss of the config reads them
    samples: RaySamples
    pixels: Tensor  # [P] int64, as Cameras.rays_through counts them
    field: "Field"
    depth: Tensor | None = None  # [P] ground truth, world distance along the ray, 0 = not known; None: no depth files
    beside: ViewsBeside | None = None  # the photos; None: no loss reads them
    rays: Rays | None = None  # of the pixels, where a loss reads the photos


@dataclass(frozen=True, kw_only=True)
class LossInputs(GeometryInputs):
    """The inputs of any other loss."""

    target: Tensor  # [P,3] ground truth, composited over the batch's background
    rgb: Tensor  # [P,3] rendered; with exposure and vignetting, where these are learned
    rendering: "Rendering"  # opacity, weights of the samples; depth for loss.depth and for losses of your own


Loss = Callable[[LossInputs], Tensor]  # returns a scalar; a loss of your own includes its weight


class Objective:
    """The weighted sum of a batch's losses, which training minimizes."""

    def __init__(
        self, config: LossConfig, device: torch.device | str = "cpu", extra: Mapping[str, Loss] | None = None
    ) -> None:
        """extra: losses of your own, by name. Raises UserError if one has the name of a built-in loss."""
        built_in = {"photometric": 1.0, **{name: getattr(config, name) for name in (*OF_COLORS, *OF_GEOMETRY)}}
        taken = [name for name in extra or {} if name in built_in]
        if taken:
            raise UserError(f"there is a loss '{taken[0]}' already; give yours another name.")
        weights = {name: weight for name, weight in built_in.items() if weight > 0} | dict.fromkeys(extra or {}, 1.0)
        self.names = list(weights)
        self._weights = torch.tensor(list(weights.values()), device=device)  # [n]

    def terms(self, found: Mapping[str, Tensor]) -> Tensor:
        """The losses of a batch with their weights, [n] in the order of names. Without a gradient."""
        return torch.stack([found[name].detach().to(self._weights.dtype) for name in self.names]) * self._weights

    def backward(self, found: Mapping[str, Tensor], ranks: int = 1) -> None:
        """Adds the gradients of the sum, of which each of several ranks takes its share.

        The gradient with respect to a loss is its weight, so nothing has to be multiplied and added up first.
        """
        weights = self._weights if ranks == 1 else self._weights / ranks
        named = zip(self.names, weights.unbind(), strict=True)
        learned = [(found[name], weight) for name, weight in named if found[name].requires_grad]  # constants have none
        torch.autograd.backward(*zip(*learned, strict=True))


def of_geometry(config: LossConfig, inputs: GeometryInputs) -> dict[str, Tensor]:
    """The losses that read no color, by name, before their weights. A loss with weight 0 is not computed."""
    return {name: loss(inputs) for name, loss in OF_GEOMETRY.items() if getattr(config, name) > 0}


def of_colors(config: LossConfig, inputs: LossInputs, extra: Mapping[str, Loss] | None = None) -> dict[str, Tensor]:
    """All others, likewise."""
    found = {"photometric": photometric(inputs.rgb, inputs.target)}
    found |= {name: loss(inputs) for name, loss in OF_COLORS.items() if getattr(config, name) > 0}
    return found | {name: loss(inputs) for name, loss in (extra or {}).items()}


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


def multi_view(inputs: GeometryInputs) -> Tensor:
    """How much the photos disagree at the rendered depths (nerf/training/multi_view.py)."""
    depth, opacity = inputs.seen.depth, inputs.seen.opacity
    return inputs.beside.disagreement(inputs.pixels, inputs.rays, depth, opacity, inputs.field.backend.ops)


# The losses whose weight is a setting of LossConfig, by that setting's name. "alpha" compares opacity with the image's:
# in expectation the penalty that a random background per ray adds to the photometric loss, without its noise. The first
# are computed while pixels are shaded.
OF_GEOMETRY: dict[str, Callable[[GeometryInputs], Tensor]] = {
    "alpha": lambda inputs: photometric(inputs.seen.opacity, inputs.alpha),
    "opacity_entropy": lambda inputs: opacity_entropy(inputs.seen.opacity),
    "distortion": lambda inputs: distortion(inputs.seen.distortion, inputs.field.box_diagonal),
    "depth": lambda inputs: depth_error(inputs.seen.depth, inputs.seen.opacity, inputs.depth),
    "multi_view": multi_view,
}
OF_COLORS: dict[str, Loss] = {
    "pair_ssim": lambda inputs: pair_ssim(inputs.rgb, inputs.target, inputs.field.backend.ops),
}
