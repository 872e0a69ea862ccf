"""Gradients of grids that are bfloat16: interpolate_trilinear_grad, total_variation_grad and adam_step."""

import pytest
import torch
from proofs import BOTH, assert_rejected
from test_adam_smooth import in_two
from test_adam_step import CASES as STEPS
from test_interpolate_trilinear import CASES as POINTS
from test_total_variation import CASES as SLOPES

from nerf.ops import native, reference

INTO, SMOOTH, STEP = "interpolate_trilinear_grad", "total_variation_grad", "adam_step"
ULP = 2**-8  # between two neighbors of bfloat16, at most, of the larger


def known(cases: dict, *left_out: str) -> list[str]:
    return [name for name in cases if not any(word in name for word in ("empty", *left_out))]


@BOTH
@pytest.mark.parametrize("case", known(POINTS[INTO], "in_order", "many_points"))
def test_sums_are_rounded_and_nothing_is_lost(ops, case, device):
    """Against float64. A vertex gets a few additions, each rounded to half of ULP of what is there by then."""
    grad, *rest = POINTS[INTO][case](torch.float32, device)
    short = grad.bfloat16()
    ops.interpolate_trilinear_grad(short, *rest)
    exact, most = (f(grad.bfloat16().double()) for f in (torch.clone, torch.abs))
    reference.interpolate_trilinear_grad(exact, rest[0].double(), rest[1].double(), *rest[2:])
    reference.interpolate_trilinear_grad(most, rest[0].double().abs(), rest[1].double(), *rest[2:])
    assert short.dtype == torch.bfloat16
    assert ((short.double() - exact).abs() <= 8 * ULP / 2 * most).all()
    assert not torch.equal(short.double(), grad.bfloat16().double())


@BOTH
@pytest.mark.parametrize("channels", [1, 3, 4, 12, 16, 28])
def test_sums_of_small_whole_numbers_are_exact(ops, channels, device):
    """In any order, so that every addition is seen to arrive."""
    generator = torch.Generator().manual_seed(channels)
    coords = torch.randint(4, (300, 3), generator=generator)
    grad_out = torch.randint(-3, 4, (300, channels), generator=generator).float()
    short = torch.ones(4, 4, 4, channels, dtype=torch.bfloat16, device=device)
    ops.interpolate_trilinear_grad(short, grad_out.to(device), coords.float().to(device))
    expected = torch.ones(64, channels).index_add_(0, coords @ torch.tensor([16, 4, 1]), grad_out)
    assert torch.equal(short.float().cpu(), expected.view(4, 4, 4, channels))


@BOTH
@pytest.mark.parametrize("case", known(SLOPES[SMOOTH]))
def test_total_variation_is_that_of_a_float32_gradient_rounded_once(ops, case, device):
    grad, grid, *rest = SLOPES[SMOOTH][case](torch.float32, device)
    short, wide = grad.bfloat16(), grad.bfloat16().float()
    ops.total_variation_grad(short, grid, *rest)
    ops.total_variation_grad(wide, grid, *rest)
    torch.testing.assert_close(short, wide.bfloat16(), rtol=ULP, atol=1e-7)
    assert torch.equal(short == 0, wide.bfloat16() == 0)


@BOTH
@pytest.mark.parametrize("case", known(STEPS[STEP], "smooth", "non_contiguous"))
def test_a_step_is_that_of_the_same_gradient_in_float32(ops, case, device):
    param, first, second, grad, *rest = STEPS[STEP][case](torch.float32, device)
    states = [[param.clone(), first.bfloat16(), second.bfloat16()] for _ in range(2)]
    short, wide = grad.bfloat16(), grad.bfloat16().float()
    for state, gradient in zip(states, (short, wide), strict=True):
        ops.adam_step(*state, gradient, *rest)
    for ours, theirs in zip(*states, strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(short.float(), wide), "cleared where it was visited"


@BOTH
@pytest.mark.parametrize("case", [name for name in STEPS[STEP] if name.startswith("smooth")])
def test_a_step_with_total_variation_adds_that_before(ops, case, device):
    """To the bit in two passes, where the sum of both is rounded; where it is one, to that rounding."""
    param, first, second, grad, *rest = STEPS[STEP][case](torch.float32, device)
    arguments = param, first.bfloat16(), second.bfloat16(), grad.bfloat16(), *rest
    expected = in_two(ops, arguments)
    ops.adam_step(*arguments)
    for ours, theirs in zip(arguments[:4], expected, strict=True):
        if device == "cpu":
            assert torch.equal(ours, theirs)
        largest = theirs.float().abs().max().item() if theirs.numel() else 0
        torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.02 * largest)


def test_bfloat16_gradients_go_with_float32_numbers_and_moments_of_bfloat16():
    for name, cases, wide in ((INTO, POINTS, "grad_out|coords"), (SMOOTH, SLOPES, "grid")):
        grad, *rest = cases[name]["typical"](torch.float64, "cpu")
        with pytest.raises(ValueError, match=f"^({wide}) is float64, expected float32"):
            getattr(native, name)(grad.bfloat16(), *rest)
    param, first, second, grad, *rest = STEPS[STEP]["typical"](torch.float32, "cpu")
    assert_rejected(STEP, (param, first, second, grad, *rest), "grad", grad.bfloat16(), "expected float32")


def test_in_one_order_they_are_refused_on_a_gpu(cuda):
    grad, grad_out, coords, *_ = POINTS[INTO]["typical"](torch.float32, cuda)
    with pytest.raises(ValueError, match="bfloat16 with deterministic, expected float32"):
        native.interpolate_trilinear_grad(grad.bfloat16(), grad_out, coords, True)
