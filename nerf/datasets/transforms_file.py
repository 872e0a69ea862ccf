"""Checks that all loaders of transforms*.json share: frames, poses, the files that frames name.

Used by the loader of Blender scenes and by the readers of captures.
"""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np

from nerf.cameras.limits import FARTHEST, is_coordinate
from nerf.cameras.se3 import RIGID_TOLERANCE
from nerf.errors import UserError
from nerf.reading import is_file, is_path, is_there, shown

IMAGE_EXTENSIONS = ("", ".png", ".jpg", ".jpeg", ".webp")  # tried in turn after a file_path, then in upper case


def frames_of(header: Any, path: Path) -> list[dict[str, Any]]:
    """The frames of a parsed transforms file, at least one. Raises UserError."""
    frames = header.get("frames") if isinstance(header, dict) else None
    if not isinstance(frames, list) or not frames or not all(isinstance(frame, dict) for frame in frames):
        raise UserError(
            f"{path}: key 'frames' is {shown(frames)}, expected a list of at least one frame, each an "
            "object with file_path and transform_matrix; add them or export the file again."
        )
    return frames


def named_file(value: object, where: str) -> str:
    """A file's name as a transforms file gives it; where begins the error message."""
    if not is_path(value):
        raise UserError(f"{where} is {shown(value)}, expected the path of a file relative to the scene folder; add it.")
    return value


def rigid_pose(matrix: object, where: str) -> np.ndarray:
    """The matrix [4,4] float64 if it is a rotation and a translation; where begins the error messages."""
    rows = matrix if isinstance(matrix, list) else []
    if [len(row) if isinstance(row, list) else 0 for row in rows] != [4, 4, 4, 4]:
        raise UserError(
            f"{where} is {shown(matrix)}, expected 4 rows of 4 numbers. Write the whole camera-to-world matrix."
        )
    for entry in itertools.chain(*rows):
        if not is_coordinate(entry):
            raise UserError(
                f"{where} holds {shown(entry)}, expected finite numbers up to {FARTHEST:g}. Correct the pose or drop "
                "the frame."
            )
    pose = np.array(rows)
    rotation = pose[:3, :3]
    gram = rotation.T @ rotation
    scale = math.sqrt(np.trace(gram) / 3)
    if scale > 0 and not _is_identity(gram) and _is_identity(gram / scale**2):
        raise UserError(
            f"{where} scales uniformly by {scale:.6g}, expected a rotation of scale 1. "
            "Divide its upper left 3x3 block by the scale."
        )
    if not _is_identity(gram):
        raise UserError(
            f"{where} is not rigid: R^T R differs from I by {np.abs(gram - np.eye(3)).max():.3g}, expected "
            f"at most {RIGID_TOLERANCE:g}. Remove shear and unequal scales from the pose."
        )
    if np.linalg.det(rotation) < 0:
        raise UserError(
            f"{where} is a reflection (determinant -1), expected a rotation. Negate the axis that is flipped."
        )
    if np.abs(pose[3] - [0, 0, 0, 1]).max() > RIGID_TOLERANCE:
        raise UserError(
            f"{where} has the last row {pose[3].tolist()}, expected 0, 0, 0, 1. Transpose it if it is stored "
            "column by column."
        )
    return pose


def _is_identity(gram: np.ndarray) -> bool:
    return bool(np.abs(gram - np.eye(3)).max() <= RIGID_TOLERANCE)


def with_extension(stem: Path) -> Path:
    """The first existing file that stem names, with or without an extension; stem itself if there is none."""
    upper = [extension.upper() for extension in IMAGE_EXTENSIONS if extension]
    candidates = [Path(f"{stem}{extension}") for extension in (*IMAGE_EXTENSIONS, *upper)]
    if "\\" in str(stem):  # as programs on Windows write paths
        candidates += [Path(str(path).replace("\\", "/")) for path in candidates]
    # Files first: a folder r_0 beside r_0.png is not the image.
    existing = [path for path in candidates if is_file(path)] or [path for path in candidates if is_there(path)]
    return existing[0] if existing else stem
