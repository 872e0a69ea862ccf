"""Posed images: the record that every loader returns, and the decoding of the files behind it."""

import itertools
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from nerf.cameras import Cameras
from nerf.datasets.scene_description import SceneDescription
from nerf.errors import UserError

GREY_16_BIT = ("I;16", "I")  # Pillow's modes for it; older releases used the second


@dataclass(frozen=True)
class PosedImages:
    """I images of one size with the cameras that took them, all on the CPU.

    Alpha is straight, not premultiplied; colours are sRGB. Blending and averaging work on the sRGB values, as
    is the custom with Synthetic-NeRF. Images without transparency have alpha 255.
    """

    images: Tensor  # [I,H,W,4] uint8
    cameras: Cameras
    names: list[str]  # file names without folder and extension
    depths: Tensor | None  # [I,H,W] float32: world distance along the unit ray, 0 = no hit
    has_alpha: bool  # whether any of the files stores transparency
    scene: SceneDescription | None = None  # what the capture says of where the scene is

    def __len__(self) -> int:
        return self.images.shape[0]

    def image_over(self, index: int, background: Tensor) -> Tensor:
        """One image blended over a background colour [3] in [0,1]: [H,W,3] float32 in [0,1]."""
        image = self.images[index].float() / 255
        alpha = image[..., 3:]
        return alpha * image[..., :3] + (1 - alpha) * background

    def downscaled(self, factor: int) -> "PosedImages":
        """The same views at 1/factor of the size: area averages of colour, alpha and depth.

        Colours are averaged premultiplied, so that transparent pixels do not bleed into edges; depths, over
        the pixels that have one. Raises UserError unless factor divides width and height.
        """
        width, height = self.cameras.width, self.cameras.height
        if factor < 1 or width % factor or height % factor:
            raise UserError(
                f"dataset.downscale={factor} does not divide the image size {width}x{height}; "
                f"use one of {_smallest_divisors(math.gcd(width, height))}."
            )
        if factor == 1:
            return self
        # One image at a time: all of them in float32 would take four times the memory of the dataset.
        images = torch.from_numpy(np.stack([_downscale_rgba(image, factor) for image in self.images.numpy()]))
        depths = self.depths
        if depths is not None:
            depths = torch.from_numpy(np.stack([_downscale_depth(depth, factor) for depth in depths.numpy()]))
        cameras = Cameras(
            self.cameras.c2w, self.cameras.intrinsics / factor, width // factor, height // factor
        )
        return PosedImages(images, cameras, self.names, depths, self.has_alpha, self.scene)


def image_size(path: Path) -> tuple[int, int]:
    """Width and height of an image file. Raises UserError where it cannot be decoded."""
    return _decode(path).size


def read_images(paths: Sequence[Path]) -> tuple[Tensor, bool]:
    """Decodes PNG or JPEG files of one size in parallel.

    Returns RGBA [I,H,W,4] uint8, to which grey, palette and 16-bit files are converted (16-bit values keep
    their high byte), and whether any file stores transparency. Raises UserError naming the file that is
    damaged, of another format or of another size than the first.
    """
    width, height = image_size(paths[0])
    rgba = np.empty((len(paths), height, width, 4), np.uint8)

    def read(index: int) -> bool:
        image = _decode(paths[index])
        _check_size(paths[index], image, paths[0], (width, height))
        if image.mode in GREY_16_BIT:  # convert() would clip it at 255
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        rgba[index] = image.convert("RGBA")
        return image.has_transparency_data

    with ThreadPoolExecutor() as pool:  # Pillow decodes without holding the interpreter's lock
        has_alpha = list(pool.map(read, range(len(paths))))
    return torch.from_numpy(rgba), any(has_alpha)


def read_depths(paths: Sequence[Path], scale: float, image_path: Path) -> Tensor:
    """Decodes 16-bit grey PNG depth maps in parallel: [I,H,W] float32, stored value * scale in world units.

    Raises UserError naming the file that is damaged, not 16-bit grey, or not of the size of image_path.
    """
    size = image_size(image_path)

    def read(path: Path) -> np.ndarray:
        image = _decode(path)
        _check_size(path, image, image_path, size)
        if image.mode not in GREY_16_BIT:
            raise UserError(
                f"{path}: depth map with pixels of type {image.mode}, expected 16-bit grey. Save it as a "
                "one-channel 16-bit PNG of distance / depth_scale, 0 where the ray hits nothing."
            )
        return np.asarray(image, np.float32) * np.float32(scale)

    with ThreadPoolExecutor() as pool:
        return torch.from_numpy(np.stack(list(pool.map(read, paths))))


def _decode(path: Path) -> Image.Image:
    found = ""
    try:
        data = path.read_bytes()
        found = f" in {len(data)} bytes"
        # Decoding alone lets some flipped bits of a PNG pass; its checksums do not.
        _open(data).verify()
        image = _open(data)
        image.load()
    except UnidentifiedImageError as error:
        raise UserError(
            f"{path}: found no PNG or JPEG image{found}. Save it in one of these formats, or copy it again."
        ) from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"{path}: cannot be read as an image{found} ({reason}). Expected an undamaged PNG or JPEG file; "
            "copy or render it again."
        ) from error
    return image


def _open(data: bytes) -> Image.Image:
    return Image.open(BytesIO(data), formats=("PNG", "JPEG"))


def _check_size(path: Path, image: Image.Image, other: Path, size: tuple[int, int]) -> None:
    if image.size != size:
        raise UserError(
            f"{path} is {image.width}x{image.height} but {other} is {size[0]}x{size[1]}. All images of a "
            "split must have one size: resize them, or leave the odd ones out of the transforms file."
        )


def _downscale_rgba(image: np.ndarray, factor: int) -> np.ndarray:
    """[H,W,4] uint8 to [H/factor,W/factor,4] uint8; where all pixels are transparent, black."""
    premultiplied = image.astype(np.float32)
    premultiplied[..., :3] *= premultiplied[..., 3:]
    sums = _block_sums(premultiplied, factor)
    colour, alpha = sums[..., :3], sums[..., 3:]
    mean = np.concatenate([colour / np.maximum(alpha, 1), alpha / factor**2], axis=-1)
    return mean.round().astype(np.uint8)


def _downscale_depth(depth: np.ndarray, factor: int) -> np.ndarray:
    """[H,W] float32 to [H/factor,W/factor] float32: mean of the non-zero depths, 0 where there are none."""
    hits = _block_sums((depth > 0).astype(np.float32), factor)
    return _block_sums(depth, factor) / np.maximum(hits, 1)


def _block_sums(image: np.ndarray, factor: int) -> np.ndarray:
    """[H,W,...] to [H/factor,W/factor,...]: sums over blocks of factor x factor pixels."""
    corners = itertools.product(range(factor), repeat=2)
    return sum(image[row::factor, column::factor] for row, column in corners)


def _smallest_divisors(number: int) -> str:
    """For error messages: the first divisors are the ones that a user may want."""
    divisors = [str(divisor) for divisor in range(1, number + 1) if number % divisor == 0]
    return ", ".join(divisors[:8])
