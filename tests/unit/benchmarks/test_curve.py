"""mode=curve: the runs of a curve, what is made of their figures, and the baselines beside them."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fake_time import FakeTime
from PIL import Image
from script_runs import ROOT, script_caller
from test_tables import lines_with, tables, write_readme
from tiny_runs import tiny_config, tiny_images, write_tiny_scene

from nerf.benchmarks import curve
from nerf.benchmarks.baselines import ahead, merged, psnr_after, same_test
from nerf.benchmarks.curve import CurveConfig, budget_figures, measure_run, with_budget
from nerf.benchmarks.curve_plot import COLORS, OURS, plot_curve
from nerf.cli import benchmark_curve
from nerf.ops.backend import select
from nerf.runs import checkpoint
from nerf.training.grid_schedule import EmptyGrid

BASELINES = json.loads((ROOT / "docs" / "results" / "data" / "baselines_h200.json").read_text())
TINY = ("mode=curve", "device=cpu", "dataset=bricks", "dataset.root=scene", "train.rays_per_step=64")
TINY += ("train.log_every=2", "field.num_voxels=1000", "field.min_level_steps=1", "hydra.run.dir=curve")


def run_figures(psnr: float, views: int = 200, **changed: object) -> dict:
    per_view = [psnr + (1.0 if view % 4 == 0 else 0.0) for view in range(views)]
    return {
        "seed": 0,
        "field": "voxel_mlp",
        "train_seconds": 5.01,
        "steps": 4000,
        "psnr": {"mean": sum(per_view) / views, "per_view": per_view},
        "ssim": {"mean": 0.975, "per_view": [0.975] * views},
        "render_seconds_per_view": 0.0035,
        "peak_memory_bytes": 5 * 2**30,
        "model_bytes": 81_500_000,
        "looks": [{"seconds": 2.5, "step": 2000, "psnr": psnr - 2, "ssim": 0.9, "views": 25}],
        "notes": [],
    } | changed


def lego_curve(*budgets: dict) -> dict:
    return {
        "scene": "lego",
        "image_size": [800, 800],
        "device": "NVIDIA H200",
        "torch": "2.11.0",
        "commit": "0123456789ab",
        "date": "2026-01-02T03:04:05+00:00",
        "budgets": list(budgets),
    }


# Figures


def test_a_budget_has_the_median_and_the_range_of_its_seeds() -> None:
    found = budget_figures(5.0, [run_figures(psnr) for psnr in (33.0, 34.0, 33.5)])
    assert found["psnr"] == pytest.approx({"median": 33.75, "low": 33.25, "high": 34.25})
    assert found["psnr_every_4th"] == pytest.approx({"median": 34.5, "low": 34.0, "high": 35.0})
    assert (found["views"], len(found["runs"]), found["steps"]["median"]) == (200, 3, 4000)
    assert "lpips" not in found
    few = budget_figures(5.0, [run_figures(33.0, views=50, peak_memory_bytes=None)])
    assert "psnr_every_4th" not in few and few["peak_memory_bytes"] is None


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("instant-ngp", {2: 30.6, 5: 33.2, 15: 34.7, 60: 35.5, 300: 35.48}),
        ("SVRaster", {2: None, 5: 17, 15: 24, 60: 32.7, 300: 35.53}),
        ("DirectVoxGO", {2: None, 5: None, 15: None, 60: 32.3, 300: 34.7}),
        ("Plenoxels", {2: None, 5: 26, 15: 28.8, 60: 31.1, 300: 34.05}),
    ],
)
def test_the_peers_are_what_was_measured(name: str, after: dict) -> None:
    """The table as it was written down with the measurements, rounded there."""
    system = next(system for system in BASELINES["systems"] if system["name"] == name)
    assert system["curve"] == sorted(system["curve"])
    for seconds, psnr in after.items():
        found = psnr_after(system, seconds)
        assert found is None if psnr is None else found == pytest.approx(psnr, abs=0.5 if psnr < 30 else 0.07)


def test_where_a_peer_is_ahead_it_is_said() -> None:
    better = run_figures(40.0, render_seconds_per_view=0.001, peak_memory_bytes=2**30)
    assert ahead([budget_figures(seconds, [better]) for seconds in (2.0, 60.0, 300.0)], BASELINES) == []
    said = ahead([budget_figures(5.0, [run_figures(31.0)])], BASELINES)
    assert said[0] == "instant-ngp after 5 s: 33.23 against 32.00 dB"
    assert "SVRaster in rendering: 3.2 against 3.5 ms a frame of the 5 s model" in said
    assert "instant-ngp in memory: 1.6 against 5.0 GiB" in said and "DirectVoxGO in memory: 4.0 against 5.0 GiB" in said
    assert not any(line.startswith(("SVRaster in memory", "Plenoxels in")) for line in said)
    assert "3DGUT, published: 36.47 dB in 222 s on an RTX 5090 (black background) against 31.25 dB" in said


def test_a_paper_is_held_against_what_its_time_gives_here() -> None:
    budgets = [budget_figures(60.0, [run_figures(36.0)]), budget_figures(300.0, [run_figures(38.0)])]
    said = ahead(budgets, BASELINES)
    assert "3DGUT, published: 36.47 dB in 222 s on an RTX 5090 (black background) against 36.25 dB" in said
    assert not any("TensoRF" in line or "NeuRBF" in line for line in said)


def test_curves_of_other_scenes_have_no_baselines() -> None:
    assert same_test(lego_curve(), BASELINES)
    assert not same_test(lego_curve() | {"scene": "bricks"}, BASELINES)
    assert not same_test(lego_curve() | {"image_size": [400, 400]}, BASELINES)


def test_several_curves_are_one() -> None:
    one, two = (lego_curve(budget_figures(s, [run_figures(33.0)])) for s in (300.0, 5.0))
    assert [budget["seconds"] for budget in merged([one, two])] == [5.0, 300.0]
    with pytest.raises(ValueError, match="the budget of 5 seconds"):
        merged([two, two])


# Tables and the picture


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "baselines_h200.json").write_text(json.dumps(BASELINES))
    return folder


def test_readme_shows_the_curve_beside_the_baselines(tmp_path: Path, results: Path) -> None:
    readme = write_readme(tmp_path, "curve")
    assert tables(readme, results).returncode == 0
    assert lines_with(readme, "| 5 ") == [["5", "-", "-", "-", "33.23", "16.60", "-", "25.79"]]
    assert not (tmp_path / "curve.png").exists()
    first = lego_curve(budget_figures(5.0, [run_figures(33.0), run_figures(33.5), run_figures(32.0)]))
    (results / "curve_lego.json").write_text(json.dumps(first))
    (results / "curve_lego_long.json").write_text(json.dumps(lego_curve(budget_figures(300.0, [run_figures(36.0)]))))
    assert tables(readme, results).returncode == 0
    assert lines_with(readme, "| 5 ")[0][:4] == ["5", "34.00", "33.00 to 34.50", "+0.77"]
    own = next(line for line in lines_with(readme, "voxel_mlp") if line[2] == "3")
    assert own[3:6] == ["200", "33.25", "32.25 to 33.75"] and own[6:] == ["0.9750", "-", "4000", "5.00", "3.50", "81.5"]
    text = readme.read_text()
    assert "A baseline is ahead here: instant-ngp in memory: 1.6 against 5.0 GiB; " in text
    assert "made the CUDA context and loaded the kernels" in text
    assert (tmp_path / "curve.png").is_file()
    assert tables(readme, results, "--check").returncode == 0


def test_seconds_of_another_gpu_stand_apart(tmp_path: Path, results: Path) -> None:
    """They neither share a line with the baselines', nor with the summary, nor clash with the budgets of their GPU."""
    here = lego_curve(budget_figures(5.0, [run_figures(33.0)]))
    (results / "curve_here.json").write_text(json.dumps(here))
    other = lego_curve(budget_figures(5.0, [run_figures(39.0)])) | {"device": "NVIDIA H100"}
    (results / "curve_other.json").write_text(json.dumps(other))
    readme = write_readme(tmp_path, "curve")
    assert tables(readme, results).returncode == 0
    assert lines_with(readme, "| 5 ")[0][:2] == ["5", "34.00"] and "H100" not in readme.read_text()
    readme = write_readme(tmp_path, "curve_elsewhere")
    assert tables(readme, results).returncode == 0
    (line,) = lines_with(readme, "voxel_mlp")
    assert line[4] == "39.25" and "800x800, NVIDIA H100, torch" in readme.read_text()
    assert "instant-ngp" not in readme.read_text()


