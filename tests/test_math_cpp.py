"""Compiles cpp/test_math.cpp with g++ alone, strict warnings and sanitizers, and runs it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
MATH = TESTS.parent / "cuda_ext" / "math"
# As build.py does for the march: a fused multiply-add would change which samples exist.
FLAGS = ["-std=c++17", "-O1", "-g", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def test_mathematics_without_torch_and_cuda(tmp_path):
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        pytest.skip("no C++ compiler here")
    program = tmp_path / "test_math"
    source = TESTS / "cpp" / "test_math.cpp"
    command = [compiler, *FLAGS, *SANITIZERS, f"-I{MATH}", str(source), "-o", str(program)]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stderr
    # The leak check needs ptrace, which containers forbid; nothing here allocates by hand.
    environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=0"}
    result = subprocess.run([program], capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
