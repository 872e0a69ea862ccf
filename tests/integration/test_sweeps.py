"""Several runs from one command line (-m): what is refused before any, and what the others do where one fails."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from script_runs import ROOT, run_script

from nerf.cli.compare_runs import compare_sweep
from nerf.cli.hydra_app import run
from nerf.cli.sweeps import SweptRun
from nerf.config.schema import Config
from nerf.errors import UserError

Call = Callable[..., int]


@pytest.fixture
def started() -> list[Config]:
    """The settings of the runs that were started, one after the other."""
    return []


@pytest.fixture
def sweep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, started: list[Config]) -> Call:
    """Runs a command line of train.py whose training is a stand-in; returns the exit status.

    It fails where the seed is 1, leaves as a dry run that has seen something wrong where it is 2, and as after a signal
    where it is 3.
    """
    monkeypatch.chdir(tmp_path)

    def train(config: Config, folder: Path, overrides: list[str]) -> None:
        started.append(config)
        if config.seed == 1:
            raise UserError("the scene is not there.")
        if config.seed > 1:
            sys.exit({2: 1, 3: 130}[config.seed])
        (folder / "done").touch()

    def call(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
        try:
            run("train", Config, train, "")
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return call


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["train.stepss=1,2"], "there is no setting 'train.stepss'; did you mean 'train.steps'?"),
        (["train.steps=1,2", "sed=3"], "did you mean 'seed'?"),
        (["field=voxel_sh,voxel_mpl"], "field=voxel_mpl: there is no such field"),
        (["dataset=lego,legoo"], "Did you mean dataset=lego?"),
        (["field=voxel_sh,voxel_deferred", "field.hidden_width=8,16"], "field.hidden_width"),
        (["train.steps=many,1"], "Value 'many' of type 'str' could not be converted to Integer"),
        (["train.steps=0,-1"], "train.steps=0 is out of range, expected at least 1"),
        (["train.steps=interval(1,2)"], "INTERVAL_SWEEP"),
    ],
)
def test_a_sweep_of_which_nothing_can_be_made_is_refused_as_one_run_is(
    sweep: Call, capsys: pytest.CaptureFixture[str], started: list, arguments: list[str], expected: str
) -> None:
    assert sweep("-m", *arguments) == 2
    message = capsys.readouterr().err
    assert expected in message and message.count("\n") == 1 and not started


def test_runs_of_a_sweep_go_on_where_one_fails(
    sweep: Call, capsys: pytest.CaptureFixture[str], started: list[Config]
) -> None:
    assert sweep("--multirun", "seed=0,1,2", "train.steps=5,-1", "hydra.sweep.dir=all") == 2
    assert [(config.seed, config.train.steps) for config in started] == [(0, 5), (1, 5), (2, 5)]
    assert [path.name for path in sorted(Path("all").glob("*/done"))] == ["done"]
    message = capsys.readouterr().err
    assert "5 of the 6 runs of this sweep failed" in message
    summary = message[message.index("5 of the 6") :].splitlines()[1:]
    assert len(summary) == 5 and all("seed=" in line and "train.steps=" in line for line in summary)
    assert "the scene is not there." in summary[1] and "train.steps=-1 is out of range" in summary[0]
    assert sum("exit status 1" in line for line in summary) == 1


def test_a_sweep_without_a_failure_ends_well(sweep: Call, capsys: pytest.CaptureFixture[str], started: list) -> None:
    assert sweep("-m", "seed=0", "train.steps=range(1,4)", "hydra.sweep.dir=all") == 0
    assert [config.train.steps for config in started] == [1, 2, 3]
    assert "failed" not in capsys.readouterr().err


def test_a_signal_ends_the_whole_sweep(sweep: Call, started: list) -> None:
    assert sweep("-m", "seed=3,0", "hydra.sweep.dir=all") == 130
    assert len(started) == 1


def test_several_values_without_m_are_answered_with_it(sweep: Call, capsys: pytest.CaptureFixture[str]) -> None:
    for argument in ("field=voxel_sh,voxel_mlp", "seed=1,2", "train.steps=range(1,3)"):
        assert sweep(argument) == 2
        message = capsys.readouterr().err
        assert f"{argument} gives several values; give -m too" in message and "=[" not in message
    assert sweep("field.upsample_at=0.1,0.2") == 2
    assert "or write field.upsample_at=[0.1,0.2]" in capsys.readouterr().err


def test_what_a_sweep_writes_is_no_part_of_the_repository() -> None:
    command = ["git", "check-ignore", "multirun/2026-01-01/12-00-00/0/model.pt"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True).returncode in (0, 128)  # 128: no repository here


@pytest.mark.slow
def test_a_sweep_ends_with_a_comparison(tmp_path: Path) -> None:
    settings = ["train.steps=10", "dataset.downscale=8", "evaluation.every=100", "field.num_voxels=1000,4096"]
    out = run_script("train", "-m", *settings, "device=cpu", "hydra.sweep.dir=all", cwd=tmp_path)
    assert "Traceback" not in out.stderr
    words = (tmp_path / "all" / "compare.txt").read_text()
    assert words.strip() in out.stdout
    assert words.splitlines()[1].startswith("field.num_voxels=1000  ")
    assert (tmp_path / "all" / "compare.html").stat().st_size > 1000


def test_failed_runs_are_rows_and_scenes_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def swept(name: str, scene: str, problem: object = None) -> SweptRun:
        folder = tmp_path / name
        folder.mkdir()
        if problem is None:
            scores = {"per_view": [20.0, 30.0], "mean": 25.0}
            content = {"views": ["a", "b"], "psnr": scores, "ssim": scores, "scene": scene, "split": "test"}
            (folder / "metrics.json").write_text(json.dumps(content))
        return SweptRun(folder, [f"seed={name}"], problem)

    runs = [swept("0", "lego"), swept("1", "lego"), swept("2", "lego", UserError("the grid is empty."))]
    compare_sweep(tmp_path, runs)
    words = (tmp_path / "compare.txt").read_text()
    assert words in capsys.readouterr().out
    lines = [line.split() for line in words.splitlines()]
    assert ["seed=0", "25.00", "25.0000", "-", "-", "-", "-"] in lines
    assert ["seed=2", "-", "-", "-", "-", "-", "-"] in lines and "the grid is empty." in words
    assert (tmp_path / "compare.html").exists()
    compare_sweep(tmp_path, [*runs, swept("3", "chair")])
    words = (tmp_path / "compare.txt").read_text()
    assert "seed=3" in words and "different scenes" in words


def test_a_sweep_without_two_scores_leaves_no_comparison(tmp_path: Path) -> None:
    compare_sweep(tmp_path, [SweptRun(tmp_path, ["seed=0"], None), SweptRun(tmp_path, ["seed=1"], "failed")])
    assert list(tmp_path.iterdir()) == []
