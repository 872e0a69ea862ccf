"""contract_basis: a closed form, padding, rays that do not exist, native against the reference."""

import pytest
import torch
from case_tools import Operation, as_case, cotangent, numbers, with_gaps
from proofs import (
    BOTH,
    assert_finite,
    assert_rejected,
)
from torch import Tensor

from nerf.ops import native, reference

NAME = "contract_basis"


def _coefficients(samples: int = 30, rays: int = 7, basis: int = 4, channels: int | None = None) -> tuple:
    channels = 3 * basis if channels is None else channels
    return (
        numbers(samples, channels, low=-1, seed=31),
        numbers(rays, basis, low=-1, seed=32),
        (rays * numbers(samples, seed=33)).long(),
    )


def backward(values: Tensor, basis: Tensor, rays: Tensor) -> tuple:
    return cotangent(reference.contract_basis(values, basis, rays)), basis, rays, values.shape[1]


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_coefficients),
            "empty": as_case(_coefficients, samples=0),
            "one_ray": as_case(_coefficients, rays=1),
            "padded": as_case(_coefficients, basis=9, channels=28),
            "non_contiguous": with_gaps(as_case(_coefficients)),
            **{f"basis_{k}": as_case(_coefficients, basis=k) for k in (1, 2, 9, 16)},
        },
        sizes=("values", "basis", "ray_indices"),
        gradcheck=("typical", "padded", "basis_2"),
        opcheck=("typical", "empty", "non_contiguous", "padded"),
    ),
}
OPERATIONS[f"{NAME}_backward"] = OPERATIONS[NAME].derived(backward)
CASES = {name: known.cases for name, known in OPERATIONS.items()}


@BOTH
def test_is_a_sum_of_products(ops, device):
    """Coefficients 1..6 and padding, two basis functions, two rays."""
    values = torch.tensor([[1.0, 2, 3, 4, 5, 6, 100], [6.0, 5, 4, 3, 2, 1, 100]], device=device)
    basis = torch.tensor([[1.0, 10.0], [-1.0, 0.5]], device=device)
    found = ops.contract_basis(values, basis, torch.tensor([1, 0], device=device))
    assert found.tolist() == [[0.0, -1.0, -2.0], [56.0, 34.0, 12.0]]


@BOTH
def test_padding_gets_no_gradient(ops, device):
    values, basis, rays = CASES[NAME]["padded"](torch.float64, device)
    ops.contract_basis(values.requires_grad_(), basis, rays).sum().backward()
    assert not values.grad[:, 27:].any()
    torch.testing.assert_close(values.grad[:, :27], basis[rays].repeat(1, 3))


def test_a_ray_that_does_not_exist_reads_not_a_number_on_a_gpu(cuda):
    values, basis, rays = CASES[NAME]["typical"](torch.float32, cuda)
    rays[2], rays[5] = -1, len(basis)
    found = native.contract_basis(values, basis, rays)
    assert found[[2, 5]].isnan().all() and found[[0, 1, 3, 4, 6]].isfinite().all()


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e10, 1e19])
def test_extremes_stay_finite(scale, device):
    values, basis, rays = CASES[NAME]["typical"](torch.float32, device)
    assert_finite(NAME, (scale * values, basis, rays))


def test_derivative_of_the_basis_raises(device):
    values, basis, rays = CASES[NAME]["typical"](torch.float32, device)
    with pytest.raises(RuntimeError, match="no derivative with respect to basis; use backend=torch"):
        native.contract_basis(values, basis.requires_grad_(), rays).sum().backward()


def test_bad_arguments_are_named():
    arguments = CASES[NAME]["typical"](torch.float32, "cpu")
    assert_rejected(NAME, arguments, "values", arguments[0][:, :11], "11 channels, expected at least 3 for each of 4")
    assert_rejected(NAME, arguments, "ray_indices", arguments[2][1:], r"expected \[30\]")
    arguments = CASES[f"{NAME}_backward"]["typical"](torch.float32, "cpu")
    assert_rejected(f"{NAME}_backward", arguments, "grad_out", arguments[0][:, :2], r"expected \[30,3\]")
