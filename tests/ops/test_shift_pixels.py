"""shift_pixels: the pixel that is so far away, clamped at the edges of its image, the very one that PyTorch finds."""

import math

import pytest
import torch
from case_tools import Operation, as_case, numbers, with_gaps
from proofs import BOTH, FLOATS, assert_rejected
from torch import Tensor

from nerf.ops import native, reference

NAME = "shift_pixels"
SIZES = ((9, 8), (5, 11), (1, 1), (7, 3))


def _first_pixels(sizes: Tensor) -> Tensor:
    return torch.nn.functional.pad(sizes.prod(1).cumsum(0), (1, 0))


def _shifts(pixels: int = 50, different: bool = True, far: float = 4.0, sizes: tuple = SIZES) -> tuple:
    """Pixels of all images and shifts up to this far. Images of one size are 9x8."""
    table = torch.tensor(sizes)
    count = int(_first_pixels(table)[-1]) if different else 5 * 9 * 8
    places = (count * numbers(pixels, seed=85)).long(), numbers(pixels, 2, low=-far, high=far, seed=86)
    return *places, *((9, 11, table, _first_pixels(table)) if different else (9, 8))


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_shifts),
            "empty": as_case(_shifts, pixels=0),
            "non_contiguous": with_gaps(as_case(_shifts)),
            "one_size": as_case(_shifts, different=False),
            "one_image": as_case(_shifts, sizes=SIZES[:1]),
            "far_beyond": as_case(_shifts, far=1e9),
            "many_images": as_case(_shifts, pixels=3000, sizes=200 * SIZES),
        },
        no_derivative="pixels are counted",
        sizes=("pixel_indices", "sizes"),
        opcheck=("typical", "empty", "non_contiguous", "one_size"),
        own_rule=True,
    ),
}


def by_hand(pixels: Tensor, shifts: Tensor, sizes: Tensor) -> list[int]:
    """One pixel after the other, with Python's integers and its rounding of halves to even."""
    first, found = _first_pixels(sizes).tolist(), []
    for pixel, (right, down) in zip(pixels.tolist(), shifts.tolist(), strict=True):
        image = max(i for i, begin in enumerate(first) if begin <= pixel)
        width, height = sizes[image].tolist()
        row, column = divmod(pixel - first[image], width)
        column, row = (min(max(x + round(by), 0), n - 1) for x, by, n in ((column, right, width), (row, down, height)))
        found.append(first[image] + row * width + column)
    return found


@BOTH
def test_shifts_are_columns_and_rows_and_end_at_the_edges(ops, device):
    """Of the second of two images of 4x3: a pixel in its middle, and its corners."""
    shifts = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.4, -0.6], [9.0, 9.0], [-9.0, -9.0]], device=device)
    middle = torch.full((5,), 12 + 5, device=device)
    found = ops.shift_pixels(middle, shifts, 4, 3)
    assert found.tolist() == [18, 21, 12, 23, 12] and found.dtype == torch.int64


@BOTH
def test_halves_are_rounded_to_even(ops, device):
    halves = torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], device=device)
    shifts = torch.stack([halves, torch.zeros_like(halves)], dim=-1)
    found = ops.shift_pixels(torch.full((6,), 50, device=device), shifts, 100, 1)
    assert found.tolist() == [48, 48, 50, 50, 52, 52]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", OPERATIONS[NAME].cases)
def test_native_finds_what_pytorch_finds_and_what_a_hand_does(case, dtype, device):
    pixels, shifts, width, height, *several = OPERATIONS[NAME].cases[case](dtype, device)
    sizes = several[0].cpu() if several else torch.tensor([[width, height]] * 5)
    expected = by_hand(pixels.cpu(), shifts.cpu(), sizes)
    for ops in (native, reference):
        assert ops.shift_pixels(pixels, shifts, width, height, *several).tolist() == expected


