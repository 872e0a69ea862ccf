"""shading_inputs: a closed form, the bound of opacity, what has a gradient, native against the reference."""

import math

import pytest
import torch
from case_tools import Operation, as_case, cotangent, numbers, with_gaps
from proofs import BOTH, assert_finite, assert_rejected
from torch import Tensor

from nerf.ops import reference

NAME = "shading_inputs"
BOUND = 1e-3


def _pixels(count: int = 20, channels: int = 7, noise: bool = True, frequencies: int = 4, pad: int = 2) -> tuple:
    directions = torch.nn.functional.normalize(numbers(count, 3, low=-1, seed=2), dim=-1)
    return (
        numbers(count, channels, low=-1, seed=71),
        numbers(count, low=0.01, seed=72),
        directions,
        numbers(count, channels, low=-1, seed=73) if noise else None,
        0.1,
        BOUND,
        frequencies,
        channels + 3 + 6 * frequencies + pad,
    )


def backward(*arguments: object) -> tuple:
    values, opacity = arguments[:2]
    return cotangent(reference.shading_inputs(*arguments)), values, opacity, BOUND


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_pixels),
            "empty": as_case(_pixels, count=0),
            "non_contiguous": with_gaps(as_case(_pixels)),
            "without_noise": as_case(_pixels, noise=False),
            "no_frequencies": as_case(_pixels, frequencies=0, pad=0),
            **{f"channels_{c}": as_case(_pixels, channels=c) for c in (1, 4, 16, 28)},
        },
        sizes=("values",),
        gradcheck=("typical", "without_noise", "channels_1"),
        opcheck=("typical", "empty", "non_contiguous", "without_noise"),
    ),
}
OPERATIONS[f"{NAME}_backward"] = OPERATIONS[NAME].derived(backward)
CASES = {name: known.cases for name, known in OPERATIONS.items()}


@BOTH
def test_columns_are_features_direction_sines_and_cosines(ops, device):
    """Two channels, a direction along y, two frequencies, one column of padding."""
    values, opacity = torch.tensor([[0.2, -0.4]], device=device), torch.tensor([0.5], device=device)
    direction, noise = torch.tensor([[0.0, 1.0, 0.0]], device=device), torch.tensor([[1.0, 2.0]], device=device)
    found = ops.shading_inputs(values, opacity, direction, noise, 0.1, BOUND, 2, 18)
    sines, cosines = [0, math.sin(1), 0, 0, math.sin(2), 0], [1, math.cos(1), 1, 1, math.cos(2), 1]
    assert found[0].tolist() == pytest.approx([0.5, -0.6, 0, 1, 0, *sines, *cosines, 0], abs=1e-6)


@BOTH
def test_below_its_bound_opacity_does_not_matter_unless_there_is_none(ops, device):
    values = torch.ones(3, 2, device=device, requires_grad=True)
    opacity = torch.tensor([0.0, BOUND / 2, 0.5], device=device, requires_grad=True)
    direction = torch.tensor([[0.0, 0.0, 1.0]], device=device).expand(3, 3)
    found = ops.shading_inputs(values, opacity, direction, None, 0.0, BOUND, 0, 5)
    torch.testing.assert_close(found[:, 0].detach().cpu(), torch.tensor([0, 1 / BOUND, 2.0]))
    assert (found[0] == 0).all() and found[1:, 4].tolist() == [1, 1]
    found[:, :2].sum().backward()
    assert opacity.grad.tolist() == pytest.approx([0, 0, -8])  # two features of 1 / opacity
    torch.testing.assert_close(values.grad[:, 0].cpu(), torch.tensor([0, 1 / BOUND, 2.0]))


@BOTH
def test_rows_of_empty_pixels_may_be_left_out(ops, device):
    values, opacity, *rest = CASES[NAME]["typical"](torch.float32, device)
    opacity[::3] = 0
    whole, some = ops.shading_inputs(values, opacity, *rest), ops.shading_inputs(values, opacity, *rest, False)
    assert torch.equal(whole[opacity > 0], some[opacity > 0]) and not whole[::3].any()


@BOTH
def test_directions_have_no_gradient(ops, device):
    values, opacity, directions, *rest = CASES[NAME]["typical"](torch.float64, device)
    directions.requires_grad_()
    ops.shading_inputs(values.requires_grad_(), opacity, directions, *rest).sum().backward()
    assert directions.grad is None and values.grad.any()


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e10, 1e19])
def test_extremes_stay_finite(scale, device):
    values, *rest = CASES[NAME]["typical"](torch.float32, device)
    assert_finite(NAME, (scale * values, *rest))


def test_bad_arguments_are_named():
    arguments: tuple[Tensor | float, ...] = CASES[NAME]["typical"](torch.float32, "cpu")
    assert_rejected(NAME, arguments, "width", 33, "expected at least 34")
    assert_rejected(NAME, arguments, "frequencies", 17, "expected 0 to 16")
