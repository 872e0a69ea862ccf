"""Path files: what is written is read again, and every mistake in one is answered with its place."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from fixtures import look_at_origin
from panorama_scene import room_panoramas

from nerf.cameras.cameras import Cameras, focal_from_fov
from nerf.cameras.distortion import Lenses
from nerf.cameras.panoramas import full_turn
from nerf.cameras.path_file import MAX_SIZE, is_simplified, read_camera_path, write_camera_path
from nerf.errors import UserError

POSE = look_at_origin(0.7, 0.3)  # [4,4]


def document(**changes: object) -> dict:
    """A path of two cameras, as nerfstudio's viewer exports one."""
    entry = {"camera_to_world": POSE.flatten().tolist(), "fov": 50.0, "aspect": 4 / 3}
    content = {
        "keyframes": [],
        "camera_type": "perspective",
        "render_height": 90,
        "render_width": 120,
        "fps": 24,
        "seconds": 2,
        "camera_path": [entry, entry | {"fov": 25}],
    }
    return content | changes


def read(folder: Path, content: object) -> object:
    path = folder / "path.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_camera_path(path)


def entry(**changes: object) -> Callable[[], dict]:
    """A document whose second camera has other keys; None takes one away."""
    first, second = document()["camera_path"]
    changed = {key: value for key, value in (second | changes).items() if value is not None}
    return document(camera_path=[first, changed])


def test_a_path_is_read(tmp_path):
    path = read(tmp_path, document())
    cameras = path.cameras
    assert path.fps == 24 and len(cameras) == 2 and (cameras.width, cameras.height) == (120, 90)
    torch.testing.assert_close(cameras.c2w, torch.tensor(POSE[:3]).float().expand(2, 3, 4))
    focals = [focal_from_fov(90, math.radians(fov)) for fov in (50, 25)]
    torch.testing.assert_close(cameras.intrinsics, torch.tensor([[f, f, 60.0, 45.0] for f in focals]))


@pytest.mark.parametrize("size", [(120, 90), (90, 120), (33, 47), (1920, 1080), (1, 1)])
def test_what_is_written_is_read_again(tmp_path, size):
    width, height = size
    poses = torch.stack([torch.tensor(look_at_origin(0.3 * i, 0.1 * i)[:3]) for i in range(5)]).float()
    focals = torch.linspace(0.4, 3.0, 5)[:, None] * height
    center = torch.tensor([[width / 2, height / 2]]).expand(5, 2)
    cameras = Cameras(poses, torch.cat([focals, focals, center], dim=1), width, height)
    write_camera_path(tmp_path / "new" / "path.json", cameras, fps=12.5)
    found = read_camera_path(tmp_path / "new" / "path.json")
    assert found.fps == 12.5 and (found.cameras.width, found.cameras.height) == size
    torch.testing.assert_close(found.cameras.c2w, poses)
    torch.testing.assert_close(found.cameras.intrinsics, cameras.intrinsics)
    again = json.loads((tmp_path / "new" / "path.json").read_text())
    assert again["seconds"] == 0.4 and again["camera_path"][0]["aspect"] == width / height


@pytest.mark.parametrize("fps", [0.001, 1000.0, 23.976])
def test_the_slowest_and_the_fastest_rate_are_read_again(tmp_path: Path, fps: float) -> None:
    write_camera_path(tmp_path / "path.json", room_panoramas(3, 16), fps)
    assert read_camera_path(tmp_path / "path.json").fps == fps
    content = json.loads((tmp_path / "path.json").read_text())
    del content["fps"]
    assert read(tmp_path, content).fps == pytest.approx(fps)


def pinholes(count: int = 2, focal: float = 50.0, size: tuple[int, int] = (40, 30)) -> Cameras:
    c2w = torch.tensor(look_at_origin(0.3, 0.4)[:3]).float().repeat(count, 1, 1)
    intrinsics = torch.tensor([[focal, focal, size[0] / 2, size[1] / 2]], dtype=torch.float64).repeat(count, 1)
    return Cameras(c2w, intrinsics, *size)


@pytest.mark.parametrize("focal", [1e-3, 1.0000001e-3, 1.0, 1e12])
@pytest.mark.parametrize("size", [(1, 1), (40, 30), (MAX_SIZE, MAX_SIZE)])
def test_what_is_written_at_the_limits_is_read_again_or_is_refused(
    tmp_path: Path, focal: float, size: tuple[int, int]
) -> None:
    try:
        write_camera_path(tmp_path / "path.json", pinholes(2, focal, size), 30)
    except ValueError as error:
        assert focal in (1e-3, 1e12) and "expected a focal length" in str(error)
        return
    found = read_camera_path(tmp_path / "path.json").cameras
    assert found.size(0) == size and found.intrinsics[0, 0].item() == pytest.approx(focal)


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "path.json"
    with pytest.raises(UserError, match="frames of 20000x15000 pixels are too large, expected at most 16384.*scale="):
        write_camera_path(path, pinholes().resized(20000, 15000), 30)
    with pytest.raises(UserError, match="panoramas of 100x40 pixels are stretched, expected twice as wide.*alone"):
        write_camera_path(path, room_panoramas(2, 16).resized(100, 40), 30)
    with pytest.raises(ValueError, match="cameras: found none, expected at least one"):
        write_camera_path(path, pinholes()[:0], 30)
    sheared = pinholes()
    sheared.c2w[1, 0, 0] += 0.1
    with pytest.raises(ValueError, match=r"cameras\[1\]: its pose holds .*expected a rotation and a center"):
        write_camera_path(path, sheared, 30)
    assert not path.exists()


