"""What tests/fuzz/ops.py changes for a GPU under compute-sanitizer: shorter walks, and less room."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
sys.path.append(str(TESTS / "fuzz"))
import arguments  # noqa: E402
import ops as fuzz  # noqa: E402

LIMIT = '#include "math/march.h"\nstatic_assert(nerf::kMaxStepsOfRay == {points});\n'


@pytest.mark.parametrize(("flags", "points"), [([], 1 << 20), ([fuzz.SHORT_WALKS], 4096)])
def test_the_flag_of_short_walks_reaches_the_march(flags: list[str], points: int, tmp_path: Path) -> None:
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        pytest.skip("no C++ compiler here")
    source = tmp_path / "limit.cpp"
    source.write_text(LIMIT.format(points=points))
    command = [compiler, "-std=c++17", "-fsyntax-only", f"-I{TESTS.parent / 'cuda_ext'}", *flags, str(source)]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stderr


def test_room_that_takes_minutes_to_fill_becomes_less() -> None:
    """What no GPU has is refused at once, and stays."""
    numbers = [0, -1, 7, 1 << 20, (1 << 20) + 1, (1 << 31) - 1, 1 << 32, 1 << 36, 1 << 62, True, 1e30, None]
    some = 1 << 20
    assert arguments.on_gpu(numbers) == [0, -1, 7, some, some, some, some, 1 << 36, 1 << 62, True, 1e30, None]
