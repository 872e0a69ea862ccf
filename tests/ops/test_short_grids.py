"""Grids with values of float16, whose gradients and moments are bfloat16: all operations that take them, and what is
interpolated from them as bfloat16."""

import pytest
import torch
from case_tools import cotangent, numbers
from proofs import BOTH, assert_rejected
from test_adam_smooth import in_two
from test_adam_step import CASES as STEPS
from test_composite_rays import CASES as SAMPLES
from test_interpolate_trilinear import CASES as POINTS
from test_render_rays import CASES as RENDERED
from test_total_variation import CASES as SLOPES

from nerf.ops import native, reference
from nerf.ops.rounding import hashed, narrow_at_random, random_bits

VALUES, INTO, RENDER = "interpolate_trilinear", "interpolate_trilinear_grad", "render_rays"
COMPOSITE = "composite_rays"
SMOOTH, STEP = "total_variation_grad", "adam_step"
ULP = 2**-8  # between two neighbors of bfloat16, at most, of the larger


def known(cases: dict, *left_out: str) -> list[str]:
    return [name for name in cases if not any(word in name for word in ("empty", *left_out))]


def assert_same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


@BOTH
@pytest.mark.parametrize("case", POINTS[VALUES])
def test_points_see_what_they_see_in_the_same_values_as_float32(ops, case, device):
    """With the gradients of their coordinates."""
    grid, coords, *where = POINTS[VALUES][case](torch.float32, device)
    found = []
    for values in (grid.half(), grid.half().float()):
        at = coords.clone().requires_grad_()
        out = ops.interpolate_trilinear(values, at, **dict(zip(("table", "size_z"), where, strict=False)))
        (slope,) = torch.autograd.grad(out.sum(), at)
        found.append((out, slope))
    for ours, theirs in zip(*found, strict=True):
        assert ours.dtype == torch.float32
        assert_same(ours, theirs)


@BOTH
@pytest.mark.parametrize("case", POINTS[VALUES])
def test_beside_a_gradient_what_they_see_is_rounded_to_bfloat16(ops, case, device):
    grid, coords, *where = POINTS[VALUES][case](torch.float32, device)
    at, more = coords.clone().requires_grad_(), dict(zip(("table", "size_z"), where, strict=False))
    wide = ops.interpolate_trilinear(grid.half(), at, **more)
    short = ops.interpolate_trilinear(grid.half(), at, torch.zeros_like(grid, dtype=torch.bfloat16), **more)
    assert short.dtype == torch.bfloat16
    assert_same(short, wide.bfloat16())
    weights = numbers(*wide.shape, low=-1, seed=9).to(device).bfloat16()
    slopes = [torch.autograd.grad(out, at, weights.to(out.dtype))[0] for out in (short, wide)]
    assert_same(*slopes)


@pytest.mark.parametrize("case", known(POINTS[INTO], "in_order", "many_points"))
def test_their_gradient_is_added_to_bfloat16(case, device):
    grad, grad_out, coords, *rest = POINTS[INTO][case](torch.float32, device)
    ours, theirs, grad_out = grad.bfloat16(), grad.bfloat16(), grad_out.bfloat16()
    native.interpolate_trilinear_grad(theirs, grad_out, coords, *rest)
    grid = torch.zeros_like(grad, dtype=torch.float16).requires_grad_()
    native.interpolate_trilinear(grid, coords, ours, *rest).backward(grad_out)
    assert grid.grad is None and not torch.equal(ours, grad.bfloat16())
    torch.testing.assert_close(ours, theirs, rtol=0.05, atol=0.05)  # on a GPU in any order
    if device == "cpu":
        assert torch.equal(ours, theirs)


