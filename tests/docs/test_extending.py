"""docs/extending tells the truth: each page's steps, applied to a copy of the sources, run in as few files as told."""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import warm_python
from doc_pages import ROOT, apply_steps, copied_tree, places, snippets

PAGES = ("dataset", "export", "field", "loss")


@pytest.mark.parametrize("name", PAGES)
def test_the_steps_of_a_page_run_in_a_copy(name: str, tmp_path: Path) -> None:
    page = ROOT / "docs" / "extending" / f"{name}.md"
    tree = copied_tree(tmp_path, "nerf", "configs", "scripts", "tests")
    apply_steps(page, tree)
    shutil.copy(ROOT / "pyproject.toml", tree)  # how pytest finds what tests share
    environment = os.environ | {"PYTHONPATH": str(tree), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    commands = [line for block in snippets(page) if block.language == "bash" for line in block.code.splitlines()]
    assert commands, f"{page} has no command that tries its steps"
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "python", f"{page}: only python is run, found {program}"
        how = {"cwd": tree, "env": environment, "capture_output": True, "text": True}
        found = warm_python.run([sys.executable, *arguments], **how)
        assert found.returncode == 0, f"{command}\n{found.stdout[-4000:]}{found.stderr[-2000:]}"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_counts_the_places_it_touches(name: str) -> None:
    page = ROOT / "docs" / "extending" / f"{name}.md"
    stated = re.search(r"Places to touch: (\d+)", page.read_text())
    assert stated, f"{page} does not say how many places its steps touch"
    found = [place for place in places(page) if not place.startswith("tests/")]
    assert int(stated[1]) == len(found) <= 3, found
