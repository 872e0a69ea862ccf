"""A command's settings are composed once, and then run as Hydra runs them."""

import sys
from pathlib import Path
from typing import Any

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl

from nerf.cli import hydra_app
from nerf.cli.evaluate import EvaluateConfig


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs `evaluate` with these arguments; returns what main is called with, its current folder, and how often Hydra
    has composed."""
    composed = []
    load = ConfigLoaderImpl.load_configuration
    monkeypatch.setattr(ConfigLoaderImpl, "load_configuration", lambda *a, **k: composed.append(a) or load(*a, **k))
    monkeypatch.chdir(tmp_path)

    def run(*typed: str) -> tuple[list[tuple], int]:
        found = []

        def main(config: EvaluateConfig, folder: Path, overrides: list[str]) -> None:
            found.append((config.every, folder, overrides, Path.cwd()))

        monkeypatch.setattr(sys, "argv", ["evaluate.py", *typed])
        hydra_app.run("evaluate", EvaluateConfig, main, "")
        return found, len(composed)

    return run


def test_a_command_composes_its_settings_once(run: Any, tmp_path: Path) -> None:
    ((every, folder, overrides, _),), composed = run("every=4", "hydra.run.dir=a b")
    assert composed == 1
    assert (every, folder, overrides) == (4, tmp_path / "a b", ["every=4", "hydra.run.dir=a b"]) and folder.is_dir()


def test_a_folder_that_is_not_named_is_new(run: Any, tmp_path: Path) -> None:
    folders = [run("every=4")[0][0][1] for _ in range(2)]
    assert len(set(folders)) == 2 and all(folder.parent == tmp_path / "outputs" / "scores" for folder in folders)


def test_hydra_s_own_settings_are_kept(run: Any, tmp_path: Path) -> None:
    ((_, folder, _, current),), _ = run("hydra.job.chdir=true", "hydra.run.dir=there")
    assert current == folder == tmp_path / "there" and Path.cwd() == tmp_path


def test_hydra_s_own_flags_are_answered_by_hydra(run: Any, capsys: pytest.CaptureFixture) -> None:
    found, _ = run("--cfg=job", "every=4")
    assert found == [] and "every: 4" in capsys.readouterr().out
