"""COLMAP's text files: cameras.txt, images.txt, points3D.txt.

Source: COLMAP, src/colmap/scene/reconstruction_io_text.cc. Lines that begin with # are comments. An image has two
lines, of which the second, its observations, may be empty.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nerf.datasets.readers.colmap_model import ColmapImage
from nerf.datasets.readers.lenses import Lens, colmap_lens
from nerf.errors import UserError
from nerf.reading import read_bytes, reason


def read_cameras(path: Path) -> dict[int, Lens]:
    """Lenses by camera id. Raises UserError for lines that do not parse and unknown models."""
    cameras = {}
    for number, line in _entries(_lines(path)):
        words = line.split()
        try:
            camera_id, width, height = int(words[0]), int(words[2]), int(words[3])
            parameters = [float(word) for word in words[4:]]
        except (ValueError, IndexError) as error:
            raise _bad_line(path, number, line, "CAMERA_ID MODEL WIDTH HEIGHT PARAMS") from error
        cameras[camera_id] = colmap_lens(words[1], parameters, width, height, f"{path}: camera {camera_id}")
    return cameras


def read_images(path: Path) -> list[ColmapImage]:
    """Registered images in the order of the file. Raises UserError for lines that do not parse."""
    images = []
    lines = _lines(path)
    for number, line in _entries(lines):
        words = line.split(maxsplit=9)  # a name may hold spaces
        number_observed, observed = next(lines, (number + 1, ""))
        try:
            pose, camera_id, name = [float(word) for word in words[1:8]], int(words[8]), words[9]
        except (ValueError, IndexError) as error:
            raise _bad_line(path, number, line, "IMAGE_ID QW QX QY QZ TX TY TZ CAMERA_ID NAME") from error
        try:
            triples = np.array(observed.split(), np.float64).reshape(-1, 3)
            if not (np.abs(triples) < 2.0**53).all():
                raise ValueError("a number that is none")
        except ValueError as error:
            raise _bad_line(path, number_observed, observed, "X Y POINT3D_ID, again and again") from error
        point_ids = triples[:, 2].astype(np.int64)
        images.append(ColmapImage(name, camera_id, np.array(pose[:4]), np.array(pose[4:]), triples[:, :2], point_ids))
    return images


def read_points(path: Path) -> dict[int, tuple[float, float, float]]:
    """World positions by point id. Raises UserError for lines that do not parse."""
    points = {}
    for number, line in _entries(_lines(path)):
        words = line.split(maxsplit=4)
        try:
            points[int(words[0])] = (float(words[1]), float(words[2]), float(words[3]))
        except (ValueError, IndexError) as error:
            raise _bad_line(path, number, line, "POINT3D_ID X Y Z R G B ERROR TRACK") from error
    return points


def count_images(path: Path) -> int:
    """How many images the file has."""
    return len(read_images(path))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of the file, stripped."""
    try:
        text = read_bytes(path).decode("utf-8", errors="surrogateescape")  # names in the encoding of file names
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({reason(error)}); copy or export the model again.") from error
    return ((number, line.strip()) for number, line in enumerate(text.split("\n"), 1))


def _entries(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Those lines that are neither empty nor a comment."""
    return ((number, line) for number, line in lines if line and not line.startswith("#"))


def _bad_line(path: Path, number: int, line: str, expected: str) -> UserError:
    found = line if len(line) <= 60 else f"{line[:57]}..."
    return UserError(f"{path}: line {number} is '{found}', expected {expected}; correct it or export the model again.")