def test_the_picture_shows_ours_and_the_baselines(tmp_path: Path) -> None:
    def has(path: Path, color: str) -> bool:
        pixels = np.asarray(Image.open(path).convert("RGB"), dtype=int)[:, :800]  # without the legend
        return (np.abs(pixels - [int(color[i : i + 2], 16) for i in (1, 3, 5)]) < 25).all(-1).sum() > 50

    result = lego_curve(*(budget_figures(s, [run_figures(33.0 + s / 30)]) for s in (2.0, 60.0)))
    plot_curve([result], BASELINES, tmp_path / "all.png")
    assert has(tmp_path / "all.png", OURS) and all(has(tmp_path / "all.png", color) for color in COLORS[:4])
    plot_curve([result | {"scene": "ship"}], BASELINES, tmp_path / "ours.png")
    assert has(tmp_path / "ours.png", OURS) and not any(has(tmp_path / "ours.png", color) for color in COLORS)


# Runs


def test_scoring_on_the_way_is_off_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_time: FakeTime
) -> None:
    evaluate, seen = curve.evaluate, []
    fake_time.every_step_takes(0.125)

    def slow(*arguments: object, **settings: object) -> object:
        fake_time.now += 70
        seen.append(arguments[4])
        return evaluate(*arguments, **settings)

    monkeypatch.setattr(curve, "evaluate", slow)
    config = with_budget(tiny_config(steps=None, log_every=1), 2.0, seed=3)
    settings = CurveConfig(looks=2, look_every=4)
    found = measure_run(config, settings, tiny_images(), tiny_images("test"), select("native", "cpu"), tmp_path / "run")
    assert seen[-1] == 1 and seen[:-1] and set(seen[:-1]) == {4}
    assert found["seed"] == 3 and found["train_seconds"] == pytest.approx(2.0) and found["steps"] == 16
    assert [look["views"] for look in found["looks"]] == [2] * len(found["looks"])
    assert [look["seconds"] for look in found["looks"]] == pytest.approx([0.5, 1.0])
    assert len(found["psnr"]["per_view"]) == 8 and found["peak_memory_bytes"] is None
    assert found["model_bytes"] == (tmp_path / "run" / "model.pt").stat().st_size
    assert not (tmp_path / "run" / "resume.pt").exists()


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fake_time: FakeTime) -> Callable[..., int]:
    """Runs the script here, where every training step takes an eighth of a second."""
    fake_time.every_step_takes(0.125)
    result = script_caller(monkeypatch, tmp_path)
    write_tiny_scene(Path("scene"))
    return result


