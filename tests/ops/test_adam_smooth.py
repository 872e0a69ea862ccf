"""adam_step with total variation: against the two operations one after the other, and what it must leave alone."""

import pytest
import torch
from case_tools import as_case
from proofs import BOTH, assert_rejected
from test_adam_step import CASES, NAME, _smooth
from torch import Tensor

from nerf.ops import native

SMOOTH = [name for name in CASES[NAME] if name.startswith("smooth")]


def in_two(ops: object, arguments: tuple) -> list[Tensor]:
    """param, moments and gradient after total variation and then a step without it."""
    state, (*rest, weight, vertices, table, size_z) = [x.clone() for x in arguments[:4]], arguments[4:]
    listed = rest[2] if table is None else vertices
    ops.total_variation_grad(state[3], state[0], weight, True, listed, table, size_z)
    ops.adam_step(*state, *rest)
    return state


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("moments", [None, torch.bfloat16])
@pytest.mark.parametrize("case", SMOOTH)
def test_is_total_variation_and_then_a_step(ops, case, moments, dtype, device):
    """Of vertices whose neighbors have no gradient: to the bit on a CPU, to rounding where it is one pass."""
    if moments is not None and dtype == torch.float64:
        pytest.skip("moments of float64 are float64")
    param, first, second, *rest = CASES[NAME][case](dtype, device)
    arguments = param, *(x.to(moments or dtype) for x in (first, second)), *rest
    expected, plain = in_two(ops, arguments), [x.clone() for x in arguments[:4]]
    ops.adam_step(*plain, *arguments[4:10])
    ops.adam_step(*arguments)
    for ours, theirs in zip(arguments[:4], expected, strict=True):
        if device == "cpu":
            assert torch.equal(ours, theirs)
        # A moment may fall on the other side of what it is rounded by: one step of bfloat16.
        near = {"rtol": 2**-7, "atol": 1e-6} if ours.dtype == torch.bfloat16 else {}
        torch.testing.assert_close(ours, theirs, **near)
    assert case == "smooth_no_rows" or not torch.equal(plain[0], arguments[0])


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels", [1, 3, 12])
@pytest.mark.parametrize("sparse", [False, True])
def test_neighbors_that_move_too_count_before_or_after_their_step(ops, channels, sparse, dtype, device):
    """Each of six slopes then differs by a neighbor's step at most, which bounds the first moment's difference."""
    arguments = as_case(_smooth, channels=channels, sparse=sparse, alone=False)(dtype, device)
    weight, before = arguments[10], arguments[0].clone()
    expected = in_two(ops, arguments)
    ops.adam_step(*arguments)
    # A value's own step takes nothing of that: both are of the value before it.
    furthest = torch.maximum((expected[0] - before).abs().max(), (arguments[0] - before).abs().max())
    bound = (1 - arguments[7]) * weight * 6 * furthest.item()
    assert bound > 0
    assert (arguments[1] - expected[1]).abs().max() <= (0 if device == "cpu" else bound + 1e-6)
    assert not arguments[3].view(-1, channels)[slice(None) if arguments[6] is None else arguments[6]].any()


@BOTH
@pytest.mark.parametrize("case", SMOOTH)
def test_a_value_without_gradient_is_not_smoothed(ops, case, device):
    param, first, second, grad, *rest = CASES[NAME][case](torch.float32, device)
    state = [x.clone() for x in (param, first, second)]
    ops.adam_step(*state, grad.clone(), *rest)
    assert torch.equal(state[0][grad == 0], param[grad == 0])
    ops.adam_step(param, first, second, torch.zeros_like(grad), *rest)
    again = CASES[NAME][case](torch.float32, device)
    assert all(map(torch.equal, (param, first, second), again[:3]))


@BOTH
@pytest.mark.parametrize("case", ["smooth", "smooth_rows", "smooth_sparse"])
def test_step_zero_is_left_out_and_clears_the_gradient(ops, case, device):
    *state, grad, lr, step, rows, beta1, beta2, eps, weight, vertices, table, size_z = CASES[NAME][case](
        torch.float32, device
    )
    before = [x.clone() for x in state]
    ops.adam_step(*state, grad, lr, step.zero_(), rows, beta1, beta2, eps, weight, vertices, table, size_z)
    assert all(map(torch.equal, state, before))
    assert not grad.flatten(0, -2)[slice(None) if rows is None else rows].any()


def test_bad_arguments_are_named():
    dense, sparse = (CASES[NAME][case](torch.float32, "cpu") for case in ("smooth", "smooth_sparse"))
    assert_rejected(NAME, sparse, "vertices", sparse[11][1:], r"expected \[")
    assert_rejected(NAME, sparse, "vertices", sparse[11] - 10**6, "expected 0 to 1109")
    assert_rejected(NAME, sparse, "table", sparse[12][..., :1].contiguous(), r"expected \[")
    flat = [x.view(-1, 3) for x in dense[:4]]
    assert_rejected(NAME, (*flat, *dense[4:]), "param", flat[0], r"expected \[")
    with pytest.raises(ValueError, match="^table is missing, expected both"):
        native.adam_step(*dense[:11], torch.arange(1110), None, 0)
    with pytest.raises(ValueError, match="^vertices is missing, expected both"):
        native.adam_step(*sparse[:11], None, *sparse[12:])
