"""COLMAP's binary files: cameras.bin, images.bin, points3D.bin. Little-endian, without padding.

Source: COLMAP, src/colmap/scene/reconstruction_io_binary.cc.
"""

import os
import struct
from pathlib import Path

import numpy as np

from nerf.datasets.readers.colmap_model import ColmapImage
from nerf.datasets.readers.lenses import COLMAP_MODELS, Lens, colmap_lens
from nerf.errors import UserError
from nerf.reading import read_bytes, reason

# By the number that stands for them in the file.
MODEL_NAMES = (
    "SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV", "OPENCV_FISHEYE", "FULL_OPENCV", "FOV",
    "SIMPLE_RADIAL_FISHEYE", "RADIAL_FISHEYE", "THIN_PRISM_FISHEYE", "RAD_TAN_THIN_PRISM_FISHEYE",
)  # fmt: skip
OBSERVATION = np.dtype([("pixel", "<f8", 2), ("point_id", "<i8")])


def read_cameras(path: Path) -> dict[int, Lens]:
    """Lenses by camera id. Raises UserError for a truncated file and unknown models."""
    file = _File(path)
    cameras = {}
    for _ in range(file.count("cameras")):
        camera_id, number, width, height = file.take("<iiQQ")
        model = MODEL_NAMES[number] if 0 <= number < len(MODEL_NAMES) else f"number {number}"
        names = COLMAP_MODELS[model][1].split() if model in COLMAP_MODELS else ()
        parameters = file.take(f"<{len(names)}d")
        cameras[camera_id] = colmap_lens(model, parameters, width, height, f"{path}: camera {camera_id}")
    return cameras


def read_images(path: Path) -> list[ColmapImage]:
    """Registered images in the order of the file. Raises UserError for a truncated file."""
    file = _File(path)
    images = []
    for _ in range(file.count("images")):
        _, *pose, camera_id = file.take("<i7di")
        name = file.name()
        (observed,) = file.take("<Q")
        observations = file.array(OBSERVATION, observed)
        pixels, point_ids = observations["pixel"], observations["point_id"]
        images.append(ColmapImage(name, camera_id, np.array(pose[:4]), np.array(pose[4:]), pixels, point_ids))
    return images


def read_points(path: Path) -> dict[int, tuple[float, float, float]]:
    """World positions by point id. Raises UserError for a truncated file."""
    file = _File(path)
    points = {}
    for _ in range(file.count("points")):
        point_id, x, y, z, _, _, _, _, track = file.take("<Q3d3BdQ")
        file.skip(8 * track)  # image id and index of each pixel in its track
        points[point_id] = (x, y, z)
    return points


def count_images(path: Path) -> int:
    """How many images the file says it has."""
    return _File(path).count("images")


class _File:
    """The bytes of a file and a place in them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.data = read_bytes(path)
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({reason(error)}); copy or export the model again.") from error
        self.place = 0

    def count(self, what: str) -> int:
        """The number of entries, with which each file begins."""
        (count,) = self.take("<Q")
        if count > len(self.data):
            raise UserError(
                f"{self.path}: says it has {count} {what} in {len(self.data)} bytes, expected COLMAP's binary format; "
                "copy or export the model again."
            )
        return count

    def take(self, layout: str) -> tuple:
        start = self.skip(struct.calcsize(layout))
        return struct.unpack_from(layout, self.data, start)

    def array(self, dtype: np.dtype, length: int) -> np.ndarray:
        start = self.skip(dtype.itemsize * length)
        return np.frombuffer(self.data, dtype, length, start)

    def name(self) -> str:
        """Text up to a zero byte, in the encoding of file names."""
        end = self.data.find(b"\0", self.place)
        start = self.skip((end if end >= 0 else len(self.data)) + 1 - self.place)
        return os.fsdecode(self.data[start:end])

    def skip(self, size: int) -> int:
        """Goes on by size bytes; returns the place before."""
        start = self.place
        self.place += size
        if self.place > len(self.data):
            raise UserError(
                f"{self.path}: truncated: ends after {len(self.data)} bytes, within an entry at byte {start}. "
                "Copy or export the model again."
            )
        return start
