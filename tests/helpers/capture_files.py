"""Small captures of every format, written by the tests themselves: a ring of cameras around the origin.

write_* take the same frames, so what the readers return can be compared across formats.
"""

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fixtures import look_at_origin
from PIL import Image

WIDTH, HEIGHT = 24, 16  # pixels, not square, so that swapped axes show
INTRINSICS = (30.0, 31.0, 12.5, 7.5)  # fx, fy, cx, cy
FLIP_YZ = np.diag([1.0, -1.0, -1.0, 1.0])
# Number, lens and parameters of COLMAP's models as written by write_colmap.
COLMAP_NUMBERS = {
    "SIMPLE_PINHOLE": 0, "PINHOLE": 1, "SIMPLE_RADIAL": 2, "RADIAL": 3, "OPENCV": 4, "OPENCV_FISHEYE": 5,
    "FULL_OPENCV": 6, "SIMPLE_RADIAL_FISHEYE": 8, "RADIAL_FISHEYE": 9,
}  # fmt: skip


@dataclass(frozen=True)
class Ring:
    """Names and camera-to-world matrices [4,4], OpenGL axes."""

    names: list[str]
    poses: list[np.ndarray]


def ring(count: int = 4, radius: float = 4.0, arc: float = 6.0, name: str = "view {}.png") -> Ring:
    """Cameras over an arc (radians) of azimuth at different heights that look at the origin."""
    poses = [look_at_origin(arc * index / count, 0.2 + 0.1 * (index % 3), radius) for index in range(count)]
    return Ring([name.format(index) for index in range(count)], poses)


