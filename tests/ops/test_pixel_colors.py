"""pixel_colors: a closed form, what is seen of the background, native against the reference."""

import math

import pytest
import torch
from case_tools import Operation, as_case, cotangent, numbers, with_gaps
from proofs import BOTH, assert_finite, assert_rejected

from nerf.ops import reference

NAME = "pixel_colors"


def _pixels(count: int = 20, one_background: bool = False, diffuse: bool = True) -> tuple:
    background = numbers(3, seed=93) if one_background else numbers(count, 3, seed=93)
    plain = numbers(count, 3, low=-1, seed=94) if diffuse else None
    return numbers(count, 3, low=-4, high=4, seed=91), numbers(count, seed=92), background, plain


def backward(*arguments: object) -> tuple:
    return cotangent(reference.pixel_colors(*arguments)), *arguments


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_pixels),
            "empty": as_case(_pixels, count=0),
            "non_contiguous": with_gaps(as_case(_pixels)),
            "one_background": as_case(_pixels, one_background=True, diffuse=False),
            "no_diffuse": as_case(_pixels, diffuse=False),
            "many": as_case(_pixels, count=3000),
        },
        gradcheck=("typical", "one_background", "no_diffuse"),
        opcheck=("typical", "empty", "non_contiguous", "one_background"),
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
    with_diffuse = ops.pixel_colors(logits, opacity, background, torch.full_like(logits, 0.25))
    torch.testing.assert_close((with_diffuse - found).cpu(), 0.25 * torch.tensor([0, 0.5, 1])[:, None].expand(3, 3))


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
    assert_rejected(NAME, arguments, "diffuse", arguments[3][:, :2], r"expected \[20,3\]")
