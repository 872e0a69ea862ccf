"""Compiles the mathematics and the CPU loops with g++ alone, strict warnings and sanitizers, and runs them.

test_math.cpp, test_extremes.cpp, test_reach.cpp and test_photos.cpp drive cuda_ext/math, test_cpu_loops.cpp drives
cuda_ext/cpu and cuda_ext/portable over a stand-in for PyTorch's threads, test_tensor_cores.cpp and test_warpgroups.cpp
the kernels of mlp over one for a GPU, test_trilinear_lanes.cpp those of interpolate_trilinear, test_march_lanes.cpp and
test_composite_lanes.cpp those of march_visible and composite_rays, test_adam_lanes.cpp that of adam_step.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nerf.ops import library

TESTS = Path(__file__).parent
SOURCES = Path(__file__).resolve().parents[2] / "cuda_ext"
# As build.py does for the march: a fused multiply-add would change which samples exist.
FLAGS = ["-std=c++17", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]
# A number that does not fit the integer it is cast to is undefined too, though "undefined" alone lets it pass.
SANITIZERS = ["-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
# Optimized where that is won back: these run for long. -Og compiles in half of the time of -O1.
PROGRAMS = {
    "test_math": ["-O0", f"-I{SOURCES / 'math'}"],
    "test_extremes": ["-Og", f"-I{SOURCES / 'math'}"],
    "test_reach": ["-Og", f"-I{SOURCES / 'math'}"],
    "test_photos": ["-O0", f"-I{SOURCES / 'math'}"],
    "test_tensor_cores": ["-Og", f"-I{SOURCES}", "-Wno-unknown-pragmas"],
    "test_warpgroups": ["-Og", f"-I{SOURCES}", "-Wno-unknown-pragmas"],
    "test_adam_lanes": ["-O0", f"-I{SOURCES}", "-Wno-unknown-pragmas"],
    "test_march_lanes": ["-O0", f"-I{SOURCES}", "-Wno-unknown-pragmas"],
    "test_composite_lanes": ["-O0", f"-I{SOURCES}", "-Wno-unknown-pragmas"],
    "test_trilinear_lanes": ["-O0", f"-I{SOURCES}", "-Wno-unknown-pragmas"],
    "test_cpu_loops": ["-O0", f"-I{TESTS / 'without_torch'}", f"-I{SOURCES}", "-Wno-unknown-pragmas"],
}


def parts(name: str, folder: Path) -> list[str]:
    """What a program is compiled with: the loops of the CPU, as build.py puts them together."""
    if name != "test_cpu_loops":
        return []
    builder = library.build_module()
    return [*map(str, sorted(SOURCES.glob("cpu/*.cpp"))), *map(str, builder.portable_sources(folder, ".cpp"))]


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_undefined(name, tmp_path):
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        pytest.skip("no C++ compiler here")
    program, source = tmp_path / name, TESTS / f"{name}.cpp"
    command = [compiler, *FLAGS, *SANITIZERS, *PROGRAMS[name], str(source), *parts(name, tmp_path), "-o", str(program)]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stderr
    # The leak check needs ptrace, which containers forbid; nothing here allocates by hand.
    environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=0"}
    result = subprocess.run([program], capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
