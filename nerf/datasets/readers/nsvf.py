"""NSVF: rgb/, pose/, intrinsics.txt, bbox.txt; also Tanks and Temples and BlendedMVS as NSVF distributes them.

Poses map camera to world, axes x right, y down, z forward. The first character of a name tells the split: 0 train,
1 val, 2 test; scenes without any 2 use 1 for test (Liu et al. 2020, github.com/facebookresearch/NSVF).
"""

import itertools
import math
from pathlib import Path

import numpy as np

from nerf.cameras.limits import FARTHEST, is_box
from nerf.datasets.capture import Capture, Frame
from nerf.datasets.readers.frames import FLIP_YZ, make_frame
from nerf.datasets.readers.lenses import make_lens
from nerf.datasets.readers.photos import find_photo, first_size, list_photos
from nerf.errors import UserError
from nerf.reading import read_bytes, reason


def recognize(root: Path) -> str | None:
    """What shows that this is NSVF's layout, in words; None if nothing does."""
    if (root / "intrinsics.txt").is_file() and (root / "pose").is_dir():
        return "intrinsics.txt and pose/"
    return None


def read(root: Path, images: str | None = None) -> Capture:
    """The capture, its frames sorted by name, with the box of bbox.txt where there is one.

    images: folder of the photos, rgb by default. Raises UserError, naming the file, for numbers that do not parse,
    poses that are not rigid, photos without a pose and a folder without poses.
    """
    poses = sorted((root / "pose").glob("*.txt"))
    if not poses:
        raise UserError(f"{root / 'pose'}: no poses, expected a file NAME.txt of 4x4 numbers for each image; add them.")
    folder = root / (images or "rgb")
    posed = {path.stem for path in poses}
    unposed = [photo.name for photo in list_photos(folder) if photo.stem not in posed]
    if unposed:
        raise UserError(
            f"{folder}: {len(unposed)} photos without a file in {root / 'pose'}, the first is {unposed[0]}. "
            "Add their poses or remove them."
        )
    photos = [find_photo(folder, f"{path.stem}.png") for path in poses]
    width, height = first_size(photos, str(root), root)
    intrinsics = _intrinsics(root / "intrinsics.txt")
    lens = make_lens(width, height, intrinsics, "perspective", {}, str(root / "intrinsics.txt"))
    splits = _splits([path.stem for path in poses])
    frames: list[Frame] = []
    for path, photo, split in zip(poses, photos, splits):
        pose = _rows(path)
        if [len(row) for row in pose] == [4] * 4:
            pose = (np.array(pose) @ FLIP_YZ).tolist()
        frames.append(make_frame(photo, pose, lens, f"{path}: pose", split=split))
    aabb = _aabb(root / "bbox.txt") if (root / "bbox.txt").is_file() else None
    counts = [f"{splits.count(split)} {split}" for split in ("train", "val", "test") if split in splits]
    said = f"{', '.join(counts)} by the first character of the names" if counts else "no splits in the names"
    box = "box from bbox.txt" if aabb is not None else "no bbox.txt"
    return Capture(f"{len(frames)} poses; {said}; {box}", root, frames, aabb=aabb)


def _splits(stems: list[str]) -> list[str | None]:
    prefixes = {stem[:2] for stem in stems}
    if not prefixes <= {"0_", "1_", "2_"}:
        return [None] * len(stems)
    names = {"0": "train", "1": "val" if "2_" in prefixes else "test", "2": "test"}
    return [names[stem[0]] for stem in stems]


def _intrinsics(path: Path) -> tuple[float, float, float, float]:
    """fx, fy, cx, cy of a 3x3 or 4x4 matrix, or of a first line f cx cy with anything after it."""
    rows = _rows(path)
    if [len(row) for row in rows] in ([4] * 4, [3] * 3):
        return rows[0][0], rows[1][1], rows[0][2], rows[1][2]
    if rows and len(rows[0]) >= 3:
        focal, cx, cy = rows[0][:3]
        return focal, focal, cx, cy
    raise UserError(f"{path}: found {len(rows)} lines, expected a 4x4 matrix or a line f cx cy; correct it.")


def _aabb(path: Path) -> np.ndarray:
    """[2,3] of a line x_min y_min z_min x_max y_max z_max voxel_size."""
    numbers = np.array(list(itertools.chain(*_rows(path))))
    if len(numbers) < 6 or not is_box(numbers[:3], numbers[3:6]):
        raise UserError(
            f"{path}: {numbers[:6].tolist()}, expected x_min y_min z_min x_max y_max z_max, each min below its max, "
            f"numbers up to {FARTHEST:g}; correct it, or remove the file to have the box found."
        )
    return numbers[:6].reshape(2, 3)


def _rows(path: Path) -> list[list[float]]:
    """The numbers of each line that has any."""
    try:
        lines = read_bytes(path).decode("utf-8").splitlines()
        rows = [[float(word) for word in line.split()] for line in lines if line.strip()]
        if not all(map(math.isfinite, itertools.chain(*rows))):
            raise ValueError("a number that is not finite")
        return rows
    except (OSError, ValueError) as error:  # UnicodeDecodeError is a ValueError
        raise UserError(f"{path}: cannot be read ({reason(error)}), expected lines of numbers; replace it.") from error
