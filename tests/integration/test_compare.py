"""Runs side by side: nerf evaluate runs=A,B, from folders as a run leaves them."""

import json
import re
import shlex
from pathlib import Path

import pytest
import torch
import yaml
from script_runs import script_caller
from tiny_runs import write_tiny_scene

from nerf.cli.compare_runs import compare_runs, compare_sweep, read_result
from nerf.cli.sweeps import SweptRun
from nerf.errors import UserError
from nerf.images.write import save_png

VIEWS = ("r_0", "r_1", "r_2")


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def write_run(name: str, psnr: float, views: tuple[str, ...] = VIEWS, **metrics: object) -> Path:
    """The files of a finished run; view number i has i dB more than the first."""
    folder = Path(name)
    folder.mkdir()
    scores = {"per_view": [psnr + i for i in range(len(views))], "mean": psnr}
    ssim = {"per_view": [0.9] * len(views), "mean": 0.9}
    about = {"scene": "sphere", "split": "test", "train_seconds": 3.0, "steps": 40} | metrics
    (folder / "metrics.json").write_text(json.dumps({"views": views, "psnr": scores, "ssim": ssim} | about))
    settings = {
        "dataset": {"scene": "sphere", "format": "blender", "root": str(Path.cwd() / "scene")},
        "seed": int(psnr),
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    (folder / "model.pt").write_bytes(b"x" * 2_000_000)
    for view in views:
        save_png(folder / "test" / f"{view}.png", torch.full((20, 20, 3), 0.5))
    return folder


def compared(runs: str, *overrides: str) -> str:
    compare_runs(runs, None, Path("out"), [f"runs={runs}", *overrides])
    return Path("out/compare.txt").read_text()


def test_two_runs_in_a_table_with_settings_and_views(capsys: pytest.CaptureFixture[str]) -> None:
    write_tiny_scene(Path("scene"))
    write_run("a", 20.0), write_run("b", 21.5)
    found = compared("a,b")
    assert re.search(r"a +21\.00 +0\.9000 +- +3\.0 +40 +2\.0\n", found)
    assert re.search(r"seed +20 +21\n", found) and "dataset." not in found
    assert "b against a: +1.50 dB, better in 3 of 3 views" in found and "note:" not in found
    assert found.strip() in capsys.readouterr().out


def test_the_page_is_whole_and_has_a_slider_for_each_view_and_run() -> None:
    write_tiny_scene(Path("scene"))
    write_run("a", 20.0), write_run("<b>", 21.5)
    compared("a,<b>")
    page = Path("out/compare.html").read_text()
    assert page.count("type=range") == 6 and page.count("data:image/jpeg") == 9  # a photo stands there once a view
    assert "<!--" not in page and "<b>" not in page and "&lt;b&gt;" in page
    assert not re.search(r"(src|href)=['\"]?(?!data:)\w", page)


def test_only_common_views_are_compared() -> None:
    write_tiny_scene(Path("scene"))
    write_run("a", 20.0), write_run("b", 30.0, views=("r_2", "r_7"))
    found = compared("a,b")
    assert "the 1 of 3 that all of them have" in found
    assert "22.00" in found and "+8.00 dB, better in 1 of 1" in found


def test_runs_without_scores_are_rows_which_say_so() -> None:
    write_tiny_scene(Path("scene"))
    write_run("a", 20.0), write_run("b", 21.0)
    for name, file in (("half", "resume.pt"), ("unscored", "model.pt"), ("old", "checkpoint.pt"), ("empty", "x")):
        Path(name).mkdir()
        (Path(name) / file).touch()
    (Path("b") / "model.pt").unlink()
    Path("half/model.pt").touch()  # as a run leaves it that was stopped before its end
    found = compared("a,b,half,unscored,old,empty")
    told = ("resume=half", "run=unscored hydra.run.dir=unscored", "old: written by version 1", "empty: no run is in it")
    for fact in told:
        assert fact in found
    assert "b: its model is missing" in found and re.search(r"half +- +-", found)


def test_a_run_without_scores_is_compared_after_what_the_message_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    call = script_caller(monkeypatch, tmp_path)
    settings = ("train.steps=3", "dataset.downscale=8", "evaluation.every=5", "device=cpu", "log=none")
    for name in ("a", "resumable", "model only"):
        assert call("train", *settings, f"hydra.run.dir={name}") == 0
    for name in ("resumable", "model only"):
        Path(name, "metrics.json").unlink()
    Path("model only/resume.pt").unlink()
    for name in ("resumable", "model only"):
        _, command = read_result(Path(name)).problem.rsplit(": ", 1)
        _, script, *arguments = shlex.split(command)
        assert call(Path(script).stem, *arguments, "evaluation.every=5" if "train" in script else "every=5") == 0
    found = compared("a,resumable,model only")
    assert "note:" not in found and re.search(r"resumable +\d", found) and re.search(r"model only +\d", found)


def test_metrics_of_an_older_version_and_damaged_ones() -> None:
    write_tiny_scene(Path("scene"))
    write_run("a", 20.0), write_run("b", 21.0), write_run("c", 20.0), write_run("d", 20.0)
    Path("c/metrics.json").write_text('{"psnr": 30.0}')
    Path("d/metrics.json").write_text('{"psnr"')
    found = compared("a,b,c,d")
    assert "c: metrics.json has no scores per view" in found and "d: metrics.json is damaged" in found


def test_a_scene_that_is_gone_leaves_renders() -> None:
    write_run("a", 20.0), write_run("b", 21.0)
    assert "the page shows renders only" in compared("a,b")
    page = Path("out/compare.html").read_text()
    assert "type=range" not in page and page.count("data:image/jpeg") == 6


@pytest.mark.parametrize(
    ("other", "facts"),
    [
        ({"scene": "lego"}, ("scene sphere", "scene lego")),
        ({"split": "train"}, ("split test", "split train")),
        ({"views": ("r_9",)}, ("no view in common",)),
    ],
)
def test_what_cannot_be_compared_is_refused(other: dict, facts: tuple[str, ...]) -> None:
    write_run("a", 20.0), write_run("b", 21.0, **other)
    with pytest.raises(UserError) as error:
        compared("a,b")
    assert all(fact in str(error.value) for fact in facts) and not Path("out").exists()


def test_too_few_runs_missing_ones_and_settings_of_a_scoring_are_refused() -> None:
    write_run("a", 20.0), Path("b").mkdir()
    for runs, overrides, fact in (
        ("a", (), "found one folder"),
        ("a,c", (), "no folder c"),
        ("a,b", (), "found 1"),
        ("a,b", ("split=train",), "drop split"),
    ):
        with pytest.raises(UserError, match=fact):
            compared(runs, *overrides)


def swept(*folders: Path) -> list[SweptRun]:
    return [SweptRun(folder, [f"seed={number}"], None) for number, folder in enumerate(folders)]


def command_for_mean(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The words of the command that a sweep's end prints for the mean of its pictures; empty without one."""
    found = [line for line in capsys.readouterr().out.splitlines() if line.startswith("the mean of the pictures")]
    return shlex.split(found[0].partition(" is scored by: ")[2]) if found else []


def change(folder: Path, **settings: object) -> None:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | settings))


