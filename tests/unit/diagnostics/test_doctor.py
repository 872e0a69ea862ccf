"""python -m nerf, its doctor and the operations' self-checks: what they say, and that they notice what is broken."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
import warm_python
from script_runs import TIMEOUT
from torch import Tensor

from nerf.cli.main import COMMANDS
from nerf.cli.trackers import MODULES
from nerf.diagnostics import doctor, self_check
from nerf.ops import library, native
from nerf.ops.registry import DERIVATIVES, EXAMPLES

ROOT = Path(__file__).resolve().parents[3]


def nerf(*arguments: str, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess:
    """python -m nerf in a process of its own."""
    command = [sys.executable, "-m", "nerf", *arguments]
    env = os.environ | env
    return warm_python.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=TIMEOUT, check=False)


def test_a_reader_that_has_seen_enough_ends_it_quietly() -> None:
    """`nerf doctor | head`: the pipe is closed after the first lines."""
    command = [sys.executable, "-m", "nerf", "doctor"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as doctor:
        assert doctor.stdout.readline().startswith("nerf-voxel")
        doctor.stdout.close()
        assert doctor.stderr.read() == ""
        assert doctor.wait(TIMEOUT) == 128 + 13  # as if SIGPIPE had ended it


# The checks


@pytest.mark.parametrize("name", self_check.registered())
def test_every_operation_has_a_check_and_passes_it(name: str, device: str) -> None:
    """A new operation needs an example in its file, nerf/ops/x.py."""
    found = self_check.check(name, device, native)
    assert found.checked and found.problem is None


def test_every_check_has_its_operation() -> None:
    assert set(EXAMPLES) <= set(self_check.registered())


def altered(name: str, change: object) -> ModuleType:
    """The native operations with one of them changed: change(function, *arguments)."""
    function = getattr(native, name)
    return SimpleNamespace(**vars(native) | {name: lambda *arguments: change(function, *arguments)})


def doubled(x: object) -> object:
    """Another number; of true false."""
    if isinstance(x, Tensor) and x.dtype == torch.bool:
        return ~x
    return 2 * x if isinstance(x, Tensor) else x


@pytest.mark.parametrize("name", EXAMPLES)
def test_wrong_numbers_are_noticed(name: str) -> None:
    def wrong(function, *arguments):
        result = function(*arguments)
        if result is None:
            arguments[0].mul_(1.01)
            return None
        return doubled(result) if isinstance(result, Tensor) else tuple(map(doubled, result))

    found = self_check.check(name, "cpu", altered(name, wrong))
    assert found.problem.startswith(f"{name} on cpu: ") and "differs from the reference by" in found.problem


@pytest.mark.parametrize("name", [name for name, known in DERIVATIVES.items() if known.of])
def test_wrong_gradients_are_noticed(name: str) -> None:
    def wrong(function, *arguments):
        """Right values whose gradient is not."""
        result = function(*arguments)
        lies = [(2 * x - x.detach()) for x in ((result,) if isinstance(result, Tensor) else result)]
        return lies[0] if isinstance(result, Tensor) else tuple(lies)

    ops = altered(name, wrong)
    assert self_check.check(name, "cpu", ops).problem is None
    problem = self_check.check(f"{name}_backward", "cpu", ops).problem
    assert problem.startswith(f"{name}_backward on cpu: the gradient of {DERIVATIVES[name].of[0]} differs")


def test_nan_an_exception_and_another_type_are_noticed() -> None:
    def raises(function, *arguments):
        raise RuntimeError("no kernel image is available\nmore lines")

    for change, expected in (
        (lambda function, *arguments: torch.nan * function(*arguments), "differs from the reference by nan"),
        (lambda function, *arguments: function(*arguments).double(), "is torch.float64 .*expected torch.float32"),
        (raises, "sample_images does not run on cpu: no kernel image is available$"),
    ):
        with pytest.raises(AssertionError, match=expected):
            raise AssertionError(self_check.check("sample_images", "cpu", altered("sample_images", change)).problem)


@pytest.mark.slow
def test_an_operation_without_a_check_shows_as_not_checked() -> None:
    program = (
        "import torch, sys; from nerf.diagnostics import doctor; fragment = torch.library.Library('nerf', 'FRAGMENT');"
        "fragment.define('brand_new(Tensor x) -> Tensor'); sys.exit(doctor.main())"
    )
    command = [sys.executable, "-c", program]
    found = warm_python.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT)
    lines = [line.split(maxsplit=2) for line in found.stdout.splitlines() if "not checked" in line]
    assert lines and all(line == ["brand_new,", line[1], "not checked"] for line in lines)


# The doctor


@pytest.mark.slow
def test_the_doctor_says_what_is_here_and_checks_every_operation() -> None:
    found = nerf("doctor")
    assert found.returncode == 0, found.stderr
    packages = ("numpy", "hydra", "tensorboard", "lpips", "viser", "pycolmap", "xatlas", "fast_simplification", "gsply")
    for topic in ("Python", "torch", "nvcc", "g++", "ninja", *packages, "disk", "memory", "auto chooses", "library"):
        assert f"\n{topic} " in "\n" + found.stdout, topic
    assert library.library_stamp() in found.stdout and torch.__version__ in found.stdout
    for name in self_check.registered():
        assert f"\n{name}, cpu " in found.stdout
    assert "not checked" not in found.stdout and "Nothing is broken." in found.stdout


def test_the_doctor_names_the_packages_of_all_extras_and_trackers(monkeypatch: pytest.MonkeyPatch) -> None:
    extras = pytest.importorskip("tomllib").loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    of_work = ("test", "dev", "docs", "cuda")  # on the code; nvcc has a line of its own
    packages = {re.match("[a-z-]+", need)[0] for extra in extras.keys() - of_work for need in extras[extra]}
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = {finding.topic: finding for finding in doctor._packages()}
    for package in {*packages, *MODULES.values()}:
        finding = found[package.replace("-", "_")]
        assert finding.text.startswith("absent, optional (") and "pip install" in finding.text and not finding.problem


def test_a_package_inside_of_one_that_is_missing_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(doctor.OPTIONAL, "no_such_package.module", "nothing: pip install it")
    assert [finding.text for finding in doctor._packages() if finding.topic == "module"] == [
        "absent, optional (nothing: pip install it)"
    ]


@pytest.fixture
def unbuilt(tmp_path: Path) -> Path:
    """A copy of the sources that was never built."""
    for name in ("nerf", "cuda_ext"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return tmp_path


def test_a_library_that_cannot_be_built_is_broken(unbuilt: Path) -> None:
    found = nerf("doctor", cwd=unbuilt, CXX="/nonexistent/c++")
    assert found.returncode == 1 and "Nothing is broken" not in found.stdout
    assert "\nerror: the native library cannot be had here: no C++ compiler" in found.stderr
    assert "Traceback" not in found.stderr and "backend torch" in found.stdout


def test_a_library_that_does_not_load_is_broken(unbuilt: Path) -> None:
    shutil.rmtree(unbuilt / "cuda_ext")  # an installed package
    (unbuilt / "nerf" / "ops" / "libnerf.so").write_bytes(b"no library")
    found = nerf("doctor", cwd=unbuilt)
    assert found.returncode == 1 and "Traceback" not in found.stderr
    assert all(fact in found.stderr for fact in ("libnerf.so has 10 bytes", "reinstall the package"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="PyTorch can use the GPU here")
def test_a_gpu_that_pytorch_cannot_use_is_broken(tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H200, 550.54'\n")
    tool.chmod(0o755)
    found = nerf("doctor", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert found.returncode == 1 and "NVIDIA H200, driver 550.54" in found.stdout
    assert "error: NVIDIA H200 is there with driver 550.54, but PyTorch" in found.stderr


@pytest.mark.slow
def test_a_missing_package_is_broken_if_it_is_needed() -> None:
    program = (
        "import importlib.util as util, sys; find = util.find_spec;"
        "util.find_spec = lambda name: None if name in ('imageio_ffmpeg', 'matplotlib') else find(name);"
        "from nerf.diagnostics import doctor; sys.exit(doctor.main())"
    )
    command = [sys.executable, "-c", program]
    found = warm_python.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT)
    assert found.returncode == 1 and "matplotlib" not in found.stderr
    expected = (
        "error: the package imageio_ffmpeg is missing (encodes videos); get it with: pip install imageio-ffmpeg\n"
    )
    assert expected in found.stderr


# The commands


def test_without_arguments_the_commands_are_listed() -> None:
    found = nerf()
    assert found.returncode == 0 and "\n  doctor " in found.stdout and not found.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("docter",), f"there is no command 'docter'; choose one of {', '.join(COMMANDS)}. Did you mean doctor?"),
        (("doctor", "now"), "doctor takes no arguments, found now."),
    ],
)
def test_a_mistake_is_answered(arguments: tuple[str, ...], expected: str) -> None:
    found = nerf(*arguments)
    assert found.returncode == 2 and found.stderr == f"error: {expected}\n" and not found.stdout
