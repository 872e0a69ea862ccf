"""nerf completion: what each word may become, and what real shells make of it."""

import contextlib
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nerf.cli import completion
from nerf.cli.completion import SHELLS, as_bash_reads, complete, split
from nerf.cli.main import COMMANDS
from nerf.files import CONFIGS

ROOT = Path(__file__).resolve().parents[3]
BREAKS = " \t\n\"'><=;|&(:"  # bash's own
TIMEOUT = 60


def words(*typed: str) -> list[str]:
    return [word for word, _ in complete(list(typed))]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a run, a folder of runs and a file."""
    for name in ("outputs/first run", "outputs/renders", ".hidden"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "outputs" / "first run" / "model.pt").touch()
    (tmp_path / "outputs" / "notes.txt").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


# What a word may become


def test_commands_are_completed() -> None:
    assert words("") == [*COMMANDS, "--help"] and words("ex") == ["export"]
    assert words("completion", "") == list(SHELLS)


def test_settings_stand_under_their_group_until_it_is_typed() -> None:
    assert words("train", "data") == ["dataset=", "dataset."]
    names = words("train", "dataset.")
    assert "dataset.root=" in names and all(name.startswith("dataset.") and name.endswith("=") for name in names)
    assert words("train", "train.steps=9", "train.st") == []  # given already
    assert words("train", "hydra") == ["hydra.run.dir="]


@pytest.mark.parametrize("group", ["dataset", "field", "poses", "experiment"])
def test_a_group_is_completed_with_its_files(group: str) -> None:
    files = sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))
    assert files and words("train", f"{group}=") == [f"{group}={name}" for name in files]


def test_values_are_completed() -> None:
    assert words("train", "viewer=") == ["viewer=true", "viewer=false"]
    assert words("train", "device=c") == ["device=cuda", "device=cpu"]
    assert words("evaluate", "view_poses=") == [f"view_poses={v}" for v in ("given", "aligned", "refined", "none")]
    assert words("train", "-m", "field=voxel_sh,voxel_") == [f"field=voxel_sh,voxel_{n}" for n in ("deferred", "mlp")]
    assert words("train", "dataset.scene=br") == ["dataset.scene=bricks"]
    assert words("train", "no.such=") == []


def test_arguments_of_commands_without_settings_are_completed(folder: Path) -> None:
    assert words("download", "lego", "sh") == ["ship"] and words("download", "--sh") == ["--sha256"]
    assert words("prepare", "--camera", "") == ["shared", "each"]
    assert words("prepare", "--again", "out") == ["outputs/"]
    assert words("doctor", "") == []


def test_runs_are_told_from_folders_of_runs(folder: Path) -> None:
    assert words("render", "outputs/") == ["outputs/first run", "outputs/renders/"]
    assert words("train", "resume=outputs/f") == ["resume=outputs/first run"]
    assert words("evaluate", "runs=outputs/first run,outputs/r") == ["runs=outputs/first run,outputs/renders/"]
    assert words("train", "outputs/") == []  # takes no run as its first word


def test_paths_are_completed(folder: Path) -> None:
    assert words("render", "path=outputs/n") == ["path=outputs/notes.txt"]
    assert words("train", "dataset.root=") == ["dataset.root=none", "dataset.root=outputs/"]
    assert words("train", "dataset.root=.h") == ["dataset.root=.hidden/"]
    assert words("train", "dataset.root=nowhere/") == []


def test_words_are_split_as_a_shell_does() -> None:
    assert split("nerf train ") == (["nerf", "train", ""], "")
    assert split(r"nerf render a\ b") == (["nerf", "render", "a b"], "")
    assert split("nerf render 'a b") == (["nerf", "render", "a b"], "'")


def test_bash_gets_what_it_takes_for_a_word(folder: Path) -> None:
    assert as_bash_reads("nerf train dataset=le", BREAKS) == ["lego"]
    assert as_bash_reads("nerf train dataset=le", " \n") == ["dataset=lego"]
    assert as_bash_reads("nerf render outputs/f", BREAKS) == [r"outputs/first\ run"]
    assert as_bash_reads(r"nerf render run=outputs/first\ ", BREAKS) == [r"outputs/first\ run"]
    assert as_bash_reads('nerf render run="outputs/first ', BREAKS) == ["outputs/first run"]


# The table and the program


def test_the_table_names_the_settings_of_every_command() -> None:
    """That it is up to date is tests/unit/benchmarks/test_tables.py's to say."""
    without = {"doctor", "completion", "tables"}
    assert all(len(words(command, "-")) > 0 for command in COMMANDS.keys() - without)


