"""Reading a file takes at most ten times its bytes of memory, of Python and NumPy, and a megabyte beside."""

import gc
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from capture_files import ring, write_colmap, write_transforms

from nerf.cameras.path_file import read_camera_path
from nerf.datasets.readers import colmap_binary, colmap_text
from nerf.datasets.readers.arrays import read_npy, read_npz
from nerf.datasets.readers.ply import read_points
from nerf.datasets.readers.transforms import read_frames
from nerf.reading import read_json

MEGABYTE = 1 << 20
MOST = 10  # bytes of memory for one of the file
POINTS = 20_000


def points() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(POINTS, 3))


def ply(folder: Path, text: bool) -> Path:
    kind = "ascii" if text else "binary_little_endian"
    head = f"ply\nformat {kind} 1.0\nelement vertex {POINTS}\n" + "".join(f"property float {a}\n" for a in "xyz")
    body = "\n".join(" ".join(map(repr, row)) for row in points().tolist()).encode()
    body = body if text else points().astype("<f4").tobytes()
    (folder / "points.ply").write_bytes(head.encode() + b"end_header\n" + body)
    return folder / "points.ply"


def colmap(folder: Path, binary: bool, file: str) -> Path:
    return write_colmap(folder, ring(4), binary, points=points()) / file


def transforms(folder: Path) -> Path:
    return write_transforms(folder, ring(3000))


def camera_path(folder: Path) -> Path:
    entries = [{"camera_to_world": pose.reshape(-1).tolist(), "fov": 50, "aspect": 1.5} for pose in ring(3000).poses]
    content = {"render_width": 24, "render_height": 16, "fps": 24, "camera_path": entries}
    (folder / "path.json").write_text(json.dumps(content))
    return folder / "path.json"


def array(folder: Path) -> Path:
    np.save(folder / "poses_bounds.npy", np.random.default_rng(0).normal(size=(20_000, 17)))
    return folder / "poses_bounds.npy"


def arrays(folder: Path) -> Path:
    matrices = {f"world_mat_{index}": np.random.default_rng(index).normal(size=(4, 4)) for index in range(2000)}
    np.savez(folder / "cameras.npz", **matrices)
    return folder / "cameras.npz"


# By name: who writes the file, and what reads it.
FILES: dict[str, tuple[Callable[[Path], Path], Callable[[Path], object]]] = {
    "PLY": (lambda folder: ply(folder, False), read_points),
    "PLY as text": (lambda folder: ply(folder, True), read_points),
    "points3D.bin": (lambda folder: colmap(folder, True, "points3D.bin"), colmap_binary.read_points),
    "images.bin": (lambda folder: colmap(folder, True, "images.bin"), colmap_binary.read_images),
    "points3D.txt": (lambda folder: colmap(folder, False, "points3D.txt"), colmap_text.read_points),
    "images.txt": (lambda folder: colmap(folder, False, "images.txt"), colmap_text.read_images),
    "transforms.json": (transforms, lambda path: read_frames(path, read_json(path))),
    "camera path": (camera_path, read_camera_path),
    "npy": (array, read_npy),
    "npz": (arrays, lambda path: read_npz(path, lambda name: True)),
}


@pytest.mark.parametrize("name", FILES)
def test_memory_is_at_most_ten_times_the_file(tmp_path: Path, name: str) -> None:
    write, read = FILES[name]
    path = write(tmp_path)
    read(path)  # imports, caches
    size = path.stat().st_size
    assert size > MEGABYTE / 5
    gc.disable()  # a collection of all that other tests have left is seen here too, and comes when it likes
    tracemalloc.start()
    try:
        kept = read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.enable()
    assert kept is not None and peak <= MOST * size + MEGABYTE, f"{peak / size:.1f} times the file"
