"""A sparse reconstruction as COLMAP stores it, before any convention is changed.

World to camera, axes x right, y down, z forward; pixels from the upper left corner, so centers at +0.5.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nerf.cameras.limits import FARTHEST
from nerf.datasets.readers.lenses import Lens
from nerf.errors import UserError

UNIT_TOLERANCE = 1e-3  # of a quaternion's length
NO_POINT = -1  # the point of a pixel that belongs to none


@dataclass(frozen=True)
class ColmapImage:
    """A registered image and the pixels at which it saw points."""

    name: str
    camera_id: int
    quaternion: np.ndarray  # [4] float64: w, x, y, z of the rotation world to camera
    translation: np.ndarray  # [3] float64
    pixels: np.ndarray  # [K,2] float64
    point_ids: np.ndarray  # [K] int64, NO_POINT where a pixel belongs to none

    def world_to_camera(self, where: str) -> np.ndarray:
        """[4,4] float64. Raises UserError, which where begins, for a quaternion that is no rotation."""
        with np.errstate(over="ignore"):
            length = float(np.linalg.norm(self.quaternion))
        if not (np.abs(self.translation) <= FARTHEST).all() or not abs(length - 1) <= UNIT_TOLERANCE:
            raise UserError(
                f"{where}: pose of {self.name} has a quaternion of length {length:.6g} and the translation "
                f"{self.translation.tolist()}, expected length 1 and finite numbers up to {FARTHEST:g}. Correct it or "
                "drop the image."
            )
        w, x, y, z = self.quaternion / length
        pose = np.eye(4)
        pose[:3, :3] = [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
        pose[:3, 3] = self.translation
        return pose


@dataclass(frozen=True)
class ColmapModel:
    """One of the models of a reconstruction."""

    folder: Path
    cameras: dict[int, Lens]
    images: list[ColmapImage]
    points: dict[int, tuple[float, float, float]] | None  # world, by id; None without a points3D file
