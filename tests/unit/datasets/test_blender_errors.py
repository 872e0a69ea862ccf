"""Every kind of bad Blender scene is refused with a message that names the file and the remedy."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from fixtures import POSES, edit_transforms, random_images, write_sphere_scene, write_split
from PIL import Image

from nerf.datasets.blender import available_splits, load_blender
from nerf.errors import UserError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A scene whose train split has two RGBA images of 6x4 random pixels."""
    write_split(tmp_path, "train", random_images(2, 4, 6, 4), POSES)
    return tmp_path


def complaint(folder: Path, split: str = "train") -> str:
    """The message with which load_blender refuses the folder."""
    with pytest.raises(UserError) as caught:
        load_blender(folder, split)
    return str(caught.value)


def set_pose(folder: Path, matrix: object) -> None:
    edit_transforms(folder, lambda transforms: transforms["frames"][1].update(transform_matrix=matrix))


# Files


def test_missing_folder(tmp_path: Path) -> None:
    assert "nowhere: no such folder" in complaint(tmp_path / "nowhere")


def test_missing_split_names_those_there(folder: Path) -> None:
    (folder / "transforms_val.json").write_text("{}")
    assert available_splits(folder) == ["train", "val"]
    message = complaint(folder, "test")
    assert "transforms_test.json: no such file; splits found in its folder: train, val" in message


def test_no_split_at_all(tmp_path: Path) -> None:
    assert "splits found in its folder: none" in complaint(tmp_path)


def test_transforms_file_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "transforms_train.json").mkdir()
    assert "transforms_train.json: cannot be read (Is a directory)" in complaint(tmp_path)


def test_transforms_file_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "transforms_train.json").write_bytes(b"\xff\xfe\x00")
    assert "transforms_train.json: cannot be read" in complaint(tmp_path)


def test_invalid_json_names_the_line(folder: Path) -> None:
    (folder / "transforms_train.json").write_text('{\n"camera_angle_x": 0.8,\n"frames": [,]\n}')
    assert "transforms_train.json: not valid JSON at line 3" in complaint(folder)


@pytest.mark.parametrize("key", ["camera_angle_x", "frames"])
def test_missing_top_level_key(folder: Path, key: str) -> None:
    edit_transforms(folder, lambda transforms: transforms.pop(key))
    message = complaint(folder)
    assert f"key '{key}' is missing" in message and "transforms_train.json" in message


@pytest.mark.parametrize("key", ["file_path", "transform_matrix"])
def test_missing_frame_key(folder: Path, key: str) -> None:
    edit_transforms(folder, lambda transforms: transforms["frames"][1].pop(key))
    assert f"{key} of frame 1 is missing" in complaint(folder)


@pytest.mark.parametrize("frames", [[], {}, ["train/r_0"], 3])
def test_no_usable_frames(folder: Path, frames: object) -> None:
    edit_transforms(folder, lambda transforms: transforms.update(frames=frames))
    assert f"key 'frames' is {json.dumps(frames)[:1]}" in complaint(folder)


def test_top_level_is_a_list(folder: Path) -> None:
    (folder / "transforms_train.json").write_text("[1, 2]")
    assert "key 'frames' is missing" in complaint(folder)


def test_missing_images_are_counted(folder: Path) -> None:
    (folder / "train" / "r_1.png").unlink()
    message = complaint(folder)
    assert "train/r_1: no such file, nor with .png" in message
    assert "1 of the 2 files" in message and "under file_path" in message


def test_image_is_a_folder(folder: Path) -> None:
    (folder / "train" / "r_1.png").unlink()
    (folder / "train" / "r_1.png").mkdir()
    assert "r_1.png: cannot be read as an image (Is a directory)" in complaint(folder)


@pytest.mark.parametrize("kept", [0.0, 0.02, 0.5, 0.99])
def test_truncated_image(tmp_path: Path, kept: float) -> None:
    write_split(tmp_path, "train", random_images(2, 40, 40, 4), POSES)
    path = tmp_path / "train" / "r_1.png"
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data))])
    message = complaint(tmp_path)
    assert str(path) in message and f"in {int(kept * len(data))} bytes" in message