def test_a_sweep_of_seeds_says_how_the_mean_of_its_pictures_is_scored(capsys: pytest.CaptureFixture[str]) -> None:
    write_tiny_scene(Path("scene"))
    folders = [write_run(name, psnr) for name, psnr in (("my run", 20.0), ("b", 21.0), ("it's c", 22.0))]
    failed = SweptRun(Path("gone"), ["seed=3"], "no loss is finite")
    compare_sweep(Path(), [failed, *swept(*folders)])
    python, script, *arguments = command_for_mean(capsys)
    assert (python, Path(script).name) == ("python", "evaluate.py")
    assert arguments == ["run=my run", "ensemble=b,it's c"]
    for folder in folders:  # the members are scored beside it, so the views are the same
        change(folder, evaluation={"split": "val", "every": 5})
    compare_sweep(Path(), swept(*folders))
    assert command_for_mean(capsys)[2:] == ["run=my run", "ensemble=b,it's c", "split=val", "every=5"]


def test_runs_that_are_not_known_to_differ_in_their_seed_alone_have_no_mean(capsys: pytest.CaptureFixture[str]) -> None:
    write_tiny_scene(Path("scene"))
    first, second, comma = (write_run(name, psnr) for name, psnr in (("a", 20.0), ("b", 21.0), ("seed=1,x=2", 22.0)))
    compare_sweep(Path(), swept(first, second))
    assert command_for_mean(capsys)
    compare_sweep(Path(), swept(first, comma))  # a comma ends a folder's name in ensemble=
    assert not command_for_mean(capsys)
    change(second, train={"steps": 7})
    compare_sweep(Path(), swept(first, second))
    assert not command_for_mean(capsys)
    change(second, seed=20)
    compare_sweep(Path(), swept(first, second))
    assert not command_for_mean(capsys)
    (second / "config.yaml").unlink()
    compare_sweep(Path(), swept(first, second))
    assert not command_for_mean(capsys)
