"""adam_rows: adam_step at rows of a grid that is elsewhere."""

import pytest
import torch
from case_tools import CHANNELS, Operation, as_case, numbers, with_gaps
from proofs import BOTH, FLOATS, assert_rejected

from nerf.ops import native
from nerf.ops.rounding import hashed, narrow_at_random, random_bits

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
    first, second = (
        numbers(25, channels, low=-0.1, high=0.1, seed=18),
        numbers(25, channels, low=0.001, high=0.1, seed=21),
    )
    moments = torch.stack([first, second])
    grad = scale * numbers(20, channels, low=-1, seed=19) * (numbers(20, channels, seed=20) >= zeros)
    rows, places = (torch.tensor(x, dtype=torch.int64) for x in lists)
    lr, number = torch.linspace(0.1, 0.01, rates), torch.tensor([float(step)])
    return param, moments, param[stored], grad, stored, rows, places, lr, number, 0.9, 0.99, 1e-8


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
        sizes=("param", "moments", "values", "rows"),
        no_derivative="written in place, behind the loss",
    ),
}


@BOTH
@pytest.mark.parametrize("dtype", FLOATS)
def test_it_is_adam_step_on_the_rows_that_are_there(ops, dtype, device):
    param, moments, values, grad, stored, rows, places, *rest = as_case(_rows, rates=5)(dtype, device)
    there = (rows >= 0) & (places >= 0)
    rows_there, places_there = rows[there], places[there]
    to = stored[rows_there]
    expected = param.clone(), moments.clone()
    state = [param[to], *(x.contiguous() for x in moments[:, places_there].unbind(0)), grad[rows_there]]
    ops.adam_step(*state, *rest[:2], None, *rest[2:])
    expected[0][to], expected[1][:, places_there] = state[0], torch.stack(state[1:3])
    untouched = grad.clone()
    ops.adam_rows(param, moments, values, grad, stored, rows, places, *rest)
    for ours, theirs in zip((param, moments), expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert torch.equal(values, param[stored]) and torch.equal(grad, untouched)


@BOTH
@pytest.mark.parametrize("case", ["nothing_there", "no_gradient", "typical"])
def test_what_is_passed_over_stays(ops, case, device):
    """typical: with the step's number 0, which leaves it out."""
    arguments = OPERATIONS[NAME].cases[case](torch.float32, device)
    if case == "typical":
        arguments[8].zero_()
    before = [x.clone() for x in arguments[:3]]
    ops.adam_rows(*arguments)
    assert all(map(torch.equal, arguments[:3], before))


@BOTH
def test_rows_of_a_grid_that_are_not_there_are_passed_over(ops, device):
    arguments = list(as_case(_rows)(torch.float32, device))
    arguments[4] = torch.full_like(arguments[4], 40)
    before = [x.clone() for x in arguments[:3]]
    ops.adam_rows(*arguments)
    assert all(map(torch.equal, arguments[:3], before))


def _stored_with_16_bits(device: str, **changes: object) -> tuple:
    """As _rows, of numbers that these types have."""
    param, moments, _, grad, stored, *rest = as_case(_rows, **changes)(torch.float32, device)
    param, moments = param.half(), moments.bfloat16()
    return param, moments, param[stored].float(), grad, stored, *rest


@pytest.mark.parametrize("scale", [1.0, 1e-5])
@pytest.mark.parametrize("channels", CHANNELS)
def test_with_16_bits_it_is_the_step_of_float32_rounded_by_step_row_and_column(channels, scale, device):
    """To the bit on a CPU. On a GPU a compiler may make other roundings of two kernels. 1e-5: with fewer digits."""
    param, moments, values, grad, stored, rows, places, lr, step, *rest = _stored_with_16_bits(
        device, channels=channels
    )
    param, lr = (param.float() * scale).half(), lr * scale
    values = param[stored].float()
    arguments = param, moments, values, grad, stored, rows, places, lr, step, *rest
    wide = param.float(), moments.float()
    native.adam_rows(*wide, values.clone(), grad, stored, rows, places, lr, step, *rest)
    there = (rows >= 0) & (places >= 0)
    to, at = stored[rows[there]], places[there]
    random = random_bits(step, to, channels)
    expected = param.clone(), moments.clone()
    expected[0][to] = narrow_at_random(wide[0][to], torch.float16, hashed(random))
    for i in range(2):
        expected[1][i, at] = narrow_at_random(wide[1][i, at], torch.bfloat16, random >> 16 * i)
    native.adam_rows(*arguments)
    for ours, theirs in zip((param, moments), expected, strict=True):
        if device == "cpu":
            assert torch.equal(ours, theirs)
        assert (ours.view(torch.int16) - theirs.view(torch.int16)).abs().max() <= 1
        assert (ours != theirs).float().mean() < 0.01
    assert torch.equal(param[stored].float(), values)


@BOTH
def test_roundings_are_the_same_to_the_bit_on_all_devices(ops, device):
    """With numbers whose steps are exact: moments of halves and quarters."""
    param, moments, values, grad, stored, rows, places, lr, step, *_ = _stored_with_16_bits(device, channels=8)
    grad = (grad * 256).round() / 256
    before, to = moments.double(), stored[rows[(rows >= 0) & (places >= 0)]]
    there, at = rows[(rows >= 0) & (places >= 0)], places[(rows >= 0) & (places >= 0)]
    ops.adam_rows(param, moments, values, grad, stored, rows, places, lr, step, 0.5, 0.5, 1e-8)
    random, g = random_bits(step, to, 8), grad[there].double()
    for i, change in enumerate((g, g * g)):
        exact = torch.where(g != 0, (before[i, at] + change) / 2, before[i, at])
        assert torch.equal(exact.float().double(), exact)
        assert torch.equal(moments[i, at], narrow_at_random(exact.float(), torch.bfloat16, random >> 16 * i))


def test_rounding_at_random_has_the_number_as_its_mean_and_keeps_what_the_type_has():
    """Also of numbers below the smallest that float16 has with all digits."""
    rows = torch.arange(20000)
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.tensor([1.2345, -3.7e-3, 2.2e-5, -3.01e-8, 61000.3, 0.0])
        found = [
            narrow_at_random(x.expand(20000, 6), dtype, random_bits(torch.tensor([n]), rows, 6)) for n in (1.0, 2.0)
        ]
        assert not torch.equal(*found)
        found = torch.cat(found).float()
        apart = found.amax(0) - found.amin(0)  # of the two neighbors
        assert (apart[:5] > 0).all() and all(len(column.unique()) == 2 for column in found.T[:5])
        assert ((found.double().mean(0) - x).abs() < 4 * 0.5 * apart / 40000**0.5 + 1e-30).all()
        every = torch.arange(1 << 16).to(torch.int16).view(dtype)
        bits = random_bits(torch.tensor([3.0]), torch.arange(1 << 12), 16).view(-1)
        kept = narrow_at_random(every.float(), dtype, bits)
        assert torch.equal(kept.isnan(), every.isnan())
        assert torch.equal(kept.view(torch.int16)[~every.isnan()], every.view(torch.int16)[~every.isnan()])


@BOTH
def test_a_value_that_float16_does_not_have_becomes_infinite(ops, device):
    """So that the loss shows it."""
    arguments = list(_stored_with_16_bits(device, channels=8, zeros=0.0))
    arguments[0].fill_(65504.0)
    arguments[2].fill_(65504.0)
    arguments[3] = -arguments[3].abs() - 2
    arguments[7] = arguments[7] * 1e5
    ops.adam_rows(*arguments)
    there = (arguments[5] >= 0) & (arguments[6] >= 0)
    assert (arguments[0][arguments[4][arguments[5][there]]] == torch.inf).all()
    assert (arguments[0] == 65504).any()


def test_numbers_of_any_address_are_taken(device):
    """Where no whole packs begin, one by one."""
    arguments = list(_stored_with_16_bits(device, channels=8))
    expected = [x.clone() for x in arguments[:3]]
    native.adam_rows(*expected, *arguments[3:])
    for i in range(3):
        moved = arguments[i].new_empty(arguments[i].numel() + 1)[1:].view_as(arguments[i])
        arguments[i] = moved.copy_(arguments[i])
    native.adam_rows(*arguments)
    assert all(map(torch.equal, arguments[:3], expected))


def test_bad_arguments_are_named():
    arguments = as_case(_rows)(torch.float32, "cpu")
    assert_rejected(NAME, arguments, "moments", arguments[1][1:], r"expected \[2,\*,5\]")
    assert_rejected(NAME, arguments, "grad", arguments[3][1:], r"expected \[20,5\]")
    assert_rejected(NAME, arguments, "stored", arguments[4][1:], r"expected \[20\]")
    assert_rejected(NAME, arguments, "places", arguments[6][1:], r"expected \[7\]")
    assert_rejected(NAME, arguments, "lr", torch.ones(3), r"expected \[1\] or one per channel, \[5\]")
    half = (arguments[0].half(), arguments[1].bfloat16(), *arguments[2:])
    assert_rejected(NAME, half, "moments", arguments[1].half(), "expected bfloat16")
    assert_rejected(NAME, half, "values", arguments[2].half(), "expected float32")
    for index, key in enumerate(("param", "moments", "values")):
        bad = list(arguments)
        bad[index] = torch.stack([bad[index]] * 2, -1)[..., 0]
        with pytest.raises(ValueError, match=f"^{key} is written in place and must be contiguous"):
            native.adam_rows(*bad)
