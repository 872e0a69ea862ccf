"""Sets of pixels as runs."""

import pytest
import torch
from torch import Tensor

from nerf.images.pixel_runs import PixelRuns


def every_pixel(runs: PixelRuns) -> Tensor:
    """As many draws as there are pixels."""
    return runs.draw(torch.full((len(runs),), 0.5, dtype=torch.float64, device=runs.starts.device))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_a_set_is_its_mask(share: float, device: str) -> None:
    mask = torch.rand(1000, generator=torch.Generator().manual_seed(2)) < share
    runs = PixelRuns.of_mask(mask.to(device), first=7)
    pixels = mask.nonzero()[:, 0] + 7
    assert len(runs) == len(pixels)
    assert torch.equal(every_pixel(runs).cpu(), pixels)
    assert torch.equal(runs.mask(7, 1007).cpu(), mask)
    assert torch.equal(runs.mask(0, 12).cpu(), torch.cat([torch.zeros(7, dtype=torch.bool), mask[:5]]))
    again = PixelRuns.of_bounds(runs.bounds)
    assert (
        torch.equal(again.starts, runs.starts) and torch.equal(again.offsets, runs.offsets) and len(again) == len(runs)
    )


def test_sets_are_joined() -> None:
    parts = [PixelRuns.of_mask(torch.tensor(mask).bool(), first) for mask, first in (([0, 1, 1], 0), ([1, 0, 1], 3))]
    joined = PixelRuns.join(parts)
    assert every_pixel(joined).tolist() == [1, 2, 3, 5]
    assert joined.mask(0, 6).tolist() == [False, True, True, True, False, True]


def test_more_pixels_than_32_bits_count() -> None:
    """500 photos of 12 megapixels are 6e9 pixels."""
    runs = PixelRuns.of_bounds(torch.tensor([[10, 12], [2**32, 2**32 + 2**33]]))
    assert len(runs) == 2**33 + 2
    part = 2**32 + 1
    within = torch.tensor([[0.0, 1.0], [1.0, 2**32], [2.0, 2**32]], dtype=torch.float64) / part
    found = [runs.draw(random).tolist() for random in within]
    assert found == [[10, 2**32 + 2**32], [11, 2**32 + 2**33 - 1], [2**32, 2**32 + 2**33 - 1]]
