"""Captures of panoramas: transforms.json, depths, scene kind, plane sweep, and what a panorama cannot be."""

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from capture_files import Ring, ring, write_transforms
from fixtures import write_sphere_scene
from panorama_scene import picture, room, room_panoramas, room_tests, write_room
from PIL import Image

from nerf.calibration.pose_refinement import PoseRefinement
from nerf.calibration.vignetting import Vignetting
from nerf.cameras.cameras import PANORAMA
from nerf.cameras.panoramas import full_turn
from nerf.config.schema import DatasetConfig, ExposureConfig, PosesConfig
from nerf.datasets.blender import load_blender
from nerf.datasets.camera_rig import camera_rig
from nerf.datasets.load import load_split
from nerf.datasets.plane_sweep import PlaneSweep, shuffled
from nerf.datasets.posed_images import PosedImages
from nerf.datasets.readers import read_capture
from nerf.datasets.scene_bounds import describe_capture
from nerf.errors import UserError
from nerf.export.camera_files import write_colmap
from nerf.export.camera_files import write_transforms as write_cameras
from nerf.ops.backend import select
from nerf.scene.bounds import make_box
from nerf.scene.description import SceneDescription

SIZE = (32, 16)
VIEWS = ring(3)
# In place of what write_transforms says of a pinhole.
MODEL = dict(camera_model="EQUIRECTANGULAR", fl_x=None, fl_y=None, cx=None, cy=None, w=SIZE[0], h=SIZE[1])


def write(folder: Path, views: Ring = VIEWS, size: tuple[int, int] = SIZE, **header: object) -> Path:
    """A capture whose cameras are panoramas, or what header makes of them."""
    path = write_transforms(folder, views, **{**MODEL, **header})
    for name in views.names:
        Image.new("RGB", size, (90, 90, 90)).save(folder / "images" / name)
    return path


def complaint(folder: Path, **header: object) -> str:
    path = write(folder, **header)
    with pytest.raises(UserError) as caught:
        read_capture(folder)
    assert str(path) in str(caught.value)
    return str(caught.value)


@cache
def room_images() -> PosedImages:
    cameras = room_panoramas(10, 64)
    pixels = torch.stack([picture(cameras, index, 2) for index in range(len(cameras))])
    return PosedImages(pixels.view(-1, 3), cameras, [f"{index}" for index in range(len(cameras))])


# transforms.json


@pytest.mark.parametrize(
    "header",
    [
        {},
        dict(fl_x=16, fl_y=16, cx=16, cy=8),  # as nerfstudio has it: width / 2 and height
        dict(camera_angle_x=2 * math.pi, camera_angle_y=3.14159, k1=0, k2=0.0),
        dict(w=None, h=None),
        dict(w=64, h=32, fl_x=32, fl_y=32, cx=32, cy=16),  # of which the photos are smaller copies
    ],
)
def test_a_panorama_is_the_whole_sphere(tmp_path: Path, header: dict) -> None:
    write(tmp_path, **header)
    for frame in read_capture(tmp_path).frames:
        assert frame.lens == PANORAMA and frame.distortion == ()
        assert frame.intrinsics == pytest.approx(full_turn(frame.width, frame.height))
    images = load_split(DatasetConfig(root=str(tmp_path), test_every=0), "train")
    assert images.cameras.panoramas.all() and images.cameras.size(0) == SIZE
    expected = torch.tensor(full_turn(*SIZE)).expand(3, 4)
    torch.testing.assert_close(images.cameras.intrinsics, expected)
    half = load_split(DatasetConfig(root=str(tmp_path), test_every=0, downscale=2), "train").cameras
    torch.testing.assert_close(half.intrinsics, expected / 2)


