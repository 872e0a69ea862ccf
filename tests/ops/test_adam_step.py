"""adam_step: torch.optim.Adam on dense gradients, untouched values left alone, native against reference."""

import pytest
import torch
from case_tools import CHANNELS, Operation, as_case, as_sparse, numbers, with_gaps
from proofs import (
    BOTH,
    FLOATS,
    assert_finite,
    assert_rejected,
)
from torch import Tensor

from nerf.ops import native
from nerf.ops.rounding import narrow_at_random, random_bits

NAME = "adam_step"


def _adam(
    shape: tuple[int, ...] = (7, 5),
    zeros: float = 0.0,
    rates: int = 1,
    step: int = 3,
    scale: float = 1.0,
    rows: list[int] | None = None,
) -> tuple:
    """Parameters in the middle of a training; a share `zeros` of the gradients is exactly zero."""
    moments = shape if rows is None else (len(rows), shape[-1])
    param, first = numbers(*shape, low=-1, seed=17), numbers(*moments, low=-0.1, high=0.1, seed=18)
    grad = scale * numbers(*shape, low=-1, seed=19) * (numbers(*shape, seed=20) >= zeros)
    second = numbers(*moments, low=0.001, high=0.1, seed=21)
    lr, number = torch.linspace(0.1, 0.01, rates), torch.tensor([float(step)])
    visited = None if rows is None else torch.tensor(rows, dtype=torch.int64)
    return param, first, second, grad, lr, number, visited, 0.9, 0.99, 1e-8


def _smooth(
    channels: int = 3, rows: list[int] | None = None, sparse: bool = False, alone: bool = True, scale: float = 1.0
) -> tuple:
    """A step with total variation. alone: no vertex with a gradient has a neighbor with one, so that the order in which
    a GPU moves them does not matter. Of a sparse grid rows are every other one.
    """
    size = (6, 5, 37)
    place = torch.stack(torch.meshgrid(*map(torch.arange, size), indexing="ij")).sum(0)
    param, first, second, grad, *numbers_, _, beta1, beta2, eps = _adam((*size, channels), zeros=0.3)
    if alone:
        grad = grad * (place % 2 == 0)[..., None]
    chosen = None if rows is None else torch.tensor(rows, dtype=torch.int64)
    vertices = table = None
    size_z = 0
    if sparse:
        listed = as_sparse(torch.arange(place.numel()).view(*size, 1))[0][:, 0]
        chosen = torch.arange(0, len(listed), 2)
        (param, table, size_z), (grad, *_) = as_sparse(param), as_sparse(grad)
        grad, vertices = grad.contiguous(), listed[chosen]
    if chosen is not None:
        first, second = (x.flatten(0, -2)[: len(chosen)].clone() for x in (first, second))
    return param, first, second, scale * grad, *numbers_, chosen, beta1, beta2, eps, 0.7, vertices, table, size_z


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_adam),
            "empty": as_case(_adam, shape=(0, 5)),
            "first_step": as_case(_adam, step=1),
            "late_step": as_case(_adam, step=20_000),
            "half_untouched": as_case(_adam, shape=(40, 4), zeros=0.5),
            "rows_untouched": as_case(_adam, shape=(5, 32), zeros=0.99),
            "all_untouched": as_case(_adam, zeros=1.0),
            "rate_per_channel": as_case(_adam, shape=(9, 3, 28), rates=28, zeros=0.3),
            "huge_gradient": as_case(_adam, scale=1e10),
            "some_rows": as_case(_adam, shape=(4, 5, 12), zeros=0.3, rates=12, rows=[17, 0, 5, 6]),
            "no_rows": as_case(_adam, rows=[]),
            "non_contiguous": with_gaps(as_case(_adam, rates=5, rows=[4, 0, 3]), first=4),
            **{f"channels_{c}": as_case(_adam, shape=(10, c), rates=c, zeros=0.3) for c in CHANNELS},
            "one_rate": as_case(_adam, shape=(8, 7), zeros=0.3),
            "smooth": as_case(_smooth),
            "smooth_rows": as_case(_smooth, channels=12, rows=list(range(1, 1110, 3))),
            "smooth_rows_of_packs": as_case(_smooth, channels=16, rows=list(range(1, 1110, 3))),
            "smooth_one_channel": as_case(_smooth, channels=1, rows=list(range(0, 1110, 2))),
            "smooth_sparse": as_case(_smooth, channels=16, sparse=True),
            "smooth_sparse_one_channel": as_case(_smooth, channels=1, sparse=True),
            "smooth_sparse_odd": as_case(_smooth, channels=5, sparse=True),
            "smooth_no_rows": as_case(_smooth, rows=[]),
            "many_rows": as_case(_adam, shape=(900, 12), zeros=0.8, rows=list(range(1, 900, 2))),
            "many_rows_one_channel": as_case(_adam, shape=(3000, 1), zeros=0.8, rows=list(range(1, 3000, 2))),
        },
        no_derivative="written in place, behind the loss",
        any_shape=("param",),
        opcheck=("typical", "empty", "rate_per_channel", "some_rows", "non_contiguous", "smooth", "smooth_sparse"),
    ),
}
CASES = {name: known.cases for name, known in OPERATIONS.items()}
BETAS, EPS = (0.9, 0.99), 1e-8