@BOTH
@pytest.mark.parametrize("case", known(POINTS[INTO], "in_order", "many_points"))
def test_sums_are_rounded_and_nothing_is_lost(ops, case, device):
    """Against float64. A vertex gets a few additions, each rounded to half of ULP of what is there by then."""
    grad, *rest = POINTS[INTO][case](torch.float32, device)
    short, rest[0] = grad.bfloat16(), rest[0].bfloat16()
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
    grad_out = torch.randint(-3, 4, (300, channels), generator=generator).bfloat16()
    short = torch.ones(4, 4, 4, channels, dtype=torch.bfloat16, device=device)
    ops.interpolate_trilinear_grad(short, grad_out.to(device), coords.float().to(device))
    expected = torch.ones(64, channels).index_add_(0, coords @ torch.tensor([16, 4, 1]), grad_out.float())
    assert torch.equal(short.float().cpu(), expected.view(4, 4, 4, channels))


@BOTH
@pytest.mark.parametrize("case", known(SLOPES[SMOOTH]))
def test_total_variation_is_that_of_the_same_numbers_in_float32_rounded_once(ops, case, device):
    grad, grid, *rest = SLOPES[SMOOTH][case](torch.float32, device)
    short, wide = grad.bfloat16(), grad.bfloat16().float()
    ops.total_variation_grad(short, grid.half(), *rest)
    ops.total_variation_grad(wide, grid.half().float(), *rest)
    torch.testing.assert_close(short, wide.bfloat16(), rtol=ULP, atol=1e-7, equal_nan=True)
    assert torch.equal(short == 0, wide.bfloat16() == 0)


@BOTH
@pytest.mark.parametrize("case", known(STEPS[STEP], "smooth", "non_contiguous"))
def test_a_step_is_rounded_at_random_to_what_it_is_in_float32(ops, case, device):
    param, first, second, grad, lr, step, rows, *rest = STEPS[STEP][case](torch.float32, device)
    short = [param.half(), first.bfloat16(), second.bfloat16(), grad.bfloat16()]
    wide = [short[0].float(), *(x.clone() for x in short[1:3]), short[3].float()]
    ops.adam_step(*short, lr, step, rows, *rest)
    ops.adam_step(*wide, lr, step, rows, *rest)
    for ours, theirs in zip(short[1:], wide[1:], strict=True):
        assert torch.equal(ours.to(theirs.dtype), theirs)
    channels = param.shape[-1]
    at = torch.arange(param.numel() // channels, device=device) if rows is None else rows
    bits = hashed(random_bits(step, torch.arange(len(at), device=device), channels))
    expected = param.half().view(-1, channels)
    expected[at] = narrow_at_random(wide[0].view(-1, channels)[at], torch.float16, bits)
    assert torch.equal(short[0].view(-1, channels), expected)


@BOTH
def test_small_steps_add_up(ops, device):
    """Steps of a hundredth of what lies between two neighbors: their mean arrives."""
    param = torch.full((500, 16), 1.5, dtype=torch.float16, device=device)
    moments = [torch.zeros(500, 16, dtype=torch.bfloat16, device=device) for _ in range(2)]
    for number in range(1, 31):
        grad = torch.ones(500, 16, dtype=torch.bfloat16, device=device)
        rate, step = (torch.full((1,), x, device=device) for x in (1e-5, float(number)))
        ops.adam_step(param, *moments, grad, rate, step, None, 0.9, 0.99, 1e-10)
    assert param.float().mean().item() == pytest.approx(1.5 - 30e-5, abs=2e-5)
    assert len(param.unique()) > 1


@BOTH
@pytest.mark.parametrize("case", [name for name in STEPS[STEP] if name.startswith("smooth")])
def test_a_step_with_total_variation_adds_that_before(ops, case, device):
    """To the bit in two passes, where the sum of both is rounded; where it is one, to that rounding."""
    param, first, second, grad, *rest = STEPS[STEP][case](torch.float32, device)
    arguments = param.half(), first.bfloat16(), second.bfloat16(), grad.bfloat16(), *rest
    expected = in_two(ops, arguments)
    ops.adam_step(*arguments)
    for ours, theirs in zip(arguments[:4], expected, strict=True):
        if device == "cpu":
            assert torch.equal(ours, theirs)
        largest = theirs.float().abs().max().item() if theirs.numel() else 0
        torch.testing.assert_close(ours.float(), theirs.float(), rtol=0.02, atol=0.02 * largest)


@BOTH
@pytest.mark.parametrize("case", RENDERED[RENDER])
def test_a_ray_sees_what_it_sees_of_the_same_values_as_float32(ops, case, device):
    arguments = list(RENDERED[RENDER][case](torch.float32, device))
    grid = arguments[12].half()
    found = [getattr(ops, RENDER)(*arguments[:12], values, *arguments[13:]) for values in (grid, grid.float())]
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)
        if ops is native:  # PyTorch adds in any order on a GPU
            assert torch.equal(ours, theirs)


