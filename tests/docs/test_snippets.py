"""Every block of code in README and docs/ runs to the letter in a copy, or says why not and is checked without running.

A block that is not run has a line above it, <!-- not run: REASON -->. Its Python is compiled; of its commands the names
of files, options and settings are checked, the latter by composing them.
"""

import functools
import importlib
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import warm_python
import yaml
from doc_pages import ROOT, Block, copied_tree, pages, snippets

BLOCKS = {page: snippets(page) for page in pages()}
CHECKED = ("python", "bash")
NOT_CODE = ("", "text", "bibtex")
OUTPUTS = ("outputs", "multirun")  # the folders of a tree that commands write to
APPLIED = ROOT / "docs" / "extending"  # whose commands need the steps of their page: test_extending.py


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(language: str, run: bool) -> list:
    """The blocks of all pages that are run, or are not."""
    return [
        pytest.param(page, block, id=f"{name(page)}:{block.line}")
        for page, found in BLOCKS.items()
        for block in found
        if block.language == language and (block.not_run is None) == run
    ]


def with_blocks_to_run(language: str) -> list[Path]:
    """The pages that have blocks to run."""
    return [page for page, found in BLOCKS.items() if any(b.language == language and not b.not_run for b in found)]


def commands(block: Block) -> list[list[str]]:
    """The words of each command, without comments."""
    lines = block.code.replace("\\\n", " ").splitlines()
    return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


