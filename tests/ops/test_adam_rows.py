"""adam_rows: adam_step at rows of a grid that is elsewhere."""

import pytest
import torch
from case_tools import CHANNELS, Operation, as_case, numbers, with_gaps
from proofs import BOTH, FLOATS, assert_rejected

from nerf.ops import native

NAME = "adam_rows"
LISTS = ([2, 4, 5, 13, 19, -1, 8], [1, -1, 7, 20, 14, 3, 0])  # rows of the copies, and of the moments


def _rows(
    channels: int = 5,
    zeros: float = 0.3,
    rates: int = 1,
    step: int = 3,
    lists: tuple[list[int], list[int]] = LISTS,
    scale: float = 1.0,
) -> tuple:
    """A grid of 40 rows, copies of 20 and moments of 25 of them."""
    param, stored = numbers(40, channels, low=-1, seed=17), torch.randperm(40, generator=torch.Generator())[:20]
    moments = numbers(25, channels, low=-0.1, high=0.1, seed=18), numbers(25, channels, low=0.001, high=0.1, seed=21)
    grad = scale * numbers(20, channels, low=-1, seed=19) * (numbers(20, channels, seed=20) >= zeros)
    rows, places = (torch.tensor(x, dtype=torch.int64) for x in lists)
    lr, number = torch.linspace(0.1, 0.01, rates), torch.tensor([float(step)])
    return param, *moments, param[stored], grad, stored, rows, places, lr, number, 0.9, 0.99, 1e-8


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_rows),
            "empty": as_case(_rows, lists=([], [])),
            "non_contiguous": with_gaps(as_case(_rows, rates=5), first=3),
            "nothing_there": as_case(_rows, lists=([-1, 20, 3, 4], [0, 1, -1, 25])),
            "no_gradient": as_case(_rows, zeros=1.1),
            "huge_gradient": as_case(_rows, scale=1e10),
            "no_channels": as_case(_rows, channels=0),
            **{f"channels_{c}": as_case(_rows, channels=c, rates=c) for c in CHANNELS},
        },
        sizes=("param", "exp_avg", "values", "rows"),
        no_derivative="written in place, behind the loss",
    ),
}


@BOTH
@pytest.mark.parametrize("dtype", FLOATS)
def test_it_is_adam_step_on_the_rows_that_are_there(ops, dtype, device):
    param, first, second, values, grad, stored, rows, places, *rest = as_case(_rows, rates=5)(dtype, device)
    there = (rows >= 0) & (places >= 0)
    rows_there, places_there = rows[there], places[there]
    to = stored[rows_there]
    expected = [x.clone() for x in (param, first, second)]
    state = [param[to], first[places_there], second[places_there], grad[rows_there]]
    ops.adam_step(*state, *rest[:2], None, *rest[2:])
    for whole, place, part in zip(expected, (to, places_there, places_there), state, strict=False):
        whole[place] = part
    untouched = values.clone(), grad.clone()
    ops.adam_rows(param, first, second, values, grad, stored, rows, places, *rest)
    for ours, theirs in zip((param, first, second), expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert torch.equal(values, untouched[0]) and torch.equal(grad, untouched[1])


@BOTH
@pytest.mark.parametrize("case", ["nothing_there", "no_gradient", "typical"])
def test_what_is_passed_over_stays(ops, case, device):
    """typical: with the step's number 0, which leaves it out."""
    arguments = OPERATIONS[NAME].cases[case](torch.float32, device)
    if case == "typical":
        arguments[9].zero_()
    before = [x.clone() for x in arguments[:3]]
    ops.adam_rows(*arguments)
    assert all(map(torch.equal, arguments[:3], before))


@BOTH
def test_rows_of_a_grid_that_are_not_there_are_passed_over(ops, device):
    arguments = list(as_case(_rows)(torch.float32, device))
    arguments[5] = torch.full_like(arguments[5], 40)
    before = [x.clone() for x in arguments[:3]]
    ops.adam_rows(*arguments)
    assert all(map(torch.equal, arguments[:3], before))


def test_bad_arguments_are_named():
    arguments = as_case(_rows)(torch.float32, "cpu")
    assert_rejected(NAME, arguments, "exp_avg_sq", arguments[2][1:], r"expected \[25,5\]")
    assert_rejected(NAME, arguments, "grad", arguments[4][1:], r"expected \[20,5\]")
    assert_rejected(NAME, arguments, "stored", arguments[5][1:], r"expected \[20\]")
    assert_rejected(NAME, arguments, "places", arguments[7][1:], r"expected \[7\]")
    assert_rejected(NAME, arguments, "lr", torch.ones(3), r"expected \[1\] or one per channel, \[5\]")
    for index, key in enumerate(("param", "exp_avg", "exp_avg_sq")):
        bad = list(arguments)
        bad[index] = torch.ones(5, len(arguments[index])).T
        with pytest.raises(ValueError, match=f"^{key} is written in place and must be contiguous"):
            native.adam_rows(*bad)
