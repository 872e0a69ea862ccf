"""What a reader of any capture format returns: where the photos are and how they were taken. No pixel is read yet.

Readers turn every convention into this project's: OpenGL camera axes (x right, y up, looking along -z), pixel centers
at +0.5, intrinsics for the size of the image file as it is stored; or, where they were found for the photo as EXIF
turns it, for that.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

FEWEST_POINTS = 30  # fewer tell nothing of where a scene is
POINT_QUANTILES = (0.01, 0.99)  # sparse points have outliers


@dataclass(frozen=True)
class Frame:
    """One photo and its camera."""

    image: Path
    c2w: np.ndarray  # [3,4] float64: right, up and backward axes, center; orthonormal
    width: int  # pixels, of the size for which the intrinsics hold: the file's, or with width and height swapped where
    height: int  # the poses were made from the photo as its EXIF orientation shows it
    intrinsics: tuple[float, float, float, float]  # fx, fy, cx, cy
    lens: str = "perspective"  # or "fisheye", OpenCV's two models; or "equirectangular", a panorama
    distortion: tuple[float, ...] = ()  # perspective: k1, k2, p1, p2, k3, k4; fisheye: k1 to k4; empty: none
    mask: Path | None = None  # image whose black pixels do not count
    split: str | None = None  # train, val or test where the format says so
    mask_inverted: bool = False  # its other pixels do not count
    depth: Path | None = None  # depth map: 16-bit gray, or .npy; 0 = not known
    depth_unit: float = 1.0  # world units (camera z; of a panorama the distance) of a stored 1
    name: str | None = None  # of the photo in the format's own list, where its file may be called otherwise
    given_size: tuple[int, int] | None = None  # for which the format gives the intrinsics; None: width and height


@dataclass(frozen=True)
class Capture:
    """A scene as it lies on disk."""

    format: str  # what was recognized, in words
    root: Path
    frames: list[Frame]  # in the order of the format's list, else of the names
    points: np.ndarray | None = None  # [P,3] float64 world: sparse points that the poses came with
    bounds: np.ndarray | None = None  # [I,2] float64: nearest and farthest depth (camera z) of each frame
    aabb: np.ndarray | None = None  # [2,3] float64 world, where the format gives one

    def __repr__(self) -> str:
        """One line, however many frames there are."""
        return f"Capture({self.root}: {self.format})"

    @property
    def has_points(self) -> bool:
        """Whether there are enough sparse points, and not all in one place, to tell where the scene is."""
        if self.points is None or len(self.points) < FEWEST_POINTS:
            return False
        return bool(np.ptp(np.quantile(self.points, POINT_QUANTILES, axis=0), axis=0).any())

    @property
    def has_depths(self) -> bool:
        """Whether points or bounds tell how far away things are; bounds beside points were taken from these."""
        return self.has_points or (self.points is None and self.bounds is not None)
