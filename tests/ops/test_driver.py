"""The driver by name and number: what is read from the kernel module and the driver's library, and what is said."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nerf.errors import UserError
from nerf.ops import backend
from nerf.ops.driver import Driver, find_driver, no_gpu_reason

MODULES = {
    "535.104.05": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
                  "GCC version:  gcc version 12.2.0\n",
    "580.95.05": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
                 "GCC version:  gcc 13.3.0\n",
}  # fmt: skip


@pytest.mark.parametrize("release", MODULES)
def test_the_release_is_read_from_the_kernel_module(tmp_path: Path, release: str) -> None:
    path = tmp_path / "version"
    path.write_text(MODULES[release])
    assert find_driver(path).release == release


def test_no_kernel_module(tmp_path: Path) -> None:
    assert find_driver(tmp_path / "version").release is None


@pytest.mark.parametrize(
    ("driver", "cuda", "runs"),
    [
        (Driver("470.82.01", (11, 4)), "13.0", False),
        (Driver("470.82.01", (11, 4)), "12.8", False),
        (Driver("535.104.05", (12, 2)), "12.8", True),
        (Driver("535.104.05", None), "13.0", False),
        (Driver("580.95.05", None), "13.0", True),
        (Driver("600.1", None), "14.0", None),
        (Driver(None, None), "13.0", None),
    ],
)
def test_which_cuda_a_driver_runs(driver: Driver, cuda: str, runs: bool | None) -> None:
    assert driver.runs(cuda) is runs


def test_every_reason_names_what_is_there_and_what_is_needed() -> None:
    old, new = Driver("470.82.01", (11, 4)), Driver("580.95.05", (13, 0))
    assert no_gpu_reason(old, "2.11.0", "13.0") == (
        "PyTorch 2.11.0 was built for CUDA 13.0, which needs driver 580 or newer; found NVIDIA driver 470.82.01 "
        "(CUDA 11.4 at most), which is too old. Update the driver, or install PyTorch for its CUDA"
    )
    assert "found NVIDIA driver 580.95.05 (CUDA 13.0 at most) but no usable GPU" in no_gpu_reason(new, "2.11.0", "13.0")
    assert "found no NVIDIA driver. Install one" in no_gpu_reason(Driver(None, None), "2.11.0", "13.0")
    assert "built without CUDA; install a CUDA build" in no_gpu_reason(new, "2.11.0+cpu", None)


def test_an_old_driver_is_answered_by_number(tmp_path: Path) -> None:
    """A library with the driver's name and its one function stands for it; only PyTorch's CUDA version is invented."""
    source = tmp_path / "driver.c"
    source.write_text("int cuDriverGetVersion(int* version) { *version = 11040; return 0; }\n")
    subprocess.run(["g++", "-x", "c", "-shared", "-fPIC", source, "-o", tmp_path / "libcuda.so.1"], check=True)
    program = (
        "import torch; torch.cuda.is_available = lambda: False; torch.version.cuda = '13.0'\n"
        "from nerf.errors import UserError\nfrom nerf.ops import backend\n"
        "print(backend.select('torch', 'auto').reason)\n"
        "try: backend.select('torch', 'cuda')\nexcept UserError as error: print(error)"
    )
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("LD_LIBRARY_PATH")]))
    env = os.environ | {"LD_LIBRARY_PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    told, refused = found.stdout.splitlines()
    expected = "was built for CUDA 13.0, which needs driver 580 or newer; found NVIDIA driver "
    assert "no GPU: PyTorch" in told and "device=cuda cannot run here: PyTorch" in refused
    assert expected in told and "(CUDA 11.4 at most), which is too old" in told
    assert expected in refused and "or use device=cpu" in refused


class OldRuntime:
    """Operations whose CUDA code finds a driver that is older than its runtime; the words are CUDA's."""

    def interpolate_trilinear(self, grid: object, coords: object) -> None:
        raise RuntimeError("interpolate_trilinear: CUDA driver version is insufficient for CUDA runtime version\nat")


def test_a_library_that_is_newer_than_the_driver_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = backend._gpu_problem(OldRuntime(), "cpu")
    assert "insufficient for CUDA runtime version; " in problem and "driver" in problem and "\n" not in problem
    assert "CUDA_HOME" in problem and "NERF_CUDA_ARCHS" in problem
    assert backend._gpu_problem(backend.select("native", "cpu").ops, "cpu") is None

    monkeypatch.setattr(backend, "_choose_device", lambda device: (backend.torch.device("cuda"), "as asked"))
    monkeypatch.setattr(backend, "has_cuda_code", lambda: True)
    monkeypatch.setattr(backend, "_gpu_problem", lambda native, device: problem)
    assert "native is missing: the native library's CUDA code does not run" in backend.select("auto", "cuda").reason
    with pytest.raises(UserError, match="backend=native cannot run here: .*insufficient.*backend=torch"):
        backend.select("native", "cuda")
    # Of the whole process: products of float32 stay products of float32, those of rays with a pose too.
    assert backend.torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize(
    ("capability", "built", "slow"),
    [
        ((9, 0), [75, 80, 90, 120], False),
        ((8, 9), [75, 80], False),  # code of a generation runs on later ones of the same major number
        ((9, 0), [80], True),
        ((8, 0), [75, 89], True),
    ],
)
def test_a_library_that_was_built_for_other_gpus_is_told(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], built: list[int], slow: bool
) -> None:
    monkeypatch.setattr(backend.torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(backend, "gpu_generations", lambda: built)
    told = backend._through_ptx(backend.torch.device("cuda"))
    assert ("python cuda_ext/build.py --force" in told) == slow == bool(told)
    assert backend._through_ptx(backend.torch.device("cpu")) == ""


def test_this_gpu_runs_the_library(cuda: str) -> None:
    assert find_driver().cuda is not None and find_driver().runs(backend.torch.version.cuda)
    assert backend.select("auto", cuda).name == "native"
