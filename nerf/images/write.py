"""Image files: PNG, NPY and videos; JPEG inside of a page.

An image is a float tensor [H,W,3] with values in [0, 1], on any device; it is rounded to 8 bits only when it is
written. Files are written under a temporary name and then renamed: a reader never sees a partial file, and an
interrupted write leaves the previous file.
"""

import base64
import errno
import io
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import torch
from PIL import Image
from torch import Tensor

from nerf.errors import UserError
from nerf.files import replacing
from nerf.images.metrics import IMAGE, check_float

VIDEO_QUALITY = 8  # imageio's scale from 0 to 10


def save_png(path: str | Path, image: Tensor) -> None:
    """Write image, float [H,W,3] or [H,W] (gray), as an 8-bit PNG; missing folders are created.

    Values are clamped to [0, 1] and NaN is written as 0. Raises ValueError for another shape or dtype, and UserError
    where path cannot be written.
    """
    check_float("image", image, (None, None) if image.dim() == 2 else IMAGE)
    content = io.BytesIO()
    try:
        Image.fromarray(_to_bytes(image)).save(content, format="PNG")
    except OSError as error:  # the encoder got no memory, and has no better word for it
        raise MemoryError(f"out of memory while {path} was encoded: {error}") from error
    with replacing(Path(path)) as partial:
        partial.write_bytes(content.getbuffer())


def save_floats(path: str | Path, values: Tensor) -> None:
    """Write a float tensor of any shape as a .npy file (NumPy's format), float32; missing folders are created.

    Raises ValueError for another dtype and UserError where path cannot be written.
    """
    check_float("values", values, (None,) * values.dim())
    content = io.BytesIO()  # writing to a file directly, NumPy would hide the reason of an error
    np.save(content, values.detach().float().cpu().numpy())
    with replacing(Path(path)) as partial:
        partial.write_bytes(content.getbuffer())


def write_video(path: str | Path, frames: Iterable[Tensor], fps: float = 30) -> None:
    """Write frames, float [H,W,3] of one size, as H.264 video (MP4 for a path that ends in .mp4).

    Frames are consumed one by one, so a generator may render them. If H or W is odd, the last row or column is
    repeated, because yuv420p, the pixel format that every player supports, stores color at half the resolution.
    Missing folders are created.

    Raises ValueError if there are no frames, one is not a float image, or sizes differ, and UserError if
    imageio-ffmpeg is missing or path cannot be written.
    """
    check_encoder()

    remaining = iter(frames)
    first = next(remaining, None)
    if first is None:
        raise ValueError("frames: found none, expected at least one")
    check_float("frame 0", first, IMAGE)
    # By default imageio would scale frames to multiples of 16 pixels.
    encoding = dict(codec="libx264", pixelformat="yuv420p", quality=VIDEO_QUALITY, macro_block_size=1)
    with replacing(Path(path)) as partial:
        count = 1
        video = partial.absolute()  # in a relative path, ffmpeg takes text before a colon for a protocol
        try:
            # closing() because an imageio writer's own context leaves ffmpeg running after an exception.
            with closing(imageio.get_writer(video, format="FFMPEG", mode="I", fps=fps, **encoding)) as writer:
                writer.append_data(_pad_to_even(_to_bytes(first)))
                for count, frame in enumerate(remaining, start=2):
                    check_float(f"frame {count - 1}", frame, first.shape)
                    writer.append_data(_pad_to_even(_to_bytes(frame)))
        except OSError as error:
            if "Broken pipe" not in str(error):
                raise
            reason = "the encoder ffmpeg ended early, as on a full disk or without memory"
            raise OSError(errno.EPIPE, reason) from error
        _check_video(video, count)


def jpeg_data_uri(picture: Image.Image, side: int, quality: int) -> str:
    """A picture as a data: URI, for an HTML page that needs no other files: a JPEG in RGB.

    side: pixels; where the picture's longer side has more, it is scaled down to that. quality: of JPEG, 1 to 95.
    """
    small = picture.convert("RGB")
    small.thumbnail((side, side))
    content = io.BytesIO()
    small.save(content, "JPEG", quality=quality)
    return f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()}"


def check_encoder() -> None:
    """Raises UserError if there is no encoder of videos; asked for before the first frame is rendered."""
    try:
        import imageio_ffmpeg

        imageio_ffmpeg.get_ffmpeg_exe()
    except ImportError as error:
        raise UserError(
            "imageio-ffmpeg is missing, expected for writing videos; get it with: pip install imageio-ffmpeg."
        ) from error
    except RuntimeError as error:  # a package without its program, as where pip built it from source
        raise UserError(
            "imageio-ffmpeg finds no program ffmpeg, expected for writing videos; install ffmpeg, or set the "
            "environment variable IMAGEIO_FFMPEG_EXE to one."
        ) from error


def _check_video(path: Path, frames: int) -> None:
    """Raises OSError unless the video has this many frames: imageio does not notice if ffmpeg fails at the end."""
    import imageio_ffmpeg

    try:
        found, _ = imageio_ffmpeg.count_frames_and_secs(str(path))
    except RuntimeError as error:  # what imageio-ffmpeg makes of a file that it cannot read
        raise OSError(errno.EIO, "the encoder left a damaged video, as on a full disk") from error
    if found != frames:
        raise OSError(errno.EIO, f"the encoder stored {found} of {frames} frames, as on a full disk")


def _to_bytes(image: Tensor) -> np.ndarray:
    """Values in [0, 1] rounded to the nearest of 256 levels, uint8 of the same shape."""
    levels = image.detach().float().nan_to_num(nan=0.0).clamp(0, 1) * 255 + 0.5
    return levels.to(torch.uint8).cpu().numpy()


def _pad_to_even(frame: np.ndarray) -> np.ndarray:
    height, width, _ = frame.shape
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
