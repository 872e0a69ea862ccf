"""Pictures of results: PNG files, depth and error in false colour, contact sheets, and videos.

An image is a float tensor [H,W,3] with values in [0, 1], on any device; it is rounded to 8 bits only when it
is written. Files appear whole or not at all: they are written under a temporary name and then renamed, so a
reader never meets half a file and an interrupted run leaves the older one in place.
"""

import errno
import io
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from nerf.files import replacing
from nerf.metrics import IMAGE, MIN_OPACITY, check_float

# Dark blue over teal to yellow, in sRGB. Lightness rises in equal steps of OKLab, so equal differences of the
# value look equally large and the order survives a grey print.
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

SHEET_GAP = 4  # pixels between neighbouring cells
CAPTION_HEIGHT = 16  # pixels
CAPTION_INSET = 2  # pixels from the upper left corner of the strip to the text

VIDEO_QUALITY = 8  # imageio's scale from 0 to 10


def save_png(path: str | Path, image: Tensor) -> None:
    """Write image, float [H,W,3] or [H,W] (grey), as an 8-bit PNG; missing folders are created.

    Values are clamped to [0, 1] and NaN is written as 0. Raises ValueError for another shape or dtype, and UserError
    where path cannot be written.
    """
    check_float("image", image, (None, None) if image.dim() == 2 else IMAGE)
    with replacing(Path(path)) as partial:
        Image.fromarray(_to_bytes(image)).save(partial, format="PNG")


def save_floats(path: str | Path, values: Tensor) -> None:
    """Write a float tensor of any shape as a .npy file (NumPy's format), float32; missing folders are created.

    Raises ValueError for another dtype and UserError where path cannot be written.
    """
    check_float("values", values, (None,) * values.dim())
    content = io.BytesIO()  # given a file, NumPy would write it past Python and not say what went wrong
    np.save(content, values.detach().float().cpu().numpy())
    with replacing(Path(path)) as partial:
        partial.write_bytes(content.getbuffer())