def run(command: Sequence[str], folder: Path) -> None:
    paths = f"{folder}:{ROOT}"
    environment = os.environ | {"PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    how = {"cwd": folder, "env": environment, "stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    found = warm_python.run([sys.executable, *command], **how)
    assert found.returncode == 0, f"{shlex.join(command)}\n{found.stdout[-3000:]}{found.stderr[-3000:]}"


def test_every_block_is_of_a_kind_that_is_checked() -> None:
    for page, found in BLOCKS.items():
        for block in found:
            assert block.language in CHECKED + NOT_CODE, f"{name(page)}:{block.line} is {block.language}"


@pytest.mark.parametrize("page", with_blocks_to_run("python"), ids=name)
def test_the_python_of_a_page_runs_in_its_order(page: Path, tmp_path: Path) -> None:
    code = [block.code for block in BLOCKS[page] if block.language == "python" and block.not_run is None]
    (tmp_path / "data").symlink_to(ROOT / "data")
    run(["-c", "\n".join(code)], tmp_path)


@pytest.mark.parametrize(("page", "block"), blocks("python", run=False))
def test_python_that_is_not_run_compiles(page: Path, block: Block) -> None:
    compile(block.code, name(page), "exec")


class Results:
    """The files that commands have left, each behind the first command of its page.

    Several pages begin with the same training and make the same of it, which is made once.
    """

    def __init__(self, tree: Path, folder: Path) -> None:
        self.tree, self.folder = tree, folder
        self.found: dict[tuple[str, ...], Path] = {}

    def _files(self) -> dict[Path, int]:
        paths = (path for name in OUTPUTS for path in (self.tree / name).rglob("*") if path.is_file())
        return {path.relative_to(self.tree): path.stat().st_mtime_ns for path in paths}

    def run(self, *command: str, first: tuple[str, ...]) -> None:
        key = (*first, *command)
        if key in self.found:
            shutil.copytree(self.found[key], self.tree, dirs_exist_ok=True)
            return
        before = self._files()
        run(command, self.tree)
        self.found[key] = self.folder / f"{len(self.found)}"
        self.found[key].mkdir()
        for path in (path for path, changed in self._files().items() if before.get(path) != changed):
            (self.found[key] / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.tree / path, self.found[key] / path)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """For a copy of the sources; all pages share it, and so its byte code."""
    tree = copied_tree(tmp_path_factory.mktemp("tree"), "nerf", "configs", "scripts", "docs")
    (tree / "README.md").write_text((ROOT / "README.md").read_text())
    return Results(tree, tmp_path_factory.mktemp("left"))


@pytest.mark.parametrize("page", [page for page in with_blocks_to_run("bash") if page.parent != APPLIED], ids=name)
def test_the_commands_of_a_page_run_in_their_order(page: Path, results: Results) -> None:
    for left in OUTPUTS:  # by another page
        shutil.rmtree(results.tree / left, ignore_errors=True)
    first: tuple[str, ...] = ()
    for block in (block for block in BLOCKS[page] if block.language == "bash" and block.not_run is None):
        for program, *arguments in commands(block):
            assert program == "python", f"{name(page)}:{block.line}: only python is run, found {program}"
            results.run(*arguments, first=first)
            first = first or tuple(arguments)


@pytest.mark.parametrize(("page", "block"), blocks("bash", run=False))
def test_commands_that_are_not_run_name_what_is_there(
    page: Path, block: Block, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    for words in commands(block):
        program, *arguments = itertools.dropwhile(lambda word: "=" in word, words)  # behind VARIABLE=value
        found = CHECKS[program](arguments, monkeypatch)
        assert found is None, f"{name(page)}:{block.line}: {shlex.join(words)}: {found}"


def check_python(words: list[str], monkeypatch: pytest.MonkeyPatch) -> str | None:
    """What is wrong with a command of ours, None if nothing is."""
    from nerf.cli.main import COMMANDS

    if words[:2] == ["-m", "nerf"]:
        words = [f"scripts/{words[2]}.py", *words[3:]]
        if Path(words[0]).stem not in COMMANDS:
            return "there is no such command"
    path, *arguments = words
    if path.startswith("scripts/"):
        return check_settings(Path(path).stem, arguments, monkeypatch)
    if not Path(path).is_file():
        return "there is no such file"
    options = {word for word in arguments if word.startswith("--")}
    unknown = [option for option in sorted(options) if option not in help_of(path)]
    return f"{unknown} are not in its --help" if unknown else None


@functools.cache
def help_of(path: str) -> str:
    return warm_python.run([sys.executable, path, "--help"], capture_output=True, text=True, check=True).stdout


def check_settings(command: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> str | None:
    """What is wrong with the settings of a command that Hydra composes."""
    from nerf.cli import composition, hydra_app
    from nerf.cli.overrides import SWEEP_FLAGS, is_sweep, runs_of_sweep
    from nerf.errors import UserError

    module = importlib.import_module(f"nerf.cli.{command}")
    if not hasattr(module, "run"):
        return f"it takes no settings, found {arguments}" if arguments else None
    asked = []
    monkeypatch.setattr(module, "run", lambda config_name, cls, *_: asked.append((config_name, cls)))
    module.command()
    try:
        read = hydra_app.as_hydra_reads(asked[0][1], arguments)
        given = [argument for argument in read if argument not in SWEEP_FLAGS]
        for overrides in runs_of_sweep(given) if is_sweep(arguments) else [given]:
            composition.compose(*asked[0], overrides)
    except UserError as error:
        return str(error)
    return None


def check_pip(words: list[str], _: pytest.MonkeyPatch) -> str | None:
    declared = (ROOT / "pyproject.toml").read_text()
    extras = re.findall(r"\[(\w+)\]", " ".join(words))
    missing = [extra for extra in extras if not re.search(rf"^{extra} = \[", declared, re.MULTILINE)]
    return f"pyproject.toml has no extra {missing}" if missing else None


def check_make(words: list[str], _: pytest.MonkeyPatch) -> str | None:
    makefile = (ROOT / "Makefile").read_text()
    missing = [word for word in words if "=" not in word and not re.search(rf"^{word}:", makefile, re.MULTILINE)]
    return f"Makefile has no {missing}" if missing else None


def check_nerfbaselines(words: list[str], _: pytest.MonkeyPatch) -> str | None:
    """What is wrong with the settings of ours that NerfBaselines is given."""
    from nerf.config.overrides import settings
    from nerf.errors import UserError

    given = [following for word, following in zip(words, words[1:]) if word == "--set"]
    try:
        settings({name: yaml.safe_load(value) for name, _, value in (setting.partition("=") for setting in given)})
    except UserError as error:
        return str(error)
    return None


def check_docker(words: list[str], monkeypatch: pytest.MonkeyPatch) -> str | None:
    if words[0] == "build":
        return None if (ROOT / "Dockerfile").is_file() else "there is no Dockerfile"
    return check_python(["-m", "nerf", *words[words.index("nerf-voxel") + 1 :]], monkeypatch)


def check_source(words: list[str], _: pytest.MonkeyPatch) -> str | None:
    from nerf.cli.completion import SHELLS

    known = [["<(nerf", "completion", f"{shell})"] for shell in SHELLS]
    return None if words in known else "it is no completion of a shell"


def check_torchrun(words: list[str], monkeypatch: pytest.MonkeyPatch) -> str | None:
    return check_python(list(itertools.dropwhile(lambda word: word.startswith("--"), words)), monkeypatch)


CHECKS = {
    "python": check_python,
    "torchrun": check_torchrun,
    "pip": check_pip,
    "make": check_make,
    "nerfbaselines": check_nerfbaselines,
    "docker": check_docker,
    "source": check_source,
    "export": lambda words, _: None,
}
