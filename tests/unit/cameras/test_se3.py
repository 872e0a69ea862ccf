"""Rigid motions against the matrix exponential, around zero and across the border of the series too."""

import math

import pytest
import torch

from nerf.cameras.se3 import (
    SMALL_ANGLE,
    angle_between,
    exponential,
    quaternion_from_rotation,
    rotation_angle,
    rotation_from_quaternion,
)

SIZES = (0.0, 1e-12, 1e-6, 1e-3, 0.5 * SMALL_ANGLE, 0.999 * SMALL_ANGLE, 1.001 * SMALL_ANGLE, 0.3, 2.0, math.pi, 9.0)


def increments(angle: float, count: int = 20) -> torch.Tensor:
    """Motions [count,6] float64 about any axis by that angle, with translations of length about 1."""
    axes, shifts = torch.randn(2, count, 3, dtype=torch.float64)
    return torch.cat([angle * torch.nn.functional.normalize(axes, dim=-1), shifts], dim=-1)


def by_matrix(x: torch.Tensor) -> torch.Tensor:
    """The definition: [N,4,4]."""
    generator = torch.zeros(len(x), 4, 4, dtype=x.dtype)
    for (row, column), axis, sign in (((2, 1), 0, 1), ((0, 2), 1, 1), ((1, 0), 2, 1)):
        generator[:, row, column], generator[:, column, row] = sign * x[:, axis], -sign * x[:, axis]
    generator[:, :3, 3] = x[:, 3:]
    return torch.matrix_exp(generator)


@pytest.mark.parametrize("angle", SIZES)
def test_is_the_matrix_exponential(angle: float) -> None:
    x = increments(angle)
    rotation, translation = exponential(x)
    expected = by_matrix(x)
    torch.testing.assert_close(rotation, expected[:, :3, :3], rtol=0, atol=5e-14)
    torch.testing.assert_close(translation, expected[:, :3, 3], rtol=0, atol=5e-14)


@pytest.mark.parametrize("angle", SIZES)
def test_in_float32_it_is_as_exact_as_float32(angle: float) -> None:
    x = increments(angle).float()
    for found, expected in zip(exponential(x), exponential(x.double()), strict=True):
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("angle", [0.0, 1e-9, 0.99 * SMALL_ANGLE, 1.01 * SMALL_ANGLE, 1.0])
def test_gradients(angle: float) -> None:
    x = increments(angle, 3).requires_grad_()
    assert torch.autograd.gradcheck(exponential, x, atol=1e-7)
    for place, out in enumerate(exponential(x)):
        (gradient,) = torch.autograd.grad((out * torch.randn_like(out)).sum(), x, retain_graph=True)
        assert gradient.isfinite().all() and gradient[:, 3 * place : 3 * place + 3].abs().min() > 0


@pytest.mark.parametrize("angle", [0.0, 1e-10, 1e-5, 0.5, 3.1])
def test_the_angle_of_a_rotation(angle: float) -> None:
    rotation, _ = exponential(increments(angle))
    expected = torch.full((20,), angle, dtype=torch.float64)
    torch.testing.assert_close(rotation_angle(rotation), expected, rtol=1e-5, atol=1e-15)


def test_quaternions_are_rotations_and_back():
    rotations = exponential(2 * torch.randn(200, 6, dtype=torch.float64))[0]
    half_turns = torch.diag_embed(torch.tensor([[1.0, -1, -1], [-1, 1, -1], [-1, -1, 1], [1, 1, 1]]).double())
    rotations = torch.cat([rotations, half_turns])
    quaternions = quaternion_from_rotation(rotations)
    torch.testing.assert_close(rotation_from_quaternion(quaternions), rotations)
    assert (quaternions[:, 0] >= 0).all()
    torch.testing.assert_close(quaternions.norm(dim=1), torch.ones(len(rotations), dtype=torch.float64))
    torch.testing.assert_close(rotation_from_quaternion(-3 * quaternions), rotations)


def test_a_known_quaternion():
    """A quarter turn around z takes x to y."""
    quarter = torch.tensor([[math.sqrt(0.5), 0, 0, math.sqrt(0.5)]], dtype=torch.float64)
    expected = torch.tensor([[[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]], dtype=torch.float64)
    torch.testing.assert_close(rotation_from_quaternion(quarter), expected)


def test_the_angle_between_two_rotations_is_that_of_the_one_after_the_other():
    one, other = (exponential(torch.randn(50, 6, dtype=torch.float64))[0] for _ in range(2))
    torch.testing.assert_close(angle_between(one, other), rotation_angle(one.mT @ other))
    tiny, _ = exponential(torch.tensor([[1e-9, 0, 0, 0, 0, 0]], dtype=torch.float64))
    assert angle_between(one[:1], one[:1] @ tiny).item() == pytest.approx(1e-9, rel=1e-5)
