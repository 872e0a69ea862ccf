"""Scenes of NeuS and IDR: cameras come back, and every mistake of the file is answered in words."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from capture_files import INTRINSICS, ring, write_neus, write_photos

from nerf.datasets.readers import read_capture
from nerf.errors import UserError

VIEWS = ring()


def complaint(folder: Path) -> str:
    """The message with which read_capture refuses the folder."""
    with pytest.raises(UserError) as caught:
        read_capture(folder)
    return str(caught.value)


@pytest.mark.parametrize("file", ["cameras_sphere.npz", "cameras.npz"])
def test_neus(tmp_path: Path, file: str) -> None:
    """In units of the object's sphere, whatever the world's; K [R | t] is known up to a factor of any sign."""
    write_neus(tmp_path, VIEWS, file=file)
    capture = read_capture(tmp_path)
    assert len(capture.frames) == 4 and f"NeuS or IDR, since there is {file}" in capture.format
    for frame, pose, name in zip(capture.frames, VIEWS.poses, VIEWS.names):
        np.testing.assert_allclose(frame.c2w, pose[:3], atol=1e-9)
        np.testing.assert_allclose(frame.intrinsics, INTRINSICS, atol=1e-9)
        assert frame.image == tmp_path / "image" / name and frame.mask is None


def edit_arrays(path: Path, change: Callable[[dict], object]) -> None:
    arrays = dict(np.load(path))
    change(arrays)
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda found: found.pop("world_mat_1"), "found world_mat for 3 photos, expected world_mat_0"),
        (lambda found: found.update(world_mat_1=np.eye(3)), "world_mat_1 is float64 of shape [3, 3], expected"),
        (lambda found: found.update(world_mat_1=np.full((4, 4), np.nan)), "world_mat_1 holds numbers that are not fin"),
        (lambda found: found.update(world_mat_1=np.zeros((4, 4))), "world_mat_1 (view 1.png) projects onto a line"),
        (lambda found: found.update(scale_mat_1=3 * np.eye(4)), "the matrices scale_mat differ"),
        (lambda found: found["world_mat_1"].__iadd__(0.3 * found["world_mat_1"][[1, 0, 2, 3]]), "has a skew of"),
    ],
    ids=["gap", "shape", "nan", "singular", "scales", "skew"],
)
def test_matrices_of_neus(tmp_path: Path, change: Callable[[dict], object], expected: str) -> None:
    path = write_neus(tmp_path, VIEWS)
    edit_arrays(path, change)
    message = complaint(tmp_path)
    assert "cameras_sphere.npz" in message and expected in message


def test_photos_and_file_of_neus(tmp_path: Path) -> None:
    path = write_neus(tmp_path, VIEWS)
    write_photos(tmp_path / "image", ["one more.png"])
    assert "5 photos for the 4 matrices world_mat" in complaint(tmp_path)
    whole = path.read_bytes()
    for content in (b"PK no archive", whole[: len(whole) // 2], whole[:300] + b"damage" + whole[306:]):
        path.write_bytes(content)
        assert "cannot be read as arrays of NumPy" in complaint(tmp_path)
