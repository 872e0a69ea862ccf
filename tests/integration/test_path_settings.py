"""Paths of any letters as settings: what the command line takes, and what is printed to be copied."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import warm_python
from hydra.core.override_parser.overrides_parser import OverridesParser
from script_runs import ROOT, TIMEOUT, start_script
from tiny_runs import write_tiny_scene

from nerf.cli.hydra_app import as_hydra_reads, run
from nerf.cli.open_run import listed
from nerf.cli.overrides import with_quoted_path
from nerf.config import commands
from nerf.config.overrides import settings
from nerf.config.schema import Config
from nerf.runs import checkpoint

ODD = ["a b", "a,b", "a=b", "[a]", "a]", "{a}", "(a", "it's", 'say "a"', "größe", "写真", "50%", "1e5", "true", "null ",
       "a:b", "'a'", "a\\b", "a\\", "\\'", "#a", "a;b&c", "$a", "*", "-m", "a, [b]='ü'"]  # fmt: skip


@pytest.fixture(autouse=True)
def at_scripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def roots(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> list[tuple[str, Path]]:
    """dataset.root and the folder of each run that a command line of train.py starts."""
    monkeypatch.setattr(sys, "argv", ["train.py", "dataset=capture", *arguments])
    seen = []
    run("train", Config, lambda config, folder, _: seen.append((config.dataset.root, folder)), "")
    return seen


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("parent", ["data/", ""])
def test_hydra_reads_a_path_as_it_is_typed(name: str, parent: str) -> None:
    def read() -> object:
        argument = with_quoted_path(f"dataset.root={parent}{name}", ["dataset.root"], sweep=False)
        return OverridesParser.create().parse_override(argument).value()

    if parent or name not in ("'a'", "\\'"):  # what is in quotes as a whole, and is not there, is taken for Hydra's
        assert read() == parent + name
    (Path(parent) / name).mkdir(parents=True)
    assert read() == parent + name


def test_a_run_takes_paths_as_they_are_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a, [b]='ü'", "1e5"):
        assert roots(monkeypatch, f"dataset.root={name}", f"hydra.run.dir={name}") == [(name, Path(name).absolute())]


def test_quotes_for_hydra_are_taken_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for typed in ("'a, b'", '"a, b"', "a\\, b"):
        assert roots(monkeypatch, f"dataset.root={typed}", "hydra.run.dir=run")[0][0] == "a, b"
    assert roots(monkeypatch, "dataset.root='größe'", "hydra.run.dir='x[1]'") == [("größe", Path("x[1]").absolute())]


def test_commas_separate_the_paths_of_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    def swept(root: str) -> list[str]:
        found = roots(monkeypatch, "-m", f"dataset.root={root}", "hydra.sweep.dir=all, [1]")
        assert [folder for _, folder in found] == [Path(f"all, [1]/{i}").absolute() for i in range(len(found))]
        return [root for root, _ in found]

    assert swept("[a],größe") == ["[a]", "größe"]
    Path("a,b").mkdir()
    assert swept("a,b") == ["a,b"]
    for typed in ("run=c,d", "run='a,b',c"):
        assert with_quoted_path(typed, ["run"], sweep=True) == typed
    assert with_quoted_path("run=1,x=1", ["run"], sweep=True) == "run='1','x=1'"


def test_a_tilde_is_the_home_folder_in_every_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A shell does not expand it behind the dot of a name."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (there,) = roots(monkeypatch, "dataset.root=~/größe", "hydra.run.dir=~/run")
    assert there == (str(tmp_path / "home/größe"), tmp_path / "home/run")
    swept = roots(monkeypatch, "-m", "dataset.root=~/a,~/b", "hydra.sweep.dir=~/all")
    assert swept == [(str(tmp_path / "home" / name), tmp_path / f"home/all/{i}") for i, name in enumerate("ab")]
    given = settings({"poses.from_run": "~/a", "dataset.mask_folder": "~/m"})
    assert (given.poses.from_run, given.dataset.mask_folder) == (f"{tmp_path}/home/a", f"{tmp_path}/home/m")
    assert listed("~/a, '~/b,c',d~") == [f"{tmp_path}/home/a", f"{tmp_path}/home/b,c", "d~"]
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_other_settings_are_left_to_hydra() -> None:
    typed = ["field.upsample_at=[0.1,0.2]", "dataset.aabb=none", "-m", "dataset.root=none", "dataset.root=/data/x"]
    expected = ["field.upsample_at=[0.1,0.2]", "dataset.aabb=null", "-m", "dataset.root=null", "dataset.root=/data/x"]
    assert as_hydra_reads(Config, typed) == expected


# What is printed, to be copied


def words_of(text: str) -> list[str]:
    """What a shell makes of it."""
    echo = ["sh", "-c", f"for word in {text}; do printf '%s\\0' \"$word\"; done"]
    return subprocess.run(echo, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]


def test_printed_commands_are_words_of_a_shell_again() -> None:
    command = ["data/prepare.py", *ODD]
    assert words_of(commands.program(*command)) == ["python", str(ROOT / "data/prepare.py"), *ODD]
    assert words_of(commands.as_typed(["a b.py", *ODD])) == ["python", "a b.py", *ODD]
    assert commands.as_typed(["-m nerf train", "seed=1"]) == "python -m nerf train seed=1"
    assert [words_of(commands.assignment("run", name)) for name in ODD] == [[f"run={name}"] for name in ODD]


def test_a_printed_command_works_from_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, where in ((ROOT, "scripts/train.py"), (ROOT / "docs", str(ROOT / "scripts/train.py"))):
        monkeypatch.chdir(folder)
        assert commands.program("scripts/train.py", "seed=1") == f"python {where} seed=1"
        assert Path(where).is_file()
    monkeypatch.setattr(commands, "CHECKOUT", ROOT / "docs")  # as where the package is installed without one
    assert commands.program("scripts/train.py", "seed=1") == "python -m nerf train seed=1"


def test_a_stopped_run_is_gone_on_with_by_the_command_that_it_printed(tmp_path: Path) -> None:
    write_tiny_scene(tmp_path / "größe, [1]")
    typed = ["dataset=blender", "dataset.root=größe, [1]", "device=cpu", "train.steps=100000", "train.rays_per_step=64"]
    typed += ["field.num_voxels=1000", "field.min_level_steps=1", "train.log_every=1", "hydra.run.dir=it's a=b"]
    process = start_script("train", *typed, cwd=tmp_path)
    for line in process.stderr:
        if re.search(r"step \d+/100000", line):
            process.send_signal(signal.SIGINT)
            break
    output, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130, errors
    stopped = checkpoint.load_resume(tmp_path / "it's a=b")["step"]
    (printed,) = (line.partition(": ")[2] for line in output.splitlines() if "scripts/train.py" in line)
    python, *words = words_of(printed)
    process = warm_python.Popen(
        [sys.executable, *words, "train.log_every=1"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    for line in process.stderr:
        shown = re.search(r"step (\d+)/100000", line)  # the bar leaves out steps that come too fast
        if shown and int(shown[1]) > stopped:
            process.send_signal(signal.SIGINT)
            break
    process.communicate(timeout=TIMEOUT)
    assert python == "python" and process.returncode == 130
    assert checkpoint.load_resume(tmp_path / "it's a=b")["step"] > stopped
    assert sorted(path.name for path in tmp_path.iterdir()) == ["größe, [1]", "it's a=b"]
