"""Key frames in path files: what nerfstudio's viewer keeps of them, beside the cameras of all frames.

    {..., "keyframes": [{"matrix": [16 numbers], "fov": 50, "aspect": 1.333, "override_transition_enabled": true,
     "override_transition_sec": 2}, ...], "default_fov": 50, "default_transition_sec": 2, "is_cycle": false}

Whoever renders the path reads its frames alone (nerf/cameras/path_file.py); key frames are there to be edited again.
override_transition_sec is the time from the key frame before, default_transition_sec where it is not enabled.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nerf.cameras.key_frames import DEFAULT_SECONDS, LEAST_SECONDS, MOST_SECONDS, KeyFrame, KeyFramePath
from nerf.cameras.limits import SMALLEST_ANGLE
from nerf.cameras.path_file import (
    matrix_entry,
    path_content,
    read_camera_path,
    read_number,
    read_path_object,
    read_pose,
)
from nerf.errors import UserError
from nerf.files import write_text
from nerf.reading import shown

ROUNDING = 1e-6  # of the limits of a number that was written as text


@dataclass(frozen=True)
class EditedPath:
    """Key frames and how their path is rendered."""

    path: KeyFramePath
    fps: float | None  # None: the file does not say
    width: int
    height: int


def write_key_frames(file: Path, path: KeyFramePath, fps: float, width: int, height: int) -> None:
    """Writes a path of at least 2 key frames with all its frames. Raises UserError if the file cannot be written."""
    content = path_content(path.cameras(fps, width, height), fps)
    content["keyframes"] = [
        {
            "matrix": matrix_entry(key.c2w.cpu()),
            "fov": math.degrees(key.fov),
            "aspect": width / height,
            "override_transition_enabled": True,
            "override_transition_sec": key.seconds,
        }
        for key in path.keys
    ]
    content |= {
        "default_fov": math.degrees(path.keys[0].fov),
        "default_transition_sec": DEFAULT_SECONDS,
        "is_cycle": path.loop,
        "smoothness_value": 0.0,
    }
    write_text(file, json.dumps(content, indent=1) + "\n")


def read_key_frames(file: Path) -> EditedPath:
    """Reads a path file with key frames. Raises UserError as read_camera_path, and if there are no key frames."""
    frames = read_camera_path(file)
    content = read_path_object(file)
    entries = content.get("keyframes")
    if not isinstance(entries, list) or not entries:
        raise UserError(
            f"{file}: key 'keyframes' is {shown(entries)}, expected a list of key frames as the viewer saves it; "
            "the frames alone can be rendered, with scripts/render.py, but not edited."
        )
    keys = tuple(_key_frame(f"{file}: keyframes[{index}]", entry, content) for index, entry in enumerate(entries))
    path = KeyFramePath(keys, content.get("is_cycle") is True)
    return EditedPath(path, frames.fps, frames.cameras.width, frames.cameras.height)


def _key_frame(where: str, entry: Any, content: dict[str, Any]) -> KeyFrame:
    if not isinstance(entry, dict):
        raise UserError(f"{where} is {shown(entry)}, expected an object with matrix and fov; correct it.")
    fov = read_number(where, entry, "fov", math.degrees(SMALLEST_ANGLE), 180, "the vertical angle in degrees")
    name, holder = "override_transition_sec", entry
    if entry.get("override_transition_enabled") is not True:
        name, holder = "default_transition_sec", {"default_transition_sec": DEFAULT_SECONDS} | content
    limits = LEAST_SECONDS - ROUNDING, MOST_SECONDS + ROUNDING
    seconds = read_number(where, holder, name, *limits, "the seconds from the key frame before")
    return KeyFrame(read_pose(where, entry, "matrix").float(), math.radians(fov), seconds)
