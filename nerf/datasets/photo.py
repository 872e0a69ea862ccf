"""A photo of a capture: its file beside what its frame says, and the cameras of several."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from nerf.cameras.cameras import Cameras, corner_radii
from nerf.cameras.distortion import Lenses
from nerf.datasets.capture import Frame
from nerf.datasets.decoding import ImageInfo, image_info
from nerf.errors import UserError

SIZE_TOLERANCE = 1.0  # pixels by which rounding may change the proportions of a scaled copy
NAMED = 5  # files that a message names before it only counts


@dataclass(frozen=True)
class Photo:
    """A frame whose file is there, and how it is read."""

    frame: Frame
    info: ImageInfo
    upright: bool  # turned as EXIF says

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the picture before any downscaling."""
        stored = self.info.width, self.info.height
        return stored[::-1] if self.upright and self.info.turns else stored


def checked_photo(frame: Frame, info: ImageInfo) -> Photo:
    """The photo of a frame. Raises UserError where the file has other proportions than its intrinsics are for."""
    stored, wanted = (info.width, info.height), (frame.width, frame.height)
    if _is_scaled(stored, wanted):
        return Photo(frame, info, upright=False)
    if info.turns and _is_scaled(stored[::-1], wanted):
        return Photo(frame, info, upright=True)
    turned = " (EXIF turns it)" if info.turns else ""
    raise UserError(
        f"{frame.image} is {info.width}x{info.height}{turned}, but its intrinsics are for "
        f"{frame.width}x{frame.height}, which has other proportions: it was cropped or turned, or belongs to another "
        "camera. Bring back the original."
    )


def turned_alike(photos: Sequence[Photo], others: Iterable[Frame]) -> list[Photo]:
    """The photos, turned as EXIF says where that keeps width and height too, if others show that poses are for that.

    others: all frames of the capture that are there.
    """
    if not any(photo.info.flips for photo in photos):
        return list(photos)
    if not any(checked_photo(frame, image_info(frame.image)).upright for frame in others):
        return list(photos)
    return [replace(photo, upright=True) if photo.info.flips else photo for photo in photos]


def _is_scaled(size: tuple[int, int], original: tuple[int, int]) -> bool:
    """Whether a picture of this size can be a scaled copy of the original, its sides rounded to whole pixels."""
    (width, height), (full_width, full_height) = size, original
    off = min(abs(width * full_height / full_width - height), abs(height * full_width / full_height - width))
    return off <= SIZE_TOLERANCE


def cameras_of(photos: Sequence[Photo], downscale: int) -> Cameras:
    """Cameras for the pictures at 1/downscale of their size, float32.

    Raises UserError where nothing is left of a picture, and for a lens that cannot be used.
    """
    sizes = [(photo.size[0] // downscale, photo.size[1] // downscale) for photo in photos]
    for photo, size in zip(photos, sizes):
        if min(size) < 1:
            width, height = photo.size
            raise UserError(f"dataset.downscale={downscale} leaves nothing of {photo.frame.image}, {width}x{height}.")
    frames = [photo.frame for photo in photos]
    full = np.array([(frame.width, frame.height) for frame in frames], np.float64)
    scale = np.array([photo.size for photo in photos]) / full / downscale
    intrinsics = torch.from_numpy(np.array([frame.intrinsics for frame in frames]) * np.tile(scale, 2)).float()
    radii = corner_radii(intrinsics, torch.tensor(sizes))
    c2w = torch.from_numpy(np.stack([frame.c2w for frame in frames])).float()
    try:
        lenses = Lenses.of([frame.lens for frame in frames], [frame.distortion for frame in frames], radii)
    except ValueError as error:
        raise UserError(f"{frames[0].image.parent}: a lens cannot be used, {error}; correct its camera.") from error
    return Cameras.of_sizes(c2w, intrinsics, sizes, lenses)


def some_of(paths: Collection[Path]) -> str:
    """The first few of the paths for a message, and how many more there are."""
    paths = sorted(map(str, paths))
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return ", ".join(paths[:NAMED]) + more
