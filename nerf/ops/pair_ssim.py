"""pair_ssim: what SSIM says of contrast and structure of pairs of pixels."""

import torch
from torch import Tensor

from nerf.ops.registry import derivative, example, fake, numbers

_ops = torch.ops.nerf

SSIM_C2 = 0.03**2  # (k2 * data range)^2, as math/pair_ssim.h has it


def pair_ssim(rgb: Tensor, target: Tensor) -> Tensor:
    """Pairwise SSIM loss: 1 - contrast-structure term of SSIM (Wang et al. 2004, eqs. 9 and 10), of pairs of pixels.

    A pair is an SSIM window of two pixels. With the differences d (rendered) and d' (target) of its two pixels, the
    variances are d^2 / 2 and d'^2 / 2 and the covariance is d d' / 2, so the loss is
    1 - (d d' + C) / ((d^2 + d'^2) / 2 + C). At low contrast it is proportional to (d - d')^2. At high contrast it is
    normalized by the contrast, so faint and strong edges get similar weight.

    rgb, target [R,3]: pixel i and pixel R - R // 2 + i are a pair (RayBatches.paired); of an odd R the middle one has
    none. Returns [R // 2], sums over the three channels. Differentiable in both.
    """
    pairs = len(rgb) // 2
    d_pred, d_target = (x[:pairs] - x[len(x) - pairs :] for x in (rgb, target))
    dissimilarity = (d_pred - d_target).square() / (d_pred.square() + d_target.square() + 2 * SSIM_C2)
    return dissimilarity.sum(1)


@fake("pair_ssim")
def _(rgb, target):
    return rgb.new_empty(rgb.shape[0] // 2)


@fake("pair_ssim_backward")
def _(grad_loss, rgb, target):
    return rgb.new_empty(rgb.shape), rgb.new_empty(rgb.shape)


@derivative("pair_ssim", of=("rgb", "target"))
def _(ctx, grad_loss):
    return _ops.pair_ssim_backward(grad_loss, *ctx.saved_tensors)


@example("pair_ssim")
def _():
    return numbers(51, 3), numbers(51, 3, seed=1)
