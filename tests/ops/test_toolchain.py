"""What the library is compiled with on each system, and a build with clang++."""

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from nerf.ops import library

SOURCES = library.BUILD_SCRIPT.parent
IN_PYTORCH_2_10 = {
    "<torch/csrc/inductor/aoti_torch/c/shim.h>",
    "<torch/csrc/stable/library.h>",
    "<torch/csrc/stable/ops.h>",
    "<torch/csrc/stable/tensor.h>",
    "STABLE_TORCH_LIBRARY",
    "STABLE_TORCH_LIBRARY_IMPL",
    "TORCH_ABI_VERSION",
    "TORCH_BOX",
    "TORCH_ERROR_CODE_CHECK",
}


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pretend(monkeypatch: pytest.MonkeyPatch, system: str, machine: str) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)


@pytest.mark.parametrize(
    ("system", "machine", "compiler", "options"),
    [
        ("Linux", "x86_64", "g++", "-march=x86-64-v3"),
        ("Linux", "aarch64", "g++", ""),
        ("Darwin", "arm64", "clang++", ""),
        ("Darwin", "x86_64", "clang++", "-march=x86-64-v3"),
        ("Windows", "AMD64", "cl", "/arch:AVX2"),
        ("Windows", "ARM64", "cl", ""),
        ("FreeBSD", "amd64", "g++", "-march=x86-64-v3"),
    ],
)
def test_a_system_has_its_compiler_and_its_processor(
    system: str, machine: str, compiler: str, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = loaded(SOURCES / "toolchain.py")
    pretend(monkeypatch, system, machine)
    assert tools.toolchain().default == compiler and tools.machine_options() == options


def test_no_compiler_is_given_what_it_does_not_know() -> None:
    tools = loaded(SOURCES / "toolchain.py")
    assert "-Wl,-s" in tools.LINUX.link and "-ltorch_cpu" in tools.LINUX.link
    assert "-undefined dynamic_lookup" in tools.MACOS.link
    assert "-Wl,-s" not in tools.MACOS.link and "-ldl" not in tools.MACOS.link
    assert "-ffp-contract=off" == tools.LINUX.same_samples == tools.MACOS.same_samples
    windows = " ".join(tools.WINDOWS).replace("-Xcompiler", "").split()
    assert {"/DLL", "torch_cpu.lib"} <= set(windows)
    options = " ".join([tools.WINDOWS.compile, tools.WINDOWS.objects, tools.WINDOWS.link]).split()
    assert not [word for word in options if word.startswith("-")]


@pytest.mark.parametrize(
    ("system", "names"),
    [("Linux", ("g++", "apt install")), ("Darwin", ("clang++", "xcode-select")), ("Windows", ("cl", "x64"))],
)
def test_the_remedy_for_a_missing_compiler_is_the_systems(
    system: str, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    builder = loaded(library.BUILD_SCRIPT)
    pretend(monkeypatch, system, "x86_64")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(builder.BuildError) as caught:
        builder._find_compiler()
    assert f"'{names[0]}' is not on the PATH" in str(caught.value) and names[1] in str(caught.value)
    assert "backend=torch" in str(caught.value)


def test_headers_and_macros_are_those_of_the_oldest_pytorch() -> None:
    """TORCH_TARGET_VERSION hides functions that PyTorch 2.10 lacks, but no headers and macros.

    `make wheel-matrix` compiles with the headers of 2.10 themselves. Add a name here once it was seen in them.
    """
    files = [path for path in SOURCES.rglob("*") if path.suffix in (".cpp", ".h", ".cu", ".cuh")]
    text = "\n".join(path.read_text() for path in files)
    used = set(re.findall(r"<torch/[\w/]+\.h>|\b[A-Z_]*TORCH_[A-Z_]+\b", text))
    assert used == IN_PYTORCH_2_10


def test_ninja_reads_paths_as_they_are() -> None:
    escaped = loaded(SOURCES / "toolchain.py").escaped
    assert escaped(Path("C:/my scenes/$x.cpp")) == "C$:/my$ scenes/$$x.cpp"


@pytest.mark.slow
def test_clang_builds_the_library_too(tmp_path: Path) -> None:
    if shutil.which("clang++") is None:
        pytest.skip("clang++ is not installed; Debian and Ubuntu: apt install clang")
    shutil.copytree(SOURCES, tmp_path / "a tree" / "cuda_ext", ignore=shutil.ignore_patterns("__pycache__"))
    builder = tmp_path / "a tree" / "cuda_ext" / "build.py"
    env = os.environ | {"CXX": "clang++", "CXXFLAGS": "-O0", "NERF_CUDA": "0"}
    built = subprocess.run([sys.executable, str(builder)], env=env, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    program = (
        "import sys, torch; torch.ops.load_library(sys.argv[1]); x = torch.ones(2, 2, 2, 3);"
        "assert torch.equal(torch.ops.nerf.interpolate_trilinear(x, torch.ones(4, 3)), torch.ones(4, 3))"
    )
    subprocess.run([sys.executable, "-c", program, built.stdout.strip()], check=True)
