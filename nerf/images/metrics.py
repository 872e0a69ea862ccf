"""Scores of a rendered view against its ground truth: PSNR, SSIM, median depth error.

Images are clamped to [0, 1] first, as for display; the data range is 1. Everything is computed in float64. On a GPU,
float32 convolutions may run in TF32, whose ten-bit mantissa is too short for the differences of squares in SSIM's
variances.
"""

import math
from collections.abc import Sequence
from typing import TypedDict

import torch
from torch import Tensor
from torch.nn.functional import conv2d, max_pool2d

from nerf.ops.pair_ssim import SSIM_C2
from nerf.ops.world_depth import MIN_OPACITY as MIN_OPACITY

Shape = tuple[int | None, ...]  # None stands for any size

IMAGE: Shape = (None, None, 3)

SSIM_WINDOW = 11  # pixels
SSIM_SIGMA = 1.5  # pixels
SSIM_C1 = 0.01**2  # (k1 * data range)^2
SSIM_BAND = 1 << 20  # pixels at a time: about 0.5 GB in float64, however large the image


class Summary(TypedDict):
    """One score over a set of views."""

    mean: float
    per_view: list[float]


def mse_to_psnr(mse: float) -> float:
    """Peak signal-to-noise ratio in dB for data range 1: -10 log10(mse); infinite for mse 0, NaN for NaN.

    Raises ValueError if mse is negative.
    """
    if mse < 0:
        raise ValueError(f"mse: found {mse}, expected a value >= 0")
    return math.inf if mse == 0 else -10 * math.log10(mse)


def psnr(image: Tensor, target: Tensor, valid: Tensor | None = None) -> float:
    """PSNR in dB of image against target, both float [H,W,3].

    valid: [H,W] bool, the pixels that enter the mean; None: all. NaN if there are none.
    Raises ValueError if the shapes differ or either is not a float image.
    """
    image, target = _as_shown(image, target)
    squares = (image - target).square()
    return mse_to_psnr((squares if valid is None else squares[valid]).mean().item())


def ssim_window(height: int, width: int) -> int:
    """Side of SSIM's window for an image size, in pixels: 11, or the largest odd number that fits into the image."""
    fits = min(height, width, SSIM_WINDOW)
    return fits if fits % 2 else fits - 1


