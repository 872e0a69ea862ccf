"""Spherical harmonics: orthonormal by exact quadrature, the addition theorem, degrees out of range."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from nerf.fields.spherical_harmonics import MAX_DEGREE, num_coefficients, sh_basis

DEGREES = range(MAX_DEGREE + 1)


def quadrature() -> tuple[Tensor, Tensor]:
    """Unit directions [N,3] and weights [N] that integrate polynomials over the sphere exactly.

    Gauss-Legendre in z, equal steps around it: up to degree 15, where products of two functions have 6.
    """
    z, z_weights = map(torch.from_numpy, np.polynomial.legendre.leggauss(8))
    azimuth = torch.arange(16, dtype=torch.float64) * (math.tau / 16)
    radius = (1 - z**2).sqrt()[:, None]
    x, y = radius * azimuth.cos(), radius * azimuth.sin()
    directions = torch.stack([x, y, z[:, None].expand_as(x)], dim=-1).reshape(-1, 3)
    return directions, (z_weights[:, None] * (math.tau / 16)).expand_as(x).reshape(-1)


@pytest.mark.parametrize("degree", DEGREES)
def test_orthonormal_over_the_sphere(degree):
    directions, weights = quadrature()
    assert weights.sum().item() == pytest.approx(4 * math.pi)
    basis = sh_basis(directions, degree)
    gram = basis.T @ (weights[:, None] * basis)
    torch.testing.assert_close(gram, torch.eye(num_coefficients(degree)).double(), rtol=0, atol=1e-13)


@pytest.mark.parametrize("degree", DEGREES)
def test_each_degree_obeys_the_addition_theorem(degree):
    """The products of one degree's functions at two directions sum to (2l + 1) / 4 pi times P_l(cosine).

    That fixes which functions share a degree, which orthonormality alone does not.
    """
    a, b = torch.nn.functional.normalize(torch.randn(2, 50, 3, dtype=torch.float64), dim=-1)
    own = slice(degree**2, (degree + 1) ** 2)
    products = (sh_basis(a, MAX_DEGREE)[:, own] * sh_basis(b, MAX_DEGREE)[:, own]).sum(-1)
    legendre = np.polynomial.legendre.legval((a * b).sum(-1).numpy(), [0] * degree + [1])
    torch.testing.assert_close(products, (2 * degree + 1) / (4 * math.pi) * torch.from_numpy(legendre))


def test_order_and_signs_of_the_first_degree():
    """y, z, x with signs -, +, -: the order that stored scenes of the field use."""
    basis = sh_basis(torch.eye(3, dtype=torch.float64), 1)
    expected = torch.zeros(3, 4).double()
    expected[:, 0] = math.sqrt(1 / (4 * math.pi))
    expected[0, 3] = expected[1, 1] = -math.sqrt(3 / (4 * math.pi))
    expected[2, 2] = math.sqrt(3 / (4 * math.pi))
    torch.testing.assert_close(basis, expected)


def test_lower_degrees_are_a_prefix():
    directions, _ = quadrature()
    full = sh_basis(directions, MAX_DEGREE)
    for degree in DEGREES:
        assert num_coefficients(degree) == (degree + 1) ** 2
        assert torch.equal(sh_basis(directions, degree), full[:, : num_coefficients(degree)])


def test_no_directions_give_no_rows():
    assert sh_basis(torch.zeros(0, 3), 2).shape == (0, 9)


@pytest.mark.parametrize("degree", [-1, MAX_DEGREE + 1])
def test_degrees_out_of_range_are_refused(degree):
    with pytest.raises(ValueError, match=f"sh_degree is {degree}, expected 0 to {MAX_DEGREE}"):
        sh_basis(torch.zeros(1, 3), degree)
