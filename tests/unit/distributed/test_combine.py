"""Parts put together front to back give what one process gives, in float64, with gradients."""

from types import SimpleNamespace
from typing import cast

import pytest
import torch

from nerf.distributed.combine import combine, exchange, front_to_back
from nerf.distributed.world import World
from nerf.ops import reference

RAYS, SAMPLES, CHANNELS, PARTS = 7, 30, 3, 4


def made_rays() -> tuple[torch.Tensor, ...]:
    """Rays of the same lattice, and the part of each sample: stretches of the ray in any order of parts."""
    generator = torch.Generator().manual_seed(3)
    density = 6 * torch.rand(RAYS, SAMPLES, generator=generator, dtype=torch.float64)
    values = torch.rand(RAYS, SAMPLES, CHANNELS, generator=generator, dtype=torch.float64)
    starts = 2 + 0.1 * torch.arange(SAMPLES, dtype=torch.float64).expand(RAYS, SAMPLES)
    part = torch.stack([torch.randperm(PARTS, generator=generator) for _ in range(RAYS)])
    bounds = torch.randint(0, SAMPLES, (RAYS, PARTS - 1), generator=generator).sort(1).values
    stretch = (torch.arange(SAMPLES) >= bounds[..., None]).sum(1)
    return density, values, starts, part.gather(1, stretch)


def outputs(density, values, starts, part) -> tuple[torch.Tensor, ...]:
    """Values, opacity, depth and distortion by composite_rays alone."""
    offsets = torch.arange(RAYS + 1) * SAMPLES
    flat = density.flatten(), values.flatten(0, 1), starts.flatten(), starts.flatten() + 0.1, offsets
    values, opacity, depth, weights = reference.composite_rays(*flat)
    return values, opacity, depth, reference.distortion_loss(weights, *flat[2:])


def combined(density, values, starts, part) -> tuple[torch.Tensor, ...]:
    """The same from each part's own."""
    columns, firsts = [], []
    for own in range(PARTS):
        mine = part == own
        offsets = torch.nn.functional.pad(mine.sum(1).cumsum(0), (1, 0))
        intervals = starts[mine], starts[mine] + 0.1, offsets
        v, o, d, w = reference.composite_rays(density[mine], values[mine], *intervals)
        columns.append(torch.cat([v, o[:, None], d[:, None], reference.distortion_loss(w, *intervals)[:, None]], 1))
        firsts.append(torch.where(mine, starts, torch.inf).amin(1))
    order = torch.stack(firsts, 1).argsort(dim=1, stable=True)
    return combine(torch.stack(columns, 1), order, CHANNELS)


def test_parts_give_what_one_process_gives() -> None:
    rays = made_rays()
    for name, whole, parts in zip(("values", "opacity", "depth", "distortion"), outputs(*rays), combined(*rays)):
        torch.testing.assert_close(parts, whole, rtol=0, atol=1e-13, msg=name)


def test_gradients_are_those_of_one_process() -> None:
    density, values, *rest = made_rays()
    shares = torch.Generator().manual_seed(4)
    gradients = []
    for compute in (outputs, combined):
        leaves = density.clone().requires_grad_(), values.clone().requires_grad_()
        found = compute(*leaves, *rest)
        shares.manual_seed(4)
        loss = sum((x * torch.rand(x.shape, generator=shares, dtype=x.dtype)).sum() for x in found)
        gradients.append(torch.autograd.grad(loss, leaves))
    for whole, parts in zip(*gradients, strict=True):
        torch.testing.assert_close(parts, whole, rtol=0, atol=1e-12)


def a_rank(rank: int, told: list[torch.Tensor]) -> World:
    """A rank that is told by each what it has to say."""
    return cast(World, SimpleNamespace(rank=rank, size=len(told), all_gather=lambda own, purpose: torch.stack(told)))


@pytest.mark.parametrize("rank", range(3))
def test_the_transmittance_in_front_of_a_rank_is_that_of_all_nearer_segments(rank: int) -> None:
    through, firsts = torch.rand(2, 3, RAYS, 2, dtype=torch.float64)
    told = [torch.stack(pair) for pair in zip(through, firsts)]
    found = front_to_back(a_rank(rank, told), through[rank], firsts[rank])
    for ray in range(RAYS):
        for segment in range(2):
            nearer = firsts[:, ray] < firsts[rank, ray, segment]
            assert found.transmittance[ray, segment].item() == pytest.approx(through[:, ray][nearer].prod().item())
        assert firsts[:, ray].flatten()[found.order[ray]].diff().min() >= 0


@pytest.mark.parametrize("rank", range(3))
def test_a_rank_has_the_whole_gradient_of_its_own_numbers(rank: int) -> None:
    """Each computes a third of the loss: summed over ranks, the gradient is that of one process."""
    told = list(torch.rand(3, RAYS, 2, 5).requires_grad_())
    own = told[rank].detach().requires_grad_()
    shares = torch.rand(RAYS, 6, 5)
    found = exchange(a_rank(rank, told), own)
    assert torch.equal(found, torch.cat(told, 1))
    ((found * shares).sum() / 3).backward()
    torch.testing.assert_close(own.grad, shares[:, 2 * rank : 2 * rank + 2])


def test_without_distortion_there_is_one_column_less() -> None:
    segments = torch.rand(5, PARTS, CHANNELS + 2)
    assert combine(segments, torch.arange(PARTS).expand(5, PARTS), CHANNELS)[3] is None
