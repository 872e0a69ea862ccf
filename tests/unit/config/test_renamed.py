"""Settings that were renamed go on working under their old names, everywhere, and one line says the new one."""

import dataclasses
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

import nerf
from nerf.benchmarks import capture_table
from nerf.cli import composition, hydra_app
from nerf.cli.evaluate import EvaluateConfig
from nerf.cli.help_text import leaves, setting_names
from nerf.cli.report import save_config
from nerf.cli.resumed_settings import _names
from nerf.cli.train import TrainScriptConfig
from nerf.config import renamed
from nerf.config.fields import field_settings
from nerf.config.recipes import flat
from nerf.config.schema import FIELDS, Config, DatasetConfig, LossConfig, OccupancyConfig, build
from nerf.errors import UserError

LEAVES = dict(leaves(Config, ""))
OLD_VALUES = [(name, old, new) for name, known in renamed.VALUES.items() for old, new in known.items()]


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renamed, "_told", set())


def another(name: str) -> int | float:
    """A legal value of a setting that is not its default."""
    return 9 if "int" in str(LEAVES[name].type) else 0.375


def value_of(config: object, name: str) -> Any:
    return flat(dataclasses.asdict(config))[name]  # type: ignore[call-overload]


def notes(capsys: pytest.CaptureFixture) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]


# The map


def test_every_alias_leads_to_a_live_setting_and_shadows_none() -> None:
    live = {name for field in field_settings() for name in setting_names(Config, field)}
    for old, new in renamed.NAMES.items():
        assert new in live and old not in live and new not in renamed.NAMES, old
        assert old.partition(".")[0] == new.partition(".")[0], f"{old} left its group"
    for name, known in renamed.VALUES.items():
        choices = LEAVES[name].metadata["choices"]
        assert set(known.values()) <= set(choices) and not known.keys() & set(choices), name


def test_every_group_with_renamed_settings_shows_them_as_attributes() -> None:
    for old, new in renamed.NAMES.items():
        group, leaf = old.split(".")
        config = getattr(Config(), group)
        setattr(config, leaf, another(new))
        assert getattr(config, new.split(".")[1]) == getattr(config, leaf) == another(new)


# Where settings are given


def started(monkeypatch: pytest.MonkeyPatch, folder: Path, *typed: str) -> list[tuple[Any, list[str]]]:
    """The settings, and the command line, with which train.py's main is called."""
    found: list[tuple[Any, list[str]]] = []
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["train.py", *typed])
    hydra_app.run("train", TrainScriptConfig, lambda config, _, overrides: found.append((config, overrides)), "")
    return found


