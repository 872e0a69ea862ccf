"""A run keeps the whole path of its data, and when these have moved every command takes the setting that is named."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from script_runs import script_caller
from tiny_runs import write_tiny_scene

from nerf.cli.hydra_app import ROOTS
from nerf.config.schema import DatasetConfig
from nerf.datasets import load
from nerf.datasets.load import found_again, located
from nerf.errors import UserError
from nerf.runs import checkpoint
from nerf.runs.open_run import load as load_run
from nerf.runs.run import resume

SHORT = ("experiment=smoke", "dataset.downscale=1", "evaluation.every=4", "device=cpu", "train.steps=2")


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Runs a script in a folder with the tiny scene."""
    call_script = script_caller(monkeypatch, tmp_path)
    write_tiny_scene(Path("scene"))
    return call_script


def kept_root(run: str) -> Path:
    roots = {content["config"]["dataset"]["root"] for content in (read(Path(run)) for read in READERS)}
    assert len(roots) == 1
    return Path(roots.pop())


READERS = (checkpoint.load, checkpoint.load_resume)


@pytest.mark.parametrize("place", ["relative", "of NERF_DATA", "a folder above"])
def test_a_run_keeps_the_absolute_folder_of_its_data(
    call: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    if place == "of NERF_DATA":
        monkeypatch.setenv("NERF_DATA", ".")
        settings = ("dataset=blender", "dataset.scene=scene")
    elif place == "relative":
        settings = ("dataset=blender", "dataset.root=scene")
    else:
        settings = ("dataset=blender", "dataset.root=.", "dataset.scene=scene")
    assert call("train", *SHORT, *settings, "hydra.run.dir=run") == 0
    here = Path("scene").absolute()
    assert kept_root("run") == here and str(here) in Path("run/config.yaml").read_text()
    monkeypatch.delenv("NERF_DATA", raising=False)
    run = Path("run").absolute()
    monkeypatch.chdir(tmp_path)
    assert call("evaluate", f"run={run}", "every=4") == 0
    assert call("train", f"resume={run}") == 0


def test_every_command_takes_the_setting_that_is_named_where_data_have_moved(
    call: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("train", *SHORT, "dataset=blender", "dataset.root=scene", "hydra.run.dir=run") == 0
    score, show = ("evaluate", "run=run", "every=4"), ("render", "run=run", "path=test", "width=8")
    at = Path("scene")
    for count, (command, name) in enumerate(itertools.product((score, show, ("train", "resume=run")), ROOTS)):
        at = at.rename(f"moved {count}")
        capsys.readouterr()
        assert call(*command) == 2
        message = capsys.readouterr().err
        assert str(kept_root("run")) in message and "dataset.root=FOLDER" in message
        assert call(*command, f"{name}={at}") == 0, capsys.readouterr().err
    assert kept_root("run") == at.absolute()
    assert call("evaluate", "run=run", "root=nowhere") == 2
    assert "nowhere" in capsys.readouterr().err


def test_what_needs_no_data_needs_none(call: Callable[..., int]) -> None:
    assert call("train", *SHORT, "dataset=blender", "dataset.root=scene", "hydra.run.dir=run") == 0
    Path("scene").rename("moved")
    assert call("render", "run=run", "frames=1", "width=8") == 0


def test_a_scene_that_is_found_by_its_name_is_taken_from_there_and_said_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run was copied to another machine, where its scene has another place."""
    monkeypatch.delenv("NERF_DATA", raising=False)
    monkeypatch.setattr(load, "DATA", tmp_path / "data")
    write_tiny_scene(tmp_path / "data" / "lego")
    gone = DatasetConfig(scene="lego", format="blender", root="/nowhere/lego")
    assert found_again(gone).root == str(tmp_path / "data" / "lego")
    assert "/nowhere/lego" in (said := capsys.readouterr().err) and str(tmp_path / "data" / "lego") in said
    for other in (DatasetConfig(scene="drums", format="blender", root="/nowhere/drums"),
                  DatasetConfig(scene="lego", format="colmap", root="/nowhere/lego")):  # fmt: skip
        with pytest.raises(UserError, match="/nowhere/.*dataset.root=FOLDER"):
            found_again(other)


def test_runs_of_before_keep_their_names_and_relative_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    write_tiny_scene(tmp_path / "scene")
    for dataset in (DatasetConfig(scene="bricks"), DatasetConfig(scene="scene", root="scene")):
        assert found_again(dataset) == dataset
    assert located(DatasetConfig(scene="bricks")).root == str(load.DATA / "bricks")


def test_a_capture_keeps_its_absolute_folder_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for root in ("photos", "~/photos", str(tmp_path / "photos")):
        assert located(DatasetConfig(scene="photos", root=root)).root == str(tmp_path / "photos")


def test_python_keeps_it_as_the_commands_do(
    call: Callable[..., int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import nerf

    run = nerf.start(nerf.settings({"dataset.root": "scene", "train.steps": 2, "device": "cpu", "field": "voxel_sh"}))
    list(run.train())
    folder = run.save(tmp_path / "saved")
    assert run.sources["dataset.root"] != "given"
    monkeypatch.chdir(tmp_path)
    assert len(resume(folder).images) == 8
    assert len(load_run(folder, device="cpu").views("test")) > 0