@pytest.mark.parametrize(
    "size", [{"scale": 0.3}, {"scale": 0.7001}, {"width": 1001}, {"height": 333}, {"scale": 0.002}, {"width": 9}]
)
def test_panoramas_of_another_size_are_written_and_read_again(tmp_path: Path, size: dict) -> None:
    cameras = room_panoramas(2, 512).resized(**size)
    write_camera_path(tmp_path / "path.json", cameras, 30)
    assert read_camera_path(tmp_path / "path.json").cameras.size(0) == cameras.size(0)
    assert not is_simplified(cameras)


def test_a_panorama_with_an_odd_column_is_written_without_it(tmp_path: Path) -> None:
    cameras = room_panoramas(2, 166).resized(333, 166)  # as dataset.downscale=3 leaves it
    assert is_simplified(cameras)
    write_camera_path(tmp_path / "path.json", cameras, 30)
    assert read_camera_path(tmp_path / "path.json").cameras.size(0) == (332, 166)


def test_panoramas_are_written_and_read_again(tmp_path):
    cameras = room_panoramas(4, 16)
    write_camera_path(tmp_path / "path.json", cameras, fps=12.5)
    found = read_camera_path(tmp_path / "path.json").cameras
    assert json.loads((tmp_path / "path.json").read_text())["camera_type"] == "equirectangular"
    assert found.panoramas.all() and found.size(0) == (32, 16)
    torch.testing.assert_close(found.image_rays(3).directions, cameras.image_rays(3).directions)
    content = document(camera_type="Equirectangular", render_width=180)
    for camera in content["camera_path"]:
        del camera["fov"]
    assert read(tmp_path, content).cameras.panoramas.all()


def test_panoramas_beside_pinholes_become_pinholes_that_look_ahead(tmp_path):
    intrinsics = torch.tensor([[30.0, 30.0, 16.0, 8.0], full_turn(32, 16)])
    lenses = Lenses.of(["perspective", "equirectangular"], [(), ()])
    cameras = Cameras(room_panoramas(2, 16).c2w, intrinsics, 32, 16, None, lenses)
    write_camera_path(tmp_path / "path.json", cameras, fps=12.5)
    content = json.loads((tmp_path / "path.json").read_text())
    assert content["camera_type"] == "perspective"
    angles = [math.degrees(2 * math.atan(8 / 30)), 90]
    assert [camera["fov"] for camera in content["camera_path"]] == pytest.approx(angles, rel=1e-3)


def test_sizes_written_with_a_point_are_whole_numbers_too(tmp_path):
    cameras = read(tmp_path, document(render_height=90.0, render_width=120.0)).cameras
    assert (cameras.width, cameras.height) == (120, 90) and isinstance(cameras.width, int)


def test_what_may_be_missing(tmp_path):
    content = document(seconds=4)
    for key in ("camera_type", "keyframes", "fps"):
        del content[key]
    assert read(tmp_path, content).fps == 0.5  # two frames in four seconds
    del content["seconds"]
    assert read(tmp_path, content).fps is None
    assert read(tmp_path, content | {"seconds": 0}).fps is None
    assert len(read(tmp_path, entry(aspect=None)).cameras) == 2
    assert len(read(tmp_path, entry(aspect=1)).cameras) == 2  # what says nothing


def test_a_scale_is_taken_out_of_a_pose(tmp_path):
    scaled = POSE.copy()
    scaled[:3, :3] *= 2.5
    found = read(tmp_path, entry(camera_to_world=scaled.flatten().tolist())).cameras
    torch.testing.assert_close(found.c2w[1], torch.tensor(POSE[:3]).float())


def mirrored() -> list[float]:
    pose = POSE.copy()
    pose[:3, 0] *= -1
    return pose.flatten().tolist()


