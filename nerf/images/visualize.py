"""Visualization: depth, normals and error in false color, contact sheets.

An image is a float tensor [H,W,3] with values in [0, 1], on any device.
"""

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from nerf.images.metrics import IMAGE, MIN_OPACITY, check_float

# Dark blue over teal to yellow, in sRGB. Lightness rises in equal steps of OKLab, so equal differences of the
# value look equally large and the order survives a gray print.
RAMP = (
    (0.130, 0.110, 0.360),
    (0.107, 0.231, 0.432),
    (0.085, 0.343, 0.489),
    (0.129, 0.452, 0.531),
    (0.244, 0.556, 0.554),
    (0.394, 0.656, 0.554),
    (0.571, 0.748, 0.525),
    (0.770, 0.830, 0.455),
    (0.990, 0.900, 0.300),
)
UNSEEN = 0.5  # gray, where there is nothing to compare with
FULL_SPREAD = 0.1  # in image values
SHEET_GAP = 4  # pixels between neighboring cells
CAPTION_HEIGHT = 16  # pixels
CAPTION_INSET = 2  # pixels from the upper left corner of the strip to the text


def color_depth(depth: Tensor, opacity: Tensor, near: float, far: float) -> Tensor:
    """Depth in false color, float [H,W,3]: near is dark blue, far is yellow, and empty space is white.

    depth is the opacity-weighted distance of volume rendering, so depth / opacity gives the color and
    opacity blends it over white. Ground truth comes with an opacity of 1 where it hits and 0 elsewhere.

    depth, opacity: float [H,W]; near, far: world units.
    Raises ValueError for other shapes or dtypes and unless near < far.
    """
    check_float("depth", depth, (None, None))
    check_float("opacity", opacity, depth.shape)
    if not near < far:
        raise ValueError(f"near, far: found {near}, {far}, expected near < far")
    distance = depth / opacity.clamp(min=MIN_OPACITY)
    coverage = opacity.clamp(0, 1)[..., None]
    return coverage * _apply_ramp((distance - near) / (far - near)) + (1 - coverage)


def color_normals(normals: Tensor, opacity: Tensor) -> Tensor:
    """Normals as colors, float [H,W,3]: (n + 1) / 2, so red is world x, green y and blue z; empty space is white.

    normals: float [H,W,3], unit or zero; opacity: float [H,W]. Raises ValueError for other shapes or dtypes.
    """
    check_float("normals", normals, IMAGE)
    check_float("opacity", opacity, normals.shape[:2])
    coverage = opacity.clamp(0, 1)[..., None]
    return coverage * (0.5 * normals + 0.5) + (1 - coverage)


def color_error(image: Tensor, target: Tensor, full_scale: float = 0.2, valid: Tensor | None = None) -> Tensor:
    """Mean absolute difference over the channels in false color, float [H,W,3].

    No error is dark blue; full_scale (in image values) and above are yellow. What a mask leaves out is gray.
    image, target: float [H,W,3]; valid: bool [H,W], which pixels count, None: all.
    Raises ValueError for other shapes or dtypes.
    """
    check_float("target", target, IMAGE)
    check_float("image", image, target.shape)
    error = _apply_ramp((image - target).abs().mean(dim=-1) / full_scale)
    if valid is None:
        return error
    if valid.shape != target.shape[:2] or valid.dtype != torch.bool:
        expected = list(target.shape[:2])
        raise ValueError(f"valid: found {valid.dtype} {list(valid.shape)}, expected torch.bool {expected}")
    return torch.where(valid.to(error.device)[..., None], error, UNSEEN)


def color_spread(spread: Tensor) -> Tensor:
    """Standard deviation of the colors of several pictures in false color, float [H,W,3].

    No spread is dark blue; FULL_SPREAD and above are yellow.
    spread: float [H,W]. Raises ValueError for another shape or dtype.
    """
    check_float("spread", spread, (None, None))
    return _apply_ramp(spread / FULL_SPREAD)