def test_completing_imports_nothing_heavy() -> None:
    program = (
        "import sys; sys.argv = ['nerf', 'completion', 'zsh', '--words', 'train', 'data']; "
        "from nerf.cli.main import main; main(); "
        "print(sorted({'torch', 'numpy', 'hydra', 'omegaconf', 'yaml'} & sys.modules.keys()))"
    )
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    *told, heavy = found.stdout.splitlines()
    assert heavy == "[]" and [line.split("\t")[0] for line in told] == ["dataset=", "dataset."]


@pytest.mark.parametrize("given", [(), ("tcsh",), ("bash", "now")])
def test_a_mistake_is_answered(given: tuple[str, ...], monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["nerf", *given])
    assert completion.command() == 2
    assert ", ".join(SHELLS) in capsys.readouterr().err


# Real shells


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH where `nerf` completes as it does, and else prints its arguments."""
    program = tmp_path / "bin" / "nerf"
    program.parent.mkdir()
    asked = f'[ "$1" = completion ] && PYTHONPATH="{ROOT}" exec "{sys.executable}" -m nerf "$@"'
    program.write_text(f"#!/bin/sh\n{asked}\nfor word; do printf '<%s>' \"$word\"; done; echo\n")
    program.chmod(0o755)
    return f"{program.parent}:{os.environ['PATH']}"


def shell(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed; Debian and Ubuntu: apt install {name}")
    return found


def typed(command: list[str], path: str, keys: str) -> str:
    """What a shell on a terminal writes when these keys are pressed."""
    process, terminal = pty.fork()
    if process == 0:
        os.execve(command[0], command, {"PATH": path, "TERM": "dumb", "HOME": str(Path.cwd()), "PS1": "$ "})
    os.write(terminal, keys.encode())
    written = b""
    with contextlib.suppress(OSError):  # by an error Linux says that the shell has ended
        while select.select([terminal], [], [], TIMEOUT)[0] and (more := os.read(terminal, 4096)):
            written += more
    os.close(terminal)
    os.kill(process, signal.SIGKILL)  # where it still waits for something
    os.waitpid(process, 0)
    return written.decode()


@pytest.mark.slow  # zsh sets its completions up for two seconds
@pytest.mark.parametrize(
    ("name", "options", "begin"),
    [
        ("bash", ["--norc", "--noprofile", "-i"], "source <(nerf completion bash)"),
        ("zsh", ["-f", "-i"], "autoload -Uz compinit; compinit -u -D; source <(nerf completion zsh)"),
    ],
)
def test_a_tab_completes_on_a_terminal(name: str, options: list[str], begin: str, path: str, folder: Path) -> None:
    lines = [
        "nerf tra\tdataset.downs\t4 field=voxel_s\t",
        "nerf ren\toutputs/fi\tframes\t3",
        "nerf mesh run=outputs/fi\t",
    ]
    written = typed([shell(name), *options], path, "\n".join([begin, *lines, "exit", ""]))
    answers = re.findall(r"^<.*>", written, re.MULTILINE)
    assert answers == [
        "<train><dataset.downscale=4><field=voxel_sh>",
        "<render><outputs/first run><frames=3>",
        "<mesh><run=outputs/first run>",
    ]


def test_fish_completes(path: str, folder: Path) -> None:
    fish = shell("fish")

    def found(line: str) -> list[str]:
        program = f"nerf completion fish | source; complete --do-complete '{line}'"
        command = [fish, "--no-config", "-c", program]
        env = {"PATH": path, "HOME": str(folder)}
        ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT, check=True)
        return [one.split("\t")[0] for one in ran.stdout.splitlines()]

    assert found("nerf train data") == ["dataset.", "dataset="]
    assert found("nerf train dataset=le") == ["dataset=lego"]
    assert found("nerf render outputs/f") == ["outputs/first run"]