def test_flipped_bits_in_an_image(tmp_path: Path) -> None:
    # Decoders notice most damage to noise themselves, but miss much of it in an image that compresses well.
    row, column = np.mgrid[:40, :40]
    smooth = np.stack([5 * column, 6 * row, row * column, 255 * (column > row)], axis=-1).astype(np.uint8)
    write_split(tmp_path, "train", smooth[None], POSES[:1])
    path = tmp_path / "train" / "r_0.png"
    intact = path.read_bytes()
    for position in range(20, len(intact) - 20, 9):
        damaged = bytearray(intact)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        assert "r_0.png: " in complaint(tmp_path)


def test_images_of_different_sizes(folder: Path) -> None:
    Image.new("RGBA", (5, 4)).save(folder / "train" / "r_1.png")
    message = complaint(folder)
    assert "r_1.png is 5x4" in message and "r_0.png is 6x4" in message


# Cameras


@pytest.mark.parametrize("entry", [math.nan, math.inf, "1.0", None, True, [1]])
def test_pose_entry_is_not_a_finite_number(folder: Path, entry: object) -> None:
    matrix = POSES[1].tolist()
    matrix[0][2] = entry
    set_pose(folder, matrix)
    message = complaint(folder)
    assert "transform_matrix of frame 1 holds" in message and "expected finite numbers" in message


@pytest.mark.parametrize("matrix", [POSES[1][:3].tolist(), POSES[1][:, :3].tolist(), [1, 2, 3, 4], "eye", []])
def test_pose_of_another_shape(folder: Path, matrix: object) -> None:
    set_pose(folder, matrix)
    assert "expected 4 rows of 4 numbers" in complaint(folder)


@pytest.mark.parametrize(
    ("factors", "expected"),
    [
        ([2.5, 2.5, 2.5], "scales uniformly by 2.5,"),
        ([1, 1, 1.2], "not rigid: R^T R differs from I by 0.44"),
        ([0, 0, 0], "not rigid"),
        ([1, 1, -1], "reflection"),
    ],
)
def test_pose_that_is_not_rigid(folder: Path, factors: list[float], expected: str) -> None:
    matrix = POSES[1].copy()
    matrix[:3, :3] *= factors
    set_pose(folder, matrix.tolist())
    message = complaint(folder)
    assert expected in message and "transforms_train.json: transform_matrix of frame 1" in message


def test_transposed_pose(folder: Path) -> None:
    set_pose(folder, POSES[1].T.tolist())
    assert "Transpose it" in complaint(folder)


def test_rounded_pose_is_accepted(folder: Path) -> None:
    set_pose(folder, POSES[1].round(4).tolist())
    load_blender(folder, "train")


@pytest.mark.parametrize("angle", [0, -0.5, math.pi, 39.6, math.nan, math.inf, "0.69", True])
def test_absurd_field_of_view(folder: Path, angle: object) -> None:
    path = edit_transforms(folder, lambda transforms: transforms.update(camera_angle_x=angle))
    assert f"{path}: camera_angle_x is" in complaint(folder)


def test_stated_size_differs_from_the_images(folder: Path) -> None:
    edit_transforms(folder, lambda transforms: transforms.update(w=12, h=8))
    assert "w, h say 12x8 but the images are 6x4" in complaint(folder)


def test_a_lens_that_is_no_number(folder: Path) -> None:
    edit_transforms(folder, lambda transforms: transforms.update(k1=0.01, p1="none"))
    assert 'p1 is "none", expected a finite number' in complaint(folder)


# Depth maps


@pytest.fixture
def depth_folder(tmp_path: Path) -> Path:
    write_sphere_scene(tmp_path, views=2, size=4, splits=["train"], with_depth=True)
    return tmp_path


def test_depth_without_scale(depth_folder: Path) -> None:
    edit_transforms(depth_folder, lambda transforms: transforms.pop("depth_scale"))
    assert "key 'depth_scale' is missing" in complaint(depth_folder)


def test_depth_missing_from_one_frame(depth_folder: Path) -> None:
    edit_transforms(depth_folder, lambda transforms: transforms["frames"][0].pop("depth_file_path"))
    assert "depth_file_path of frame 0 is missing" in complaint(depth_folder)


def test_depth_map_is_not_16_bit(depth_folder: Path) -> None:
    Image.new("L", (4, 4)).save(depth_folder / "train" / "depth_1.png")
    assert "depth_1.png: depth map with pixels of type L" in complaint(depth_folder)


def test_depth_map_of_another_size(depth_folder: Path) -> None:
    Image.fromarray(np.ones((4, 5), np.uint16)).save(depth_folder / "train" / "depth_1.png")
    assert "depth_1.png is 5x4" in complaint(depth_folder)