def color_depth(depth: Tensor, opacity: Tensor, near: float, far: float) -> Tensor:
    """Depth in false colour, float [H,W,3]: near is dark blue, far is yellow, and empty space is white.

    depth is the opacity-weighted distance of volume rendering, so depth / opacity gives the colour and
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
    """Normals as a picture, float [H,W,3]: (n + 1) / 2, so red is world x, green y and blue z; empty space is white.

    normals: float [H,W,3], unit or zero; opacity: float [H,W]. Raises ValueError for other shapes or dtypes.
    """
    check_float("normals", normals, IMAGE)
    check_float("opacity", opacity, normals.shape[:2])
    coverage = opacity.clamp(0, 1)[..., None]
    return coverage * (0.5 * normals + 0.5) + (1 - coverage)


def color_error(image: Tensor, truth: Tensor, full_scale: float = 0.2) -> Tensor:
    """Mean absolute difference over the channels in false colour, float [H,W,3].

    No error is dark blue; full_scale (in image values) and above are yellow.
    image, truth: float [H,W,3]. Raises ValueError for other shapes or dtypes.
    """
    check_float("truth", truth, IMAGE)
    check_float("image", image, truth.shape)
    return _apply_ramp((image - truth).abs().mean(dim=-1) / full_scale)


def contact_sheet(
    rows: Sequence[Sequence[Tensor]], captions: Sequence[str] = ("truth", "render", "depth", "error")
) -> Tensor:
    """Rows of images side by side under one line of captions, with thin white gaps between them.

    rows: one list per view with one float image [H,W,3] per caption, all of one size.
    Returns a CPU float32 image [16 + B * H + 4 * (B - 1), K * W + 4 * (K - 1), 3], B rows and K captions.
    Raises ValueError if there are no rows or captions, a row has the wrong length, or an image the wrong
    shape or dtype.
    """
    if not rows or not captions:
        raise ValueError(f"rows, captions: found {len(rows)} and {len(captions)}, expected at least one")
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
    return torch.cat([strip, _join(bands, dim=0)], dim=0)


def shrunk(image: Tensor, side: int) -> Tensor:
    """An image, float [H,W,3], by a whole factor so small that neither side is longer than so many pixels.

    Pixels are means over what they cover; an image that is small enough stays as it is.
    """
    factor = -(-max(image.shape[:2]) // side)
    if factor == 1:
        return image
    small = torch.nn.functional.avg_pool2d(image.permute(2, 0, 1), factor, ceil_mode=True, count_include_pad=False)
    return small.permute(1, 2, 0)


def framed(image: Tensor, width: int, height: int) -> Tensor:
    """An image, float [H,W,3], in the middle of a white one [height,width,3] at least as large."""
    left, top = (width - image.shape[1]) // 2, (height - image.shape[0]) // 2
    margins = (0, 0, left, width - image.shape[1] - left, top, height - image.shape[0] - top)
    return torch.nn.functional.pad(image, margins, value=1.0)


def write_video(path: str | Path, frames: Iterable[Tensor], fps: float = 30) -> None:
    """Write frames, float [H,W,3] of one size, as H.264 video (MP4 for a path that ends in .mp4).

    Frames are taken one by one, so a generator may render them on the way. Where H or W is odd, the last row
    or column is repeated: yuv420p, the one pixel format that every player reads, stores colour at half the
    resolution. Missing folders are created.

    Raises RuntimeError if imageio-ffmpeg is missing, ValueError if there are no frames, one is not a float
    image, or sizes differ, and UserError where path cannot be written.
    """
    try:
        import imageio_ffmpeg  # noqa: F401  (asked for before the first frame is rendered)
    except ImportError as error:
        raise RuntimeError("writing a video needs imageio-ffmpeg: pip install imageio-ffmpeg") from error

    remaining = iter(frames)
    first = next(remaining, None)
    if first is None:
        raise ValueError("frames: found none, expected at least one")
    check_float("frame 0", first, IMAGE)
    # By default imageio would scale frames to multiples of 16 pixels.
    encoding = dict(codec="libx264", pixelformat="yuv420p", quality=VIDEO_QUALITY, macro_block_size=1)
    with replacing(Path(path)) as partial:
        count = 1
        # closing() because an imageio writer's own context leaves ffmpeg running after an exception.
        with closing(imageio.get_writer(partial, format="FFMPEG", mode="I", fps=fps, **encoding)) as writer:
            writer.append_data(_pad_to_even(_to_bytes(first)))
            for count, frame in enumerate(remaining, start=2):
                check_float(f"frame {count - 1}", frame, first.shape)
                writer.append_data(_pad_to_even(_to_bytes(frame)))
        _check_video(partial, count)


def _check_video(path: Path, frames: int) -> None:
    """Raises OSError unless the video holds so many frames: imageio does not hear when ffmpeg fails at its end."""
    import imageio_ffmpeg

    try:
        found, _ = imageio_ffmpeg.count_frames_and_secs(str(path))
    except RuntimeError as error:  # what imageio-ffmpeg makes of a file that it cannot read
        raise OSError(errno.EIO, "the encoder left a damaged video, as on a full disk") from error
    if found != frames:
        raise OSError(errno.EIO, f"the encoder stored {found} of {frames} frames, as on a full disk")


def _apply_ramp(values: Tensor) -> Tensor:
    """RAMP at values [H,W], clamped to [0, 1], as [H,W,3]. NaN takes the yellow end, where it is seen."""
    table = values.new_tensor(RAMP)
    position = values.nan_to_num(nan=1.0).clamp(0, 1) * (len(RAMP) - 1)
    lower = position.long().clamp(max=len(RAMP) - 2)
    return torch.lerp(table[lower], table[lower + 1], (position - lower)[..., None])


def _to_bytes(image: Tensor) -> np.ndarray:
    """Values in [0, 1] rounded to the nearest of 256 levels, uint8 of the same shape."""
    levels = image.detach().float().nan_to_num(nan=0.0).clamp(0, 1) * 255 + 0.5
    return levels.to(torch.uint8).cpu().numpy()


def _pad_to_even(frame: np.ndarray) -> np.ndarray:
    height, width, _ = frame.shape
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")


def _join(images: Sequence[Tensor], dim: int) -> Tensor:
    """The images one after the other along dim (0 or 1) with a white gap between neighbours."""
    gap_shape = list(images[0].shape)
    gap_shape[dim] = SHEET_GAP
    gap = torch.ones(gap_shape)
    return torch.cat([piece for image in images for piece in (gap, image)][1:], dim=dim)


def _draw_caption(text: str, width: int) -> Tensor:
    """Black text on a white strip [16,width,3]; text that is too long is cut off."""
    strip = Image.new("RGB", (width, CAPTION_HEIGHT), "white")
    ImageDraw.Draw(strip).text((CAPTION_INSET, CAPTION_INSET), text, fill="black")
    return torch.from_numpy(np.array(strip)).float() / 255
