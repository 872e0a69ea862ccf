"""The losses against their definitions, and finite gradients where logarithms are not."""

import math

import pytest
import torch

from nerf.losses import add_total_variation, distortion, opacity_entropy, photometric
from nerf.ops import reference
from nerf.ops.backend import Backend, select
from nerf.rays import Rays, RaySamples
from nerf.spaces import WorldSpace


@pytest.fixture(params=["native", "torch"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return select(request.param, "cpu")


def test_photometric_is_the_mean_squared_error() -> None:
    rgb, truth = torch.tensor([[0.0, 0.5, 1.0], [0.2, 0.2, 0.2]]), torch.tensor([[0.0, 0.0, 0.0], [0.2, 0.2, 0.5]])
    assert photometric(rgb, truth).item() == pytest.approx((0.25 + 1 + 0.09) / 6)
    assert -10 * math.log10(photometric(truth + 0.1, truth).item()) == pytest.approx(20, abs=1e-4)


def test_entropy_is_highest_at_one_half_and_gone_at_both_ends() -> None:
    for p, expected in ((0.5, math.log(2)), (0.0, 0.0), (1.0, 0.0), (0.1, -0.1 * math.log(0.1) - 0.9 * math.log(0.9))):
        assert opacity_entropy(torch.full((3,), p)).item() == pytest.approx(expected, abs=2e-5)
    assert opacity_entropy(torch.tensor([0.5, 0.0])).item() == pytest.approx(math.log(2) / 2, abs=2e-5)


def test_entropy_pushes_opacities_to_the_nearer_end_and_stays_finite() -> None:
    opacity = torch.tensor([0.0, 0.3, 0.7, 1.0, 1.0 + 1e-7], requires_grad=True)  # sums of weights may pass one
    opacity_entropy(opacity).backward()
    assert opacity.grad.isfinite().all()
    assert opacity.grad[1] > 0 > opacity.grad[2]  # descent lowers the first and raises the second


def test_distortion_is_a_mean_over_the_rays_in_units_of_the_scene(backend: Backend) -> None:
    """Two rays: weights 1/2 two units apart, with lengths 1/2; and nothing at all. Barron et al. 2022, eq. 15."""
    starts, weights = torch.tensor([1.0, 3.0]), torch.tensor([0.5, 0.5])
    rays, zeros = Rays(torch.zeros(2, 3), torch.zeros(2, 3)), torch.zeros(2).long()
    path = WorldSpace().path(rays.origins, rays.directions, starts, starts)
    samples = RaySamples(rays, torch.tensor([0, 2, 2]), zeros, starts, starts + 0.5, zeros[:1], path)
    one_ray = 2 * 0.5 * 0.5 * 2 + 2 * 0.5**2 * 0.5 / 3
    assert distortion(weights, samples, torch.tensor(4.0), backend).item() == pytest.approx(one_ray / 2 / 4)


def test_total_variation_is_added_where_the_batch_left_a_gradient(backend: Backend) -> None:
    grid = torch.nn.Parameter(torch.randn(5, 4, 3, 2))
    before = torch.randn(5, 4, 3, 2) * (torch.rand(5, 4, 3, 2) < 0.5)
    (slope,) = torch.autograd.grad(reference.total_variation(grid), grid)
    grid.grad = before.clone()
    add_total_variation(grid, 0.25, backend)
    torch.testing.assert_close(grid.grad, torch.where(before != 0, before + 0.25 * slope, before))


def test_of_listed_vertices_nothing_is_left_out(backend: Backend) -> None:
    """A list that holds all vertices with a gradient, and some without, changes nothing."""
    grid = torch.nn.Parameter(torch.randn(5, 4, 3, 2))
    before = torch.randn(5, 4, 3, 2) * (torch.rand(5, 4, 3, 1) < 0.5)
    rows = (before.view(60, 2) != 0).any(1).logical_or(torch.rand(60) < 0.2).nonzero()[:, 0]
    results = []
    for vertex_rows in (None, rows):
        grid.grad = before.clone()
        add_total_variation(grid, 0.25, backend, vertex_rows)
        results.append(grid.grad)
    assert torch.equal(*results) and not torch.equal(results[0], before)


def test_without_weight_there_is_no_total_variation(backend: Backend) -> None:
    grid = torch.nn.Parameter(torch.randn(3, 3, 3, 1))
    add_total_variation(grid, 0.0, backend)
    assert grid.grad is None
