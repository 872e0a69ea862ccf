"""cuda_ext/README.md tells the truth: its five steps add a working operation, and the files that it names are there.

A block of code belongs to the sentence before it: `FILE`: is a new file; `FILE`, below `TEXT`: goes behind the first
line with that text; `FILE`, at the end: is appended.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "cuda_ext" / "README.md"
BLOCK = re.compile(r"^`([^`\n]+)`(, at the end|, below `([^`\n]+)`)?:\n\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.so", "golden")
PROOFS = ("tests/ops/test_scale_rows.py", "tests/ops/test_every_operation.py")


def section(title: str) -> str:
    """The text of a chapter of the README."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", README.read_text(), re.DOTALL | re.MULTILINE)
    assert found, f"README.md has no chapter '{title}'"
    return found[1]


def apply(tree: Path, blocks: list[tuple[str, str, str, str]]) -> None:
    for name, place, anchor, code in blocks:
        path = tree / name
        if not place:
            assert not path.exists(), f"{name} is new in the README, but there"
            path.write_text(code)
            continue
        lines = path.read_text().splitlines(keepends=True)
        where = len(lines)
        if anchor:
            where = next((i + 1 for i, line in enumerate(lines) if anchor in line), None)
            assert where is not None, f"{name} has no line with '{anchor}'"
        path.write_text("".join([*lines[:where], code, *lines[where:]]))


def test_five_steps_add_an_operation(tmp_path: Path) -> None:
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        pytest.skip("no C++ compiler here")
    for folder in ("cuda_ext", "nerf", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=NOT_COPIED)
    blocks = BLOCK.findall(section("Adding an operation in five steps"))
    steps = section("Adding an operation in five steps").count("```") // 2
    assert len(blocks) == steps >= 10, "every block of code says where it goes"
    apply(tmp_path, blocks)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = . tests\nmarkers = cuda: needs a GPU\n")
    # Without CUDA code and unoptimised it takes half a minute; that the kernel compiles is seen where nvcc is.
    environment = os.environ | {"NERF_CUDA": "0", "CXXFLAGS": "-O0", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    chosen = "scale_rows or every_registered or says_why_not"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-k", chosen, *PROOFS]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert "passed" in result.stdout and (tmp_path / "nerf" / "ops" / "libnerf.so").is_file()


def test_the_kernel_of_the_example_compiles(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "cuda_ext"))
    try:
        import build
    finally:
        sys.path.pop(0)
    nvcc = build.find_nvcc()
    if nvcc is None:
        pytest.skip("no nvcc here")
    shutil.copytree(ROOT / "cuda_ext", tmp_path / "cuda_ext", ignore=NOT_COPIED)
    blocks = BLOCK.findall(section("Adding an operation in five steps"))
    apply(tmp_path, [block for block in blocks if block[0].startswith("cuda_ext")])
    source, output = tmp_path / "cuda_ext/cuda/scale_rows.cu", tmp_path / "scale_rows.o"
    command = [nvcc, "-std=c++17", "--extended-lambda", "-arch=sm_80", "-c", source, "-o", output]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0 and "warning" not in result.stderr, result.stderr


def test_the_map_names_files_that_are_there() -> None:
    rows = [line for line in section("From the tutorials to here").splitlines() if line.startswith("|")][2:]
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[-2])]
    assert len(rows) >= 15 and len(named) >= len(rows)
    for name in named:
        assert (README.parent / name).is_file(), name