@pytest.mark.slow
def test_the_script_writes_curve_picture_and_models(
    call: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("benchmark", *TINY, "curve.budgets=[3,1.5]", "curve.seeds=[0,7]", "evaluation.every=2") == 0
    result = json.loads(Path("curve/curve.json").read_text())
    assert [budget["seconds"] for budget in result["budgets"]] == [1.5, 3]
    for budget in result["budgets"]:
        assert [run["seed"] for run in budget["runs"]] == [0, 7] and budget["views"] == 4
        assert budget["train_seconds"]["median"] == pytest.approx(budget["seconds"])
        assert budget["steps"]["median"] == 8 * budget["seconds"]
        for run in budget["runs"]:
            model = Path(f"curve/seconds_{budget['seconds']:g}_seed_{run['seed']}/model.pt")
            assert model.stat().st_size == run["model_bytes"]
            assert checkpoint.load(model)["config"]["seed"] == run["seed"]
    assert {"device", "commit", "command", "date", "torch", "settings", "scene"} <= result.keys()
    assert Image.open("curve/curve.png").size == (1100, 640)
    printed = capsys.readouterr().out
    assert "| voxel_deferred |" in printed and "curve/curve.png" in printed and "instant-ngp" not in printed


def test_a_run_that_stops_is_named_and_what_was_measured_is_kept(
    call: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = curve.measure_run

    def stops_at_seed_7(config: object, *arguments: object) -> dict:
        if config.seed == 7:
            raise EmptyGrid("after step 9 the grid is empty")
        return measure(config, *arguments)

    monkeypatch.setattr(benchmark_curve, "measure_run", stops_at_seed_7)
    assert call("benchmark", *TINY, "curve.budgets=[1.5]", "curve.seeds=[0,7]") == 2
    message = capsys.readouterr().err
    assert "error: the run of 1.5 s with seed 7 stopped: after step 9 the grid is empty" in message
    assert [run["seed"] for run in json.loads(Path("curve/curve.json").read_text())["budgets"][0]["runs"]] == [0]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("curve.budgets=[]",), "curve.budgets=[] is no list of training seconds, expected for example [2,5,15,60]"),
        (("curve.budgets=[0.01]",), "curve.budgets=[0.01] is no list of training seconds"),
        (("curve.seeds=[-1]",), "curve.seeds=[-1] is no list of seeds"),
        (("train.max_seconds=5",), "give curve.budgets=[SECONDS,...] with mode=curve"),
        (("experiment=seconds_5",), "give curve.budgets=[SECONDS,...] with mode=curve"),
        (("seed=3",), "seed=3 is one run's; give curve.seeds=[3]"),
        (("benchmark.size=tiny",), "benchmark.size=tiny has no effect with mode=curve"),
        (("mode=ops",), "dataset=bricks, dataset.root=scene"),
    ],
)
def test_settings_that_fit_no_curve_are_answered(
    call: Callable[..., int], capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str
) -> None:
    assert call("benchmark", *TINY, *arguments) == 2
    message = capsys.readouterr().err
    assert expected in message and message.count("\n") == 1 and not Path("curve").exists()
