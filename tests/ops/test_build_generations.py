"""A build is for the GPUs of its machine; both programs that it asks are replaced by scripts that answer."""

import os
from pathlib import Path
from types import ModuleType

import pytest

from nerf.ops.library import build_module

KNOWN = "sm_75 sm_80 sm_89 sm_90 sm_120"


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.delenv("NERF_CUDA_ARCHS", raising=False)
    return build_module()


def program(path: Path, prints: str, status: int = 0) -> Path:
    path.write_text(f"#!/bin/sh\nprintf '{prints}'\nexit {status}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("gpus", "status", "library", "expected"),
    [
        ("9.0\\n", 0, None, "90"),
        ("8.9\\n8.0\\n8.9\\n", 0, None, "80 89"),
        ("9.0\\n", 0, "80 120", "80 90 120"),  # another machine's, which stay
        ("9.0\\n", 0, "", "90"),  # a library without CUDA code
        ("9.0\\n", 0, "70 80", "80 90"),  # nvcc knows 70 no more
        ("6.1\\n", 0, None, "75 80 90 120"),  # no code for this one is to be had
        ("[N/A]\\n", 0, None, "75 80 90 120"),
        ("NVIDIA-SMI has failed\\n", 9, None, "75 80 90 120"),
        ("NVIDIA-SMI has failed\\n", 9, "70 89", "75 80 89 90 120"),  # those that the library has stay here too
    ],
)
def test_the_generations_of_a_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: ModuleType, gpus: str, status: int, library: str | None,
    expected: str,
) -> None:  # fmt: skip
    nvcc = program(tmp_path / "nvcc", KNOWN.replace(" ", "\\n") + "\\n")
    program(tmp_path / "nvidia-smi", gpus, status)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    made = tmp_path / "libnerf.so"
    if library is not None:
        content = f"ELF nerf-build-stamp:0123 cuda={library}\0".encode()
        made.write_bytes(content + build.SEAL + build._digest(content))
        assert build.read_stamp(made).cuda == library
    assert build.generations(nvcc, made) == expected


def test_without_a_gpu_and_as_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: ModuleType) -> None:
    nvcc = program(tmp_path / "nvcc", "sm_90\\n")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert build.generations(nvcc, tmp_path / "no_library") == build.GENERATIONS == "75 80 90 120"
    monkeypatch.setenv("NERF_CUDA_ARCHS", "86")
    assert build.generations(nvcc, tmp_path / "no_library") == "86"
    monkeypatch.setenv("NERF_CUDA_ARCHS", "  ")
    assert build.generations(nvcc, tmp_path / "no_library") == build.GENERATIONS


@pytest.mark.parametrize("given", ["90a", "9.0", "90;80", "all"])
def test_what_is_no_generation_is_named(monkeypatch: pytest.MonkeyPatch, build: ModuleType, given: str) -> None:
    monkeypatch.setenv("NERF_CUDA_ARCHS", given)
    with pytest.raises(build.BuildError, match=f"NERF_CUDA_ARCHS={given}, expected numbers with blanks between"):
        build.generations(Path("nvcc"))
