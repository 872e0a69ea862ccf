"""Every reader against captures that the tests write: poses, lenses, photos, splits, points, and why this format."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from capture_files import (
    HEIGHT,
    INTRINSICS,
    WIDTH,
    Ring,
    ring,
    write_colmap,
    write_llff,
    write_nsvf,
    write_photos,
    write_transforms,
)
from fixtures import write_sphere_scene
from PIL import ExifTags, Image

from nerf.config.schema import DatasetConfig
from nerf.datasets.blender import load_blender
from nerf.datasets.capture import Capture
from nerf.datasets.load import load_split
from nerf.datasets.readers import missing_images, read_capture
from nerf.datasets.readers.ply import read_points
from nerf.errors import UserError

VIEWS = ring()
POINTS = np.random.default_rng(3).uniform(-1, 1, (50, 3))


def assert_poses(capture: Capture, views: Ring = VIEWS) -> None:
    """The poses are those written, exactly orthonormal."""
    assert len(capture.frames) == len(views.poses)
    for frame, pose in zip(capture.frames, views.poses):
        np.testing.assert_allclose(frame.c2w, pose[:3], atol=1e-9)
        np.testing.assert_allclose(frame.c2w[:, :3].T @ frame.c2w[:, :3], np.eye(3), atol=1e-14)


# transforms.json


def test_transforms(tmp_path: Path) -> None:
    write_transforms(tmp_path, VIEWS, k1=0.1, k2=-0.2, p1=0.01, p2=-0.02, aabb_scale=4)
    capture = read_capture(tmp_path)
    assert_poses(capture)
    frame = capture.frames[1]
    assert frame.image == tmp_path / "images" / "view 1.png"
    assert (frame.width, frame.height) == (WIDTH, HEIGHT) and frame.intrinsics == INTRINSICS
    assert frame.lens == "perspective" and frame.distortion == (0.1, -0.2, 0.01, -0.02)
    assert frame.mask is None and frame.split is None and capture.points is None
    assert "since there is transforms.json" in capture.format and "aabb_scale 4.0 is not used" in capture.format


def edit_frame(path: Path, index: int, **keys: object) -> None:
    parsed = json.loads(path.read_text(encoding="utf-8"))
    parsed["frames"][index].update(keys)
    path.write_text(json.dumps(parsed))


def test_a_frame_overrides_the_header(tmp_path: Path) -> None:
    path = write_transforms(tmp_path, VIEWS, k1=0.1)
    write_photos(tmp_path / "masks", ["2.png"])
    edit_frame(path, 2, fl_x=40, fl_y=41, cx=11, cy=9, k1=0, k4=0.3, mask_path="masks/2.png")
    first, _, other, _ = read_capture(tmp_path).frames
    assert first.intrinsics == INTRINSICS and first.distortion == (0.1,)
    assert other.intrinsics == (40, 41, 11, 9) and other.distortion == (0, 0, 0, 0, 0, 0.3)
    assert other.mask == tmp_path / "masks" / "2.png" and first.mask is None


def test_an_angle_in_a_frame_goes_before_the_focal_length_of_the_header(tmp_path: Path) -> None:
    path = write_transforms(tmp_path, VIEWS)
    edit_frame(path, 0, camera_angle_x=2 * np.arctan(0.5))
    fx, fy, _, _ = read_capture(tmp_path).frames[0].intrinsics
    assert fx == pytest.approx(WIDTH) and fy == INTRINSICS[1]


def test_angles_alone_and_sizes_from_the_photos(tmp_path: Path) -> None:
    path = write_transforms(tmp_path, VIEWS)
    parsed = json.loads(path.read_text())
    header = {"camera_angle_x": 2 * np.arctan(0.5), "camera_angle_y": 2 * np.arctan(0.25)}
    path.write_text(json.dumps({**header, "frames": parsed["frames"]}))
    frame = read_capture(tmp_path).frames[0]
    assert (frame.width, frame.height) == (WIDTH, HEIGHT)
    assert frame.intrinsics == pytest.approx((WIDTH, 2 * HEIGHT, WIDTH / 2, HEIGHT / 2))


@pytest.mark.parametrize(
    ("header", "lens", "distortion"),
    [
        (dict(camera_model="OPENCV", k3=0.3, k4=0.4), "perspective", (0, 0, 0, 0, 0.3, 0.4)),
        (dict(camera_model="PINHOLE"), "perspective", ()),
        (dict(camera_model="SIMPLE_RADIAL", k1=0.2), "perspective", (0.2,)),
        (dict(camera_model="OPENCV_FISHEYE", k1=0.1, k4=0.4), "fisheye", (0.1, 0, 0, 0.4)),
        (dict(is_fisheye=True, k2=0.2), "fisheye", (0, 0.2)),
    ],
)
def test_camera_models_of_nerfstudio(tmp_path: Path, header: dict, lens: str, distortion: tuple) -> None:
    write_transforms(tmp_path, VIEWS, **header)
    frame = read_capture(tmp_path).frames[0]
    assert frame.lens == lens and frame.distortion == distortion


def test_a_lens_as_nerfstudios_list(tmp_path: Path) -> None:
    """The frame's list before its keys, the header's behind all keys."""
    values = [-0.3, 0.1, 0.0, 0.01, 0.002, -0.001]  # k1 k2 k3 k4 p1 p2
    path = write_transforms(tmp_path, VIEWS, distortion_params=values)
    assert read_capture(tmp_path).frames[0].distortion == (-0.3, 0.1, 0.002, -0.001, 0, 0.01)
    header = json.loads(path.read_text())
    header["frames"][1]["k1"] = 0.2
    header["frames"][2] |= {"k1": 0.2, "distortion_params": [0.5, 0, 0, 0, 0, 0]}
    path.write_text(json.dumps(header))
    assert [frame.distortion for frame in read_capture(tmp_path).frames[1:3]] == [(0.2,), (0.5,)]
    for key, value, said in (("distortion_params", [0.1, 0.2], "expected six"), ("k5", 0.1, "rational lens")):
        write_transforms(tmp_path, VIEWS, **{key: value})
        with pytest.raises(UserError, match=said):
            read_capture(tmp_path)


def test_cameras_of_frames_in_blenders_format(tmp_path: Path) -> None:
    """Once the header's camera was taken for all, silently, and skip_missing left nothing out."""
    path = write_transforms(tmp_path, VIEWS, file="transforms_train.json", w=None, h=None)
    header = json.loads(path.read_text())
    header["frames"][1] |= {"fl_x": 50.0, "fl_y": 51.0}
    path.write_text(json.dumps(header))
    dataset = DatasetConfig(root=str(tmp_path), test_every=0)
    assert load_split(dataset, "train").cameras.intrinsics[:2, 0].tolist() == [INTRINSICS[0], 50]
    header["frames"][0]["depth_file_path"], header["depth_scale"] = "depth.png", 0.1
    path.write_text(json.dumps(header))
    images = load_split(dataset, "train")
    assert images.depths is None and "depth_scale left aside" in images.notes[0]
    del header["frames"][1]["fl_x"], header["frames"][1]["fl_y"]
    del header["frames"][0]["depth_file_path"], header["depth_scale"]
    path.write_text(json.dumps(header))
    (tmp_path / "images" / VIEWS.names[1]).unlink()
    assert len(load_split(replace(dataset, skip_missing=True), "train")) == len(VIEWS.names) - 1
    with pytest.raises(UserError, match="no such file"):
        load_split(dataset, "train")


