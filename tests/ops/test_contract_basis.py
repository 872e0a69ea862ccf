"""contract_basis: a closed form, padding, rays that do not exist, native against the reference."""

import pytest
import torch
from cases import CASES
from proofs import (
    FLOATS,
    assert_as_accurate,
    assert_checks_devices,
    assert_checks_types_and_shapes,
    assert_finite,
    assert_gradcheck,
    assert_no_second_derivative,
    assert_opcheck,
    assert_rejected,
)

from nerf.ops import native, reference

NAME = "contract_basis"
BOTH = pytest.mark.parametrize("ops", [native, reference], ids=["native", "torch"])


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


def test_a_ray_that_does_not_exist_reads_not_a_number(device):
    values, basis, rays = CASES[NAME]["typical"](torch.float32, device)
    rays[2], rays[5] = -1, len(basis)
    found = native.contract_basis(values, basis, rays)
    assert found[[2, 5]].isnan().all() and found[[0, 1, 3, 4, 6]].isfinite().all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", CASES[NAME])
def test_native_is_as_accurate_as_the_reference(case, dtype, device):
    assert_as_accurate(NAME, CASES[NAME][case](dtype, device))


@pytest.mark.parametrize("case", ["typical", "padded", "basis_2"])
def test_gradcheck(case, device):
    assert_gradcheck(NAME, CASES[NAME][case](torch.float64, device))


@pytest.mark.parametrize("name", [NAME, f"{NAME}_backward"])
@pytest.mark.parametrize("case", ["typical", "empty", "non_contiguous", "padded"])
def test_opcheck(name, case, device):
    assert_opcheck(name, CASES[name][case](torch.float32, device))


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e10, 1e19])
def test_extremes_stay_finite(scale, device):
    values, basis, rays = CASES[NAME]["typical"](torch.float32, device)
    assert_finite(NAME, (scale * values, basis, rays))


def test_second_derivative_raises(device):
    assert_no_second_derivative(NAME, CASES[NAME]["typical"](torch.float32, device))


def test_derivative_of_the_basis_raises(device):
    values, basis, rays = CASES[NAME]["typical"](torch.float32, device)
    with pytest.raises(RuntimeError, match="no derivative with respect to basis; use backend=torch"):
        native.contract_basis(values, basis.requires_grad_(), rays).sum().backward()


def test_bad_arguments_are_named():
    arguments = CASES[NAME]["typical"](torch.float32, "cpu")
    assert_checks_types_and_shapes(NAME, arguments)
    assert_rejected(NAME, arguments, "values", arguments[0][:, :11], "11 channels, expected at least 3 for each of 4")
    assert_rejected(NAME, arguments, "ray_indices", arguments[2][1:], r"expected \[30\]")
    backward = CASES[f"{NAME}_backward"]["typical"](torch.float32, "cpu")
    assert_checks_types_and_shapes(f"{NAME}_backward", backward)
    assert_rejected(f"{NAME}_backward", backward, "grad_out", backward[0][:, :2], r"expected \[30,3\]")


def test_arguments_on_another_device_are_named(cuda):
    assert_checks_devices(NAME, CASES[NAME]["typical"](torch.float32, cuda), first="values")
