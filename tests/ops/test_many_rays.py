"""Batches as a training step has them on a GPU: so many rays that kernels choose another shape, most of them short."""

import pytest
import torch
from case_tools import as_case, numbers
from march_cases import march, march_through_density

from nerf.ops import native

RAYS = 40_000  # more than cuda_ext/cuda/warp.cuh calls many, and no whole number of blocks
BLOCK = 8192  # rays whose samples are added up together


def packed(mean: int, spare: int, device: str) -> tuple[torch.Tensor, ...]:
    """density, t_starts, t_ends [M], ray_offsets [R+1]: 0 to 2 mean samples a ray, then some that belong to none."""
    counts = (numbers(RAYS, seed=1) * (2 * mean + 1)).long()
    counts[::1000] = 75  # a few are long
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    samples = int(offsets[-1]) + spare
    starts = 0.02 * numbers(samples, seed=2).cumsum(0) % 5
    density = numbers(samples, high=20, seed=3) * (numbers(samples, seed=4) < 0.7)
    density[::97] = 1e4  # nothing shines through
    return tuple(x.to(device) for x in (density.float(), starts.float(), (starts + 0.02).float(), offsets))


@pytest.mark.parametrize("channels", [0, 3, 8, 16, 28])
@pytest.mark.parametrize("mean", [4, 10])
def test_composites_of_many_short_rays_are_those_of_the_cpu(channels: int, mean: int, cuda: str) -> None:
    results = []
    for device in ("cpu", cuda):
        density, starts, ends, offsets = packed(mean, 333, device)
        values = numbers(len(density), channels, low=-1, seed=5).float().to(device).requires_grad_()
        density.requires_grad_()
        outputs = native.composite_rays(density, values, starts, ends, offsets, 1e-3)
        grads = [numbers(*x.shape, low=-1, seed=6 + i).float().to(device) for i, x in enumerate(outputs)]
        gradients = torch.autograd.grad(outputs, (density, values), grads)
        results.append([x.detach().cpu() for x in (*outputs, *gradients)])
    for ours, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours, expected, rtol=2e-4, atol=2e-5)
    weights = results[1][3]
    owned = int(packed(mean, 333, "cpu")[3][-1])
    assert weights[:owned].count_nonzero() > owned / 4 and not weights[owned:].any()
    assert not results[1][4][owned:].any() and not results[1][5][owned:].any()


@pytest.mark.parametrize("mean", [4, 10])
def test_distortion_of_many_short_rays_is_that_of_the_cpu(mean: int, cuda: str) -> None:
    results = []
    for device in ("cpu", cuda):
        _, starts, _, offsets = packed(mean, 333, device)
        starts = starts + torch.arange(len(starts), device=device) % 64  # rising along a ray matters not to the sums
        weights = numbers(len(starts), high=0.1, seed=7).float().to(device).requires_grad_()
        loss = native.distortion_loss(weights, starts, starts + 0.02, offsets)
        (gradient,) = torch.autograd.grad(loss, weights, numbers(RAYS, low=-1, seed=8).float().to(device))
        results.append([loss.detach().cpu(), gradient.cpu()])
    for ours, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours, expected, rtol=2e-4, atol=2e-3)
    assert results[1][0].count_nonzero() > RAYS / 2


@pytest.mark.parametrize("name", ["march_rays", "march_visible"])
@pytest.mark.parametrize("rays", [BLOCK - 1, BLOCK, BLOCK + 1, RAYS])
def test_offsets_of_many_rays_and_where_they_overflow(name: str, rays: int, cuda: str) -> None:
    """Whatever the capacity, whole rays are kept up to it; those behind have no sample, and the rest is zero."""
    make = march if name == "march_rays" else march_through_density
    *arguments, _, contraction = as_case(make, rays=rays, filled=0.1)(torch.float32, cuda)
    operation = getattr(native, name)
    offsets, *exact, overflow = operation(*arguments, _, contraction)
    counts, total = offsets.diff(), int(offsets[-1])
    assert int(overflow) == 0 and int(offsets[0]) == 0 and total > rays / 4 and bool((counts >= 0).all())
    assert torch.equal(exact[0], torch.repeat_interleave(torch.arange(rays, device=cuda), counts))
    first_block = int(offsets[min(BLOCK, rays)])
    for capacity in (1, total // 3, first_block - 1, first_block, first_block + 1, total - 1, total, total + 777):
        kept_offsets, *samples, overflow = operation(*arguments, capacity, contraction)
        fits = offsets[1:] <= capacity
        kept = int(offsets[1:][fits].max()) if bool(fits.any()) else 0
        assert torch.equal(kept_offsets[1:], torch.where(fits, offsets[1:], kept)), capacity
        assert int(overflow) == int((~fits & (counts > 0)).sum()), capacity
        for ours, full in zip(samples, exact, strict=True):
            assert len(ours) == capacity and torch.equal(ours[:kept], full[:kept]) and not ours[kept:].any(), capacity


@pytest.mark.parametrize("fog", [False, True], ids=["surfaces", "fog"])
@pytest.mark.parametrize("close", [0.0, 0.6, 1.0])
def test_rays_that_are_walked_side_by_side_see_what_each_sees_alone(close: float, fog: bool, cuda: str) -> None:
    """Four rays close to each other are walked together. In thin fog they see more than is noted: a second walk."""
    density = {"low": -8, "high": -7, "min_weight": 0.0, "min_transmittance": 0.0} if fog else {}
    march = {"rays": 303, "cells": (40, 40, 40), "filled": 0.9 if fog else 0.01, "step": 0.03}
    case = as_case(march_through_density, **march, **density)(torch.float64, "cpu")
    together = torch.arange(303) // 4 * 4
    together = torch.where(numbers(303, seed=9)[together] < close, together, torch.arange(303))
    apart = 0.02 * numbers(303, 3, seed=10)
    rays = case[0][together] + apart, case[1][together], *case[2:]
    on_gpu = [x.to(cuda) if isinstance(x, torch.Tensor) else x for x in rays]
    expected, found = native.march_visible(*rays), native.march_visible(*on_gpu)
    assert int(expected[0][-1]) > 303 and (int(expected[0].diff().max()) > 32 * 32) == fog
    for ours, others in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.cpu(), others, rtol=1e-9, atol=1e-9)
