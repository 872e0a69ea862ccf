"""draw_pixels: one pixel from each of equal parts of a set, the very one that PyTorch draws."""

import math

import pytest
import torch
from case_tools import Operation, as_case, numbers, with_gaps
from proofs import BOTH, FLOATS, assert_rejected
from torch import Tensor

from nerf.images.pixel_runs import PixelRuns
from nerf.ops import native, reference

NAME = "draw_pixels"


def _runs(runs: int, longest: int = 9) -> PixelRuns:
    """Runs of 1 to longest pixels, gaps of as many; the first begins at pixel 3."""
    edges = 3 + (1 + longest * numbers(2 * runs, seed=80)).long().cumsum(0)
    return PixelRuns.of_bounds(torch.stack([edges[::2], edges[1::2]], dim=-1))


def _draws(draws: int = 50, runs: int = 20, longest: int = 9) -> tuple:
    pixels = _runs(runs, longest)
    return numbers(draws, seed=81), pixels.offsets, pixels.shifts, len(pixels)


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_draws),
            "empty": as_case(_draws, draws=0),
            "non_contiguous": with_gaps(as_case(_draws)),
            "one_run": as_case(_draws, runs=1),
            "one_pixel": as_case(_draws, runs=1, longest=1),
            "more_draws_than_pixels": as_case(_draws, draws=300),
            "many_runs": as_case(_draws, runs=5000),
        },
        no_derivative="pixels are counted",
        sizes=("random", "offsets"),
        own_rule=True,
    ),
}


@BOTH
def test_drawn_is_where_the_number_says_in_each_part(ops, device):
    """Runs 5 6 7, 20, 30 31 32 33: eight pixels in four parts of two."""
    runs = PixelRuns.of_bounds(torch.tensor([[5, 8], [20, 21], [30, 34]], device=device))
    random = torch.tensor([0.0, 0.5, 0.49, 0.999], dtype=torch.float64, device=device)
    found = ops.draw_pixels(random, runs.offsets, runs.shifts, 8)
    assert found.tolist() == [5, 20, 30, 33] and found.dtype == torch.int64


@BOTH
@pytest.mark.parametrize("runs", [1, 2, 7, 8, 9, 63, 64, 65, 100, 513])
def test_as_many_draws_as_pixels_are_all_of_them(ops, runs, device):
    pixels = _runs(runs)
    found = pixels.to(device).draw(numbers(len(pixels), seed=runs).to(device), ops)
    assert found.tolist() == [i for first, end in pixels.bounds.tolist() for i in range(first, end)]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("runs", [1, 3, 8, 9, 64, 500, 4097, 70_000])
def test_native_draws_what_pytorch_draws_one_operation_after_the_other(runs, dtype, device):
    """Also where runs are empty."""
    lengths = (9 * numbers(runs, seed=82)).long()
    lengths[runs // 2] += 1
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(device)
    shifts, count = (13 * torch.arange(runs)).to(device), int(offsets[-1])
    for draws in (1, 10, 3333):
        random = numbers(draws, seed=draws).to(device, dtype)
        within = torch.arange(draws, dtype=torch.float64, device=device) + random
        index = (within * (count / draws)).long().clamp(max=count - 1)
        expected = index + shifts[torch.searchsorted(offsets, index, right=True) - 1]
        for ops in (native, reference):
            assert torch.equal(ops.draw_pixels(random, offsets, shifts, count), expected)


@BOTH
def test_more_pixels_than_float32_or_32_bits_count(ops, device):
    """500 photos of 12 megapixels are 6e9 pixels; 2^53 is the most."""
    for last in (2**33, 2**53 - 2):
        runs = PixelRuns.of_bounds(torch.tensor([[10, 12], [2**32, 2**32 + last]], device=device))
        random = torch.tensor([3 / (2 + last), 1 - 2**-53], dtype=torch.float64, device=device)
        found = runs.draw(random, ops).tolist()
        assert found[0] == 11 and 0 <= 2**32 + last - 1 - found[1] <= 1  # of 2^53 pixels the number is rounded


@BOTH
def test_a_number_that_is_none_draws_the_nearest_pixel(ops, device):
    runs = PixelRuns.of_bounds(torch.tensor([[5, 8], [20, 22]], device=device))
    random = torch.tensor([math.nan, math.inf, -math.inf, -1e300, 1e300], dtype=torch.float64, device=device)
    assert runs.draw(random, ops).tolist() == [5, 21, 5, 5, 21]


def _wrong(offsets: list[int], device: str, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    shifts = torch.zeros(max(len(offsets) - 1, 0), dtype=torch.int64, device=device)
    return torch.full((40,), 0.5, dtype=dtype, device=device), torch.tensor(offsets, device=device), shifts


@pytest.mark.parametrize("offsets", [[0, 9, 3, 40], [50, 2, 40], [-(2**63), 2**63 - 1, 40]], ids=str)
def test_offsets_that_do_not_rise_draw_from_some_run(offsets, device):
    found = native.draw_pixels(*_wrong(offsets, device), 40)
    assert found.tolist() == list(range(40))  # all runs have the shift of 0


def test_a_count_of_other_runs_draws_some_pixel_on_a_gpu(cuda):
    for count in (1, 39, 41, 2**53):
        assert len(native.draw_pixels(*_wrong([0, 9, 40], cuda), count).tolist()) == 40


def test_bad_arguments_are_named():
    arguments = OPERATIONS[NAME].cases["typical"](torch.float32, "cpu")
    count = arguments[3]
    assert_rejected(NAME, arguments, "count", count + 1, f"expected {count}, the last of offsets")
    assert_rejected(NAME, arguments, "count", 0, "expected 1 to 2")
    assert_rejected(NAME, arguments, "count", 2**53 + 1, "expected 1 to 2")
    nothing = torch.zeros(0, dtype=torch.int64)
    assert_rejected(NAME, (arguments[0], torch.tensor([5]), nothing, 5), "shifts", nothing, "expected a run")
    assert_rejected(
        NAME, (arguments[0], nothing, nothing, 5), "offsets", nothing, "expected one number more than shifts"
    )
    assert native.draw_pixels(torch.zeros(0), torch.tensor([0]), nothing, 0).tolist() == []