def test_splits_by_lists_of_file_names(tmp_path: Path) -> None:
    names = [f"images/{name}" for name in VIEWS.names]
    write_transforms(tmp_path, VIEWS, train_filenames=names[:2], test_filenames=["./" + names[3]])
    capture = read_capture(tmp_path)
    assert [(frame.image.name, frame.split) for frame in capture.frames] == [
        ("view 0.png", "train"),
        ("view 1.png", "train"),
        ("view 3.png", "test"),
    ]
    assert "2 train, 1 test, 1 in none and left out" in capture.format


def test_what_nerfstudio_notes(tmp_path: Path) -> None:
    ascii_ply = "ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nproperty float y\nproperty float z\n"
    (tmp_path / "sparse_pc.ply").write_text(f"{ascii_ply}end_header\n1 2 3\n")
    write_transforms(tmp_path, VIEWS, applied_scale=0.5, ply_file_path="sparse_pc.ply")
    capture = read_capture(tmp_path)
    np.testing.assert_array_equal(capture.points, [[1, 2, 3]])
    assert "1 points of sparse_pc.ply" in capture.format and "applied_scale were applied" in capture.format
    (tmp_path / "sparse_pc.ply").unlink()
    capture = read_capture(tmp_path)
    assert capture.points is None and "sparse_pc.ply is missing, so no points" in capture.format


