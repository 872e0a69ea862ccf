"""Image files to bytes: PNG, JPEG and WebP, in parallel, straight to where they belong, at a fraction of the size.

At any time only as many images are decoded as there are threads: beyond the result, memory does not grow with their
number. Averaging works on the stored (sRGB) values, as is the custom.
"""

import contextlib
import itertools
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from tqdm import tqdm

from nerf.cameras.cameras import Cameras
from nerf.errors import UserError, is_out_of_memory
from nerf.reading import is_file, opened, read_bytes, reason
from nerf.system import usable_cores

FORMATS = ("PNG", "JPEG", "WEBP")
GRAY_16_BIT = ("I;16", "I")  # Pillow's modes for it; older releases used the second
MAX_THREADS = 8  # of 12 megapixels each takes some 150 MB while it is decoded
LONG = 5.0  # seconds without a word
BAND_ROWS = 64  # rows of the result that are averaged at a time
TURNING = (5, 6, 7, 8)  # EXIF orientations that exchange width and height
FLIPPING = (2, 3, 4)  # and those that keep them: mirrored, upside down
CUT_AWAY = 0.05  # of a cutout is transparent at least
COLORFUL = 0.25  # of the opaque part of a cutout is of other colors than its two most common ones
LOOKED_AT = 100_000  # pixels of it, spread over it, that are counted

# What Pillow raises for damaged files; most of it is from EXIF and other data beside the pixels.
UNREADABLE = (
    OSError, EOFError, SyntaxError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RuntimeError,
    struct.error, zlib.error, Image.DecompressionBombError,
)  # fmt: skip

Result = TypeVar("Result")


@dataclass(frozen=True)
class ImageInfo:
    """What the head of an image file says; no pixel is decoded for it."""

    width: int  # pixels, as stored
    height: int
    has_alpha: bool
    turns: bool  # its EXIF orientation exchanges width and height when it is shown
    flips: bool = False  # it keeps them, but not the picture


def image_info(path: Path) -> ImageInfo:
    """Raises UserError, naming the file, where it is no image."""
    with _answering(path), opened(path) as file, Image.open(file, formats=FORMATS) as image:
        # PNG's own getexif() decodes all pixels, in case there is some behind them.
        orientation = Image.Image.getexif(image).get(ExifTags.Base.Orientation)
        return ImageInfo(*image.size, image.has_transparency_data, orientation in TURNING, orientation in FLIPPING)


def read_pixels(
    path: Path, channels: int, downscale: int = 1, upright: bool = False, alpha: np.ndarray | None = None
) -> np.ndarray:
    """One image, [H // downscale, W // downscale, channels] uint8: RGB or RGBA with straight alpha.

    Gray, palette and 16-bit files are converted; 16-bit values keep their high byte, by which a transparent 16-bit
    color is told too. downscale: averages over blocks of so many pixels squared; what is left over at the right and at
    the bottom is cut off. upright: turned as its EXIF orientation says. alpha [H,W] uint8: in place of the file's own.
    Raises UserError, naming the file, where it is damaged.
    """
    image = in_eight_bits(_decode(path, upright))
    mode = {3: "RGB", 4: "RGBA"}[channels]
    image = image if image.mode == mode else image.convert(mode)
    if alpha is not None:
        image.putalpha(Image.fromarray(alpha))
    if downscale == 1:
        return np.asarray(image)
    width, height = image.width // downscale, image.height // downscale
    if channels == 3:
        return np.asarray(image.reduce(downscale, (0, 0, width * downscale, height * downscale)))
    return _average_rgba(np.asarray(image)[: height * downscale, : width * downscale], downscale)


def is_opaque(pixels: torch.Tensor) -> bool:
    """Whether the alpha of pixels [P,4] uint8 says nothing, as that of screenshots and of many PNG files."""
    return int(pixels[:, 3].amin()) == 255


