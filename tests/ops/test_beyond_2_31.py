"""Tensors of more than 2^31 elements: no index and no launch is cut to 32 bits.

Right means: the last rows are what the same call gives for those rows alone, where every index is small.
"""

import gc
from collections.abc import Iterator

import pytest
import torch

from nerf.ops import native, reference

GIB = 1 << 30
BEYOND = (1 << 31) + (1 << 12)  # elements
LAST = 1000  # rows that are looked at


@pytest.fixture(autouse=True)
def no_leftovers() -> Iterator[None]:
    yield
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def needs(gib: int) -> None:
    """Skips where the GPU has less free memory."""
    gc.collect()
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0] / GIB
    if free < gib:
        pytest.skip(f"needs {gib} GiB of free GPU memory, {free:.0f} are there")


@pytest.mark.parametrize("channels", [2, 4])  # the plain kernel, the one of 16-byte rows
def test_trilinear_of_a_huge_grid(channels, cuda):
    needs(24)
    depth = BEYOND // (channels * 1024 * 1024) + 1
    grid = torch.rand(depth, 1024, 1024, channels, device=cuda)
    assert grid.numel() > 1 << 31
    last = torch.tensor([depth - 1, 1023, 1023], device=cuda)
    coords = torch.rand(LAST, 3, device=cuda) * last
    coords[: LAST // 2, 0] = last[0] - torch.rand(LAST // 2, device=cuda)  # in the last cells of the memory
    grad_out = torch.randn(LAST, channels, device=cuda)
    out = native.interpolate_trilinear(grid, coords)
    torch.testing.assert_close(out, reference.interpolate_trilinear(grid, coords))
    grad_grid, _ = torch.ops.nerf.interpolate_trilinear_backward(grad_out, grid, coords, True, False)
    assert int(grad_grid.count_nonzero()) <= 8 * LAST * channels
    # The adjoint: a gradient that landed elsewhere would meet another random number.
    found = grad_grid.mul_(grid).sum(dtype=torch.float64)
    torch.testing.assert_close(found, (out.double() * grad_out).sum(), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("channels", [7, 28])
def test_trilinear_of_very_many_points(channels, cuda):
    needs(24)
    points = BEYOND // channels + LAST
    grid, coords = torch.rand(9, 8, 7, channels, device=cuda), torch.rand(points, 3, device=cuda) * 6
    out = native.interpolate_trilinear(grid, coords)
    assert out.numel() > 1 << 31
    torch.testing.assert_close(out[-LAST:], native.interpolate_trilinear(grid, coords[-LAST:]), rtol=0, atol=0)
    grad_out = out.zero_()
    grad_out[-LAST:] = 1
    found = torch.ops.nerf.interpolate_trilinear_backward(grad_out, grid, coords, True, True)
    few = torch.ops.nerf.interpolate_trilinear_backward(grad_out[-LAST:], grid, coords[-LAST:], True, True)
    torch.testing.assert_close(found[0], few[0])
    torch.testing.assert_close(found[1][-LAST:], few[1])
    assert not found[1][:-LAST].any()


@pytest.mark.parametrize("channels", [0, 4])
def test_composite_and_distortion_of_very_many_samples(channels, cuda):
    """Without values more than 2^31 samples, which the plain kernel takes; with four channels more than 2^31 values."""
    needs(40 if channels == 0 else 32)
    taken_by = torch.ops.nerf if channels else torch.ops.nerf_plain  # each adds up in its own order
    per_ray = 64
    rays = BEYOND // max(channels, 1) // per_ray + LAST
    samples = rays * per_ray
    offsets = torch.arange(0, samples + 1, per_ray, device=cuda)
    density, t_starts = torch.rand(samples, device=cuda), torch.rand(samples, device=cuda)
    t_ends, values = t_starts + 0.1, torch.rand(samples, channels, device=cuda)
    tail, few = slice(samples - LAST * per_ray, None), offsets[: LAST + 1]
    rows = (density[tail], values[tail], t_starts[tail], t_ends[tail], few, 1e-3)
    outputs = torch.ops.nerf.composite_rays(density, values, t_starts, t_ends, offsets, 1e-3)
    expected = taken_by.composite_rays(*rows)
    for found, alone in zip(outputs, expected, strict=True):
        assert torch.equal(found[-len(alone) :], alone)
    weights, ones = outputs[3], torch.ones(rays, device=cuda)
    if channels:
        grads = (torch.ones(rays, channels, device=cuda), ones, ones, density)
        tails = (grads[0][-LAST:], ones[-LAST:], ones[-LAST:], density[tail])
        intervals = (density, values, t_starts, t_ends, offsets, weights, 1e-3)
        found = torch.ops.nerf.composite_rays_backward(*grads, *intervals)
        alone = torch.ops.nerf.composite_rays_backward(*tails, *rows[:-1], expected[3], 1e-3)
        for x, y in zip(found, alone, strict=True):
            assert torch.equal(x[tail], y)
        return
    del density, values, outputs
    loss = torch.ops.nerf.distortion_loss(weights, t_starts, t_ends, offsets)
    alone = torch.ops.nerf.distortion_loss(weights[tail], t_starts[tail], t_ends[tail], few)
    assert torch.equal(loss[-LAST:], alone)
    grad = torch.ops.nerf.distortion_loss_backward(ones, weights, t_starts, t_ends, offsets)
    alone = torch.ops.nerf.distortion_loss_backward(ones[:LAST], weights[tail], t_starts[tail], t_ends[tail], few)
    assert torch.equal(grad[tail], alone)


def test_march_of_very_many_samples(cuda):
    needs(40)
    rays, step = 1 << 20, 64 / 2100
    origins = torch.rand(rays, 3, device=cuda) * torch.tensor([0.0, 3.9, 3.9], device=cuda)
    directions = torch.tensor([1.0, 0.0, 0.0], device=cuda).repeat(rays, 1)
    jitter, near = torch.rand(rays, device=cuda) - 0.5, torch.zeros(rays, device=cuda)
    occupied = torch.ones(64, 4, 4, dtype=torch.bool, device=cuda)
    per_ray = (origins, directions, jitter)
    offsets, indices, *t, overflow = native.march_rays(*per_ray, occupied, near, near + 100, step)
    tail = [x[-LAST:] for x in per_ray]
    few, own, *u, _ = native.march_rays(*tail, occupied, near[:LAST], near[:LAST] + 100, step)
    count = len(own)
    assert len(indices) == int(offsets[-1]) > 1 << 31 and int(overflow) == 0
    assert torch.equal(offsets[-LAST - 1 :] - offsets[-LAST - 1], few)
    assert torch.equal(indices[-count:], own + rays - LAST)
    assert all(torch.equal(x[-count:], y) for x, y in zip(t, u, strict=True))


def test_pixels_of_huge_images_and_of_very_many_rays(cuda):
    needs(24)
    images = torch.randint(0, 256, (3, 20_000, 36_000, 1), dtype=torch.uint8, device=cuda)
    assert images.numel() > 1 << 31
    indices = images.numel() - 1 - torch.arange(LAST, device=cuda)
    torch.testing.assert_close(native.sample_images(images, indices), reference.sample_images(images, indices))
    del images
    images = torch.randint(0, 256, (2, 9, 11, 3), dtype=torch.uint8, device=cuda)
    indices = torch.randint(0, 2 * 9 * 11, (BEYOND // 3 + LAST,), device=cuda)
    found = native.sample_images(images, indices)
    assert found.numel() > 1 << 31
    torch.testing.assert_close(found[-LAST:], reference.sample_images(images, indices[-LAST:]))


def test_rays_of_very_many_pixels(cuda):
    needs(24)
    per_pixel, (images, height, width) = 4, (3, 40_000, 60_000)
    c2w, intrinsics = torch.randn(images, 3, 4, device=cuda), 1e4 * torch.rand(images, 4, device=cuda) + 1e4
    pixels = torch.randint(images * height * width, (BEYOND // (3 * per_pixel) + LAST,), device=cuda)
    shifts = torch.rand(per_pixel, 2, device=cuda) - 0.5
    found = native.camera_rays(c2w, intrinsics, pixels, width, height, shifts)
    assert pixels.max() > 1 << 31 and all(x.numel() > 1 << 31 for x in found)
    alone = native.camera_rays(c2w, intrinsics, pixels[-LAST:], width, height, shifts)
    for rays, expected in zip(found, alone, strict=True):
        assert torch.equal(rays[-per_pixel * LAST :], expected)
    torch.testing.assert_close(alone, reference.camera_rays(c2w, intrinsics, pixels[-LAST:], width, height, shifts))


def test_total_variation_of_a_huge_grid(cuda):
    needs(22)
    shape = (BEYOND // (1 << 20) + 1, 512, 512, 4)
    grid, grad = torch.randn(shape, device=cuda), torch.zeros(shape, device=cuda)
    assert grid.numel() > 1 << 31
    alone = torch.zeros(5, *shape[1:], device=cuda)
    native.total_variation_grad(grad, grid, 0.3, False)
    native.total_variation_grad(alone, grid[-5:], 0.3, False)
    assert torch.equal(grad[-4:], alone[-4:]) and alone.any()  # the first slice of five has lost a neighbor


@pytest.mark.parametrize("rates", [1, 4])
def test_adam_of_very_many_parameters(rates, cuda):
    needs(40)
    state = [torch.rand(BEYOND // 4 + LAST, 4, device=cuda) for _ in range(4)]  # parameter, moments, gradient
    assert state[0].numel() > 1 << 31
    alone = [x[-LAST:].clone() for x in state]
    lr, step = torch.linspace(0.1, 0.2, rates, device=cuda), torch.ones(1, device=cuda)
    native.adam_step(*state, lr, step, None, 0.9, 0.99, 1e-8)
    native.adam_step(*alone, lr, step, None, 0.9, 0.99, 1e-8)
    for found, expected in zip(state, alone, strict=True):
        assert torch.equal(found[-LAST:], expected)
