"""pair_ssim: SSIM's own formula over windows of two pixels, pixels without a partner, native against the reference."""

import math

import pytest
import torch
from case_tools import Operation, as_case, cotangent, numbers, with_gaps
from proofs import BOTH, FLOATS, assert_finite, assert_rejected, outcome

from nerf.ops import native, reference

NAME = "pair_ssim"
C2 = 9e-4  # of Wang et al. 2004: (0.03 * data range)^2


def _colors(count: int = 20, contrast: float = 1.0) -> tuple:
    return contrast * numbers(count, 3, seed=95), contrast * numbers(count, 3, seed=96)


def backward(*arguments: object) -> tuple:
    return cotangent(reference.pair_ssim(*arguments)), *arguments


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_colors),
            "empty": as_case(_colors, count=0),
            "non_contiguous": with_gaps(as_case(_colors)),
            "odd": as_case(_colors, count=21),
            "one_pixel": as_case(_colors, count=1),
            "faint": as_case(_colors, contrast=0.01),
            "many": as_case(_colors, count=3001),
        },
        gradcheck=("typical", "odd", "one_pixel", "faint"),
        opcheck=("typical", "empty", "non_contiguous", "odd", "one_pixel"),
    ),
}
OPERATIONS[f"{NAME}_backward"] = OPERATIONS[NAME].derived(backward)
CASES = {name: known.cases for name, known in OPERATIONS.items()}


@BOTH
@pytest.mark.parametrize("case", ["typical", "odd", "faint"])
def test_it_is_what_ssim_says_of_windows_of_two_pixels(ops, case, device):
    """The factor of contrast and structure, from variances and covariances as statistics have them."""
    rgb, target = CASES[NAME][case](torch.float64, device)
    pairs = len(rgb) // 2
    windows = [torch.stack([x[:pairs], x[len(x) - pairs :]]) for x in (rgb, target)]
    seen, true = (x - x.mean(0) for x in windows)
    covariance, variances = (seen * true).sum(0), sum(x.var(0) for x in windows)
    expected = (1 - (2 * covariance + C2) / (variances + C2)).sum(1)
    torch.testing.assert_close(ops.pair_ssim(rgb, target), expected)


@BOTH
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_pixels_without_a_partner_have_no_loss_and_no_gradient(ops, count, device):
    rgb, target = (x.requires_grad_() for x in as_case(_colors, count=count)(torch.float32, device))
    found = ops.pair_ssim(rgb, target)
    found.sum().backward()
    assert found.shape == (count // 2,) and (found > 0).all()
    for x in (rgb, target):
        paired = torch.ones(count, dtype=torch.bool, device=device)
        if count % 2:
            paired[count // 2] = False
        assert x.grad.shape == (count, 3) and x.grad[paired].all() and not x.grad[~paired].any()


@BOTH
def test_brightness_does_not_count(ops, device):
    rgb, target = (x.requires_grad_() for x in CASES[NAME]["typical"](torch.float64, device))
    torch.testing.assert_close(ops.pair_ssim(rgb + 0.3, target), ops.pair_ssim(rgb, target - 0.2))
    ops.pair_ssim(rgb, target).sum().backward()
    for x in (rgb, target):
        torch.testing.assert_close(x.grad.sum(0), torch.zeros_like(x[0]))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("changed", [0, 1])
@pytest.mark.parametrize("pixel", [0, 10, 12])  # of 21: the first and the second one of a pair, and the middle one
def test_what_is_not_finite_reaches_its_pair_as_in_the_reference(pixel, changed, value, dtype, device):
    arguments = CASES[NAME]["odd"](dtype, device)
    arguments[changed][pixel, 1] = value
    expected = outcome(NAME, reference, arguments)
    assert expected["output 0"].isnan().sum() == (pixel != 10)
    for key, found in outcome(NAME, native, arguments).items():
        torch.testing.assert_close(found, expected[key], equal_nan=True, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("contrast", [0.0, 1e-30, 1e-6, 1e6, 1e15])
def test_extremes_stay_finite(contrast, device):
    assert_finite(NAME, as_case(_colors, contrast=contrast)(torch.float32, device))


def test_bad_arguments_are_named():
    arguments = CASES[NAME]["typical"](torch.float32, "cpu")
    assert_rejected(NAME, arguments, "rgb", arguments[0][:, :2], r"expected \[\*,3\]")
    assert_rejected(NAME, arguments, "target", arguments[1][1:], r"expected \[20,3\]")
    assert_rejected(NAME, arguments, "target", arguments[1].double(), "expected float32")
    derived = CASES[f"{NAME}_backward"]["odd"](torch.float32, "cpu")
    assert_rejected(f"{NAME}_backward", derived, "grad_loss", torch.ones(21), r"expected \[10\]")
