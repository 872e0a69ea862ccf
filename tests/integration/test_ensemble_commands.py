"""evaluate.py and render.py with ensemble=, of two short runs of the bundled scene that differ in their seed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from script_runs import run_script, script_caller

from nerf.cli import open_run

# Small batches: chance is much of the error.
SHORT = (
    "dataset.downscale=4", "field=voxel_sh", "field.num_voxels=27000", "train.steps=100", "train.rays_per_step=256",
    "evaluation.every=10", "device=cpu",
)  # fmt: skip
KINDS = {"rgb", "depth", "opacity", "normals", "spread"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs 0 and 1."""
    folder = tmp_path_factory.mktemp("runs")
    found = run_script("train", "-m", *SHORT, "seed=0,1", f"hydra.sweep.dir={folder}", cwd=folder)
    assert found.returncode == 0, found.stderr
    return folder


@pytest.fixture
def call(runs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """A function that runs a script where outputs/ holds the runs; returns its exit status."""
    call = script_caller(monkeypatch, tmp_path)
    Path("outputs").symlink_to(runs)
    return call


def metrics_of(folder: str) -> dict:
    return json.loads(Path(folder, "metrics.json").read_text())


def test_the_mean_scores_more_than_its_members(call: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("evaluate", "run=outputs/0", "ensemble=outputs/1", "every=10", "hydra.run.dir=both") == 0
    said = capsys.readouterr().out
    both, members = metrics_of("both"), [metrics_of(f"outputs/{name}") for name in "01"]
    assert both["views"] == members[0]["views"] == ["r_0", "r_10"]
    assert both["psnr"]["mean"] > max(one["psnr"]["mean"] for one in members) + 0.05
    assert [Path(one["run"]).name for one in both["ensemble"]] == ["0", "1"]
    assert [one["seed"] for one in both["ensemble"]] == [0, 1]
    assert both["ensemble_train_seconds"] == sum(one["train_seconds"] for one in members)
    assert "train_seconds" not in both and "steps" not in both and "psnr" not in both["ensemble"][0]
    assert both["scored_by"]["command"].endswith("hydra.run.dir=both") and both["split"] == "test"
    assert f"mean of the pictures of 2 runs, {both['ensemble_train_seconds']:.1f} s of training in all" in said
    assert Path("both/test/r_10.png").is_file() and Path("both/contact_sheet.png").is_file()

    assert call("evaluate", "runs=outputs/0,both", "hydra.run.dir=compared") == 0  # beside a run alone
    found = capsys.readouterr().out
    assert "both against 0: +" in found and "its model is missing" not in found
    assert f" {both['ensemble_train_seconds']:.1f} " in found

    Path("stopped").mkdir()
    shutil.copy("outputs/1/model.pt", "stopped")  # a run that says nothing of its training
    assert call("evaluate", "run=outputs/0", "ensemble=stopped", "every=10", "hydra.run.dir=less") == 0
    assert metrics_of("less")["ensemble_train_seconds"] is None
    assert metrics_of("less")["psnr"] == both["psnr"]


def test_frames_show_the_mean_and_where_the_runs_disagree(call: Callable[..., int]) -> None:
    settings = ("frames=2", "width=40", "floats=true")
    for name, chosen in (("a", "run=outputs/0"), ("b", "run=outputs/1"), ("both", "run=outputs/0 ensemble=outputs/1")):
        assert call("render", *chosen.split(), *settings, f"hydra.run.dir={name}") == 0
    assert {path.name for path in Path("a").iterdir() if path.is_dir()} == KINDS - {"spread"}
    assert {path.name for path in Path("both").iterdir() if path.is_dir()} == KINDS
    a, b, mean = (np.asarray(Image.open(f"{name}/rgb/0001.png")).astype(float) for name in ("a", "b", "both"))
    assert np.abs(mean - (a + b) / 2).max() <= 1 and np.abs(a - b).max() > 20
    spread = np.load("both/spread/0001.npy")
    expected = np.sqrt(np.square((a - b) / 510).mean(-1))
    assert spread.shape == (40, 40) and np.abs(spread - expected).max() < 0.01
    colors = np.asarray(Image.open("both/spread/0001.png")).astype(int)
    assert (colors[spread < 1e-4] == colors[0, 0]).all() and colors[spread > 0.05].min(0)[1] > colors[0, 0, 1] + 50


def test_the_video_has_the_spread_of_an_ensemble_alone(
    call: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ("run=outputs/0", "frames=1", "width=16", "video=[rgb,spread]")
    assert call("render", *settings, "ensemble=outputs/1", "hydra.run.dir=out") == 0
    assert "spread/" in capsys.readouterr().out
    assert call("render", *settings, "hydra.run.dir=other") == 2
    assert "is no choice of pictures; name some of rgb, depth, opacity, normals: " in capsys.readouterr().err


@pytest.mark.parametrize("script", ["evaluate", "render"])
def test_too_little_memory_for_all_members_is_answered_by_fewer(
    script: str, call: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(runs: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(open_run, "check_one_scene", full)  # when all are loaded
    assert call(script, "run=outputs/0", "ensemble=outputs/1", "hydra.run.dir=out") == 2
    message = capsys.readouterr().err
    assert "the GPU is out of memory" in message and "of an ensemble name fewer runs" in message


@pytest.mark.parametrize("script", ["evaluate", "render"])
@pytest.mark.parametrize(
    ("ensemble", "word"),
    [
        ("", "ensemble= names no run; expected folders, as ensemble=outputs/B,outputs/C."),
        (",", "names no run"),
        ("outputs/0", "with run=outputs/0, outputs/0 is named twice"),
        ("./outputs/0/model.pt", "with run=outputs/0, ./outputs/0/model.pt is named twice"),
        ("outputs/1,outputs/1", "with run=outputs/0, outputs/1 is named twice"),
        ("empty", "empty/model.pt does not exist"),
        ("outputs/1,nowhere", "nowhere does not exist; expected the folder of a training run"),
        ("small", "small is no member of an ensemble with outputs/0: its size of training views is 25x25, not 50x50"),
    ],
)
def test_what_makes_no_ensemble_is_answered_in_words(
    script: str, ensemble: str, word: str, call: Callable[..., int], capsys: pytest.CaptureFixture[str], small: Path
) -> None:
    Path("empty").mkdir()
    Path("small").symlink_to(small)
    assert call(script, "run=outputs/0", f"ensemble={ensemble}", "hydra.run.dir=out") == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ") and word in message and message.count("\n") == 1


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on smaller pictures of the same scene."""
    folder = tmp_path_factory.mktemp("small")
    settings = ("dataset.downscale=8", "train.steps=10", "evaluation.every=10", "device=cpu")
    found = run_script("train", *settings, f"hydra.run.dir={folder}/run", cwd=folder)
    assert found.returncode == 0, found.stderr
    return folder / "run"
