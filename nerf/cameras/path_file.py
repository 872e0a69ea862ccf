"""Camera paths as JSON files in nerfstudio's format; reading reports every mistake with its remedy.

    {"camera_type": "perspective", "render_width": 800, "render_height": 600, "fps": 30, "seconds": 2,
     "camera_path": [{"camera_to_world": [16 numbers, row by row], "fov": 50, "aspect": 1.333}, ...]}

camera_to_world has OpenGL axes (x right, y up, looking along -z), like ours, in the world of the dataset. nerfstudio
moves and scales a scene before training, so a path from its viewer fits only if that was switched off. fov is the
vertical angle of view in degrees; pixels are square and the principal point is the image center. With camera_type
"equirectangular" the pictures are panoramas, and fov means nothing.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nerf.cameras.cameras import PANORAMA, Cameras, focal_from_fov
from nerf.cameras.distortion import Lenses
from nerf.cameras.limits import FARTHEST, FASTEST, SLOWEST, is_coordinate, unusable_intrinsics
from nerf.cameras.panoramas import full_turn, views_ahead
from nerf.cameras.se3 import RIGID_TOLERANCE
from nerf.errors import UserError
from nerf.files import write_text
from nerf.reading import is_there, read_json, shown

MAX_SIZE = 16384  # pixels along an edge; what H.264 can store
OFF_CENTER = 0.1  # pixels that nobody sees
ASPECT_TOLERANCE = 0.02  # rounding to whole pixels and to a few digits


@dataclass(frozen=True)
class CameraPath:
    """The cameras of a path file and its frames per second, None if it has none."""

    cameras: Cameras
    fps: float | None


def write_camera_path(path: Path, cameras: Cameras, fps: float) -> None:
    """Writes cameras as a path file; missing folders are created.

    The only intrinsic in the format is the vertical angle of view: fx, cx and cy are lost if pixels are not square or
    the principal point is not the image center. Panoramas stay such where all cameras are, else they become pinholes
    that look ahead. fps: frames per second. Raises UserError if path cannot be written, and ValueError for numbers that
    read_camera_path does not take.
    """
    write_text(path, json.dumps(path_content(cameras, fps), indent=1) + "\n")


def is_simplified(cameras: Cameras) -> bool:
    """Whether a path file says less of cameras than there is, so that their pictures differ when it is rendered."""
    if cameras.has_panoramas and bool(cameras.panoramas.all()):
        return False
    fx, fy, *middle = cameras.intrinsics.cpu().unbind(-1)
    sizes = cameras.image_sizes.cpu()
    off = ((torch.stack(middle, dim=-1) - sizes / 2).abs() > OFF_CENTER).any()
    return bool(off or ((fx / fy - 1).abs() * sizes[:, 0] > OFF_CENTER).any() or cameras.lenses is not None)


def path_content(cameras: Cameras, fps: float) -> dict[str, Any]:
    """What a path file holds; see write_camera_path."""
    if not SLOWEST <= fps <= FASTEST:
        raise ValueError(f"fps: found {fps}, expected {SLOWEST:g} to {FASTEST:g} frames per second")
    for index, (pose, intrinsics) in enumerate(zip(cameras.c2w, cameras.intrinsics.tolist())):
        problem = unusable_intrinsics(*intrinsics)
        if problem is None and not (pose.abs() <= FARTHEST).all():
            problem = f"its pose holds {pose.flatten().tolist()}, expected finite numbers up to {FARTHEST:g}"
        if problem is not None:
            raise ValueError(f"cameras[{index}]: {problem}")
    around = cameras.has_panoramas and bool(cameras.panoramas.all())
    cameras = cameras if around else views_ahead(cameras)
    entries = [
        {
            "camera_to_world": matrix_entry(pose),
            "fov": math.degrees(2 * math.atan(0.5 * height / fy)),
            "aspect": cameras.width / cameras.height,
        }
        for pose, fy, (_, height) in zip(
            cameras.c2w.cpu(), cameras.intrinsics[:, 1].tolist(), cameras.image_sizes.tolist(), strict=True
        )
    ]
    return {
        "camera_type": PANORAMA if around else "perspective",
        "render_width": cameras.width,
        "render_height": cameras.height,
        "fps": fps,
        "seconds": len(cameras) / fps,
        "camera_path": entries,
    }


def matrix_entry(pose: torch.Tensor) -> list[float]:
    """A pose [3,4] as 16 numbers, row by row."""
    return [*pose.flatten().tolist(), 0.0, 0.0, 0.0, 1.0]


def read_camera_path(path: Path) -> CameraPath:
    """Reads a path file: float32 cameras on the CPU, and the frame rate.

    The frame rate is fps, or else the number of frames divided by seconds. A scale in camera_to_world is removed.
    Raises UserError, naming file and entry, for a file that is missing or not JSON, for missing keys, wrong counts,
    numbers that are not finite, matrices that are not poses, angles out of range, and cameras other than perspective
    ones and panoramas.
    """
    content = read_path_object(path)
    kind = content.get("camera_type", "perspective")
    if not isinstance(kind, str) or kind.lower() not in ("perspective", PANORAMA):
        raise UserError(
            f"{path}: camera_type is {shown(kind)}, but only pinhole cameras and panoramas can be rendered; "
            f"export the path again with camera_type 'perspective' or '{PANORAMA}'."
        )
    width, height = (_size(path, content, key) for key in ("render_width", "render_height"))
    around = kind.lower() == PANORAMA
    if around and width != 2 * height:
        raise UserError(
            f"{path}: camera_type is {shown(kind)}, but render_width x render_height is {width}x{height}, expected "
            "twice as wide as high, for a panorama is 360 by 180 degrees; correct one of them."
        )
    entries = content.get("camera_path")
    if not isinstance(entries, list) or not entries:
        raise UserError(
            f"{path}: key 'camera_path' is {shown(entries)}, expected a list of at least one camera; "
            "add cameras to the path and export it again."
        )
    poses, intrinsics = [], []
    for index, entry in enumerate(entries):
        where = f"{path}: camera_path[{index}]"
        if not isinstance(entry, dict):
            raise UserError(f"{where} is {shown(entry)}, expected an object with camera_to_world and fov; correct it.")
        poses.append(read_pose(where, entry))
        if around:  # fov and aspect mean nothing
            intrinsics.append(full_turn(width, height))
            continue
        fov = read_number(where, entry, "fov", 0, 180, "the vertical angle in degrees")
        focal = focal_from_fov(height, math.radians(fov))
        problem = unusable_intrinsics(focal, focal, 0, 0)
        if problem is not None:
            raise UserError(f"{where}: fov is {fov:g} degrees, so {problem}; correct it.")
        _check_aspect(where, entry, width, height)
        intrinsics.append([focal, focal, width / 2, height / 2])
    lenses = Lenses.of([PANORAMA] * len(poses), [()] * len(poses)) if around else None
    cameras = Cameras(torch.stack(poses).float(), torch.tensor(intrinsics), width, height, lenses=lenses)
    return CameraPath(cameras, _frame_rate(path, content, len(poses)))


def read_path_object(path: Path) -> dict[str, Any]:
    if not is_there(path):
        raise UserError(f"{path}: no such file, expected a camera path in nerfstudio's JSON format; correct path=.")
    content = read_json(path)
    if not isinstance(content, dict):
        raise UserError(
            f"{path}: holds {shown(content)}, expected an object with the key 'camera_path'; export the path again."
        )
    return content


def read_number(where: str, holder: dict[str, Any], key: str, low: float, high: float, meaning: str) -> float:
    """The number under a key, between low and high, neither included."""
    value = holder.get(key)
    if value is None:
        raise UserError(f"{where}: key '{key}' is missing, expected {meaning}; add it.")
    if not isinstance(value, float) or not low < value < high:  # NaN is in no range
        limits = "above 0" if math.isinf(high) else f"between {low:g} and {high:g}"
        raise UserError(f"{where}: {key} is {shown(value)}, expected {meaning}, a number {limits}; correct it.")
    return value


def _size(path: Path, content: dict[str, Any], key: str) -> int:
    size = read_number(str(path), content, key, 0, MAX_SIZE + 1, "the size of the frames in pixels")
    if size != round(size):
        raise UserError(f"{path}: {key} is {size:g}, expected a whole number of pixels; correct it.")
    return round(size)


def _frame_rate(path: Path, content: dict[str, Any], frames: int) -> float | None:
    if content.get("fps") is not None:
        return read_number(str(path), content, "fps", SLOWEST, FASTEST, "the frames per second")
    if content.get("seconds"):  # 0 is what viewers write for a path without a length
        longest, shortest = frames / SLOWEST, frames / FASTEST
        return frames / read_number(str(path), content, "seconds", shortest, longest, "the length of the video")
    return None


def _check_aspect(where: str, entry: dict[str, Any], width: int, height: int) -> None:
    """Checks that aspect agrees with the image size. Several programs write 1 for any size, which is ignored."""
    if entry.get("aspect") is None:
        return
    aspect = read_number(where, entry, "aspect", 0, math.inf, "width by height")
    if aspect != 1 and abs(aspect * height / width - 1) > ASPECT_TOLERANCE:
        raise UserError(
            f"{where}: aspect is {aspect:g}, but render_width x render_height is {width}x{height}, which is "
            f"{width / height:g}; correct one of them (width= and height= still choose another size)."
        )


def read_pose(where: str, entry: dict[str, Any], key: str = "camera_to_world") -> torch.Tensor:
    """The pose under a key, [3,4] float64; a scale in it is removed."""
    values = entry.get(key)
    if not isinstance(values, list) or len(values) != 16:
        found = f"a list of {len(values)}" if isinstance(values, list) else shown(values)
        raise UserError(f"{where}: {key} is {found}, expected 16 numbers, a 4x4 matrix row by row; correct it.")
    for value in values:
        if not is_coordinate(value):
            limits = f"finite numbers up to {FARTHEST:g}"
            raise UserError(f"{where}: {key} holds {shown(value)}, expected {limits}; correct it.")
    matrix = torch.tensor(values, dtype=torch.float64).view(4, 4)
    last_row = matrix.new_tensor([0.0, 0.0, 0.0, 1.0])
    if not torch.allclose(matrix[3], last_row, rtol=0, atol=1e-6):
        transposed = torch.allclose(matrix[:, 3], last_row, rtol=0, atol=1e-6)
        hint = "; it is written column by column, transpose it." if transposed else "; correct it."
        raise UserError(f"{where}: {key} ends with {matrix[3].tolist()}, expected the row 0, 0, 0, 1{hint}")
    volume = torch.linalg.det(matrix[:3, :3])
    rotation = matrix[:3, :3] / volume.clamp(min=1e-30) ** (1 / 3)  # huge where it mirrors
    if (rotation.T @ rotation - torch.eye(3)).abs().max() > RIGID_TOLERANCE:
        raise UserError(
            f"{where}: {key} is not a rotation, a scale and a shift (it mirrors or shears, determinant "
            f"{volume.item():.3g}); expected a camera's pose; export it again."
        )
    return torch.cat([rotation, matrix[:3, 3:]], dim=1)
