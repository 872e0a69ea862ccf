"""Packed samples: where they lie, and the choice among them with an exact and with a fixed number of rows."""

from dataclasses import replace
from itertools import chain

import pytest
import torch

from nerf.cameras.cameras import Cameras
from nerf.cameras.rays import Rays
from nerf.rendering.samples import RaySamples
from nerf.scene.space import WorldSpace

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


def test_the_gradient_of_a_ray_is_the_sum_over_its_samples_on_a_gpu_too(device: str) -> None:
    """On a GPU in the order of the samples, so it repeats; rows behind the last ray are left out."""
    samples = packed(tail=5)
    weights = torch.randn(len(samples.t_starts), 3)
    number, middle = int(samples.ray_offsets[-1]), (samples.t_starts + samples.t_ends) / 2
    weights[number:] = 0.0
    terms = torch.stack([weights, middle[:, None] * weights])[:, :number].double()
    expected = terms.new_zeros(2, len(COUNTS), 3).index_add_(1, samples.ray_indices[:number], terms)
    path = samples.path
    origins, directions = (x.to(device).requires_grad_() for x in (path.origins, path.directions))
    moved = WorldSpace().path(origins, directions, path.near.to(device), path.far.to(device))
    there = [x.to(device) for x in (samples.t_starts, samples.t_ends, samples.ray_indices, samples.ray_offsets)]
    samples = replace(
        samples, path=moved, t_starts=there[0], t_ends=there[1], ray_indices=there[2], ray_offsets=there[3]
    )
    found = []
    for _ in range(2):
        found.append(torch.autograd.grad((samples.positions() * weights.to(device)).sum(), (origins, directions)))
    for ours, again, theirs in zip(*found, expected, strict=True):
        assert torch.equal(ours, again)
        torch.testing.assert_close(ours.cpu(), theirs.float())


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


# Several rays of a pixel


def rays_of_pixels(per_pixel: int, pixels: int = 6) -> Rays:
    """Rays from one place, those of a pixel close together."""
    towards = torch.randn(pixels, 1, 3) + 0.05 * torch.randn(pixels, per_pixel, 3)
    directions = torch.nn.functional.normalize(towards.flatten(0, 1), dim=-1)
    return Rays(torch.randn(1, 3).expand_as(directions), directions, per_pixel)


@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("per_pixel", [2, 4])
def test_the_mean_of_a_pixel_is_that_of_the_rays_beside_each_other(per_pixel: int, shape: tuple[int, ...]) -> None:
    values = torch.randn(6 * per_pixel, *shape)
    found = rays_of_pixels(per_pixel).pixel_means(values)
    expected = [values[first : first + per_pixel].mean(0) for first in range(0, len(values), per_pixel)]
    torch.testing.assert_close(found, torch.stack(expected))


@pytest.mark.parametrize("per_pixel", [2, 4])
def test_a_pixel_is_seen_in_the_middle_of_its_rays(per_pixel: int) -> None:
    """Through its center, to first order; no single one of them is."""
    c2w, intrinsics = torch.eye(4)[None, :3], torch.tensor([[500.0, 400.0, 4.0, 3.0]])
    cameras, pixels = Cameras(c2w, intrinsics, 8, 6), torch.arange(48)
    rays, centers = cameras.rays_through(pixels, per_pixel), cameras.rays_through(pixels).directions
    torch.testing.assert_close(rays.pixel_directions(), centers, rtol=0, atol=1e-6)
    torch.testing.assert_close(rays.pixel_directions().norm(dim=-1), torch.ones(48))
    assert (rays.directions.view(48, per_pixel, 3) - centers[:, None]).norm(dim=-1).min() > 5e-4


def test_the_only_ray_of_a_pixel_is_its_mean() -> None:
    rays, values = rays_of_pixels(1), torch.randn(6, 3)
    assert torch.equal(rays.pixel_means(values), values) and torch.equal(rays.pixel_directions(), rays.directions)


def test_some_of_the_rays_are_as_many_of_a_pixel() -> None:
    rays = rays_of_pixels(4)
    some = rays[8:16]
    assert some.per_pixel == 4 and torch.equal(some.pixel_directions(), rays.pixel_directions()[2:4])
