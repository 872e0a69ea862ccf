"""docs/extending/operation.md and cuda_ext/README.md tell the truth.

The steps of the page add a working operation to a copy of the sources, in as few files as it says.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import ROOT, apply_steps, copied_tree, places, snippets

PAGE = ROOT / "docs" / "extending" / "operation.md"
README = ROOT / "cuda_ext" / "README.md"
MOST_PLACES = 8
# Any program that has PyTorch can load the library. This one was built without CUDA code.
LOADED = """
import sys, torch
torch.ops.load_library(sys.argv[1])
assert torch.equal(torch.ops.nerf.interpolate_trilinear(torch.ones(2, 2, 2, 3), torch.ones(4, 3)), torch.ones(4, 3))
assert torch._C._dispatch_has_kernel_for_dispatch_key("nerf::scale_rows", "CPU")
assert not torch._C._dispatch_has_kernel_for_dispatch_key("nerf::march_rays", "CUDA")
"""


def applied(folder: Path) -> Path:
    """A copy of the sources with the page's operation, without a library."""
    tree = copied_tree(folder, "cuda_ext", "nerf", "tests")
    for library in tree.glob("nerf/ops/*.so"):
        library.unlink()
    apply_steps(PAGE, tree)
    return tree


def test_the_steps_add_an_operation(tmp_path: Path) -> None:
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        pytest.skip("no C++ compiler here")
    tree = applied(tmp_path)
    (tree / "pytest.ini").write_text("[pytest]\npythonpath = . tests/helpers\nmarkers =\n cuda:\n slow:\n")
    # Without CUDA code and unoptimized it takes half a minute; that the kernel compiles is seen where nvcc is.
    environment = os.environ | {"NERF_CUDA": "0", "CXXFLAGS": "-O0", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    commands = [line for block in snippets(PAGE) if block.language == "bash" for line in block.code.splitlines()]
    assert commands, f"{PAGE} has no command that tries its steps"
    for command in commands:
        program = command.replace("python ", f"{sys.executable} ", 1)
        how = {"shell": True, "cwd": tree, "env": environment, "capture_output": True, "text": True}
        result = subprocess.run(program, **how, check=False)
        assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
        assert "passed" in result.stdout and (tree / "nerf" / "ops" / "libnerf.so").is_file()
    program = [sys.executable, "-c", LOADED, tree / "nerf" / "ops" / "libnerf.so"]
    subprocess.run(program, cwd=tmp_path, env=environment, check=True)


def test_the_page_counts_the_places_it_touches() -> None:
    stated = re.search(r"Places to touch: (\d+)", PAGE.read_text())
    assert stated, f"{PAGE} does not say how many places its steps touch"
    assert int(stated[1]) == len(places(PAGE)) <= MOST_PLACES, places(PAGE)


def test_the_kernel_of_the_example_compiles(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "cuda_ext"))
    try:
        import build
    finally:
        sys.path.pop(0)
    nvcc = build.find_nvcc()
    if nvcc is None:
        pytest.skip("no nvcc here")
    tree, output = applied(tmp_path), tmp_path / "scale_rows.o"
    source = tmp_path / "scale_rows.cu"  # as build.py joins portable bodies that no file of cuda/ replaces
    parts = (tree / "cuda_ext" / "portable" / name for name in ("define/cuda.h", "scale_rows.h"))
    source.write_text("".join(f'#include "{part}"\n' for part in parts))
    command = [nvcc, "-std=c++17", "--extended-lambda", "-arch=sm_80", "-c", source, "-o", output]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0 and "warning" not in result.stderr, result.stderr


def section(title: str) -> str:
    """The text of a chapter of cuda_ext/README.md."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", README.read_text(), re.DOTALL | re.MULTILINE)
    assert found, f"README.md has no chapter '{title}'"
    return found[1]


def test_the_map_names_files_that_are_there() -> None:
    rows = [line for line in section("From the tutorials to here").splitlines() if line.startswith("|")][2:]
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[-2])]
    assert len(rows) >= 15 and len(named) >= len(rows)
    for name in named:
        assert (README.parent / name).is_file(), name
