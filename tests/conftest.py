"""Fixtures of all tests: devices, with the one marker and skip condition of GPU tests, and the seed."""

import pytest
import torch

CUDA = pytest.param(
    "cuda",
    marks=(
        pytest.mark.cuda,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU here"),
    ),
)


@pytest.fixture(params=["cpu", CUDA])
def device(request: pytest.FixtureRequest) -> str:
    """Every device in turn."""
    return request.param


@pytest.fixture(params=[CUDA])
def cuda(request: pytest.FixtureRequest) -> str:
    """For tests that mean something on a GPU only."""
    return request.param


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    """The same random numbers in every test, whichever tests run before it."""
    torch.manual_seed(0)