@pytest.mark.parametrize("order", ["<", ">"])
def test_binary_ply(tmp_path: Path, order: str) -> None:
    rows = np.zeros(len(POINTS), [("x", order + "f4"), ("red", "u1"), ("y", order + "f8"), ("z", order + "f4")])
    for column, axis in enumerate("xyz"):
        rows[axis] = POINTS[:, column]
    name = "little" if order == "<" else "big"
    header = f"ply\nformat binary_{name}_endian 1.0\nelement vertex {len(rows)}\nproperty float x\n"
    header += "property uchar red\nproperty double y\nproperty float z\nend_header\n"
    (tmp_path / "p.ply").write_bytes(header.encode() + rows.tobytes() + b"more")
    np.testing.assert_allclose(read_points(tmp_path / "p.ply"), POINTS, atol=1e-7)


def test_smaller_photos_are_given_their_own_intrinsics(tmp_path: Path) -> None:
    write_transforms(tmp_path, VIEWS)
    write_photos(tmp_path / "images_2", VIEWS.names, (WIDTH // 2, HEIGHT // 2))
    frame = read_capture(tmp_path, images="images_2").frames[0]
    assert frame.image.parent.name == "images_2" and (frame.width, frame.height) == (WIDTH // 2, HEIGHT // 2)
    assert frame.intrinsics == tuple(value / 2 for value in INTRINSICS)


# Blender


def test_blender_as_its_loader_reads_it(tmp_path: Path) -> None:
    write_sphere_scene(tmp_path)
    capture = read_capture(tmp_path)
    assert capture.format == ("Blender, since there is transforms_train.json, transforms_test.json: 4 train, 4 test")
    for split in ("train", "test"):
        loaded = load_blender(tmp_path, split).cameras
        frames = [frame for frame in capture.frames if frame.split == split]
        np.testing.assert_allclose(np.stack([frame.c2w for frame in frames]), loaded.c2w.numpy(), atol=1e-6)
        np.testing.assert_allclose([frame.intrinsics for frame in frames], loaded.intrinsics.numpy(), rtol=1e-6)
    assert missing_images(capture) == []


# NSVF


def test_nsvf(tmp_path: Path) -> None:
    write_nsvf(tmp_path, VIEWS, prefixes="0012")
    capture = read_capture(tmp_path)
    assert_poses(capture)
    assert [frame.split for frame in capture.frames] == ["train", "train", "val", "test"]
    assert capture.frames[0].image == tmp_path / "rgb" / "0_view 0.png"
    assert capture.frames[0].intrinsics == INTRINSICS
    np.testing.assert_array_equal(capture.aabb, [[-1, -1, -1], [1, 1, 1]])


def test_tanks_and_temples_uses_1_for_test_and_has_no_box(tmp_path: Path) -> None:
    write_nsvf(tmp_path, VIEWS, prefixes="0011", bbox=None)
    (tmp_path / "intrinsics.txt").write_text("30.5 12.0 8.0 0.\n0. 0. 0.\n0.\n1.\n16 24\n")
    capture = read_capture(tmp_path)
    assert [frame.split for frame in capture.frames] == ["train", "train", "test", "test"]
    assert capture.frames[0].intrinsics == (30.5, 30.5, 12.0, 8.0) and capture.aabb is None


# LLFF


def test_llff(tmp_path: Path) -> None:
    write_llff(tmp_path, VIEWS)
    capture = read_capture(tmp_path)
    assert_poses(capture)
    assert capture.frames[0].intrinsics == (30, 30, WIDTH / 2, HEIGHT / 2)
    np.testing.assert_array_equal(capture.bounds, [[2, 6]] * 4)


@pytest.mark.parametrize(("sides", "chosen"), [((1800, 900, 450), "images_2"), ((3400, 1700), "images_2")])
def test_of_several_sizes_the_largest_up_to_1600_pixels(tmp_path: Path, sides: tuple, chosen: str) -> None:
    write_llff(tmp_path, VIEWS)
    for factor, side in enumerate(sides):
        write_photos(tmp_path / ("images" if not factor else f"images_{2**factor}"), VIEWS.names, (side, side * 2 // 3))
    capture = read_capture(tmp_path)
    assert capture.frames[0].image.parent.name == chosen and "chosen for its size" in capture.format
    assert read_capture(tmp_path, images="images").frames[0].width == sides[0]


# COLMAP


@pytest.mark.parametrize("binary", [True, False])
def test_colmap(tmp_path: Path, binary: bool) -> None:
    shuffled = Ring(VIEWS.names[::-1], VIEWS.poses[::-1])  # frames are sorted by name all the same
    write_colmap(tmp_path, shuffled, binary, points=POINTS)
    write_photos(tmp_path / "images", VIEWS.names)
    capture = read_capture(tmp_path)
    assert_poses(capture)
    assert [frame.image for frame in capture.frames] == [tmp_path / "images" / name for name in VIEWS.names]
    assert capture.frames[0].intrinsics == INTRINSICS and capture.frames[0].distortion == ()
    np.testing.assert_allclose(capture.points, POINTS)
    depths = [-(POINTS - pose[:3, 3]) @ pose[:3, 2] for pose in VIEWS.poses]
    np.testing.assert_allclose(capture.bounds, [np.quantile(depth, (0.001, 0.999)) for depth in depths])
    assert f"cameras.{'bin' if binary else 'txt'}" in capture.format


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize(
    ("model", "parameters", "focals", "lens", "distortion"),
    [
        ("SIMPLE_PINHOLE", (30, 12, 8), (30, 30), "perspective", ()),
        ("PINHOLE", (30, 31, 12, 8), (30, 31), "perspective", ()),
        ("SIMPLE_RADIAL", (30, 12, 8, 0.1), (30, 30), "perspective", (0.1,)),
        ("RADIAL", (30, 12, 8, 0.1, 0.2), (30, 30), "perspective", (0.1, 0.2)),
        ("OPENCV", (30, 31, 12, 8, 0.1, 0.2, 0.3, 0.4), (30, 31), "perspective", (0.1, 0.2, 0.3, 0.4)),
        ("OPENCV_FISHEYE", (30, 31, 12, 8, 0.1, 0.2, 0.3, 0.4), (30, 31), "fisheye", (0.1, 0.2, 0.3, 0.4)),
        ("SIMPLE_RADIAL_FISHEYE", (30, 12, 8, 0.1), (30, 30), "fisheye", (0.1,)),
        ("RADIAL_FISHEYE", (30, 12, 8, 0.1, 0.2), (30, 30), "fisheye", (0.1, 0.2)),
    ],
)
def test_camera_models_of_colmap(tmp_path, binary, model, parameters, focals, lens, distortion) -> None:
    write_colmap(tmp_path, VIEWS, binary, model, parameters)
    write_photos(tmp_path / "images", VIEWS.names)
    frame = read_capture(tmp_path).frames[0]
    assert frame.intrinsics == (*focals, 12, 8) and frame.lens == lens and frame.distortion == distortion


def test_colmap_with_smaller_copies_under_other_names(tmp_path: Path) -> None:
    names = [f"IMG_{index}.JPG" for index in range(4)]
    write_colmap(tmp_path, replace(VIEWS, names=names))
    write_photos(tmp_path / "images", names, (2400, 1600))
    write_photos(tmp_path / "images_2", [f"image{index:03}.png" for index in range(4)], (1200, 800))
    frames = read_capture(tmp_path).frames
    assert [frame.image.name for frame in frames] == [f"image{index:03}.png" for index in range(4)]
    assert frames[0].intrinsics == tuple(50 * value for value in INTRINSICS)


def test_the_largest_of_several_models_is_read(tmp_path: Path) -> None:
    write_photos(tmp_path / "images", VIEWS.names)
    model = write_colmap(tmp_path, Ring(VIEWS.names[:1], VIEWS.poses[:1]))
    model.rename(tmp_path / "sparse" / "1")
    write_colmap(tmp_path, VIEWS).rename(tmp_path / "sparse" / "2")
    capture = read_capture(tmp_path)
    assert len(capture.frames) == 4 and "model 2 with 4 images is the largest (1 has 1)" in capture.format


def test_masks_of_colmap(tmp_path: Path) -> None:
    write_colmap(tmp_path, VIEWS)
    write_photos(tmp_path / "images", VIEWS.names)
    write_photos(tmp_path / "masks", ["view 0.png.png", "view 2.png"])
    masks = [frame.mask and frame.mask.name for frame in read_capture(tmp_path).frames]
    assert masks == ["view 0.png.png", None, "view 2.png", None]


def test_photos_beside_the_model_in_no_folder_named_images(tmp_path: Path) -> None:
    write_colmap(tmp_path, VIEWS)
    write_photos(tmp_path / "input", VIEWS.names)
    assert read_capture(tmp_path).frames[0].image.parent.name == "input"


def test_photos_that_colmap_did_not_register_are_counted(tmp_path: Path) -> None:
    write_colmap(tmp_path, VIEWS)
    write_photos(tmp_path / "images", [*VIEWS.names, "other.png"])
    capture = read_capture(tmp_path)
    assert len(capture.frames) == 4 and "1 of its photos are not in the model" in capture.format


def test_poses_of_photos_that_exif_turns(tmp_path: Path) -> None:
    """Poses may have been made from the photo as it is stored, or as it is shown."""
    names = [name.replace("png", "jpg") for name in VIEWS.names]
    write_colmap(tmp_path, replace(VIEWS, names=names))
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    for stored in ((WIDTH, HEIGHT), (HEIGHT, WIDTH)):
        for name in names:
            (tmp_path / "images").mkdir(exist_ok=True)
            Image.new("RGB", stored).save(tmp_path / "images" / name, exif=exif)
        frame = read_capture(tmp_path).frames[0]
        assert (frame.width, frame.height) == (WIDTH, HEIGHT) and frame.intrinsics == INTRINSICS


# Names and precedence


@pytest.mark.parametrize("write", [write_transforms, write_colmap, write_llff, write_nsvf])
def test_names_with_spaces_and_letters_of_any_alphabet(tmp_path: Path, write) -> None:
    views = ring(name="Frühling №{} 写真.png")
    write(tmp_path, views)
    write_photos(tmp_path / "images", views.names)
    capture = read_capture(tmp_path)
    assert missing_images(capture) == [] and capture.frames[0].image.name.endswith("Frühling №0 写真.png")


def test_names_whose_accents_the_file_system_has_split(tmp_path: Path) -> None:
    write_transforms(tmp_path, ring(name="é{}.png"))
    for photo in (tmp_path / "images").iterdir():
        photo.rename(photo.with_name(photo.name.replace("é", "e\u0301")))
    assert missing_images(read_capture(tmp_path)) == []


def test_names_without_suffix(tmp_path: Path) -> None:
    path = write_transforms(tmp_path, VIEWS)
    edit_frame(path, 0, file_path="images\\view 0")
    assert read_capture(tmp_path).frames[0].image.name == "view 0.png"


def test_colmap_goes_before_llff(tmp_path: Path) -> None:
    write_llff(tmp_path, VIEWS)
    write_colmap(tmp_path, VIEWS, points=np.random.default_rng(0).random((40, 3)))
    assert "COLMAP's model carries points" in read_capture(tmp_path).format
    assert read_capture(tmp_path, "llff").format.startswith("LLFF, as dataset.format=llff says")


def test_nerfstudio_goes_before_the_model_that_it_keeps(tmp_path: Path) -> None:
    write_transforms(tmp_path, VIEWS)
    (tmp_path / "colmap").mkdir()
    write_colmap(tmp_path / "colmap", VIEWS)
    assert read_capture(tmp_path).format.startswith(
        "instant-ngp or nerfstudio, since there is transforms.json; colmap/"
    )


def test_missing_images_stay_in_the_capture(tmp_path: Path) -> None:
    write_transforms(tmp_path, VIEWS)
    (tmp_path / "images" / "view 2.png").unlink()
    capture = read_capture(tmp_path)
    assert_poses(capture)
    assert missing_images(capture) == [tmp_path / "images" / "view 2.png"]
    assert (capture.frames[2].width, capture.frames[2].height) == (WIDTH, HEIGHT)