def test_the_model_of_a_frame_goes_before_that_of_the_header(tmp_path: Path) -> None:
    path = write(tmp_path)
    content = json.loads(path.read_text())
    content["frames"][1].update(camera_model="OPENCV", fl_x=20.0)
    path.write_text(json.dumps(content))
    assert [frame.lens for frame in read_capture(tmp_path).frames] == [PANORAMA, "perspective", PANORAMA]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (dict(w=32, h=24), "a panorama of 32x24 pixels, expected one twice as wide as high"),
        (dict(w=0, h=0), "width is 0, expected 1 to"),
        (dict(w=-32, h=-16), "a panorama of -32x-16 pixels, expected one twice"),
        (dict(fl_x=32), "fl_x is 32, but EQUIRECTANGULAR is the whole sphere, whose fl_x at 32x16 pixels is 16"),
        (dict(fl_y=8), "fl_y is 8, but"),
        (dict(cx=3), "cx is 3, but"),
        (dict(cy=0), "cy is 0, but"),
        (dict(k1=0.1, p2=1e-9), "k1, p2 and camera_model EQUIRECTANGULAR"),
        (dict(camera_angle_x=3.0), "camera_angle_x and camera_model EQUIRECTANGULAR"),
        (dict(fl_x="wide"), 'fl_x is "wide", expected a finite number'),
        (dict(camera_model=None, latlong=True), "latlong is no key that is read here; write camera_model EQUIRECT"),
        (dict(camera_model="equirectangular"), 'camera_model is "equirectangular", expected one of SIMPLE_PINHOLE'),
    ],
)
def test_other_parts_of_the_sphere_are_answered(tmp_path: Path, header: dict, message: str) -> None:
    assert message in complaint(tmp_path, **header)


def test_photos_of_other_proportions_are_answered(tmp_path: Path) -> None:
    write(tmp_path, size=(32, 20))
    with pytest.raises(UserError, match="is 32x20 but its camera is for 32x16, which is no other size"):
        load_split(DatasetConfig(root=str(tmp_path), test_every=0), "train")


@pytest.mark.parametrize(
    "keys", [{"camera_model": "EQUIRECTANGULAR"}, {"camera_model": "OPENCV_FISHEYE"}, {"is_fisheye": True}]
)
@pytest.mark.parametrize("of_a_frame", [False, True])
def test_blenders_loader_sends_other_cameras_to_the_other_readers(tmp_path: Path, keys: dict, of_a_frame: bool) -> None:
    write_sphere_scene(tmp_path)
    path = tmp_path / "transforms_train.json"
    content = json.loads(path.read_text())
    (content["frames"][1] if of_a_frame else content).update(keys)
    path.write_text(json.dumps(content))
    model = keys.get("camera_model", "OPENCV_FISHEYE")
    with pytest.raises(UserError, match=f"camera_model is .{model}., but dataset=blender has perspective cameras"):
        load_blender(tmp_path, "train")


def test_depth_files_of_panoramas_hold_distances(tmp_path: Path) -> None:
    path = write(tmp_path)
    content = json.loads(path.read_text())
    stored = (1000 * (1 + np.arange(SIZE[0] * SIZE[1]) / 100)).astype(np.uint16).reshape(SIZE[::-1])
    Image.fromarray(stored).save(tmp_path / "depth.png")
    content["frames"][1]["depth_file_path"] = "depth.png"
    path.write_text(json.dumps(content))
    images = load_split(DatasetConfig(root=str(tmp_path), test_every=0), "train")
    torch.testing.assert_close(images.depth(1), torch.from_numpy(stored.astype(np.float32)) / 1000)


def test_cameras_are_exported_as_nerfstudio_has_them_and_read_again(tmp_path: Path) -> None:
    cameras = room_panoramas(3, 16)
    (tmp_path / "images").mkdir()
    names = [f"images/{name}" for name in VIEWS.names]
    for name in names:
        Image.new("RGB", SIZE).save(tmp_path / name)
    write_cameras(tmp_path / "transforms.json", cameras, names)
    entry = json.loads((tmp_path / "transforms.json").read_text())["frames"][0]
    assert entry["camera_model"] == "EQUIRECTANGULAR"
    assert [entry[key] for key in ("fl_x", "fl_y", "cx", "cy")] == pytest.approx([16, 16, 16, 8], rel=1e-6)
    found = load_split(DatasetConfig(root=str(tmp_path), test_every=0), "train").cameras
    torch.testing.assert_close(found.image_rays(2).directions, cameras.image_rays(2).directions, rtol=0, atol=1e-6)
    with pytest.raises(UserError, match="format=colmap has no model for panoramas.*format=cameras"):
        write_colmap(tmp_path, cameras, names)


# The scene around them


