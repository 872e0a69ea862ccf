"""The scripts as a user meets them: what they write, what they print, and how they answer mistakes."""

import json
import math
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from script_runs import ROOT, run_script, script_caller
from tiny_runs import write_tiny_scene

PROMISED = {
    "train_seconds", "steps", "pixels_per_second", "peak_memory_bytes", "backend", "device", "commit", "seed",
}  # fmt: skip


@pytest.fixture
def call_script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    return script_caller(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of experiment=smoke, trained by the script in a process of its own, and what that printed."""
    folder = tmp_path_factory.mktemp("trained")
    arguments = ("experiment=smoke", "device=cpu", f"hydra.run.dir={folder}/run")
    found = run_script("train", *arguments, cwd=folder, NERF_COMMIT="of sources without .git")
    assert found.returncode == 0, found.stderr
    assert [path.name for path in folder.iterdir()] == ["run"]
    return folder / "run", found.stdout


def read_picture(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path))


# train.py


def test_train_writes_what_it_promises(trained: tuple[Path, str]) -> None:
    run, printed = trained
    files = {"config.yaml", "model.pt", "resume.pt", "metrics.json", "contact_sheet.png", "orbit.mp4", "test"}
    assert files <= {path.name for path in run.iterdir()}
    assert {path.name for path in run.iterdir()} - files <= {p.name for p in run.glob("events.out.tfevents*")}
    for name in ("metrics.json", "contact_sheet.png", "orbit.mp4"):
        assert str(run / name) in printed
    for script in ("view.py", "export.py"):  # what can be done with it
        assert re.search(rf"scripts/{script} run={re.escape(str(run))}", printed)
    for row in ("PSNR", "SSIM", "depth error", "training", "memory", "rendering", "run by"):
        assert f"\n{row} " in printed
    assert sorted(path.name for path in (run / "test").iterdir()) == ["r_0.png", "r_10.png"]  # evaluation.every=10
    assert read_picture(run / "test" / "r_0.png").shape == (50, 50, 3)
    assert read_picture(run / "contact_sheet.png").shape[1] > 4 * 50
    with imageio.get_reader(run / "orbit.mp4") as video:
        assert video.count_frames() == 60


def test_metrics_hold_every_promised_key(trained: tuple[Path, str]) -> None:
    run, _ = trained
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics.keys() >= PROMISED
    assert metrics["views"] == ["r_0", "r_10"]  # in the order of per_view
    for score in ("psnr", "ssim", "median_depth_error"):
        values = metrics[score]
        assert values.keys() == {"mean", "per_view"} and len(values["per_view"]) == 2
        assert values["mean"] == pytest.approx(sum(values["per_view"]) / 2)
    assert metrics["psnr"]["mean"] > 17, "a constant color scores under 15"
    assert metrics["median_depth_error"]["mean"] < 2 * metrics["voxel_size"]
    assert (metrics["steps"], metrics["seed"], metrics["backend"]) == (60, 0, "native")
    assert metrics["device"].startswith("CPU") and metrics["commit"] != "unknown"
    rays = metrics["steps"] * 512
    assert metrics["pixels_per_second"] == pytest.approx(rays / metrics["train_seconds"])
    assert 2**26 < metrics["peak_memory_bytes"] < 2**33


def test_the_saved_config_is_resolved(trained: tuple[Path, str]) -> None:
    run, _ = trained
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["dataset"]["scene"] == "bricks" and config["field"]["name"] == "voxel_deferred"
    assert config["field"]["num_voxels"] == 8000 and config["train"]["rays_per_step"] == 512
    assert "resume" not in config and "experiment" not in config


def test_sources_without_git_take_the_commit_from_the_environment(tmp_path: Path) -> None:
    """A copy of the sources, as in a container, with nothing to compile with: the PyTorch backend runs."""
    root, run = tmp_path / "copy", tmp_path / "run"
    for name in ("nerf", "scripts", "configs", "cuda_ext"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("libnerf.so", "__pycache__", "build"))
    write_tiny_scene(root / "data" / "sphere")
    settings = ("experiment=smoke", "dataset=blender", "dataset.scene=sphere", "dataset.downscale=1", "train.steps=3")
    env = {"NERF_COMMIT": "abc123", "CXX": "no-such-compiler"}
    found = run_script("train", *settings, "backend=torch", f"hydra.run.dir={run}", cwd=tmp_path, root=root, **env)
    assert found.returncode == 0, found.stderr
    metrics = json.loads((run / "metrics.json").read_text())
    assert (metrics["commit"], metrics["backend"]) == ("abc123", "torch")

    found = run_script("train", *settings, "backend=native", cwd=tmp_path, root=root, **env)
    assert found.returncode == 2
    assert "backend=native cannot run here: no C++ compiler: 'no-such-compiler'" in found.stderr
    assert "backend=torch needs no compiler" in found.stderr and "Traceback" not in found.stderr


# evaluate.py and render.py


def test_evaluate_finds_the_scores_of_training(trained: tuple[Path, str], tmp_path: Path) -> None:
    run, _ = trained
    found = run_script("evaluate", f"run={run}", "every=10", f"hydra.run.dir={tmp_path}/scores", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    ours, theirs = (json.loads((f / "metrics.json").read_text()) for f in (tmp_path / "scores", run))
    for score in ("psnr", "ssim", "median_depth_error"):
        assert ours[score]["mean"] == pytest.approx(theirs[score]["mean"], rel=2e-3)  # the model is in half precision
    assert ours.keys() >= PROMISED and ours["split"] == "test" and ours["scored_by"]["backend"] == "native"
    assert (tmp_path / "scores" / "test" / "r_10.png").is_file()
    assert f"{theirs['psnr']['mean']:.2f} dB over 2 test views" in found.stdout


def test_evaluate_scores_another_split_of_the_newest_run(
    trained: tuple[Path, str], call_script: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained[0], "outputs/one")
    shutil.copytree(trained[0], "outputs/two")
    Path("outputs/one/model.pt").write_bytes(b"never read")
    os.utime("outputs/one/model.pt", (1, 1))
    of_training = json.loads(Path("outputs/two/metrics.json").read_text())
    Path("outputs/two/metrics.json").unlink()
    assert call_script("evaluate", "split=train", "every=50", "hydra.run.dir=scores") == 0
    assert "dB over 2 train views" in capsys.readouterr().out
    found = json.loads(Path("scores/metrics.json").read_text())
    assert found["split"] == "train" and "train_seconds" not in found
    for known in ("scene", "field", "image_size"):  # to a model that came without its metrics too
        assert found[known] == of_training[known]


def test_pictures_have_the_rays_per_pixel_that_are_asked_for(
    trained: tuple[Path, str], call_script: Callable[..., int], tmp_path: Path
) -> None:
    """Neither more nor fewer than the run had, which are one, unless it is said."""
    run, scores = trained[0], {}
    for count in ("none", 1, 4):
        folder = f"hydra.run.dir={tmp_path}/{count}"
        assert call_script("evaluate", f"run={run}", "every=10", f"rays_per_pixel={count}", folder) == 0
        scores[count] = json.loads((tmp_path / f"{count}" / "metrics.json").read_text())["psnr"]["per_view"]
        folder = f"hydra.run.dir={tmp_path}/frames{count}"
        assert call_script("render", f"run={run}", "frames=1", "width=20", f"rays_per_pixel={count}", folder) == 0
    assert scores["none"] == scores[1] != scores[4]
    assert scores[4] == pytest.approx(scores[1], abs=1.5)
    none, one, four = (read_picture(tmp_path / f"frames{c}" / "rgb" / "0000.png").astype(int) for c in scores)
    assert np.array_equal(none, one) and np.abs(four - one).max() > 2


def test_render_writes_frames_depth_opacity_normals_and_a_video(trained: tuple[Path, str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    settings = ("frames=3", "width=40", "fps=5", f"hydra.run.dir={out}")
    found = run_script("render", f"run={trained[0]}", *settings, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    for kind in ("rgb", "depth", "opacity", "normals"):
        frames = sorted((out / kind).iterdir())
        assert [path.name for path in frames] == ["0000.png", "0001.png", "0002.png"]
        pictures = [read_picture(path) for path in frames]
        assert all(picture.shape[:2] == (40, 40) for picture in pictures)
        assert all(picture.std() > 5 for picture in pictures) and not np.array_equal(pictures[0], pictures[1])
    with imageio.get_reader(out / "orbit.mp4") as video:
        assert video.count_frames() == 3 and video.get_meta_data()["fps"] == 5
    assert str(out / "orbit.mp4") in found.stdout


def test_render_of_the_test_cameras_shows_what_training_rendered(
    trained: tuple[Path, str], call_script: Callable[..., int]
) -> None:
    assert call_script("render", f"run={trained[0]}", "path=test", "hydra.run.dir=out") == 0
    assert len(list(Path("out/rgb").iterdir())) == 20
    pictures = [read_picture(path).astype(int) for path in (Path("out/rgb/0010.png"), trained[0] / "test" / "r_10.png")]
    assert np.abs(pictures[0] - pictures[1]).max() <= 1  # the model is in half precision


# Mistakes


@pytest.mark.parametrize("script", ["train", "render", "evaluate"])
def test_help(call_script: Callable[..., int], capsys: pytest.CaptureFixture[str], script: str) -> None:
    assert call_script(script, "--help") == 0
    text = capsys.readouterr().out
    assert f"python scripts/{script}.py" in text and "Settings, given as name=value:" in text
    assert "\n  device=auto " in text and "hydra.run.dir=DIR" in text
    assert not any(Path.cwd().iterdir())


def test_a_mistake_ends_the_process_with_one_message(tmp_path: Path) -> None:
    found = run_script("train", "train.stps=3", cwd=tmp_path)
    assert found.returncode == 2 and found.stdout == ""
    assert found.stderr == "error: there is no setting 'train.stps'; did you mean 'train.steps'?\n"
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("script", "arguments", "expected"),
    [
        ("train", ["dataset=lego", "hydra.run.dir=o"], "Scene 'lego' not found: no transforms_train.json in "),
        ("train", ["dataset=lego", "dataset.root=empty", "hydra.run.dir=o"], "in empty, empty/lego. Fetch it with: "),
        ("train", ["dataset.downscale=3", "hydra.run.dir=o"], "dataset.downscale=3 does not divide the image size"),
        ("train", ["train.steps=none", "dataset=blender"], "Missing mandatory value: scene"),
        ("render", ["run=nowhere", "hydra.run.dir=o"], "nowhere does not exist; expected the folder of a training run"),
        ("render", ["hydra.run.dir=o"], "there is no trained run in "),
        ("evaluate", ["run=empty", "hydra.run.dir=o"], "empty/model.pt does not exist"),
        ("render", ["frame=3"], "did you mean 'frames'?"),
        ("evaluate", ["every=0"], "every=0 is out of range, expected at least 1"),
        ("evaluate", ["rays_per_pixel=3"], "rays_per_pixel=3 is unknown; choose one of 1, 2, 4."),
        ("render", ["rays_per_pixel=0"], "rays_per_pixel=0 is unknown; choose one of 1, 2, 4."),
    ],
)
def test_mistakes_are_answered_and_leave_no_folder(
    call_script: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    script: str,
    arguments: list[str],
    expected: str,
) -> None:
    Path("empty").mkdir()
    assert call_script(script, *arguments) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ") and expected in message and message.count("\n") == 1
    assert [path.name for path in Path.cwd().iterdir()] == ["empty"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there(
    trained: tuple[Path, str], call_script: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    for script, arguments in (("train", []), ("render", [f"run={trained[0]}"]), ("evaluate", [f"run={trained[0]}"])):
        assert call_script(script, "device=cuda", *arguments) == 2
        message = capsys.readouterr().err
        assert "device=cuda cannot run here: PyTorch" in message and "or use device=cpu" in message


def test_a_damaged_image_is_named(call_script: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    write_tiny_scene(Path("scene"))
    image = Path("scene/train/r_3.png")
    image.write_bytes(image.read_bytes()[:-40])
    assert call_script("train", "experiment=smoke", "dataset.downscale=1", "dataset.root=scene") == 2
    message = capsys.readouterr().err
    assert "r_3.png: cannot be read as an image" in message and "copy or render it again" in message


def test_numbers_in_metrics_are_json(trained: tuple[Path, str]) -> None:
    """No NaN and no Infinity, which JSON does not know."""

    def refuse(name: str) -> float:
        raise AssertionError(f"{name} in metrics.json")

    metrics = json.loads((trained[0] / "metrics.json").read_text(), parse_constant=refuse)
    assert all(math.isfinite(value) for value in metrics["psnr"]["per_view"])