def step_by(ops: object, state: list[Tensor], grad: Tensor, lr: Tensor, step: int) -> None:
    """One step on state = [param, exp_avg, exp_avg_sq]."""
    number = torch.tensor([float(step)], device=grad.device)
    ops.adam_step(*state, grad, lr, number, None, *BETAS, EPS)


@BOTH
def test_first_step_moves_by_the_learning_rate(ops, device):
    """After one step both moments are the gradient's own, so the size of the gradient cancels."""
    grad = torch.tensor([5.0, -0.001, 1e6, -3.0], dtype=torch.float64, device=device)
    state = [torch.zeros_like(grad) for _ in range(3)]
    expected = [-0.5 * grad.sign(), (1 - BETAS[0]) * grad, (1 - BETAS[1]) * grad**2]
    step_by(ops, state, grad, torch.tensor([0.5], device=device), step=1)
    for ours, value in zip(state, expected, strict=True):
        torch.testing.assert_close(ours, value, rtol=2e-5, atol=0)  # eps beside a gradient of 0.001 is 1e-5


@BOTH
@pytest.mark.parametrize("dtype", FLOATS)
def test_matches_pytorchs_adam_on_dense_gradients(ops, dtype, device):
    param = numbers(6, 5, low=-1).to(device, dtype)
    oracle = param.clone().requires_grad_()
    optimizer = torch.optim.Adam([oracle], lr=0.125, betas=BETAS, eps=EPS)
    state = [param, torch.zeros_like(param), torch.zeros_like(param)]
    for step in range(1, 21):
        grad = numbers(6, 5, low=-1, seed=step).to(device, dtype)
        oracle.grad = grad.clone()
        optimizer.step()
        step_by(ops, state, grad, torch.tensor([0.125], device=device), step)
    # 20 steps of size up to lr, each rounded a few times.
    atol = 20 * 0.125 * 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(param, oracle.detach(), rtol=0, atol=atol)
    for ours, key in ((state[1], "exp_avg"), (state[2], "exp_avg_sq")):
        torch.testing.assert_close(ours, optimizer.state[oracle][key], rtol=0, atol=atol)


@BOTH
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", ["half_untouched", "rows_untouched", "rate_per_channel", "all_untouched"])
def test_values_without_gradient_are_left_alone(ops, case, dtype, device):
    param, first, second, grad, lr, step, *constants = CASES[NAME][case](dtype, device)
    state, zero = [x.clone() for x in (param, first, second)], grad == 0
    ops.adam_step(*state, grad, lr, step, *constants)
    assert zero.any() and not grad.any()
    for after, before in zip(state, (param, first, second), strict=True):
        assert torch.equal(after[zero], before[zero])
        assert (after != before)[~zero].all()


@BOTH
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "max"])
def test_a_gradient_that_is_not_finite_changes_nothing_but_itself(ops, value, dtype, device):
    """The largest number is finite, its square is not."""
    value = torch.finfo(dtype).max if value == "max" else float(value)
    param, first, second, grad, *constants = CASES[NAME]["rate_per_channel"](dtype, device)
    bad = torch.zeros_like(grad, dtype=torch.bool)
    bad[::3, 1] = True
    good = [x.clone() for x in (param, first, second, grad.masked_fill(bad, 0.0))]
    state = [x.clone() for x in (param, first, second, grad.masked_fill(bad, value))]
    ops.adam_step(*good, *constants)
    ops.adam_step(*state, *constants)
    for after, expected in zip(state, good, strict=True):
        assert torch.equal(after, expected)
    assert not state[3].any() and torch.equal(state[0][bad], param[bad])


