"""From a folder of photos with poses to training views, as the command line takes it."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from capture_files import HEIGHT, WIDTH, ring, write_colmap, write_transforms
from fixtures import random_images, write_sphere_scene
from PIL import Image
from script_runs import script_caller

import nerf
from nerf.config.schema import DatasetConfig
from nerf.datasets.blender import load_blender
from nerf.datasets.load import check_split, load_split
from nerf.errors import UserError

SHORT = ("experiment=smoke", "dataset=capture", "dataset.root=my photos", "dataset.downscale=1", "evaluation.every=1")


def of(root: Path, **settings: object) -> DatasetConfig:
    return DatasetConfig(root=str(root), **settings)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """A function that runs a script in a folder with the sphere of the tests as a capture; returns its status."""
    call = script_caller(monkeypatch, tmp_path)
    folder = Path("my photos")
    write_sphere_scene(folder, views=17, size=20, splits=("train",))
    (folder / "transforms_train.json").rename(folder / "transforms.json")
    (folder / "train" / "r_3.png").rename(folder / "train" / "Käfer 3.png")
    path = folder / "transforms.json"
    path.write_text(path.read_text().replace("./train/r_3", "./train/Käfer 3"), encoding="utf-8")
    return call


def test_a_capture_is_trained_on_scored_and_rendered(
    call: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("train", *SHORT, "hydra.run.dir=run") == 0
    said = capsys.readouterr()
    assert "14 photos for train" in said.err and "14 training views 20x20" in said.err
    metrics = json.loads(Path("run/metrics.json").read_text())
    assert len(metrics["psnr"]["per_view"]) == 3 and metrics["scene"] == "my photos"
    assert call("evaluate", "run=run", "hydra.run.dir=again") == 0
    assert call("render", "run=run", "path=test", "hydra.run.dir=frames") == 0
    assert len(list(Path("frames/rgb").glob("*.png"))) == 3


def test_where_poses_are_learned_test_views_are_shown_as_they_are_scored(call: Callable[..., int]) -> None:
    """Once from the given cameras, though the scene had turned and moved with the learned ones."""
    learned = "poses=refine", "field.upsample_at=none", "poses.perturb_sigma=0.1", "train.steps=30"
    assert call("train", *SHORT, *learned, "hydra.run.dir=run") == 0
    assert call("evaluate", "run=run", "hydra.run.dir=scored") == 0
    assert call("render", "run=run", "path=test", "hydra.run.dir=frames") == 0
    scored, frames = (sorted(Path(folder).glob("*.png")) for folder in ("scored/test", "frames/rgb"))
    assert len(frames) == 3
    pairs = [
        [np.asarray(Image.open(path).convert("RGB")) for path in pair] for pair in zip(scored, frames, strict=True)
    ]
    assert all(np.array_equal(*pair) for pair in pairs)


def test_exported_cameras_name_the_photos_and_are_for_them(call: Callable[..., int]) -> None:
    """Once they named what no file is called, for pictures of the size of training, and nobody could read them."""
    assert call("train", *SHORT, "dataset.downscale=3", "hydra.run.dir=run") == 0
    scene = Path("my photos")
    for kind, written in (("cameras", "transforms.json"), ("colmap", "sparse/0")):
        assert call("export", "run=run", f"format={kind}", "hydra.run.dir=out") == 0
        assert Path("out", written).exists()
    given = json.loads((scene / "transforms.json").read_text())
    found = json.loads(Path("out/transforms.json").read_text())["frames"]
    assert len(found) == 14 and all((scene / frame["file_path"]).is_file() for frame in found)
    focal = 10 / np.tan(0.5 * given["camera_angle_x"])
    for frame in found:
        assert (frame["w"], frame["h"], frame["cx"]) == (20, 20, pytest.approx(10)), frame
        assert frame["fl_x"] == pytest.approx(focal, rel=1e-5)
    lines = Path("out/sparse/0/images.txt").read_text().splitlines()[::2]
    names = [line.split(" ", 9)[9] for line in lines]
    assert len(names) == 14 and all((scene / "train" / name).is_file() for name in names)
    (scene / "transforms.json").write_text(Path("out/transforms.json").read_text())
    assert call("train", *SHORT, "hydra.run.dir=back") == 0


def test_views_of_several_sizes_are_trained_on_scored_and_rendered(call: Callable[..., int]) -> None:
    """The photos are cut, each in its own way; contact sheet and video frame what is smaller."""
    path = Path("my photos/transforms.json")
    transforms = json.loads(path.read_text())
    focal = 10 / np.tan(0.5 * transforms.pop("camera_angle_x"))
    for index, frame in enumerate(transforms["frames"]):
        photo = path.parent / f"{frame['file_path']}.png"
        cut = index % 5
        image = Image.open(photo)
        image.crop((0, 0, 20 - cut, 20)).save(photo)
        frame.update(fl_x=focal, fl_y=focal, cx=10, cy=10, w=20 - cut, h=20, k1=0.001)
    path.write_text(json.dumps(transforms))
    assert call("train", *SHORT, "hydra.run.dir=run") == 0
    assert call("render", "run=run", "path=test", "hydra.run.dir=frames") == 0
    widths = [Image.open(found).width for found in sorted(Path("frames/rgb").glob("*.png"))]
    assert len(widths) == 3 and set(widths) == {20, 17, 16}


def test_nothing_held_out_is_said_before_training(call: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("train", *SHORT, "hydra.run.dir=run", "dataset.test_every=0") == 2
    assert "no test view among 17 photos" in capsys.readouterr().err and not Path("run").exists()
    assert call("train", *SHORT, "hydra.run.dir=run", "dataset.test_every=0", "evaluation.split=train") == 0


@pytest.mark.parametrize("count", [0, 1])
def test_a_colmap_model_with_hardly_a_point_is_trained_on(count: int, tmp_path: Path) -> None:
    """As models for known poses are."""
    views = ring(12)
    write_colmap(tmp_path, views, points=np.zeros((count, 3)))
    (tmp_path / "images").mkdir()
    rng = np.random.default_rng(0)
    for name in views.names:
        Image.fromarray(rng.integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)).save(tmp_path / "images" / name)
    config = nerf.settings(
        {
            "dataset.root": str(tmp_path),
            "dataset.format": "colmap",
            "device": "cpu",
            "train.steps": 3,
            "field.num_voxels": 1000,
        }
    )
    run = nerf.start(config)
    assert [look.step for look in run.train()][-1] == 3
    assert f"{count}, expected at least 30" in " ".join(run.reasons)


def test_missing_photos_end_a_run_before_it_begins(
    call: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("my photos/train/Käfer 3.png").unlink()
    assert call("train", *SHORT, "hydra.run.dir=run") == 2
    message = capsys.readouterr().err
    assert "1 of the 17 photos" in message and "Käfer 3" in message and "dataset.skip_missing=true" in message
    assert call("train", *SHORT, "hydra.run.dir=run", "dataset.skip_missing=true") == 0
    assert "1 photos are missing and left out" in capsys.readouterr().err


def test_a_blender_scene_is_one_whichever_way_it_is_named(tmp_path: Path) -> None:
    write_sphere_scene(tmp_path, views=2, with_depth=True)
    expected = load_blender(tmp_path, "test")
    for settings in ({}, {"format": "blender"}):
        found = load_split(of(tmp_path, **settings), "test")
        assert torch.equal(found.pixels, expected.pixels) and torch.equal(found.depths, expected.depths)


def test_a_capture_in_python(tmp_path: Path) -> None:
    write_transforms(tmp_path, ring(9))
    values = {"dataset.root": str(tmp_path), "device": "cpu", "dataset.aabb": [-1.0] * 3 + [1.0] * 3}
    run = nerf.start(nerf.settings(values))
    assert len(run.images) == 7 and run.images.cameras.size(0) == (24, 16)


def test_a_format_needs_a_folder() -> None:
    with pytest.raises(UserError, match="dataset.format=colmap needs the folder of the capture; give dataset.root"):
        load_split(DatasetConfig(format="colmap"), "train")


def test_a_split_is_checked_without_reading_a_photo(tmp_path: Path) -> None:
    write_transforms(tmp_path, ring(9))
    check_split(of(tmp_path), "test")
    with pytest.raises(UserError, match="no val view among 9 photos"):
        check_split(of(tmp_path), "val")


def test_photos_that_exif_turns_are_read_as_their_poses_were_made(tmp_path: Path) -> None:
    """The camera is for 24x16 pixels; the photo is stored as 16x24 and shown turned."""
    views = ring(2)
    write_transforms(tmp_path, views)
    pixels, exif = random_images(24, 16, 3), Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(tmp_path / "images" / views.names[1], exif=exif)
    posed = load_split(of(tmp_path, test_every=0), "train")
    assert posed.cameras.sizes is None and np.array_equal(posed.image(1).numpy(), np.rot90(pixels, -1))
    torch.testing.assert_close(posed.cameras.intrinsics[0], posed.cameras.intrinsics[1])