def test_the_scene_lies_around_panoramas_however_they_are_turned(tmp_path: Path) -> None:
    """All faced one way, and were taken for cameras of a forward-facing scene, or at one target in a box."""
    one_way = [np.eye(4) for _ in range(5)]
    for index, pose in enumerate(one_way):
        pose[:3, 3] = [0.1 * index, 0, 0.05 * index**2]
    points = np.random.default_rng(1).normal(size=(500, 3))
    points *= 9 / np.linalg.norm(points, axis=1, keepdims=True)
    for views in (Ring(ring(5).names, one_way), ring(5)):
        write(tmp_path, views)
        capture = replace(read_capture(tmp_path), points=points)
        scene = describe_capture(capture)
        assert scene.kind == "unbounded" and "5 panoramas see in all directions" in scene.reasons[0]
        centers = np.stack([pose[:3, 3] for pose in views.poses])
        aabb = scene.aabb.numpy()
        assert (aabb[0] < centers.min(0)).all() and (aabb[1] > centers.max(0)).all()
        apart = np.linalg.norm(points - centers[:, None], axis=-1)
        assert scene.near < apart.min() * 1.3 and np.ptp(aabb, axis=0).min() > 2 * scene.near
        rig = camera_rig(capture.frames)
        assert rig.target is None
        np.testing.assert_allclose(np.sort(np.concatenate(rig.depths(points))), np.sort(apart.ravel()))  # on all sides


def test_near_is_before_what_is_near_to_one_panorama_alone(tmp_path: Path) -> None:
    """It was a quantile over all cameras, for most of which it is far away."""
    write(tmp_path, ring(9))
    capture = read_capture(tmp_path)
    directions = np.random.default_rng(1).normal(size=(500, 3))
    points = 20 * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    far = describe_capture(replace(capture, points=points))
    points[:3] = capture.frames[4].c2w[:, 3] + [0.5, 0, 0]
    assert describe_capture(replace(capture, points=points)).near < 0.1 * far.near and far.near > 10


def test_a_plane_sweep_finds_the_room_around_panoramas() -> None:
    sweep = PlaneSweep(room_images())
    images = list(range(len(sweep.cameras)))
    agreement, chance = sweep.score(images), sweep.score(images, order=shuffled(len(images)))
    assert agreement.score > 0.85 > 0.6 > chance.score
    points, patches = sweep.distinct_points(images)
    assert len(points) > 0.5 * patches > 40
    cameras = sweep.cameras
    for index in (0, 3):
        directions = torch.nn.functional.normalize(points - cameras.centers[index], dim=-1)
        rays = cameras.image_rays(index)
        rays = replace(rays, origins=cameras.centers[index].expand_as(points), directions=directions)
        behind = (points - cameras.centers[index]).norm(dim=-1) / room(rays)[1]
        assert ((behind - 1).abs() < 0.15).float().mean() > 0.85  # the others are behind balls


# What a panorama cannot be


def test_what_has_no_meaning_for_panoramas_is_refused_in_words(tmp_path: Path) -> None:
    cameras, backend = room_panoramas(4, 16), select("torch", "cpu")
    cpu = torch.device("cpu")
    with pytest.raises(UserError, match="dataset.kind=forward_facing, but some cameras are panoramas.*unbounded"):
        make_box(SceneDescription("forward_facing"), cameras, None, 0.0, cpu)
    for kind in ("bounded", "unbounded"):
        with pytest.raises(UserError, match="panoramas.*set dataset.aabb"):
            make_box(SceneDescription(kind), cameras, None, 0.0, cpu)
    with pytest.raises(UserError, match="exposure.vignetting=true, but some photos are panoramas"):
        Vignetting(cameras, ExposureConfig(vignetting=True), backend)
    settings = dict(lr=1e-3, start=0.0, initial_num_voxels=1000, coarse_to_fine_end=0.2, view_dependence_start=0.2)
    with pytest.raises(UserError, match="poses.intrinsics=true learns.*panoramas"):
        PoseRefinement(cameras, 1.0, PosesConfig(mode="refine", intrinsics=True, **settings), backend)
    poses = PoseRefinement(cameras, 1.0, PosesConfig(mode="refine", **settings), backend)
    pixels = torch.arange(0, 4 * 512, 37)
    found = poses.rays_through(pixels)
    torch.testing.assert_close(found.directions, cameras.rays_through(pixels).directions)
    found.directions[:, 0].sum().backward()
    assert poses.increments.grad.isfinite().all() and poses.increments.grad.any()


def test_a_room_is_written_with_both_kinds_of_cameras(tmp_path: Path) -> None:
    write_room(tmp_path, room_panoramas(2, 8), room_tests(1, 8), supersample=1)
    config = DatasetConfig(root=str(tmp_path))
    train, test = (load_split(config, split) for split in ("train", "test"))
    assert train.cameras.panoramas.all() and not test.cameras.has_panoramas
    assert train.scene.kind == "unbounded" and (len(train), len(test)) == (2, 1)