NUMBERS = POSE.flatten().tolist()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "not valid JSON at line 1"),
        ("[]", "holds [], expected an object with the key 'camera_path'"),
        (document(camera_type="equirectangular"), "is 120x90, expected twice as wide as high, for a panorama"),
        (document(camera_type="orthographic"), 'camera_type is "orthographic", but only pinhole cameras'),
        (document(camera_type=3), "camera_type is 3.0, but only pinhole cameras"),
        (document(render_width=None), "key 'render_width' is missing, expected the size of the frames in pixels"),
        (document(render_height=0), "render_height is 0.0, expected the size of the frames in pixels, a number"),
        (document(render_height=90.5), "render_height is 90.5, expected a whole number of pixels"),
        (document(render_height=10**6), "render_height is 1000000.0, expected"),
        (document(fps="fast"), 'fps is "fast", expected the frames per second, a number between 0.001 and 1000'),
        (document(fps=-1), "fps is -1.0, expected the frames per second"),
        (document(fps=None, seconds=math.nan), "seconds is NaN, expected the length of the video"),
        (document(camera_path=[]), "key 'camera_path' is [], expected a list of at least one camera"),
        (document(camera_path=None), "key 'camera_path' is missing, expected a list of at least one camera"),
        (document(camera_path=["a.png"]), 'camera_path[0] is "a.png", expected an object with camera_to_world and fov'),
        (entry(camera_to_world=None), "camera_path[1]: camera_to_world is missing, expected 16 numbers"),
        (entry(camera_to_world=NUMBERS[:12]), "camera_path[1]: camera_to_world is a list of 12, expected 16 numbers"),
        (entry(camera_to_world=[*NUMBERS[:15], "1"]), 'camera_path[1]: camera_to_world holds "1", expected finite'),
        (entry(camera_to_world=[math.nan, *NUMBERS[1:]]), "camera_path[1]: camera_to_world holds NaN, expected finite"),
        (entry(camera_to_world=[math.inf, *NUMBERS[1:]]), "camera_to_world holds Infinity, expected finite"),
        (entry(camera_to_world=[True, *NUMBERS[1:]]), "camera_path[1]: camera_to_world holds true, expected finite"),
        (entry(camera_to_world=POSE.T.flatten().tolist()), "it is written column by column, transpose it"),
        (entry(camera_to_world=[*NUMBERS[:12], 0, 0, 0, 2]), "expected the row 0, 0, 0, 1; correct it"),
        (entry(camera_to_world=mirrored()), "a rotation, a scale and a shift (it mirrors or shears, determinant -1)"),
        (entry(camera_to_world=[0.0] * 15 + [1.0]), "is not a rotation, a scale and a shift"),
        (entry(camera_to_world=[1, 0.5, *NUMBERS[2:]]), "is not a rotation, a scale and a shift"),
        (entry(fov=None), "camera_path[1]: key 'fov' is missing, expected the vertical angle in degrees"),
        (entry(fov=180), "fov is 180.0, expected the vertical angle in degrees, a number between 0 and 180"),
        (entry(fov=1e-323), "camera_path[1]: fov is 9.88131e-324 degrees, so fx is inf, expected a focal length"),
        (entry(fov=1e-322), "so fx is inf, expected a focal length"),
        (entry(fov=math.nan), "camera_path[1]: fov is NaN, expected the vertical angle"),
        (entry(aspect=0), "camera_path[1]: aspect is 0.0, expected width by height, a number above 0"),
        (entry(aspect=1.7778), "aspect is 1.7778, but render_width x render_height is 120x90, which is 1.33333"),
    ],
)
def test_mistakes_are_answered_with_file_and_place(tmp_path, content, expected):
    with pytest.raises(UserError) as caught:
        read(tmp_path, content)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'path.json'}: ") and expected in message and "\n" not in message


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match="no such file, expected a camera path in nerfstudio's JSON format"):
        read_camera_path(tmp_path / "none.json")
    with pytest.raises(UserError, match="cannot be read"):
        read_camera_path(tmp_path)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(UserError, match="cannot be read .*expected JSON in UTF-8"):
        read_camera_path(tmp_path / "bytes.json")
    (tmp_path / "deep.json").write_text("[" * 100000)
    with pytest.raises(UserError, match="cannot be read"):
        read_camera_path(tmp_path / "deep.json")


def test_what_a_path_file_cannot_say_is_known() -> None:
    pose = torch.tensor(look_at_origin(0.3, 0.4)[:3]).float()[None]
    for intrinsics, lost in (((50, 50, 20, 15), False), ((50, 50, 20.5, 15), True), ((50, 51, 20, 15), True)):
        cameras = Cameras(pose, torch.tensor([intrinsics], dtype=torch.float32), 40, 30)
        assert is_simplified(cameras) == lost
    lenses = Lenses.of(["perspective"], [(0.1,)])
    assert is_simplified(Cameras(pose, torch.tensor([[50.0, 50, 20, 15]]), 40, 30, lenses=lenses))
    assert not is_simplified(room_panoramas(2, 16))
    centered = torch.tensor([[50.0, 50, 20, 15], [50.0, 50, 15, 20]])
    assert is_simplified(Cameras.of_sizes(pose.expand(2, 3, 4), centered, [(40, 30), (30, 40)]))
