"""Every kind of bad capture is refused with a message that names the file, what was found and the remedy."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from capture_files import (
    llff_rows,
    ring,
    write_colmap,
    write_llff,
    write_nsvf,
    write_photos,
    write_transforms,
)
from fixtures import write_sphere_scene

from nerf.datasets.readers import read_capture
from nerf.datasets.readers.ply import read_points
from nerf.errors import UserError

VIEWS = ring()
POINTS = np.random.default_rng(3).uniform(-1, 1, (5, 3))


def complaint(folder: Path, *arguments: str | None) -> str:
    """The message with which read_capture refuses the folder."""
    with pytest.raises(UserError) as caught:
        read_capture(folder, *arguments)
    return str(caught.value)


def edit(path: Path, change: Callable[[dict], object]) -> None:
    parsed = json.loads(path.read_text())
    change(parsed)
    path.write_text(json.dumps(parsed))


# Which format


def test_no_folder_and_no_such_format(tmp_path: Path) -> None:
    assert "nowhere: no such folder, expected the folder of a capture" in complaint(tmp_path / "nowhere")
    (tmp_path / "a.json").write_text("{}")
    assert "a.json: a file, expected the folder" in complaint(tmp_path / "a.json")
    assert "dataset.format=nerf: expected auto or one of colmap, transforms" in complaint(tmp_path, "nerf")


def test_unknown_folder_says_what_was_looked_for_and_found(tmp_path: Path) -> None:
    message = complaint(tmp_path)
    assert "sparse/0 with cameras and images, .bin or .txt (COLMAP), transforms.json" in message
    assert "found an empty folder. Set dataset.root" in message
    (tmp_path / "notes.txt").write_text("")
    assert "found notes.txt" in complaint(tmp_path)


def test_photos_without_poses_are_sent_to_preparation(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos", VIEWS.names)
    message = complaint(tmp_path)  # data/prepare.py looks for no photos in the folders of a folder
    assert f"4 photos but no poses: make them with python data/prepare.py {tmp_path / 'photos'} OUT" in message


def test_a_scene_one_folder_deeper_is_pointed_at(tmp_path: Path) -> None:
    write_transforms(tmp_path / "fox", VIEWS)
    assert f"set dataset.root={tmp_path / 'fox'}" in complaint(tmp_path)


def test_mixed_formats_are_named_and_one_can_be_chosen(tmp_path: Path) -> None:
    write_sphere_scene(tmp_path)
    write_colmap(tmp_path, VIEWS)
    write_photos(tmp_path / "images", VIEWS.names[1:])
    message = complaint(tmp_path)
    assert "found 2 formats: COLMAP (sparse/0/cameras.bin and images.bin), 3 of whose 4 frames have their" in message
    assert "; Blender (transforms_train.json, transforms_test.json), 8 of whose 8 frames have their photos." in message
    assert "dataset.format=colmap or dataset.format=blender" in message
    assert len(read_capture(tmp_path, "colmap").frames) == 4
    (tmp_path / "transforms_train.json").write_text("{}")
    assert "; Blender (transforms_train.json, transforms_test.json), which cannot be read." in complaint(tmp_path)


@pytest.mark.parametrize("name", ["colmap", "transforms", "blender", "nsvf", "llff"])
def test_a_format_that_is_not_there(tmp_path: Path, name: str) -> None:
    (tmp_path / "a").mkdir()
    assert str(tmp_path) in complaint(tmp_path, name)


# transforms.json


def test_json_that_does_not_parse(tmp_path: Path) -> None:
    path = write_transforms(tmp_path, VIEWS)
    path.write_text('{\n"fl_x": 30,\n"frames": [,]\n}')
    assert "transforms.json: not valid JSON at line 3" in complaint(tmp_path)


@pytest.mark.parametrize("frames", [[], {}, None, [1]])
def test_no_frames(tmp_path: Path, frames: object) -> None:
    edit(write_transforms(tmp_path, VIEWS), lambda parsed: parsed.update(frames=frames))
    assert "key 'frames' is" in complaint(tmp_path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (dict(camera_model="VR180_L"), 'camera_model is "VR180_L", expected one of SIMPLE_PINHOLE'),
        (dict(camera_model="OPENCV_FISHEYE", p1=0.1), "p1 are no coefficients of the fisheye lens"),
        (dict(fl_x="30"), 'fl_x is "30", expected a finite number'),
        (dict(fl_x=-30), "fx is -30, expected a focal length of 0.001 to 1e+12 pixels"),
        (dict(fl_x=None), "neither fl_x nor camera_angle_x is given"),
        (
            dict(fl_x=None, camera_angle_x=40),
            "camera_angle_x is 40, expected radians between 0 and pi. If these are deg",
        ),
        (dict(k1=float("nan")), "k1 is NaN, expected a finite number"),
        (dict(train_filenames="a"), 'train_filenames is "a", expected a list'),
        (dict(train_filenames=["a"]), "none of the 1 names in train_filenames is the file_path of a frame"),
        (dict(w=16, h=24), "view 0.png is 24x16 but its camera is for 16x24"),
    ],
)
def test_bad_camera(tmp_path: Path, header: dict, message: str) -> None:
    write_transforms(tmp_path, VIEWS, **header)
    assert message in complaint(tmp_path)


def test_turned_photos_are_called_turned(tmp_path: Path) -> None:
    write_transforms(tmp_path, VIEWS, w=16, h=24)
    assert "Turn the image back" in complaint(tmp_path)


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        (float("nan"), "frame 2: transform_matrix holds NaN, expected finite numbers"),
        (1.5, "frame 2: transform_matrix scales uniformly by 1.5"),
        (np.array([1, 1, 2]), "frame 2: transform_matrix is not rigid"),
        (np.array([1, 1, -1]), "frame 2: transform_matrix is a reflection"),
    ],
)
def test_pose_that_is_no_rotation_in_transforms(tmp_path: Path, scale: object, message: str) -> None:
    views = ring()
    views.poses[2][:3, :3] *= scale
    write_transforms(tmp_path, views)
    assert message in complaint(tmp_path)


@pytest.mark.parametrize("key", ["file_path", "transform_matrix"])
def test_frame_without_a_key(tmp_path: Path, key: str) -> None:
    edit(write_transforms(tmp_path, VIEWS), lambda parsed: parsed["frames"][1].pop(key))
    assert f"frame 1: {key} is missing" in complaint(tmp_path)


def test_duplicate_frames(tmp_path: Path) -> None:
    edit(write_transforms(tmp_path, VIEWS), lambda parsed: parsed["frames"].append(parsed["frames"][1]))
    message = complaint(tmp_path)
    assert "frames 1 and 4 are duplicate" in message and "view 1.png" in message


def test_a_view_in_training_and_in_test(tmp_path: Path) -> None:
    write_transforms(tmp_path, VIEWS, "transforms_train.json")
    write_transforms(tmp_path, VIEWS, "transforms_test.json")
    assert "view 0.png is in train and in test" in complaint(tmp_path)
    (tmp_path / "transforms_train.json").rename(tmp_path / "transforms_val.json")
    assert len(read_capture(tmp_path).frames) == 8  # many scenes have val = test


def test_sizes_cannot_be_had_from_photos_that_are_all_missing(tmp_path: Path) -> None:
    path = write_transforms(tmp_path, VIEWS)
    edit(path, lambda parsed: [parsed.pop(key) for key in ("w", "h")])
    for photo in (tmp_path / "images").iterdir():
        photo.unlink()
    assert "none of its 4 images exists" in complaint(tmp_path)


def test_a_photo_that_is_none(tmp_path: Path) -> None:
    write_transforms(tmp_path, VIEWS)
    (tmp_path / "images" / "view 1.png").write_text("hello")
    assert "view 1.png: found no PNG, JPEG or WebP image" in complaint(tmp_path)


def test_points_that_are_not_finite(tmp_path: Path) -> None:
    points = POINTS.copy()
    points[1, 2] = np.nan
    colmap(tmp_path, points=points)
    assert "1 of its 5 sparse points are not finite" in complaint(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello", "no header of a PLY file"),
        ("ply\nformat zip 1.0\nend_header\n", "format zip, expected binary_little_endian"),
        (
            "ply\nformat ascii 1.0\nelement face 1\nproperty list int int i\nend_header\n",
            "expected vertices first",
        ),
        ("ply\nformat ascii 1.0\nend_header\n", "begins with no element"),
        (
            "ply\nformat ascii 1.0\nelement vertex 2\nproperty int x\nproperty int y\nproperty int z\nend_header\n1 2",
            "trunc",
        ),
    ],
)
def test_bad_ply(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "p.ply").write_text(text)
    with pytest.raises(UserError, match=message):
        read_points(tmp_path / "p.ply")


# COLMAP


def colmap(folder: Path, **settings: object) -> Path:
    write_photos(folder / "images", VIEWS.names)
    return write_colmap(folder, VIEWS, **settings)


@pytest.mark.parametrize("binary", [True, False])
def test_images_without_points_are_read_and_it_is_said(tmp_path: Path, binary: bool) -> None:
    colmap(tmp_path, binary=binary)
    capture = read_capture(tmp_path)
    assert capture.points is None and capture.bounds is None
    assert "no points3D file, so no sparse points" in capture.format


@pytest.mark.parametrize("name", ["cameras.bin", "images.bin", "points3D.bin"])
@pytest.mark.parametrize("keep", [4, -1, 0.6])
def test_truncated_binary(tmp_path: Path, name: str, keep: float) -> None:
    path = colmap(tmp_path, points=POINTS) / name
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data)) if isinstance(keep, float) else keep])
    message = complaint(tmp_path)
    assert f"{name}: truncated: ends after" in message


def test_a_file_that_is_not_binary(tmp_path: Path) -> None:
    path = colmap(tmp_path) / "images.bin"
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert "images.bin: says it has" in complaint(tmp_path)


@pytest.mark.parametrize(("name", "line"), [("cameras", 2), ("images", 2), ("points3D", 2)])
def test_text_that_does_not_parse(tmp_path: Path, name: str, line: int) -> None:
    path = colmap(tmp_path, binary=False, points=POINTS) / f"{name}.txt"
    lines = path.read_text().splitlines()
    lines[line - 1] = "1 x"
    path.write_text("\n".join(lines))
    assert f"{name}.txt: line {line} is '1 x', expected" in complaint(tmp_path)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize(("model", "shown"), [("FULL_OPENCV", "FULL_OPENCV"), ("NEW", "NEW")])
def test_unknown_camera_model(tmp_path: Path, binary: bool, model: str, shown: str) -> None:
    colmap(tmp_path, binary=binary, model=model, parameters=[30.0] * 12)
    shown = "number 77" if binary and model == "NEW" else shown
    message = complaint(tmp_path)
    assert f"camera 1 has the model {shown}, expected one of SIMPLE_PINHOLE, PINHOLE" in message
    assert "image_undistorter" in message


def test_wrong_number_of_parameters(tmp_path: Path) -> None:
    colmap(tmp_path, binary=False, parameters=(30, 12))
    assert "camera 1: PINHOLE with 2 parameters, expected fx fy cx cy" in complaint(tmp_path)


@pytest.mark.parametrize(("factor", "found"), [(2.0, "length 2"), (float("nan"), "length nan")])
def test_quaternion_that_is_no_rotation(tmp_path: Path, factor: float, found: str) -> None:
    path = colmap(tmp_path) / "images.bin"
    data = bytearray(path.read_bytes())
    quaternion = struct.unpack_from("<4d", data, 12)
    struct.pack_into("<4d", data, 12, *(factor * value for value in quaternion))
    path.write_bytes(data)
    assert f"pose of view 0.png has a quaternion of {found}" in complaint(tmp_path)


def test_camera_that_is_not_there(tmp_path: Path) -> None:
    path = colmap(tmp_path, binary=False) / "images.txt"
    path.write_text(path.read_text().replace(" 1 view 2", " 9 view 2"))
    assert "view 2.png was taken with camera 9, which" in complaint(tmp_path)


def test_no_registered_images(tmp_path: Path) -> None:
    (colmap(tmp_path) / "images.bin").write_bytes(struct.pack("<Q", 0))
    assert "images.bin: no registered images" in complaint(tmp_path)


def test_no_photos(tmp_path: Path) -> None:
    write_colmap(tmp_path, VIEWS)
    assert "no photos found; looked for folders images, images_N, image, input" in complaint(tmp_path)


def test_photos_of_another_scene(tmp_path: Path) -> None:
    write_colmap(tmp_path, VIEWS)
    write_photos(tmp_path / "images", ["a.png", "b.png"])
    assert "none of the 4 images of the reconstruction is there (the first is view 0.png)" in complaint(tmp_path)


def test_folder_of_photos_that_is_not_there(tmp_path: Path) -> None:
    colmap(tmp_path)
    message = complaint(tmp_path, "auto", "images_8")
    assert "images_8: no photos there, as dataset.images=images_8 asks; folders with photos: images." in message


# LLFF


@pytest.mark.parametrize("shape", [(4, 15), (0, 17), (17,), (4, 17, 1)])
def test_wrong_shape_of_poses_bounds(tmp_path: Path, shape: tuple) -> None:
    write_llff(tmp_path, VIEWS)
    np.save(tmp_path / "poses_bounds.npy", np.ones(shape))
    message = complaint(tmp_path)
    assert f"of shape {list(shape)}, expected real numbers of shape [images, 17]" in message


def test_poses_bounds_that_is_no_array(tmp_path: Path) -> None:
    write_llff(tmp_path, VIEWS)
    (tmp_path / "poses_bounds.npy").write_bytes(b"\x93NUMPY")
    assert "poses_bounds.npy: cannot be read as an array" in complaint(tmp_path)
    np.save(tmp_path / "poses_bounds.npy", np.array([None]), allow_pickle=True)
    assert "poses_bounds.npy: cannot be read as an array" in complaint(tmp_path)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (15, 7.0, "row 2 has the depths 7 to 6"),
        (16, np.nan, "row 2 has the depths 2 to nan"),
        (0, np.nan, "row 2 (view 2.png): pose holds NaN"),
        (14, 0.0, "row 2 (view 2.png): fx is 0"),
    ],
)
def test_bad_row(tmp_path: Path, column: int, value: float, message: str) -> None:
    write_llff(tmp_path, VIEWS)
    rows = llff_rows(VIEWS)
    rows[2, column] = value
    np.save(tmp_path / "poses_bounds.npy", rows)
    assert message in complaint(tmp_path)


def test_another_number_of_photos_than_poses(tmp_path: Path) -> None:
    write_llff(tmp_path, VIEWS)
    (tmp_path / "images" / "view 2.png").unlink()
    assert "images: 3 photos for the 4 poses" in complaint(tmp_path)


# NSVF


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("intrinsics.txt", "a b", "intrinsics.txt: cannot be read"),
        ("intrinsics.txt", "1 2", "intrinsics.txt: found 1 lines, expected a 4x4 matrix"),
        ("intrinsics.txt", "", "intrinsics.txt: found 0 lines"),
        ("bbox.txt", "1 1 1 -1 -1 -1 0.4", "bbox.txt: [1.0, 1.0, 1.0, -1.0, -1.0, -1.0], expected x_min"),
        ("bbox.txt", "1 1", "bbox.txt: [1.0, 1.0]"),
        (
            "pose/0_view 1.txt",
            "1 2 3",
            "0_view 1.txt: pose is [[1.0, 2.0, 3.0]], expected 4 rows of 4 numbers",
        ),
        (
            "pose/0_view 1.txt",
            "2 0 0 0\n0 2 0 0\n0 0 2 0\n0 0 0 1",
            "0_view 1.txt: pose scales uniformly by 2",
        ),
        ("pose/0_view 1.txt", "nan 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1", "a number that is not finite"),
    ],
)
def test_bad_numbers_of_nsvf(tmp_path: Path, file: str, text: str, message: str) -> None:
    write_nsvf(tmp_path, VIEWS)
    (tmp_path / file).write_text(text)
    assert message in complaint(tmp_path)


def test_photos_without_a_pose(tmp_path: Path) -> None:
    write_nsvf(tmp_path, VIEWS)
    (tmp_path / "pose" / "0_view 1.txt").unlink()
    assert "1 photos without a file in" in complaint(tmp_path)
    for path in (tmp_path / "pose").iterdir():
        path.unlink()
    assert "no poses, expected a file NAME.txt" in complaint(tmp_path)
