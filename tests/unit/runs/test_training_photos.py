"""A run finds the photos that it was trained on by their poses, whatever has become of the scene's list of them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from script_runs import script_caller
from tiny_runs import tiny_config, write_tiny_scene

import nerf
from nerf.cli.view import scene_of
from nerf.errors import UserError
from nerf.runs.open_run import places_of

TRAIN = "transforms_train.json"


def edit(scene: Path, change: Callable[[list], list]) -> None:
    """Writes another list of training frames."""
    content = json.loads((scene / TRAIN).read_text())
    (scene / TRAIN).write_text(json.dumps(content | {"frames": change(content["frames"])}))


def trained(folder: Path, leave_out: int, **dataset: object) -> nerf.LoadedRun:
    """A run on the tiny scene in scene/, whose list of training frames had lacked one, saved in run/ and loaded."""
    scene = folder / "scene"
    write_tiny_scene(scene)
    whole = (scene / TRAIN).read_text()
    edit(scene, lambda frames: frames[:leave_out] + frames[leave_out + 1 :])
    if "test_every" in dataset:
        (scene / "transforms_test.json").unlink()
    config = tiny_config(steps=3)
    config.device, config.dataset.root = "cpu", str(scene)
    for name, value in dataset.items():
        setattr(config.dataset, name, value)
    run = nerf.start(config)
    list(run.train())
    run.save(folder / "run")
    (scene / TRAIN).write_text(whole)
    return nerf.load(folder / "run", device="cpu")


def assert_its_own(opened: nerf.LoadedRun) -> None:
    views = opened.given_views("train")
    torch.testing.assert_close(views.cameras.c2w, opened.given_cameras.c2w)
    again = nerf.load(opened.folder, device="cpu").given_cameras
    assert len(views) == len(again) == len(views.files) and views.pixels.shape[0] == again.first_pixel(len(again))


def test_a_photo_that_is_new_is_none_of_the_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened = trained(tmp_path, leave_out=3)
    assert_its_own(opened)
    names = opened.given_views("train").names
    assert names == ["r_0", "r_1", "r_2", "r_4", "r_5", "r_6", "r_7"]
    assert len(opened.evaluate("train").views) == 7
    capsys.readouterr()
    assert scene_of(opened).photos.names == names and "note" not in capsys.readouterr().out


def test_photos_in_another_order_are_told_by_their_poses(tmp_path: Path) -> None:
    opened = trained(tmp_path, leave_out=3)
    edit(tmp_path / "scene", lambda frames: frames[2::-1] + frames[:3:-1])
    before = opened.given_views("train")
    assert before.names == ["r_0", "r_1", "r_2", "r_4", "r_5", "r_6", "r_7"]
    edit(tmp_path / "scene", lambda frames: sorted(frames, key=lambda frame: frame["file_path"]))
    after = scene_of(opened).photos
    assert torch.equal(after.pixels, before.pixels) and torch.equal(after.depths, before.depths)


def test_photos_that_are_held_out_since_one_was_added_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = trained(tmp_path, leave_out=0, test_every=4)  # frames 1 and 5 were held out, now 0 and 4 are
    assert_its_own(opened)
    assert "note" not in capsys.readouterr().err
    opened.given_views("test")
    assert "note: the run was trained on 1 of the 2 test views" in capsys.readouterr().err
    assert opened.given_views("train").names == ["r_2", "r_3", "r_4", "r_6", "r_7"]


def test_a_photo_that_is_in_another_split_now_is_missed_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = trained(tmp_path, leave_out=3)
    scene = tmp_path / "scene"
    for file in scene.glob("transforms_*.json"):  # a format whose list of all poses has more than those of training
        content = json.loads(file.read_text())
        file.write_text(json.dumps(content | {"camera_angle_y": content["camera_angle_x"]}))
    moved = json.loads((scene / TRAIN).read_text())["frames"][0]
    edit(scene, lambda frames: frames[1:])
    val = json.loads((scene / TRAIN).read_text()) | {"frames": [moved]}
    (scene / "transforms_val.json").write_text(json.dumps(val))
    with pytest.raises(UserError, match="1 of the 7 views that the run was trained on are no training views.*Put them"):
        opened.given_views("train")
    assert scene_of(opened).photos is None and "note: without photos: 1 of the 7" in capsys.readouterr().out


def test_poses_that_are_alike_are_taken_in_their_order() -> None:
    poses = torch.eye(4)[:3].repeat(5, 1, 1)
    poses[:, 0, 3] = torch.tensor([0.0, 1.0, 1.0, 2.0, 3.0])
    assert places_of(poses, poses).tolist() == [0, 1, 2, 3, 4]
    assert places_of(poses[[1, 2, 4]], poses).tolist() == [1, 2, 4]
    assert places_of(poses, poses[[4, 1, 0, 3]]).tolist() == [2, 1, 1, 3, 0]  # one photo was taken away
    assert places_of(poses, poses[:1]).tolist() == [0, -1, -1, -1, -1]


@pytest.mark.parametrize(("format_", "file"), [("cameras", "transforms.json"), ("colmap", "sparse/0/images.txt")])
def test_cameras_are_exported_with_the_names_of_their_photos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str, file: str
) -> None:
    trained(tmp_path, leave_out=3)
    call = script_caller(monkeypatch, tmp_path)
    assert call("export", str(tmp_path / "run"), f"format={format_}", "device=cpu", "hydra.run.dir=out") == 0
    text = (Path("out") / file).read_text()
    assert "r_2.png" in text and "r_3.png" not in text and "r_7.png" in text


def test_a_run_that_is_named_by_its_model_file_is_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(tmp_path, leave_out=3)
    assert nerf.load(tmp_path / "run" / "model.pt", device="cpu").folder == tmp_path / "run"
    monkeypatch.chdir(tmp_path / "run")
    assert nerf.load("model.pt", device="cpu").folder == Path()