def write_photos(folder: Path, names: Sequence[str], size: tuple[int, int] = (WIDTH, HEIGHT)) -> None:
    """Gray photos of one size (width, height)."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (90, 90, 90)).save(folder / name)


def write_transforms(folder: Path, views: Ring, file: str = "transforms.json", **header: object) -> Path:
    """transforms.json with photos in images/; header may replace the camera and may hold more keys."""
    write_photos(folder / "images", views.names)
    fx, fy, cx, cy = INTRINSICS
    camera = {"fl_x": fx, "fl_y": fy, "cx": cx, "cy": cy, "w": WIDTH, "h": HEIGHT}
    frames = [
        {"file_path": f"images/{name}", "transform_matrix": pose.tolist()}
        for name, pose in zip(views.names, views.poses)
    ]
    path = folder / file
    path.write_text(json.dumps({**camera, **header, "frames": frames}, ensure_ascii=False), encoding="utf-8")
    return path


def write_nsvf(folder: Path, views: Ring, prefixes: str = "0012", bbox: str | None = "-1 -1 -1 1 1 1 0.4") -> None:
    """NSVF's layout; frame i gets prefixes[i] in front of its name."""
    names = [f"{prefix}_{name}" for prefix, name in zip(prefixes, views.names)]
    write_photos(folder / "rgb", names)
    (folder / "pose").mkdir(parents=True, exist_ok=True)
    for name, pose in zip(names, views.poses):
        np.savetxt(folder / "pose" / f"{Path(name).stem}.txt", pose @ FLIP_YZ)
    fx, fy, cx, cy = INTRINSICS
    np.savetxt(folder / "intrinsics.txt", [[fx, 0, cx, 0], [0, fy, cy, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    if bbox is not None:
        (folder / "bbox.txt").write_text(bbox)


def llff_rows(views: Ring, focal: float = 30.0, near: float = 2.0, far: float = 6.0) -> np.ndarray:
    """The array [I,17] of poses_bounds.npy."""
    rows = []
    for pose in views.poses:
        right, up, backward, center = pose[:3].T
        matrix = np.stack([-up, right, backward, center, [HEIGHT, WIDTH, focal]], axis=1)
        rows.append([*matrix.reshape(-1), near, far])
    return np.array(rows)


def write_llff(folder: Path, views: Ring) -> None:
    """poses_bounds.npy with photos in images/."""
    write_photos(folder / "images", views.names)
    np.save(folder / "poses_bounds.npy", llff_rows(views))


def quaternion(rotation: np.ndarray) -> np.ndarray:
    """w, x, y, z of a rotation [3,3]: the eigenvector of Bar-Itzhack's matrix (2000) with the largest eigenvalue."""
    (a, b, c), (d, e, f), (g, h, i) = rotation
    matrix = np.array(
        [
            [a + e + i, h - f, c - g, d - b],
            [h - f, a - e - i, b + d, c + g],
            [c - g, b + d, e - a - i, f + h],
            [d - b, c + g, f + h, i - a - e],
        ]
    )
    return np.linalg.eigh(matrix)[1][:, -1]


def write_colmap(
    folder: Path,
    views: Ring,
    binary: bool = True,
    model: str = "PINHOLE",
    parameters: Sequence[float] = INTRINSICS,
    points: np.ndarray | None = None,
    size: tuple[int, int] = (WIDTH, HEIGHT),
) -> Path:
    """A model in sparse/0 with one camera; every image sees every point [P,3], at the pixel 1.0, 2.0.

    Returns the folder of the model. Photos are not written.
    """
    target = folder / "sparse" / "0"
    target.mkdir(parents=True, exist_ok=True)
    poses = []
    for pose in views.poses:
        w2c = np.linalg.inv(pose @ FLIP_YZ)
        poses.append([*quaternion(w2c[:3, :3]), *w2c[:3, 3]])
    (_write_binary if binary else _write_text)(target, views.names, poses, model, parameters, points, size)
    return target


def _write_binary(target, names, poses, model, parameters, points, size) -> None:
    number = COLMAP_NUMBERS.get(model, 77)
    camera = struct.pack(f"<iiQQ{len(parameters)}d", 1, number, *size, *parameters)
    (target / "cameras.bin").write_bytes(struct.pack("<Q", 1) + camera)
    ids = range(5, 5 + (0 if points is None else len(points)))
    seen = b"".join(struct.pack("<ddq", 1.0, 2.0, point) for point in ids) + struct.pack("<ddq", 3.0, 4.0, -1)
    images = [
        struct.pack("<i7di", index, *pose, 1) + name.encode() + b"\0" + struct.pack("<Q", len(ids) + 1) + seen
        for index, (name, pose) in enumerate(zip(names, poses), 1)
    ]
    (target / "images.bin").write_bytes(struct.pack("<Q", len(images)) + b"".join(images))
    if points is not None:
        track = struct.pack("<Q", 2) + struct.pack("<4i", 1, 0, 2, 0)
        rows = [struct.pack("<Q3d3Bd", point, *xyz, 1, 2, 3, 0.5) + track for point, xyz in zip(ids, points)]
        (target / "points3D.bin").write_bytes(struct.pack("<Q", len(rows)) + b"".join(rows))


def _write_text(target, names, poses, model, parameters, points, size) -> None:
    numbers = " ".join(repr(float(value)) for value in parameters)
    (target / "cameras.txt").write_text(f"# a comment\n1 {model} {size[0]} {size[1]} {numbers}\n")
    ids = range(5, 5 + (0 if points is None else len(points)))
    seen = " ".join(f"1.0 2.0 {point}" for point in ids)
    lines = ["# a comment"]
    for index, (name, pose) in enumerate(zip(names, poses), 1):
        lines += [f"{index} {' '.join(repr(float(value)) for value in pose)} 1 {name}", seen]
    (target / "images.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if points is not None:
        rows = [f"{point} {' '.join(map(repr, xyz.tolist()))} 1 2 3 0.5 1 0 2 0" for point, xyz in zip(ids, points)]
        (target / "points3D.txt").write_text("\n".join(["# a comment", *rows]) + "\n")


def write_neus(folder: Path, views: Ring, scale: float = 2.0, file: str = "cameras_sphere.npz") -> Path:
    """NeuS' layout with photos in image/: an object in a sphere of radius scale around (1, 2, 3) of its world.

    views are in units of that sphere.
    """
    write_photos(folder / "image", views.names)
    fx, fy, cx, cy = INTRINSICS
    camera = np.array([[fx, 0, cx - 0.5, 0], [0, fy, cy - 0.5, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    sphere = np.diag([scale, scale, scale, 1.0])
    sphere[:3, 3] = 1, 2, 3
    arrays = {}
    for index, pose in enumerate(views.poses):
        in_world = pose @ FLIP_YZ
        in_world = np.vstack([np.hstack([in_world[:3, :3], (sphere @ in_world)[:3, 3:]]), [0, 0, 0, 1]])
        arrays[f"world_mat_{index}"] = -(index + 1.0) * camera @ np.linalg.inv(in_world)  # a projection has no scale
        arrays[f"scale_mat_{index}"] = sphere
    np.savez(folder / file, **arrays)
    return folder / file
