"""The doors to the commands, `nerf --help`, and the extras that messages name."""

import ast
import re
import runpy
import sys
from pathlib import Path

import pytest

from nerf.cli import main as commands
from nerf.cli.main import COMMANDS, OF_A_RUN

ROOT = Path(__file__).resolve().parents[3]
IN_DATA = ("prepare", "download")
BOUND_TO_A_SHELL = ("completion",)  # of `nerf` alone
PYPROJECT = (ROOT / "pyproject.toml").read_text()
EXTRAS = set(re.findall(r"^(\w+) = \[", PYPROJECT.partition("[project.optional-dependencies]")[2], re.MULTILINE))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """The commands that are started, with their arguments, in place of running them."""
    started: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(commands, "command", lambda name: started.append((name, sys.argv[1:])))
    monkeypatch.setattr(sys, "path", list(sys.path))  # the doors in scripts/ add to it
    return started


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in BOUND_TO_A_SHELL])
def test_a_command_has_three_doors(name: str, asked: list, monkeypatch: pytest.MonkeyPatch) -> None:
    """`nerf NAME`, `python -m nerf NAME`, and the file of a checkout."""
    script = ROOT / ("data" if name in IN_DATA else "scripts") / f"{name}.py"
    doors = (
        (["nerf", name], lambda: sys.exit(commands.main())),  # as the script does that pip makes of [project.scripts]
        (["nerf", name], lambda: runpy.run_module("nerf", run_name="__main__")),
        ([str(script)], lambda: runpy.run_path(str(script), run_name="__main__")),
    )
    for words, door in doors:
        monkeypatch.setattr(sys, "argv", [*words, "outputs/RUN", "seed=1"])
        with pytest.raises(SystemExit):
            door()
    assert asked == [(name, ["outputs/RUN", "seed=1"])] * 3


def test_pip_makes_a_script_of_the_entry_point() -> None:
    assert '[project.scripts]\nnerf = "nerf.cli.main:main"\n' in PYPROJECT


def test_the_version_is_that_of_the_project(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("--version", "-V"):
        monkeypatch.setattr(sys, "argv", ["nerf", name])
        assert commands.main() == 0
        assert f'version = "{capsys.readouterr().out.strip()}"\n' in PYPROJECT


def test_every_door_leads_to_a_command() -> None:
    doors = {path.stem for path in (ROOT / "scripts").glob("*.py")}
    assert doors and doors <= COMMANDS.keys()
    assert all((ROOT / "nerf" / "cli" / f"{name}.py").is_file() for name in COMMANDS)
    assert set(OF_A_RUN) <= COMMANDS.keys()


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_every_command(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["nerf", *arguments])
    assert commands.main() == 0
    lines = capsys.readouterr().out.splitlines()
    for name, meaning in COMMANDS.items():
        assert any(line.split(maxsplit=1) == [name, meaning] for line in lines)


def texts() -> list[tuple[str, str]]:
    """Every text in the sources, where it stands, and README and the pages of docs/."""
    found = []
    for path in [*ROOT.glob("nerf/**/*.py"), *ROOT.glob("cuda_ext/*.py"), *ROOT.glob("data/*.py")]:
        nodes = ast.walk(ast.parse(path.read_text()))
        strings = (node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
        found += [(f"{path.relative_to(ROOT)}:{node.lineno}", node.value) for node in strings]
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    return found + [(str(path.relative_to(ROOT)), path.read_text()) for path in pages]


def test_extras_that_are_named_exist_and_can_be_pasted_behind_pip() -> None:
    assert {"view", "capture", "export", "log", "test"} <= EXTRAS
    named = set()
    for place, text in texts():
        for match in re.finditer(r"nerf-voxel\[(\w+)\]|extra `?\[(\w+)\]", text):
            extra = match[1] or match[2]
            named.add(extra)
            assert extra in EXTRAS, f"{place}: pyproject.toml has no extra [{extra}]"
            around = " ".join(text[max(match.start() - 40, 0) : match.end() + 1].split())
            if match[1]:
                assert around.endswith(f"pip install '{match[0]}'"), f"{place}: a shell cannot take {around}"
    assert {"view", "capture", "export"} <= named