def contact_sheet(
    rows: Sequence[Sequence[Tensor]],
    captions: Sequence[str] = ("truth", "render", "depth", "error"),
    names: Sequence[str] | None = None,
) -> Tensor:
    """Rows of images side by side under one line of captions, with thin white gaps between them.

    rows: one list per view with one float image [H,W,3] per caption, all of one size. names: of the views, one per
    row, written in a line of 16 pixels above each row; None: no such lines.
    Returns a CPU float32 image [16 + B * H + 4 * (B - 1), K * W + 4 * (K - 1), 3], B rows and K captions, where H
    includes the line of the name. Raises ValueError if there are no rows or captions, a row or names have the wrong
    length, or an image the wrong shape or dtype.
    """
    if not rows or not captions:
        raise ValueError(f"rows, captions: found {len(rows)} and {len(captions)}, expected at least one")
    if names is not None and len(names) != len(rows):
        raise ValueError(f"names: found {len(names)}, expected one for each of {len(rows)} rows")
    shape = IMAGE
    for number, row in enumerate(rows):
        if len(row) != len(captions):
            raise ValueError(f"row {number}: found {len(row)} images, expected {len(captions)} as captions")
        for image, caption in zip(row, captions):
            check_float(f"{caption} of row {number}", image, shape)
            shape = image.shape  # the first image sets the size for all

    _, width, _ = shape
    strip = _join([_draw_caption(caption, width) for caption in captions], dim=1)
    bands = [_join([image.detach().float().cpu() for image in row], dim=1) for row in rows]
    if names is not None:
        bands = [torch.cat([_draw_caption(name, band.shape[1]), band]) for name, band in zip(names, bands)]
    return torch.cat([strip, _join(bands, dim=0)], dim=0)


def shrunk(image: Tensor, side: int) -> Tensor:
    """An image, float [H,W,3], reduced by an integer factor so that no side is longer than `side` pixels.

    Pixels are area means. An image that is small enough is returned unchanged.
    """
    factor = -(-max(image.shape[:2]) // side)
    if factor == 1:
        return image
    small = torch.nn.functional.avg_pool2d(image.permute(2, 0, 1), factor, ceil_mode=True, count_include_pad=False)
    return small.permute(1, 2, 0)


def framed(image: Tensor, width: int, height: int) -> Tensor:
    """An image, float [H,W,3], centered on a white image [height,width,3] that is at least as large."""
    left, top = (width - image.shape[1]) // 2, (height - image.shape[0]) // 2
    margins = (0, 0, left, width - image.shape[1] - left, top, height - image.shape[0] - top)
    return torch.nn.functional.pad(image, margins, value=1.0)


def _apply_ramp(values: Tensor) -> Tensor:
    """RAMP at values [H,W], clamped to [0, 1], as [H,W,3]. NaN becomes yellow, so that it is visible."""
    table = values.new_tensor(RAMP)
    position = values.nan_to_num(nan=1.0).clamp(0, 1) * (len(RAMP) - 1)
    lower = position.long().clamp(max=len(RAMP) - 2)
    return torch.lerp(table[lower], table[lower + 1], (position - lower)[..., None])


def _join(images: Sequence[Tensor], dim: int) -> Tensor:
    """The images one after the other along dim (0 or 1) with a white gap between neighbors."""
    gap_shape = list(images[0].shape)
    gap_shape[dim] = SHEET_GAP
    gap = torch.ones(gap_shape)
    return torch.cat([piece for image in images for piece in (gap, image)][1:], dim=dim)


def _draw_caption(text: str, width: int) -> Tensor:
    """Black text on a white strip [16,width,3]; long text is cut off."""
    strip = Image.new("RGB", (width, CAPTION_HEIGHT), "white")
    ImageDraw.Draw(strip).text((CAPTION_INSET, CAPTION_INSET), text, fill="black")
    return torch.from_numpy(np.array(strip)).float() / 255
