"""The cameras of a run as files that other programs read: transforms.json (instant-ngp, nerfstudio) and COLMAP's text.

Poses that were learned go out as they were learned.
"""

import json
import math
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from nerf.cameras.cameras import PANORAMA, Cameras
from nerf.cameras.distortion import COEFFICIENTS
from nerf.cameras.poses import OPENCV_SIGNS
from nerf.cameras.se3 import quaternion_from_rotation
from nerf.errors import UserError
from nerf.files import replacing, write_text

MODEL_NAMES = {"perspective": "OPENCV", "fisheye": "OPENCV_FISHEYE", PANORAMA: "EQUIRECTANGULAR"}


def write_transforms(path: Path, cameras: Cameras, names: Sequence[str]) -> tuple[str, ...]:
    """One JSON file: for each camera its image's name, camera to world (OpenGL's axes), intrinsics and lens.

    nerfstudio reads camera_model at the top of the file alone, so it stands there too where all cameras have one.
    instant-ngp reads is_fisheye of each frame. Returns the models that occur. Raises UserError where it cannot be
    written.
    """
    frames = []
    for index, name in enumerate(names):
        width, height = cameras.size(index)
        fx, fy, cx, cy = cameras.intrinsics[index].double().tolist()
        model, lens = _lens(cameras, index)
        unit = math.pi if model == PANORAMA else 1  # nerfstudio measures angles in units of pi
        pose = [*cameras.c2w[index].double().tolist(), [0.0, 0.0, 0.0, 1.0]]
        frames.append(
            {
                "file_path": name,
                "camera_model": MODEL_NAMES[model],
                **({"is_fisheye": True} if model == "fisheye" else {}),
                **dict(w=width, h=height, fl_x=unit * fx, fl_y=unit * fy, cx=cx, cy=cy),
                **lens,
                "transform_matrix": pose,
            }
        )
    models = tuple(dict.fromkeys(frame["camera_model"] for frame in frames))
    header = {"camera_model": models[0]} if len(models) == 1 else {}
    write_text(path, json.dumps({**header, "frames": frames}, indent=1) + "\n")
    return models


def write_colmap(folder: Path, cameras: Cameras, names: Sequence[str]) -> None:
    """cameras.txt, images.txt and an empty points3D.txt in a folder: COLMAP's text model without points.

    Raises UserError where it cannot be written, for a lens that COLMAP has no model for, and for names with spaces, of
    which COLMAP reads what stands before the first.
    """
    camera_lines, image_lines = [], []
    for index, name in enumerate(names):
        width, height = cameras.size(index)
        model, numbers = _colmap_camera(cameras, index)
        camera_lines.append(f"{index + 1} {model} {width} {height} {_joined(numbers)}")
        c2w = cameras.c2w[index].double()
        world_to_camera = (c2w[:, :3] * c2w.new_tensor(OPENCV_SIGNS)).T
        moved = -world_to_camera @ c2w[:, 3]
        pose = _joined([*quaternion_from_rotation(world_to_camera[None])[0].tolist(), *moved.tolist()])
        image_lines += [f"{index + 1} {pose} {index + 1} {name}", ""]  # no points are seen in it
    parted = [name for name in names if any(character.isspace() for character in name)]
    if parted:
        raise UserError(
            f"format=colmap cannot name {len(parted)} of {len(names)} photos, as {parted[0]!r}: COLMAP reads a name up "
            "to its first space. Rename them, or export format=cameras, whose transforms.json takes any name."
        )
    files = {"cameras.txt": camera_lines, "images.txt": image_lines, "points3D.txt": []}
    with ExitStack() as written:  # all of them or none
        for name, lines in files.items():
            partial = written.enter_context(replacing(folder / name))
            text = "".join(f"{line}\n" for line in lines)
            partial.write_text(text, encoding="utf-8", errors="surrogateescape")  # a name's bytes as they are


def _lens(cameras: Cameras, index: int) -> tuple[str, dict[str, float]]:
    """The model of a camera's lens and its coefficients by name, those that are not zero, and p1, p2 beside such.

    instant-ngp keeps k3 and p1, and k4 and p2, in one place each, and reads k3 and k4 first: p1 and p2, zero or not,
    clear it of what its perspective model has not.
    """
    if cameras.lenses is None:
        return "perspective", {}
    model = cameras.lenses[[index]].models[0]
    names = COEFFICIENTS[model]
    values = cameras.lenses.coefficients[index].double().tolist()
    lens = {name: value for name, value in zip(names, values, strict=False) if value != 0}
    return model, {**dict.fromkeys(("p1", "p2"), 0.0), **lens} if lens and model == "perspective" else lens


def _colmap_camera(cameras: Cameras, index: int) -> tuple[str, list[float]]:
    """COLMAP's name of a camera's model, and its parameters."""
    intrinsics = cameras.intrinsics[index].double().tolist()
    model, lens = _lens(cameras, index)
    if model == PANORAMA:
        raise UserError(
            "format=colmap has no model for panoramas (EQUIRECTANGULAR); export format=cameras, whose transforms.json "
            "has it."
        )
    if model == "fisheye":
        return "OPENCV_FISHEYE", intrinsics + [lens.get(name, 0.0) for name in ("k1", "k2", "k3", "k4")]
    if "k4" in lens:
        raise UserError(
            "format=colmap has no model for a perspective lens with k4; export format=cameras, whose transforms.json "
            "has it."
        )
    numbers = intrinsics + [lens.get(name, 0.0) for name in ("k1", "k2", "p1", "p2")]
    if "k3" in lens:
        return "FULL_OPENCV", [*numbers, lens["k3"], 0.0, 0.0, 0.0]
    return ("OPENCV", numbers) if lens else ("PINHOLE", intrinsics)


def _joined(numbers: Sequence[float]) -> str:
    return " ".join(f"{number:.17g}" for number in numbers)