@torch.no_grad()
def ssim(image: Tensor, target: Tensor, valid: Tensor | None = None, window: int = SSIM_WINDOW) -> float:
    """Mean structural similarity of image and target, both float [H,W,3]; 1 for identical images.

    Equation 13 of Wang et al., "Image Quality Assessment: From Error Visibility to Structural Similarity"
    (2004), per color channel, with their 11x11 Gaussian window (sigma 1.5), k1 = 0.01 and k2 = 0.03. As
    there, only windows that lie wholly inside the image count, so no padding enters the score.

    valid: [H,W] bool, the valid pixels; None: all. Only windows of valid pixels enter the mean; NaN if there are none.
    window: its side in pixels, odd; scores of different windows are not comparable.
    Raises ValueError if the shapes differ, if either is not a float image, or if the window does not fit.
    """
    check_float("target", target, IMAGE)
    check_float("image", image, target.shape)
    height, width = image.shape[:2]
    if min(height, width) < window:
        raise ValueError(f"image: found {list(image.shape)}, expected at least {window} pixels in height and width")
    windows, at_a_time = height - window + 1, max(1, SSIM_BAND // width)
    total, count = 0.0, 0
    for first in range(0, windows, at_a_time):
        band = slice(first, min(first + at_a_time, windows) + window - 1)
        similarity = _similarity(*_as_shown(image[band], target[band]), window)
        if valid is not None:
            invalid = max_pool2d((~valid[band]).to(similarity)[None], window, stride=1)[0] > 0
            similarity = similarity[:, ~invalid]
        total, count = total + similarity.sum().item(), count + similarity.numel()
    return total / count if count else math.nan


def _similarity(image: Tensor, target: Tensor, window: int) -> Tensor:
    """SSIM of each K x K window, [3,H-K+1,W-K+1], of float64 images [H,W,3] in [0, 1]."""
    x, y = image.permute(2, 0, 1), target.permute(2, 0, 1)
    mean_x, mean_y, mean_xx, mean_yy, mean_xy = _window_means(torch.stack([x, y, x * x, y * y, x * y]), window)
    variance_x = mean_xx - mean_x.square()
    variance_y = mean_yy - mean_y.square()
    covariance = mean_xy - mean_x * mean_y
    luminance = (2 * mean_x * mean_y + SSIM_C1) / (mean_x.square() + mean_y.square() + SSIM_C1)
    contrast_structure = (2 * covariance + SSIM_C2) / (variance_x + variance_y + SSIM_C2)
    return luminance * contrast_structure


def median_depth_error(depth: Tensor, target: Tensor, opacity: Tensor) -> float:
    """Median over the pixels with target > 0 of |depth / opacity - target|, in world units.

    depth is the opacity-weighted distance that volume rendering accumulates, so depth / opacity is the
    expected distance. An empty pixel has distance 0, so a hole in a surface counts with its full distance. For an even
    number of pixels it is the lower of the two middle errors; NaN if no pixel has target > 0.

    depth, target, opacity: float [H,W]; both distances are measured along the ray.
    Raises ValueError if one of them is not float [H,W] or the shapes differ.
    """
    check_float("target", target, (None, None))
    check_float("depth", depth, target.shape)
    check_float("opacity", opacity, target.shape)
    hit = target > 0
    expected_distance = depth[hit].double() / opacity[hit].double().clamp(min=MIN_OPACITY)
    errors = (expected_distance - target[hit].double()).abs()
    return errors.median().item() if len(errors) else math.nan


def summarize(values: Sequence[float]) -> Summary:
    """The mean of a score over the views that have one, and the values per view.

    The PSNR of a test set is the mean of the PSNRs of its views, not the PSNR of their mean squared error. A view that
    has no value, NaN, as one whose mask leaves nothing, does not count. Raises ValueError if there are no values.
    """
    if not values:
        raise ValueError("values: found none, expected one per view")
    return Summary(mean=mean_of_known(values), per_view=list(values))


def mean_of_known(values: Sequence[float]) -> float:
    """The mean of the values that are not NaN; NaN if there is none."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def check_float(name: str, value: Tensor, expected: Shape) -> None:
    """Raises ValueError, naming found and expected shape, unless value is a float tensor of the expected shape."""
    fits = len(value.shape) == len(expected) and all(
        size is None or size == found for found, size in zip(value.shape, expected)
    )
    if not (fits and value.is_floating_point()):
        sizes = ", ".join("any" if size is None else str(size) for size in expected)
        raise ValueError(f"{name}: found {value.dtype} {list(value.shape)}, expected float [{sizes}]")


def _as_shown(image: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The checked pair in float64, clamped to [0, 1]."""
    check_float("target", target, IMAGE)
    check_float("image", image, target.shape)
    return image.double().clamp(0, 1), target.double().clamp(0, 1)


def _window_means(maps: Tensor, window: int) -> Tensor:
    """Gaussian-weighted means [M,C,H-K+1,W-K+1] of the float64 maps [M,C,H,W], K = window: columns first, then rows."""
    offset = torch.arange(window, dtype=maps.dtype, device=maps.device) - window // 2
    weights = torch.exp(-0.5 * (offset / SSIM_SIGMA).square())
    channels = maps.shape[1]
    kernel = (weights / weights.sum()).expand(channels, 1, window)
    along_columns = conv2d(maps, kernel[:, :, :, None], groups=channels)
    return conv2d(along_columns, kernel[:, :, None, :], groups=channels)
