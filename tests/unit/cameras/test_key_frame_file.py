"""Key frames in path files: read back as written, rendered as a path, mistakes told by their place."""

import json
from pathlib import Path

import pytest
import torch
from fixtures import look_at_origin

from nerf.cameras.key_frame_file import read_key_frames, write_key_frames
from nerf.cameras.key_frames import DEFAULT_SECONDS, KeyFrame, KeyFramePath
from nerf.cameras.path_file import read_camera_path, write_camera_path
from nerf.errors import UserError


def path(loop: bool = True) -> KeyFramePath:
    poses = [torch.tensor(look_at_origin(0.9 * i, 0.3)[:3]).float() for i in range(3)]
    return KeyFramePath(tuple(KeyFrame(pose, 0.5 + 0.1 * i, 0.5 + i) for i, pose in enumerate(poses)), loop)


@pytest.mark.parametrize("loop", [False, True])
def test_what_is_saved_is_read_again(tmp_path: Path, loop: bool) -> None:
    file, before = tmp_path / "paths" / "path.json", path(loop)
    write_key_frames(file, before, 12, 160, 90)
    found = read_key_frames(file)
    assert (found.fps, found.width, found.height, found.path.loop) == (12, 160, 90, loop)
    assert found.path.durations == before.durations and found.path.keys[0].seconds == 0.5
    for one, other in zip(found.path.keys, before.keys, strict=True):
        torch.testing.assert_close(one.c2w, other.c2w)
        assert one.fov == pytest.approx(other.fov)


def test_its_frames_are_a_path_file(tmp_path: Path) -> None:
    file = tmp_path / "path.json"
    write_key_frames(file, path(), 12, 160, 90)
    frames, expected = read_camera_path(file), path().cameras(12, 160, 90)
    assert frames.fps == 12 and len(frames.cameras) == len(expected) == 54
    torch.testing.assert_close(frames.cameras.c2w, expected.c2w, rtol=0, atol=1e-5)
    torch.testing.assert_close(frames.cameras.intrinsics, expected.intrinsics)


def changed(tmp_path: Path, **changes: object) -> Path:
    """A saved file whose second key frame, or whose whole if no such key is in it, was changed; None takes away."""
    file = tmp_path / "path.json"
    write_key_frames(file, path(), 12, 160, 90)
    content = json.loads(file.read_text())
    for name, value in changes.items():
        holder = content["keyframes"][1] if name in content["keyframes"][1] else content
        holder[name] = value
        if value is None:
            del holder[name]
    file.write_text(json.dumps(content))
    return file


def test_nerfstudio_may_leave_the_seconds_to_its_default(tmp_path: Path) -> None:
    file = changed(tmp_path, override_transition_enabled=False, default_transition_sec=4)
    assert [key.seconds for key in read_key_frames(file).path.keys] == [0.5, 4, 2.5]
    file = changed(tmp_path, override_transition_enabled=False, default_transition_sec=None)
    assert read_key_frames(file).path.keys[1].seconds == DEFAULT_SECONDS


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"keyframes": []}, "keyframes.*scripts/render.py"),
        ({"keyframes": [3]}, r"keyframes\[0\] is 3"),
        ({"matrix": [1, 2]}, r"keyframes\[1\]: matrix is a list of 2"),
        ({"fov": 181}, r"keyframes\[1\]: fov is 181"),
        ({"override_transition_sec": 0}, r"keyframes\[1\]: override_transition_sec is 0"),
        ({"camera_path": []}, "camera_path"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, changes: dict, found: str) -> None:
    file = changed(tmp_path, **changes)
    with pytest.raises(UserError, match=f"path.json: .*{found}"):
        read_key_frames(file)


def test_a_path_without_key_frames_cannot_be_edited(tmp_path: Path) -> None:
    write_camera_path(tmp_path / "frames.json", path().cameras(5, 8, 8), 5)
    with pytest.raises(UserError, match="frames.json: .*keyframes"):
        read_key_frames(tmp_path / "frames.json")
