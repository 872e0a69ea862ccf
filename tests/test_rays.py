"""Packed samples: where they lie, and the choice among them with an exact and with a fixed number of rows."""

from itertools import chain

import pytest
import torch

from nerf.rays import Rays, RaySamples
from nerf.spaces import WorldSpace

COUNTS = (3, 0, 5, 1, 0, 4, 2, 0)  # samples per ray


def packed(tail: int = 0) -> RaySamples:
    """Samples of length 0.1 to 0.2 on eight rays, and rows behind them that belong to no ray."""
    directions = torch.nn.functional.normalize(torch.randn(len(COUNTS), 3), dim=-1)
    counts = torch.tensor(COUNTS)
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    number = int(offsets[-1])
    starts = torch.arange(number) * 0.3
    rays = Rays(torch.randn(len(COUNTS), 3), directions)
    return RaySamples(
        rays,
        offsets,
        torch.cat([torch.arange(len(COUNTS)).repeat_interleave(counts), torch.zeros(tail, dtype=torch.int64)]),
        torch.cat([starts, torch.zeros(tail)]),
        torch.cat([starts + 0.1 + 0.1 * torch.rand(number), torch.zeros(tail)]),
        torch.tensor([2]),  # rays that marching had dropped
        WorldSpace().path(rays.origins, rays.directions, torch.zeros(len(rays)), torch.ones(len(rays))),
    )


def by_ray(samples: RaySamples) -> list[list[tuple[float, float]]]:
    """Intervals of each ray, straight from the definition of the packing."""
    pairs = list(zip(samples.t_starts.tolist(), samples.t_ends.tolist()))
    return [pairs[a:b] for a, b in zip(samples.ray_offsets.tolist(), samples.ray_offsets.tolist()[1:])]


def kept_by_ray(samples: RaySamples, keep: torch.Tensor) -> list[list[tuple[float, float]]]:
    flags = [keep.tolist()[a:b] for a, b in zip(samples.ray_offsets.tolist(), samples.ray_offsets.tolist()[1:])]
    return [[p for p, k in zip(pairs, f) if k] for pairs, f in zip(by_ray(samples), flags)]


def assert_consistent(samples: RaySamples) -> None:
    """Ray indices say what the offsets say; rows behind the last ray have index 0 and length 0."""
    used = int(samples.ray_offsets[-1])
    rays = torch.arange(len(samples.rays)).repeat_interleave(samples.ray_offsets.diff())
    assert torch.equal(samples.ray_indices[:used], rays)
    for x in (samples.ray_indices, samples.t_starts, samples.t_ends):
        assert not x[used:].any()


def test_positions_are_midpoints_on_their_rays() -> None:
    samples = packed()
    ray = samples.ray_indices
    middle = (samples.t_starts + samples.t_ends) / 2
    expected = samples.rays.origins[ray] + middle[:, None] * samples.rays.directions[ray]
    torch.testing.assert_close(samples.positions(), expected)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("tail", [0, 4])
def test_room_for_all_keeps_what_the_exact_choice_keeps(share: float, tail: int) -> None:
    samples = packed(tail)
    keep = torch.rand(len(samples.t_starts)) < share
    keep[sum(COUNTS) :] = False
    exact = samples.select(keep)
    assert_consistent(exact)
    assert by_ray(exact) == kept_by_ray(samples, keep) and len(exact.t_starts) == keep.sum()
    assert exact.overflow.tolist() == [2]
    for capacity in (max(1, int(keep.sum())), 40):
        roomy = samples.select(keep, capacity)
        assert_consistent(roomy)
        assert by_ray(roomy) == by_ray(exact) and len(roomy.t_starts) == capacity
        assert torch.equal(roomy.ray_offsets, exact.ray_offsets) and roomy.overflow.tolist() == [2]


@pytest.mark.parametrize("capacity", range(1, 11))
def test_what_does_not_fit_is_cut_off_and_its_rays_are_counted(capacity: int) -> None:
    samples = packed()
    keep = torch.rand(len(samples.t_starts)) < 0.8
    whole, cut = by_ray(samples.select(keep)), samples.select(keep, capacity)
    assert keep.sum() > capacity and len(cut.t_starts) == capacity
    assert_consistent(cut)
    assert list(chain(*by_ray(cut))) == list(chain(*whole))[:capacity]
    lost = sum(len(have) < len(want) for have, want in zip(by_ray(cut), whole))
    assert lost > 0 and cut.overflow.tolist() == [2 + lost]


def test_rows_of_no_ray_stay_out_even_if_they_are_asked_for() -> None:
    """With min_weight 0 every row is worth keeping, also those behind the last ray."""
    samples = packed(tail=4)
    kept = samples.select(torch.ones(len(samples.t_starts), dtype=torch.bool), capacity=30)
    assert_consistent(kept)
    assert by_ray(kept) == by_ray(samples)
