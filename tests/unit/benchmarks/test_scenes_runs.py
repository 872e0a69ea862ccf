"""What mode=scenes trains, in which order, what counts as done, and which view is the worst; nothing is trained."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from nerf.benchmarks import scenes
from nerf.benchmarks.scene_sets import Scene
from nerf.cli import benchmark_scenes
from nerf.config.schema import Config, DatasetConfig, EvaluationConfig
from nerf.errors import TrainingStopped, UserError
from nerf.ops.backend import select

PSNR = {"mean": 20.0, "per_view": [20.0]}


class Trained:
    """Stands for the training: knows what was asked of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.asked: list[tuple[str, float | None, int | None]] = []
        self.failing: dict[str, Exception] = {}
        self.folder = folder
        here = [Scene("captures", name, folder / name, None) for name in ("a", "b")]
        monkeypatch.setattr(benchmark_scenes, "find_scenes", lambda folders, names: here)
        monkeypatch.setattr(benchmark_scenes, "scenes_table", lambda results: "")
        monkeypatch.setattr(benchmark_scenes, "measure_scene", self.measured)

    def measured(self, config: Config, scene: Scene, *_: object) -> dict:
        self.asked.append((scene.name, config.train.max_seconds, config.train.steps))
        if scene.name in self.failing:
            raise self.failing[scene.name]
        return {"scene": scene.name, "psnr": PSNR, "steps": 4, "train_seconds": 1.0}

    def run(self, budgets: tuple[float, ...] = (15,), steps: tuple[int, ...] = (), **settings: object) -> None:
        config = Config(device="cpu", dataset=DatasetConfig(root=str(self.folder)), **settings)
        benchmark_scenes.run_scenes(config, [], budgets, steps, self.folder, lambda words: None)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Trained:
    return Trained(monkeypatch, tmp_path)


def test_the_shortest_budget_of_all_scenes_comes_first_and_each_once(trained: Trained) -> None:
    trained.run(budgets=(60, 15, 60))
    assert trained.asked == [("a", 15, None), ("b", 15, None), ("a", 60, None), ("b", 60, None)]
    trained.asked.clear()
    trained.run(budgets=(15,), steps=(9, 3))
    assert trained.asked == [("a", None, 3), ("b", None, 3), ("a", None, 9), ("b", None, 9)]


@pytest.mark.parametrize("error", [UserError("no scene"), TrainingStopped("no cell is left")])
def test_a_scene_that_fails_ends_no_other_and_is_done_again(
    trained: Trained, error: Exception, capsys: pytest.CaptureFixture
) -> None:
    trained.failing["a"] = error
    with pytest.raises(SystemExit) as end:
        trained.run()
    assert end.value.code == 2 and f"captures_a_15_seconds: {error}" in capsys.readouterr().err
    kept = json.loads((trained.folder / "scenes.json").read_text())
    assert [run["scene"] for run in kept["runs"]] == ["b"]
    trained.failing.clear()
    trained.run()
    assert [name for name, *_ in trained.asked] == ["a", "b", "a"]


def test_a_figure_of_other_settings_or_another_device_is_not_taken(
    trained: Trained, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    trained.run()
    for settings, device in (({"seed": 1}, None), ({}, "another")):
        with monkeypatch.context() as patched:
            if device:
                patched.setattr(benchmark_scenes, "device_name", lambda _, name=device: name)
            with pytest.raises(SystemExit):
                trained.run(**settings)
        assert "other settings or on another device" in capsys.readouterr().err
    assert len(trained.asked) == 2
    (trained.folder / "captures_a_15_seconds.json").write_text("{")  # broken off
    trained.run()
    assert len(trained.asked) == 3


@pytest.mark.parametrize(("masked", "expected"), [(False, "middle"), (True, "last")])
def test_the_worst_view_is_told_by_the_pixels_that_count(
    masked: bool, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The middle view is wrong in its first row alone, which masks leave out; the last one a little everywhere."""
    target = torch.zeros(6, 6, 3)
    pictures = [torch.full((6, 6, 3), value) for value in (0.01, 0.01, 0.1)]
    pictures[1][0] = 1.0
    valid = torch.ones(6, 6, dtype=torch.bool)
    valid[0] = False
    cameras = SimpleNamespace(width=6, height=6)
    test = SimpleNamespace(
        cameras=cameras, names=["first", "middle", "last"], valid_mask=lambda _: valid if masked else None
    )
    monkeypatch.setattr(scenes, "load_split", lambda dataset, split: test if split == "test" else [0, 1])

    def measured(*arguments: object) -> dict:
        for index, rgb in enumerate(pictures):
            arguments[-1](index, SimpleNamespace(rgb=rgb), target)
        return {"psnr": PSNR}

    monkeypatch.setattr(scenes, "measure_run", measured)
    config = Config(evaluation=EvaluationConfig(split="test"))
    scene = Scene("captures", "a", tmp_path, None)
    run = scenes.measure_scene(config, scene, select("torch", "cpu"), tmp_path, tmp_path / "worst.png")
    assert run["worst_view"]["name"] == expected and (tmp_path / "worst.png").is_file()
