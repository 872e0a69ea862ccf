"""Activations on a CPU: PyTorch's values and gradients, without its dependence on the number of threads."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from nerf.ops.activations import PIECE, activate_density, in_pieces, sigmoid

SHIFT, SCALE = -4.6, 37.5
LARGE = torch.tensor([1e-30, 1.0, 20.0, 90.0, 200.0, 3e38, torch.inf])
CASES = {
    "sigmoid": (sigmoid, torch.sigmoid),
    "density": (
        lambda x: activate_density(x, SHIFT, SCALE),
        lambda x: functional.softplus(x + SHIFT) * SCALE,
    ),
}


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """torch.set_num_threads, undone afterwards."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def with_slope(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """Values and derivatives."""
    x = x.clone().requires_grad_()
    y = function(x)
    return y.detach(), torch.autograd.grad(y.sum(), x)[0]


@pytest.mark.parametrize("name", CASES)
def test_values_and_slopes_are_those_of_the_definition(name: str) -> None:
    """As near to float64 as PyTorch's own, twice over; infinity gives the limit, NaN stays."""
    ours, pytorch = CASES[name]
    x = torch.cat([torch.linspace(-30, 30, 2 * PIECE), LARGE, -LARGE])
    exact = with_slope(pytorch, x.double())
    for found, torch_found, wanted in zip(with_slope(ours, x), with_slope(pytorch, x), exact, strict=True):
        finite = wanted.isfinite()
        error = (found - wanted).abs()[finite] / wanted.abs().clamp(min=1e-30)[finite]
        torch_error = (torch_found - wanted).abs()[finite] / wanted.abs().clamp(min=1e-30)[finite]
        assert error.max() <= 2 * torch_error.max()
        assert torch.equal(found[~finite].double(), wanted[~finite])
    assert ours(torch.full((PIECE + 1,), torch.nan)).isnan().all()


@pytest.mark.parametrize("name", CASES)
def test_a_number_has_one_value_wherever_it_stands(name: str, threads: Callable[[int], None]) -> None:
    x = 4 * torch.randn(5 * PIECE + 3, generator=torch.Generator().manual_seed(0))
    found = []
    for count in (1, 2, 3, 5):
        threads(count)
        found.append(with_slope(CASES[name][0], x))
    for values, slopes in found[1:]:
        assert torch.equal(values, found[0][0]) and torch.equal(slopes, found[0][1])


def test_pieces_are_no_larger_than_pytorch_leaves_whole(threads: Callable[[int], None]) -> None:
    y, x = torch.randn(2, 3 * PIECE + 5, generator=torch.Generator().manual_seed(1))
    sizes: list[int] = []

    def angle(y: Tensor, x: Tensor) -> Tensor:
        sizes.append(len(x))
        return torch.atan2(y, x)

    found = []
    for count in (1, 2, 3, 5):
        threads(count)
        found.append(in_pieces(angle, y, x))
    assert all(torch.equal(one, found[0]) for one in found)
    assert max(sizes) == PIECE and sum(sizes) == 4 * len(x)
    assert in_pieces(angle, y[:0], x[:0]).shape == (0,)