def read_mask(path: Path, size: tuple[int, int], downscale: int = 1, inverted: bool = False) -> np.ndarray:
    """Where a mask is not black, [H // downscale, W // downscale] bool; a block counts where all of it does.

    Black: below half of white, see read_whiteness; inverted: the other pixels count.
    """
    white = read_whiteness(path, size, inverted) >= 128
    height, width = (size // downscale for size in white.shape)
    white = white[: height * downscale, : width * downscale]
    return white.reshape(height, downscale, width, downscale).all((1, 3))


def read_whiteness(path: Path, size: tuple[int, int], inverted: bool = False) -> np.ndarray:
    """How white a mask is, [H,W] uint8: the largest of red, green and blue; 0 where it is mostly transparent.

    A cutout, the photo of an object around which all is transparent, is as white as it is opaque. A mask of zeros and
    ones alone is taken times 255. size: width and height of its image; a mask of another size is stretched to it.
    inverted: 255 less that. Raises UserError where the proportions differ.
    """
    image = _decode(path)
    if image.size != size:
        if abs(image.width * size[1] - image.height * size[0]) > max(image.width, image.height, *size):
            raise UserError(
                f"{path}: the mask is {image.width}x{image.height}, but its image is {size[0]}x{size[1]}, which has "
                "other proportions; make it again for this image, or go on without masks: dataset.masks=none."
            )
        image = image.resize(size, Image.Resampling.NEAREST)
    if image.mode in GRAY_16_BIT and np.asarray(image).max() < 256:  # 8 bits in 16
        image = Image.fromarray(np.asarray(image).astype(np.uint8))
    image = in_eight_bits(image)
    if image.mode in ("1", "L") and not image.has_transparency_data:
        white = np.asarray(image.convert("L"))
    else:
        pixels = np.asarray(image.convert("RGBA"))
        opaque = pixels[..., 3] >= 128
        if _is_cutout(pixels, opaque):
            white = pixels[..., 3].copy()
        else:
            white = np.where(opaque, pixels[..., :3].max(-1), 0).astype(np.uint8)
    if white.max() == 1:
        white = white * np.uint8(255)
    return 255 - white if inverted else white


def read_depth(path: Path, scale: float, size: tuple[int, int], downscale: int = 1) -> np.ndarray:
    """A 16-bit gray depth map, [H // downscale, W // downscale] float32: stored value * scale in world units.

    Blocks get the mean of their depths that are not 0. Raises UserError, naming the file, where it is damaged, not
    16-bit gray or not of the size (width, height).
    """
    image = _decode(path)
    if image.size != size:
        raise UserError(
            f"{path} is {image.width}x{image.height} but its image is {size[0]}x{size[1]}. "
            "Render the depth map again at the size of the image."
        )
    if image.mode not in GRAY_16_BIT:
        raise UserError(
            f"{path}: depth map with pixels of type {image.mode}, expected 16-bit gray. Save it as a "
            "one-channel 16-bit PNG of distance / depth_scale, 0 where the ray hits nothing."
        )
    depth = np.asarray(image, np.float32) * np.float32(scale)
    return mean_of_known(depth, downscale)


def read_z(path: Path, unit: float, size: tuple[int, int]) -> np.ndarray:
    """Camera z of each pixel, [H,W] float32 in world units, 0 where it is not known; of a 16-bit PNG or a .npy.

    unit: world units of a stored 1. size: width and height of its image; a map of another size is stretched to it,
    without averaging. What is not finite in a .npy is not known. Raises UserError, naming the file, where it is
    missing or damaged, of other proportions, negative, or no depth map.
    """
    if not is_file(path):
        raise UserError(f"{path}: no such file, expected the depth map of a frame; restore it, or drop the key.")
    if path.suffix.lower() == ".npy":
        stored = _read_array(path)
    else:
        image = _decode(path)
        if image.mode not in GRAY_16_BIT:
            raise UserError(
                f"{path}: depth map with pixels of type {image.mode}, expected 16-bit gray. Save it as a one-channel "
                "16-bit PNG of camera z / depth_unit_scale_factor, 0 where it is not known, or as .npy."
            )
        stored = np.asarray(image)
    stored = np.where(np.isfinite(stored), stored, 0).astype(np.float32)
    if stored.min(initial=0) < 0:
        raise UserError(f"{path}: holds {stored.min():g}, expected no negative depth; 0 where it is not known.")
    height, width = stored.shape
    if (width, height) != size:
        if abs(width * size[1] - height * size[0]) > max(width, height, *size):
            raise UserError(
                f"{path}: the depth map is {width}x{height}, but its image is {size[0]}x{size[1]}, which has other "
                "proportions; make it again for this image."
            )
        stored = np.asarray(Image.fromarray(stored).resize(size, Image.Resampling.NEAREST))
    return stored * np.float32(unit)


def _read_array(path: Path) -> np.ndarray:
    try:
        stored = np.load(BytesIO(read_bytes(path)), allow_pickle=False)
    except UNREADABLE as error:
        raise UserError(f"{path}: cannot be read as .npy ({reason(error)}); write it again with numpy.save.") from error
    shape = stored.shape[:-1] if stored.ndim == 3 and stored.shape[-1] == 1 else stored.shape
    if stored.dtype.kind not in "fui" or len(shape) != 2 or 0 in shape:
        raise UserError(
            f"{path}: found an array {list(stored.shape)} of {stored.dtype}, expected numbers [H,W]; write it again."
        )
    return stored.reshape(shape)


def mean_of_known(values: np.ndarray, downscale: int) -> np.ndarray:
    """[H,W] to [H // downscale, W // downscale]: means over blocks of what is not 0."""
    height, width = (size // downscale for size in values.shape)
    values = values[: height * downscale, : width * downscale]
    known = _block_sums((values > 0).astype(np.float32), downscale)
    return _block_sums(values, downscale) / np.maximum(known, 1)


def read_all(read: Callable[[int], Result], count: int, what: str) -> list[Result]:
    """read(0) to read(count - 1), in parallel. what: what is read, for a progress bar on a terminal.

    Elsewhere, in a log say, one line tells that it takes long.
    """
    results: list[Result] = []
    began, told = time.monotonic(), sys.stderr is None or sys.stderr.isatty()
    # Pillow decodes without holding the interpreter's lock.
    threads = min(MAX_THREADS, usable_cores())
    with ThreadPoolExecutor(threads) as pool:
        try:
            for result in tqdm(pool.map(read, range(count)), what, count, leave=False, disable=None, unit="image"):
                results.append(result)
                if not told and len(results) < count and time.monotonic() - began > LONG:
                    print(f"note: {what}: {len(results)} of {count} so far, still reading", file=sys.stderr)
                    told = True
            return results
        except BaseException:  # an interrupt as well: the rest need not be read
            pool.shutdown(cancel_futures=True)
            raise


def read_images(cameras: Cameras, channels: int, read: Callable[[int], np.ndarray]) -> Tensor:
    """The images that read(0), read(1), ... return, as PosedImages keeps them, [P,channels] uint8."""
    pixels = torch.empty(cameras.first_pixel(len(cameras)), channels, dtype=torch.uint8)
    rows = pixels.numpy()

    def keep(index: int) -> None:
        rows[cameras.first_pixel(index) : cameras.first_pixel(index + 1)] = read(index).reshape(-1, channels)

    read_all(keep, len(cameras), "images")
    return pixels


@contextlib.contextmanager
def _answering(path: Path) -> Iterator[None]:
    """Answers what reading a damaged file raises."""
    try:
        yield
    except UnidentifiedImageError as error:
        raise UserError(
            f"{path}: found no PNG, JPEG or WebP image{_size_of(path)}. Save it in one of these formats, or copy it "
            "again."
        ) from error
    except UNREADABLE as error:
        short = " Or memory is short: close other programs that use it." if is_out_of_memory(error) else ""
        raise UserError(
            f"{path}: cannot be read as an image{_size_of(path)} ({reason(error)}). Expected an undamaged PNG, JPEG or "
            f"WebP file; copy or render it again.{short}"
        ) from error


def _size_of(path: Path) -> str:
    return f" in {path.stat().st_size} bytes" if is_file(path) else ""


def _decode(path: Path, upright: bool = False) -> Image.Image:
    with _answering(path):
        data = read_bytes(path)
        # Decoding alone lets some flipped bits of a PNG pass; its checksums do not.
        Image.open(BytesIO(data), formats=FORMATS).verify()
        image = Image.open(BytesIO(data), formats=FORMATS)
        image.load()
        scale_transparency(image, data)
        return ImageOps.exif_transpose(image) if upright else image


def scale_transparency(image: Image.Image, head: bytes) -> None:
    """The transparent color of a PNG without an alpha channel, in the scale that Pillow gives its pixels.

    The file stores it with as many bits as its pixels have; Pillow leaves it so where it stretches gray of 2 and 4
    bits, and where it takes the high bytes of 16-bit colors. head: the file's first bytes, up to the end of IHDR.
    """
    color = image.info.get("transparency")
    bits = head[24] if image.format == "PNG" else 8
    if image.mode == "L" and isinstance(color, int) and bits in (2, 4):
        image.info["transparency"] = color * 255 // (2**bits - 1)
    elif image.mode == "RGB" and isinstance(color, tuple) and bits == 16:
        image.info["transparency"] = tuple(value >> 8 for value in color)


def in_eight_bits(image: Image.Image) -> Image.Image:
    """16-bit gray by its high byte, which convert() would clip at 255, and its transparent value as alpha."""
    if image.mode not in GRAY_16_BIT:
        return image
    gray, transparent = np.asarray(image), image.info.get("transparency")
    result = Image.fromarray((gray >> 8).astype(np.uint8))
    if transparent is not None:
        result.putalpha(Image.fromarray(np.where(gray == transparent, 0, 255).astype(np.uint8)))
    return result


def _is_cutout(pixels: np.ndarray, opaque: np.ndarray) -> bool:
    """Whether a mask [H,W,4] uint8 is a photo with an outline: partly transparent, its opaque part [H,W] no mask.

    A mask has two colors, and others along its edges alone.
    """
    if opaque.mean() > 1 - CUT_AWAY or not opaque.any():
        return False
    shown = pixels[opaque][:, :3]
    shown = shown[:: max(1, len(shown) // LOOKED_AT)].astype(np.int64) >> 4  # noise of lossy files apart
    counts = np.sort(np.bincount(shown @ (256, 16, 1)))
    return bool(counts[-2:].sum() < (1 - COLORFUL) * counts.sum())


def _average_rgba(image: np.ndarray, factor: int) -> np.ndarray:
    """[H,W,4] uint8 to [H/factor,W/factor,4] uint8: area averages, where all pixels are transparent, black.

    Colors are averaged premultiplied, so that transparent pixels do not bleed into edges.
    """
    result = np.empty((image.shape[0] // factor, image.shape[1] // factor, 4), np.uint8)
    for first in range(0, len(result), BAND_ROWS):
        band = image[first * factor : (first + BAND_ROWS) * factor].astype(np.float32)
        band[..., :3] *= band[..., 3:]
        sums = _block_sums(band, factor)
        color, alpha = sums[..., :3], sums[..., 3:]
        mean = np.concatenate([color / np.maximum(alpha, 1), alpha / factor**2], axis=-1)
        result[first : first + BAND_ROWS] = mean.round()
    return result


def _block_sums(image: np.ndarray, factor: int) -> np.ndarray:
    """[H,W,...] to [H/factor,W/factor,...]: sums over blocks of factor x factor pixels."""
    corners = itertools.product(range(factor), repeat=2)
    return sum(image[row::factor, column::factor] for row, column in corners)
