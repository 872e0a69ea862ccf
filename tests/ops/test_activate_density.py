"""activate_density: softplus by hand; its values far from 0. On a CPU fields take that of test_activations.py."""

import math

import pytest
import torch
from case_tools import Operation, as_case, cotangent, numbers, with_gaps
from proofs import BOTH, assert_finite

NAME = "activate_density"


def _densities(count: int = 40, low: float = -9.0, high: float = 9.0) -> tuple:
    return numbers(count, low=low, high=high, seed=61), -2.0, 1.5


def backward(raw_density: torch.Tensor, shift: float, scale: float) -> tuple:
    return cotangent(raw_density), raw_density, shift, scale


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_densities),
            "empty": as_case(_densities, count=0),
            "non_contiguous": with_gaps(as_case(_densities)),
            "far_from_zero": as_case(_densities, low=-60.0, high=60.0),
            "many": as_case(_densities, count=9000),
        }
    ),
}
OPERATIONS[f"{NAME}_backward"] = OPERATIONS[NAME].derived(backward)
CASES = {name: known.cases for name, known in OPERATIONS.items()}


@BOTH
def test_density_is_a_shifted_and_scaled_softplus(ops, device):
    raw = torch.tensor([0.0, 3.0, -40.0, 50.0], device=device, requires_grad=True)
    density = ops.activate_density(raw, 1.0, 2.0)
    expected = [2 * math.log1p(math.e), 2 * math.log1p(math.exp(4)), 2 * math.exp(-39), 102.0]
    assert density.tolist() == pytest.approx(expected, rel=1e-5)
    density.sum().backward()
    assert raw.grad.tolist() == pytest.approx([2 / (1 + math.exp(-x)) for x in (1.0, 4.0, -39.0, 51.0)], rel=1e-5)


@pytest.mark.parametrize("raw", [-3e38, -200.0, 200.0, 3e37, math.inf, -math.inf])
def test_extremes_stay_finite(raw, device):
    densities, *line = CASES[NAME]["typical"](torch.float32, device)
    assert_finite(NAME, (torch.full_like(densities, raw), *line))