@BOTH
@pytest.mark.parametrize("case", SAMPLES[COMPOSITE])
def test_samples_composite_as_the_same_values_in_float32(ops, case, device):
    """And their gradient is that of float32, rounded once."""
    density, values, *rest = SAMPLES[COMPOSITE][case](torch.float32, device)
    found = []
    for rows in (values.bfloat16(), values.bfloat16().float()):
        leaves = density.clone().requires_grad_(), rows.requires_grad_()
        outputs = ops.composite_rays(*leaves, *rest)
        slopes = torch.autograd.grad(outputs, leaves, tuple(map(cotangent, outputs)))
        found.append((*outputs, *slopes))
    assert found[0][-1].dtype == torch.bfloat16
    for ours, theirs in zip(found[0][:-1], found[1][:-1], strict=True):
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(found[0][-1], found[1][-1].bfloat16(), rtol=ULP, atol=1e-30)
    assert torch.equal(found[0][-1] == 0, found[1][-1].bfloat16() == 0)


def test_samples_of_other_types_are_refused():
    density, values, *rest = SAMPLES[COMPOSITE]["typical"](torch.float32, "cpu")
    assert_rejected(COMPOSITE, (density, values, *rest), "values", values.half(), "expected float32")
    density, values, *rest = SAMPLES[COMPOSITE]["typical"](torch.float64, "cpu")
    assert_rejected(COMPOSITE, (density, values, *rest), "values", values.bfloat16(), "expected float64")


def test_the_three_go_together():
    param, first, second, grad, *rest = STEPS[STEP]["typical"](torch.float32, "cpu")
    short = (param.half(), first.bfloat16(), second.bfloat16(), grad.bfloat16(), *rest)
    for name, wide in (("grad", grad), ("exp_avg", first), ("exp_avg_sq", second)):
        assert_rejected(STEP, short, name, wide, "expected bfloat16")
    assert_rejected(STEP, (param, first, second, grad, *rest), "grad", grad.bfloat16(), "expected float32")
    grad, grid, *rest = SLOPES[SMOOTH]["typical"](torch.float32, "cpu")
    for wrong, values, expected in ((grad.bfloat16(), grid, "float16"), (grad, grid.half(), "float32")):
        with pytest.raises(ValueError, match=f"^grid is .*, expected {expected}"):
            native.total_variation_grad(wrong, values, *rest)
    grad, *rest = POINTS[INTO]["typical"](torch.float64, "cpu")
    with pytest.raises(ValueError, match="^(grad_out|coords) is float64, expected b?float(16|32)"):
        native.interpolate_trilinear_grad(grad.bfloat16(), *rest)
    with pytest.raises(ValueError, match="^grad_out is float32, expected bfloat16"):
        native.interpolate_trilinear_grad(grad.bfloat16(), *(x.float() for x in rest[:2]))
    grid, coords, *rest = POINTS[VALUES]["typical"](torch.float32, "cpu")
    with pytest.raises(ValueError, match="^grid is float32 with to_bfloat16, expected float16"):
        torch.ops.nerf.interpolate_trilinear(grid, coords, *rest, to_bfloat16=True)
    out = native.interpolate_trilinear(grid.half().requires_grad_(), coords, *rest)
    with pytest.raises(ValueError, match="^grid has dtype float16 and needs a gradient, expected float32, or grad"):
        out.sum().backward()


def test_in_one_order_they_are_refused_on_a_gpu(cuda):
    grad, grad_out, coords, *_ = POINTS[INTO]["typical"](torch.float32, cuda)
    with pytest.raises(ValueError, match="bfloat16 with deterministic, expected float32"):
        native.interpolate_trilinear_grad(grad.bfloat16(), grad_out.bfloat16(), coords, True)