@BOTH
@pytest.mark.parametrize("case", ["typical", "some_rows"])
def test_step_zero_is_left_out_and_clears_the_gradient(ops, case, device):
    *state, grad, lr, step, rows, beta1, beta2, eps = CASES[NAME][case](torch.float32, device)
    before, count = [x.clone() for x in state], grad.count_nonzero()
    ops.adam_step(*state, grad, lr, step.zero_(), rows, beta1, beta2, eps)
    assert all(map(torch.equal, state, before))
    assert not grad.any() if rows is None else 0 < grad.count_nonzero() < count


@BOTH
def test_touched_values_do_not_depend_on_untouched_ones(ops, device):
    """A step on the touched values alone gives the same numbers."""
    *state, grad, lr, step, rows, beta1, beta2, eps = CASES[NAME]["half_untouched"](torch.float64, device)
    touched = grad != 0
    alone = [x[touched].clone() for x in (*state, grad)]
    ops.adam_step(*state, grad, lr, step, rows, beta1, beta2, eps)
    ops.adam_step(*alone, lr, step, rows, beta1, beta2, eps)
    for ours, single in zip(state, alone, strict=False):
        torch.testing.assert_close(ours[touched], single)


@BOTH
def test_each_channel_has_its_own_rate(ops, device):
    param, first, second, grad, _, step, *constants = CASES[NAME]["rate_per_channel"](torch.float64, device)
    grad = torch.where(grad == 0, 1.0, grad)
    rates = torch.linspace(0.0, 2.0, 28, device=device)
    moved = []
    for lr in (rates, torch.ones(1, device=device)):
        state = [x.clone() for x in (param, first, second)]
        ops.adam_step(*state, grad.clone(), lr, step, *constants)
        moved.append(state[0] - param)
    torch.testing.assert_close(moved[0], rates.double() * moved[1])


@BOTH
@pytest.mark.parametrize("dtype", FLOATS)
def test_rows_that_are_not_visited_stay_and_keep_their_gradient(ops, dtype, device):
    """Moments are of the rows alone, in their order: a step on all rows with moments spread out does the same."""
    arguments = CASES[NAME]["some_rows"](dtype, device)
    param, first, second, grad, *constants = arguments
    rows = arguments[6]
    spread = [torch.zeros_like(param).view(-1, 12).index_copy(0, rows, x) for x in (first, second)]
    everywhere = param.clone(), *(x.view(param.shape) for x in spread), grad.clone()
    ops.adam_step(*everywhere, *constants[:2], None, *constants[3:])
    before = param.clone().view(-1, 12), grad.clone().view(-1, 12)
    ops.adam_step(*arguments)
    visited = torch.zeros(20, dtype=torch.bool, device=device).index_fill(0, rows, True)[:, None]
    for after, old, full in zip((param, grad), before, (everywhere[0], everywhere[3]), strict=True):
        assert torch.equal(after.view(-1, 12), torch.where(visited, full.view(-1, 12), old))
    for after, full in zip((first, second), everywhere[1:3], strict=True):
        assert torch.equal(after, full.view(-1, 12)[rows])
    assert before[1][~visited[:, 0]].any() and not grad.view(-1, 12)[visited[:, 0]].any()


def test_rows_outside_are_named():
    arguments = CASES[NAME]["some_rows"](torch.float32, "cpu")
    for row in (-1, 20):
        assert_rejected(NAME, arguments, "rows", torch.tensor([3, row, 5, 6]), f"{row} at 1, expected 0 to 19")


def test_rows_outside_are_passed_over_on_a_gpu(cuda):
    arguments = CASES[NAME]["some_rows"](torch.float32, cuda)
    expected = [x.clone() for x in arguments[:4]]
    native.adam_step(*expected, *arguments[4:])
    beyond = torch.cat([arguments[6], torch.tensor([-1, 20, 2**40], device=cuda)])
    moments = [torch.cat([x, x.new_zeros(3, 12)]) for x in arguments[1:3]]
    native.adam_step(arguments[0], *moments, *arguments[3:6], beyond, *arguments[7:])
    found = arguments[0], moments[0][:-3], moments[1][:-3], arguments[3]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))


@BOTH
def test_autograd_notices_the_change(ops, device):
    """A graph that saved one of the tensors must not use it any more."""
    for index in range(4):
        arguments = list(CASES[NAME]["typical"](torch.float32, device))
        leaf = torch.ones_like(arguments[index], requires_grad=True)
        product = (leaf * arguments[index]).sum()
        with torch.no_grad():
            ops.adam_step(*arguments)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()


