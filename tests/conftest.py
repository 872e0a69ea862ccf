"""Fixtures of all tests: devices, with the one marker and skip condition of GPU tests, and the seed.

Here also stands which folders `make test` leaves out.
"""

import gc
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from fake_time import FakeTime
from hulls import carved_once

CUDA = pytest.param(
    "cuda",
    marks=(
        pytest.mark.cuda,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU here"),
    ),
)

# Their tests train for longer, start scripts as processes, or try whole pages of docs/ in copies of the sources.
SLOW_FOLDERS = ("data", "docs", "integration", "quality")

CARVING = ("datasets", "ops", "scene")


def pytest_configure() -> None:
    """Signals as a terminal gives them, also to the programs that tests start: nohup and a shell's `&` ignore some."""
    for number, handler in {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test of SLOW_FOLDERS as slow."""
    folders = [Path(__file__).parent / name for name in SLOW_FOLDERS]
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in folders):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """What is there by now stays: every search for garbage took a quarter of a second to look through it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(params=["cpu", CUDA])
def device(request: pytest.FixtureRequest) -> str:
    """Every device in turn."""
    return request.param


@pytest.fixture(params=[CUDA])
def cuda(request: pytest.FixtureRequest) -> str:
    """For tests that mean something on a GPU only."""
    return request.param


@pytest.fixture
def quiet_cuda(cuda: str) -> str:
    """For tests of times, which other processes on the GPU disturb."""
    if shutil.which("nvidia-smi") is None:
        pytest.skip("without nvidia-smi nobody knows who else uses the GPU, and this test measures times")
    command = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    torch.zeros(1, device=cuda)
    users = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    if [pid for pid in users if pid != str(os.getpid())]:
        pytest.skip("other processes use the GPU, and this test measures times: run it alone")
    return cuda


@pytest.fixture(autouse=True, scope="module")
def hulls(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hulls are carved once, but for tests of scenes, images and devices, which may look at how."""
    with nullcontext() if request.path.parent.name in CARVING else carved_once():
        yield


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    """Run clocks that the test moves."""
    return FakeTime(monkeypatch)


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    """The same random numbers in every test, whichever tests run before it.

    Without a GPU torch.manual_seed would write down, for each kind of device, the stack that asked for its seed: longer
    than many a test takes.
    """
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(0)
