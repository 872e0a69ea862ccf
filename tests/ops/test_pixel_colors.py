"""pixel_colors: a closed form, what is seen of the background, native against the reference."""

import math

import pytest
import torch
from case_tools import Operation, as_case, cotangent, numbers, with_gaps
from proofs import BOTH, assert_finite, assert_rejected

from nerf.ops import reference

NAME = "pixel_colors"


def _pixels(count: int = 20, one_background: bool = False, channels: int = 3) -> tuple:
    background = numbers(3, seed=93) if one_background else numbers(count, 3, seed=93)
    values = numbers(count, channels, low=-1, seed=94) if channels else None
    return numbers(count, 3, low=-4, high=4, seed=91), numbers(count, seed=92), background, values


def backward(*arguments: object) -> tuple:
    return cotangent(reference.pixel_colors(*arguments)), *arguments


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_pixels),
            "empty": as_case(_pixels, count=0),
            "non_contiguous": with_gaps(as_case(_pixels)),
            "one_background": as_case(_pixels, one_background=True, channels=0),
            "no_values": as_case(_pixels, channels=0),
            "channels_7": as_case(_pixels, channels=7),
            "many": as_case(_pixels, count=3000, channels=16),
        },
        gradcheck=("typical", "one_background", "no_values", "channels_7"),
        opcheck=("typical", "empty", "non_contiguous", "one_background", "channels_7"),
    ),
}
OPERATIONS[f"{NAME}_backward"] = OPERATIONS[NAME].derived(backward)
CASES = {name: known.cases for name, known in OPERATIONS.items()}


@BOTH
def test_light_counts_by_opacity_and_background_by_the_rest(ops, device):
    logits = torch.tensor([[0.0, math.log(3), -math.log(3)]], device=device).repeat(3, 1)
    opacity = torch.tensor([0.0, 0.5, 1.0], device=device)
    background = torch.tensor([1.0, 0.0, 0.5], device=device)
    found = ops.pixel_colors(logits, opacity, background, None)
    expected = torch.tensor([[1, 0, 0.5], [0.75, 0.375, 0.375], [0.5, 0.75, 0.25]])
    torch.testing.assert_close(found.cpu(), expected)


@BOTH
def test_the_first_three_values_are_colors_that_carry_their_opacity(ops, device):
    """Of whatever opacity: they are added as they are, and have the gradient of the color."""
    logits, opacity, background, _ = CASES[NAME]["typical"](torch.float64, device)
    values = numbers(20, 5, low=-1, seed=95).to(device).requires_grad_()
    opacity.requires_grad_()
    plain = ops.pixel_colors(logits, opacity, background, None)
    found = ops.pixel_colors(logits, opacity, background, values)
    torch.testing.assert_close(found - plain, values[:, :3])
    grad = cotangent(found)
    of_values, of_opacity = torch.autograd.grad(found, (values, opacity), grad)
    assert torch.equal(of_values, torch.nn.functional.pad(grad, (0, 2)))
    torch.testing.assert_close(of_opacity, torch.autograd.grad(plain, opacity, grad)[0])


@BOTH
def test_composited_colors_are_those_over_opacity_weighted_by_it(ops, device):
    """As the operation was told them once, where opacity is not as good as none."""
    logits, opacity, background, values = CASES[NAME]["channels_7"](torch.float64, device)
    assert opacity.min() > 1e-3
    light = torch.sigmoid(logits) + values[:, :3] / opacity[:, None]
    expected = opacity[:, None] * light + (1 - opacity[:, None]) * background
    torch.testing.assert_close(ops.pixel_colors(logits, opacity, background, values), expected)


@BOTH
def test_a_background_of_all_gets_the_gradient_of_all(ops, device):
    logits, opacity, background, _ = CASES[NAME]["one_background"](torch.float64, device)
    ops.pixel_colors(logits, opacity, background.requires_grad_(), None).sum().backward()
    torch.testing.assert_close(background.grad, (1 - opacity).sum().expand(3))


@pytest.mark.parametrize("logit", [-1e30, -200.0, 200.0, 1e30])
def test_extremes_stay_finite(logit, device):
    logits, *rest = CASES[NAME]["typical"](torch.float32, device)
    assert_finite(NAME, (torch.full_like(logits, logit), *rest))


def test_bad_arguments_are_named():
    arguments = CASES[NAME]["typical"](torch.float32, "cpu")
    assert_rejected(NAME, arguments, "opacity", arguments[1][1:], r"expected \[20\]")
    assert_rejected(NAME, arguments, "background", arguments[2][1:], r"expected \[20,3\]")
    assert_rejected(NAME, arguments, "values", arguments[3][1:], r"expected \[20,\*\]")
    assert_rejected(NAME, arguments, "values", arguments[3][:, :2], "expected at least 3 columns")