@pytest.mark.parametrize("old", renamed.NAMES)
def test_an_old_name_on_the_command_line_works_and_is_told_once(
    old: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    new = renamed.NAMES[old]
    ((config, overrides),) = started(monkeypatch, tmp_path, f"{old}={another(new)}")
    assert value_of(config, new) == another(new) and overrides == [f"{new}={another(new)}"]
    assert capsys.readouterr().err == f"note: {old} is now {new}\n"
    assert sys.argv[1:] == [f"{old}={another(new)}"]  # what a result names as its command


@pytest.mark.parametrize(("name", "old", "new"), OLD_VALUES)
def test_an_old_value_works_and_is_told_once(
    name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    ((config, overrides),) = started(monkeypatch, tmp_path, f"{name}={old}")
    assert value_of(config, name) == new and overrides == [f"{name}={new}"]
    assert capsys.readouterr().err == f"note: {name}={old} is now {name}={new}\n"


@pytest.mark.slow
def test_a_sweep_over_an_old_name_is_told_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    found = started(monkeypatch, tmp_path, "-m", "dataset.hold_out=2,4", "train.supersample_from=choice(0.1,0.2)")
    assert [c.dataset.test_every for c, _ in found] == [2, 2, 4, 4]
    assert [c.train.antialias_start for c, _ in found] == [0.1, 0.2, 0.1, 0.2]
    assert len(notes(capsys)) == 2
    found = started(monkeypatch, tmp_path, "-m", "dataset.kind=box,forward")
    assert [(c.dataset.kind, overrides) for c, overrides in found] == [
        ("bounded", ["dataset.kind=bounded"]),
        ("forward_facing", ["dataset.kind=forward_facing"]),
    ]
    assert len(notes(capsys)) == 2


def test_old_names_in_python_are_told_once(capsys: pytest.CaptureFixture) -> None:
    for old, new in renamed.NAMES.items():
        assert value_of(nerf.settings({"dataset": "lego", old: another(new)}), new) == another(new)
        assert value_of(nerf.settings({"dataset": "lego", old: another(new)}), new) == another(new)
    assert notes(capsys) == [f"note: {old} is now {new}" for old, new in renamed.NAMES.items()]


def test_old_names_of_the_dataclasses_are_taken(capsys: pytest.CaptureFixture) -> None:
    assert DatasetConfig("lego", hold_out=4) == DatasetConfig("lego", test_every=4)  # type: ignore[call-arg]
    assert OccupancyConfig(every=0.25).update_interval == 0.25  # type: ignore[call-arg]
    config = LossConfig()
    config.structure = 0.5  # type: ignore[attr-defined]
    assert dataclasses.asdict(config) == dataclasses.asdict(LossConfig(pair_ssim=0.5))
    assert len(notes(capsys)) == 3


def test_a_config_of_an_older_run_is_read_and_nobody_is_told(capsys: pytest.CaptureFixture) -> None:
    values = {name: another(name) for name in renamed.NAMES.values()}
    expected = nerf.settings(values)
    saved = dataclasses.asdict(expected)
    for old, new in renamed.NAMES.items():
        group, leaf = new.split(".")
        saved[group][old.split(".")[1]] = saved[group].pop(leaf)
    assert build(Config, yaml.safe_load(OmegaConf.to_yaml(OmegaConf.create(saved)))) == expected
    assert not notes(capsys)


def test_the_file_of_an_older_run_keeps_what_it_says_of_its_values(tmp_path: Path) -> None:
    config = Config(loss=LossConfig(pair_ssim=0.004))
    save_config(tmp_path, config, {"loss.pair_ssim": "unbounded scenes on cuda"})
    path = tmp_path / "config.yaml"
    text = path.read_text()
    path.write_text(text.replace("pair_ssim:", "structure:"))
    save_config(tmp_path, config, {})
    assert path.read_text() == text and "  pair_ssim: 0.004  # unbounded scenes on cuda\n" in text


def test_tables_show_the_present_names_of_what_a_result_was_made_with() -> None:
    run = {"command": "python scripts/train.py dataset=lego loss.structure=0.1 seed=3"}
    assert capture_table.settings(run) == "`loss.pair_ssim=0.1`"


# Config files


Composer = Callable[..., Config]


@pytest.fixture
def composed_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Composer:
    """The settings with an experiment of one's own, given as YAML."""
    configs = tmp_path / "configs"
    shutil.copytree(composition.CONFIGS, configs)
    monkeypatch.setattr(composition, "CONFIGS", configs)

    def compose(text: str, *overrides: str) -> Config:
        (configs / "experiment" / "own.yaml").write_text(f"# @package _global_\n{text}\n")
        return composition.compose("train", TrainScriptConfig, ["experiment=own", *overrides])

    return compose


def test_old_names_in_a_config_file_work_and_are_told_once(
    composed_with: Composer, capsys: pytest.CaptureFixture
) -> None:
    for _ in range(2):
        config = composed_with("occupancy: {every: 0.25, start: 0.1}\nloss: {opacity: 1}")
        assert (config.occupancy.update_interval, config.occupancy.start, config.loss.alpha) == (0.25, 0.1, 1.0)
    assert notes(capsys) == [
        "note: occupancy.every is now occupancy.update_interval",
        "note: loss.opacity is now loss.alpha",
    ]


def test_old_names_in_the_file_of_a_dataset_work(composed_with: Composer, tmp_path: Path) -> None:
    file = tmp_path / "configs" / "dataset" / "own.yaml"
    file.write_text("defaults: [blender_settings, _self_]\nscene: fern\nhold_out: 4\n")
    dataset = composed_with("", "dataset=own").dataset
    assert (dataset.scene, dataset.test_every) == ("fern", 4)


@pytest.mark.parametrize("name", ["occupancy.every", "occupancy.update_interval"])
def test_the_command_line_goes_before_a_file_under_either_name(name: str, composed_with: Composer) -> None:
    for leaf in ("every", "update_interval"):
        config = composed_with(f"occupancy: {{{leaf}: 0.25}}", f"{name}=0.5")
        assert config.occupancy.update_interval == 0.5


def test_an_unknown_name_in_a_file_is_answered(composed_with: Composer) -> None:
    with pytest.raises(UserError, match="no setting 'occupancy.evry'; did you mean 'occupancy."):
        composed_with("occupancy: {evry: 0.25}")


def test_an_experiment_of_a_resumed_run_sets_what_it_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "own.yaml").write_text("occupancy: {every: 0.25}\nseed: 3")
    monkeypatch.setattr("nerf.cli.resumed_settings.CONFIGS", tmp_path)
    assert _names(TrainScriptConfig, "experiment=own") == ["occupancy.update_interval", "seed"]


# Both at once, and typing errors


def test_old_and_new_together_are_refused(
    composed_with: Composer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    both = "loss.structure is the old name of loss.pair_ssim, and both are given; drop loss.structure"
    with pytest.raises(UserError, match=both):
        nerf.settings({"loss.structure": 0.1, "loss.pair_ssim": 0.1})
    with pytest.raises(UserError, match=both):
        build(Config, {"loss": {"structure": 0.1, "pair_ssim": 0.1}})
    with pytest.raises(UserError, match=both):
        composed_with("loss: {structure: 0.1, pair_ssim: 0.2}")
    with pytest.raises(SystemExit) as end:
        started(monkeypatch, tmp_path, "loss.structure=0.1", "+loss.pair_ssim=0.1")
    assert end.value.code == 2 and f"error: {both}" in capsys.readouterr().err


@pytest.mark.parametrize("old", renamed.NAMES)
def test_hints_know_the_new_names_alone(old: str) -> None:
    with pytest.raises(UserError) as caught:
        nerf.settings({f"{old}x": 1})
    assert f"'{old}'" not in str(caught.value)


def test_other_commands_keep_names_that_are_old_ones_elsewhere() -> None:
    """evaluate.py has a setting `every` of its own."""
    assert composition.compose("evaluate", EvaluateConfig, ["every=4"]).every == 4
    assert all("." in name for name in renamed.NAMES) and set(FIELDS) <= set(field_settings())