@pytest.mark.parametrize("gradient", [0.0, 1e-30, 1e-10, 1e10, 1e18])
@pytest.mark.parametrize("moments", [0.0, 1e-30, 1e10, 1e30])
def test_extremes_stay_finite(gradient, moments, device):
    param, first, second, grad, *rest = CASES[NAME]["typical"](torch.float32, device)
    assert_finite(NAME, (param, moments * first, moments * second, gradient * grad, *rest))


def test_bad_arguments_are_named():
    arguments = CASES[NAME]["half_untouched"](torch.float32, "cpu")
    for index, key in ((1, "exp_avg"), (2, "exp_avg_sq"), (3, "grad")):
        assert_rejected(NAME, arguments, key, arguments[index][1:], r"expected \[40,4\]")
        assert_rejected(NAME, arguments, key, arguments[index].double(), "expected float32")
    assert_rejected(NAME, arguments, "lr", torch.ones(3), r"expected \[1\] or one per channel, \[4\]")
    assert_rejected(NAME, arguments, "lr", torch.ones(1).double(), "expected float32")
    assert_rejected(NAME, arguments, "step", torch.ones(2), r"expected \[1\]")
    for index, key in enumerate(("param", "exp_avg", "exp_avg_sq", "grad")):
        bad = list(arguments)
        bad[index] = torch.ones(4, 40).T
        with pytest.raises(ValueError, match=f"^{key} is written in place and must be contiguous"):
            native.adam_step(*bad)


SHORT = [
    name for name in CASES[NAME] if name not in ("empty", "no_rows", "smooth_no_rows", "all_untouched", "huge_gradient")
]


@pytest.mark.parametrize("name", SHORT)
def test_bfloat16_moments_are_those_of_float32_rounded_by_step_row_and_column(name, device):
    """To the bit on a CPU. On a GPU a compiler may make other roundings of two kernels."""
    param, first, second, *rest = CASES[NAME][name](torch.float32, device)
    first, second = first.bfloat16(), second.bfloat16()
    wide = param.clone(), first.float(), second.float(), rest[0].clone(), *rest[1:]
    native.adam_step(*wide)
    channels = param.shape[-1]
    random = random_bits(rest[2], torch.arange(first.numel() // channels, device=device), channels).view(first.shape)
    before = first.clone()
    native.adam_step(param, first, second, *rest)
    assert not torch.equal(first, before)
    expected = (narrow_at_random(x, torch.bfloat16, bits) for x, bits in ((wide[1], random), (wide[2], random >> 16)))
    for ours, theirs in zip((first, second), expected, strict=True):
        if device == "cpu":
            assert torch.equal(ours, theirs)
        assert (ours.view(torch.int16) - theirs.view(torch.int16)).abs().max() <= 1
        assert (ours != theirs).float().mean() < 0.01
    torch.testing.assert_close(param, wide[0])


@BOTH
@pytest.mark.parametrize("channels", [1, 5, 12, 16])
@pytest.mark.parametrize("rows", [None, [5, 0, 7]])
def test_bfloat16_moments_are_rounded_alike_on_all_devices(ops, channels, rows, device):
    """With numbers whose steps are exact."""
    arguments = as_case(_adam, shape=(9, channels), zeros=0.3, rows=rows)(torch.float32, device)
    param, first, second, grad, lr, step, visited, *_ = arguments
    first, second, grad = first.bfloat16(), second.bfloat16(), (grad * 256).round() / 256
    g = (grad if visited is None else grad[visited]).double()
    exact = [torch.where(g != 0, (x.double() + y) / 2, x.double()) for x, y in ((first, g), (second, g * g))]
    ops.adam_step(param, first, second, grad, lr, step, visited, 0.5, 0.5, 1e-8)
    random = random_bits(step, torch.arange(len(first), device=device), channels)
    for ours, numbers_, bits in zip((first, second), exact, (random, random >> 16), strict=True):
        assert torch.equal(numbers_.float().double(), numbers_)
        assert torch.equal(ours, narrow_at_random(numbers_.float(), torch.bfloat16, bits))


def test_bfloat16_moments_go_with_float32_and_both_are_so():
    param, first, second, *rest = CASES[NAME]["typical"](torch.float32, "cpu")
    assert_rejected(NAME, (param, first.bfloat16(), second, *rest), "exp_avg_sq", second, "expected bfloat16")
    assert_rejected(NAME, (param, first, second, *rest), "exp_avg_sq", second.bfloat16(), "expected float32")
    param, first, second, *rest = CASES[NAME]["typical"](torch.float64, "cpu")
    assert_rejected(NAME, (param, first, second, *rest), "exp_avg", first.bfloat16(), "expected float64")