@BOTH
def test_more_pixels_than_32_bits_count(ops, device):
    """At the left and at the right edge of images of one size and of several."""
    side, shifts = 3 * 2**20, torch.tensor([[-2.0, 0.0], [1.0, 1.0]], device=device)
    sizes = torch.tensor([[side, side], [side, 3]], device=device)
    for row in (2730, 10**6, side + 1):  # the last one is of the second image
        here = torch.tensor([row * side, (row + 1) * side - 1], device=device)
        expected = [row * side, (row + 2) * side - 1]
        assert ops.shift_pixels(here, shifts, side, side).tolist() == expected
        assert ops.shift_pixels(here, shifts, 1, 1, sizes, _first_pixels(sizes)).tolist() == expected


@BOTH
def test_a_shift_that_is_none_leads_to_the_nearest_pixel(ops, device):
    wrong = torch.tensor([math.nan, math.inf, -math.inf, 1e300, -1e300], dtype=torch.float64, device=device)
    pixels, zeros = torch.full((5,), 10 * 10 + 55, device=device), torch.zeros_like(wrong)
    assert ops.shift_pixels(pixels, torch.stack([wrong, zeros], -1), 10, 10).tolist() == [150, 159, 150, 159, 150]
    assert ops.shift_pixels(pixels, torch.stack([zeros, wrong], -1), 10, 10).tolist() == [105, 195, 105, 195, 105]


def test_a_pixel_outside_stays_outside_on_a_gpu(cuda):
    _, shifts, *images, first = OPERATIONS[NAME].cases["typical"](torch.float32, cuda)
    count = int(first[-1])
    outside = torch.tensor([-(2**63), -1, count, 2**40, 2**63 - 1], device=cuda)
    found = native.shift_pixels(outside, shifts[:5], *images, first)
    assert found[:2].tolist() == outside[:2].tolist() and (found[2:4] >= count).all()
    assert native.shift_pixels(outside[:2], shifts[:2], 9, 8).tolist() == outside[:2].tolist()


def test_sizes_of_other_images_find_some_pixel_on_a_gpu(cuda):
    pixels, shifts, *_ = OPERATIONS[NAME].cases["typical"](torch.float32, cuda)
    for number in (0, -1, 5, 2**31, 2**63 - 1, -(2**63)):
        for sizes, first in ((torch.full((4, 2), number), range(5)), (torch.tensor(SIZES), (0, number, 3, -7, 9))):
            found = native.shift_pixels(pixels, shifts, 1, 1, sizes.to(cuda), torch.tensor(first, device=cuda))
            assert len(found.tolist()) == len(pixels)


def test_bad_arguments_are_named():
    arguments = OPERATIONS[NAME].cases["typical"](torch.float32, "cpu")
    pixels, shifts, _, _, sizes, first = arguments
    assert_rejected(NAME, arguments, "shifts", shifts[:, :1], r"expected \[50,2\]")
    assert_rejected(NAME, arguments, "sizes", None, "expected those of the images")
    assert_rejected(NAME, arguments, "first_pixels", None, "expected the first pixels")
    assert_rejected(NAME, arguments, "first_pixels", first + 1, "the value 1 at 0, expected 0")
    assert_rejected(NAME, arguments, "first_pixels", first.clamp(max=140), "the value 140 at 4, expected 149")
    for side in (0, -1, 2**31, -(2**63)):
        wrong = sizes.clone()
        wrong[0, 1] = side
        assert_rejected(NAME, arguments, "sizes", wrong, "expected 1 to 2147483647")
        assert_rejected(NAME, (pixels, shifts, side, 8, None, None), "width", side, "expected 1 to 2147483647")
        assert_rejected(NAME, (pixels, shifts, 9, side, None, None), "height", side, "expected 1 to 2147483647")
    huge = torch.full((3, 2), 2**31 - 1)
    beyond = huge.prod(1)[:1] * torch.arange(4)  # of which the last one is beyond 64 bits
    assert_rejected(NAME, (pixels, shifts, 1, 1, huge, beyond), "sizes", huge, "expected fewer than 2")
    none = torch.zeros(0, 2, dtype=torch.int64)
    assert_rejected(NAME, (pixels, shifts, 1, 1, none, first[:1]), "sizes", none, "expected an image")
    assert native.shift_pixels(pixels[:0], shifts[:0], 1, 1, none, first[:1]).tolist() == []
    assert_rejected(NAME, (pixels, shifts, 9, 8, None, None), "pixel_indices", pixels - 200, "expected 0 to")
