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

from nerf.cameras.cameras import PANORAMA, Cameras, focal_from_fov, is_unstretched
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

    The only intrinsic in the format is the vertical angle of view, and all pictures have one size, that of the widest
    and highest: fx, cx, cy, lenses and other sizes are lost (is_simplified). Panoramas stay such where all cameras are,
    else they become pinholes that look ahead. fps: frames per second. What is written, read_camera_path takes. Raises
    UserError if path cannot be written, for pictures above MAX_SIZE and for panoramas that are stretched, and
    ValueError for other numbers that no file holds, and where there are no cameras.
    """
    write_text(path, json.dumps(path_content(cameras, fps), indent=1) + "\n")


def is_simplified(cameras: Cameras) -> bool:
    """Whether a path file says less of cameras than there is, so that their pictures differ when it is rendered."""
    sizes = cameras.image_sizes.cpu()
    if (sizes != sizes[:1]).any():
        return True
    if cameras.has_panoramas and bool(cameras.panoramas.all()):
        return bool((sizes[:, 0] != 2 * sizes[:, 1]).any())
    fx, fy, *middle = cameras.intrinsics.cpu().unbind(-1)
    off = ((torch.stack(middle, dim=-1) - sizes / 2).abs() > OFF_CENTER).any()
    return bool(off or ((fx / fy - 1).abs() * sizes[:, 0] > OFF_CENTER).any() or cameras.lenses is not None)


def path_content(cameras: Cameras, fps: float) -> dict[str, Any]:
    """What a path file holds; see write_camera_path."""
    if not SLOWEST <= fps <= FASTEST:
        raise ValueError(f"fps: found {fps}, expected {SLOWEST:g} to {FASTEST:g} frames per second")
    if not len(cameras):
        raise ValueError("cameras: found none, expected at least one")
    for index, (pose, intrinsics) in enumerate(zip(cameras.c2w.cpu(), cameras.intrinsics.tolist())):
        problem = unusable_intrinsics(*intrinsics)
        if problem is None and not (pose.abs() <= FARTHEST).all():
            problem = f"its pose holds {pose.flatten().tolist()}, expected finite numbers up to {FARTHEST:g}"
        if problem is None and _unscaled(pose[:, :3].double()) is None:
            problem = f"its pose holds {pose.flatten().tolist()}, expected a rotation and a center"
        if problem is not None:
            raise ValueError(f"cameras[{index}]: {problem}")
    around = cameras.has_panoramas and bool(cameras.panoramas.all())
    cameras = cameras if around else views_ahead(cameras)
    width, height = _written_size(cameras, around)
    entries = []
    for index, (pose, (_, fy, *_), (_, own_height)) in enumerate(
        zip(cameras.c2w.cpu(), cameras.intrinsics.tolist(), cameras.image_sizes.tolist(), strict=True)
    ):
        fov = math.degrees(2 * math.atan(0.5 * own_height / fy))
        problem = unusable_intrinsics(*2 * [_focal(height, fov)], 0, 0)  # rounded on the way
        if problem is not None:
            raise ValueError(f"cameras[{index}]: {problem}")
        entries.append({"camera_to_world": matrix_entry(pose), "fov": fov, "aspect": width / height})
    return {
        "camera_type": PANORAMA if around else "perspective",
        "render_width": width,
        "render_height": height,
        "fps": fps,
        "seconds": len(cameras) / fps,
        "camera_path": entries,
    }


def _written_size(cameras: Cameras, around: bool) -> tuple[int, int]:
    """Width and height of the pictures. Raises UserError where a path file cannot have them. around: panoramas."""
    size = f"{cameras.width}x{cameras.height}"
    rounded = around and is_unstretched(cameras.width, cameras.height)
    width = 2 * cameras.height if rounded else cameras.width
    if max(width, cameras.height) > MAX_SIZE:
        raise UserError(
            f"frames of {size} pixels are too large, expected at most {MAX_SIZE} along an edge; choose a smaller "
            "width=, height= or scale=."
        )
    if around and not rounded:
        raise UserError(
            f"panoramas of {size} pixels are stretched, expected twice as wide as high, for they show 360 by 180 "
            "degrees; give width= or height= alone, or scale=."
        )
    return width, cameras.height


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
        focal = _focal(height, fov)
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


def read_number(
    where: str, holder: dict[str, Any], key: str, low: float, high: float, meaning: str, with_ends: bool = False
) -> float:
    """The number under a key, between low and high. with_ends: or one of them."""
    value = holder.get(key)
    if value is None:
        raise UserError(f"{where}: key '{key}' is missing, expected {meaning}; add it.")
    inside = isinstance(value, float) and (low < value < high or (with_ends and value in (low, high)))
    if not inside:  # NaN is in no range
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
        return read_number(str(path), content, "fps", SLOWEST, FASTEST, "the frames per second", with_ends=True)
    if content.get("seconds"):  # 0 is what viewers write for a path without a length
        longest, shortest = frames / SLOWEST, frames / FASTEST
        meaning = "the length of the video"
        length = read_number(str(path), content, "seconds", shortest, longest, meaning, with_ends=True)
        return min(max(frames / length, SLOWEST), FASTEST)  # which the quotient leaves by rounding
    return None


def _focal(height: int, fov: float) -> float:
    """Focal length in pixels by a vertical angle of view in degrees, between 0 and 180."""
    angle = math.radians(fov)
    return focal_from_fov(height, angle) if 0.5 * angle > 0 else math.inf  # the smallest numbers have no half


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
    rotation = _unscaled(matrix[:3, :3])
    if rotation is None:
        raise UserError(
            f"{where}: {key} is not a rotation, a scale and a shift (it mirrors or shears, determinant "
            f"{torch.linalg.det(matrix[:3, :3]).item():.3g}); expected a camera's pose; export it again."
        )
    return torch.cat([rotation, matrix[:3, 3:]], dim=1)


def _unscaled(matrix: torch.Tensor) -> torch.Tensor | None:
    """The rotation [3,3] of a matrix that rotates and scales; None of others."""
    rotation = matrix / torch.linalg.det(matrix).clamp(min=1e-30) ** (1 / 3)  # huge where it mirrors
    rigid = (rotation.T @ rotation - torch.eye(3)).abs().max() <= RIGID_TOLERANCE
    return rotation if rigid else None
