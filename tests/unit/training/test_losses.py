"""The losses against their definitions, and finite gradients where logarithms are not."""

import math
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from nerf.cameras.rays import Rays
from nerf.config.schema import LossConfig
from nerf.fields.field import Field
from nerf.ops.backend import Backend, select
from nerf.rendering.render import Composited, Rendering
from nerf.rendering.samples import RaySamples
from nerf.scene.space import WorldSpace
from nerf.training.losses import (
    OF_COLORS,
    OF_GEOMETRY,
    GeometryInputs,
    LossInputs,
    Objective,
    distortion,
    of_colors,
    of_geometry,
    opacity_entropy,
    pair_ssim,
    photometric,
)
from nerf.training.multi_view import ViewsBeside


@pytest.fixture(params=["native", "torch"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return select(request.param, "cpu")


def test_photometric_is_the_mean_squared_error() -> None:
    rgb, target = torch.tensor([[0.0, 0.5, 1.0], [0.2, 0.2, 0.2]]), torch.tensor([[0.0, 0.0, 0.0], [0.2, 0.2, 0.5]])
    assert photometric(rgb, target).item() == pytest.approx((0.25 + 1 + 0.09) / 6)
    assert -10 * math.log10(photometric(target + 0.1, target).item()) == pytest.approx(20, abs=1e-4)


def test_structure_is_what_ssim_says_of_windows_of_two_pixels(backend: Backend) -> None:
    """One channel, the others alike: the factor of Wang et al. 2004, eq. 13 without luminance, by variances as is."""
    rgb, target = torch.zeros(5, 3), torch.zeros(5, 3)
    rgb[:, 0], target[:, 0] = torch.tensor([0.1, 0.5, 7.0, 0.3, 0.45]), torch.tensor([0.6, 0.2, 9.0, 0.6, 0.8])
    expected = 0.0
    for one, other in ((0, 3), (1, 4)):  # the third of five has no partner
        seen, true = (torch.tensor([x[one, 0], x[other, 0]]).double() for x in (rgb, target))
        covariance = ((seen - seen.mean()) * (true - true.mean())).sum()
        expected += 1 - (2 * covariance + 9e-4) / (seen.var() + true.var() + 9e-4)
    assert pair_ssim(rgb, target, backend.ops).item() == pytest.approx(expected.item() / 6, rel=1e-5)
    assert pair_ssim(rgb[:1], target[:1], backend.ops).item() == 0  # nothing to compare


def test_structure_asks_for_contrast_and_not_for_brightness(backend: Backend) -> None:
    target = torch.tensor([[0.5] * 3, [0.52] * 3])
    assert pair_ssim(target + 0.2, target, backend.ops).item() == pytest.approx(0, abs=1e-6)
    rgb = torch.full((2, 3), 0.5, requires_grad=True)  # a faint contrast that is not there
    loss = pair_ssim(rgb, target, backend.ops)
    loss.backward()
    assert loss.item() == pytest.approx(4e-4 / (4e-4 + 18e-4), rel=1e-4)
    assert (rgb.grad[0] > 0).all() and (rgb.grad[1] < 0).all()
    bold = torch.tensor([[0.5] * 3, [0.9] * 3])
    same_error = pair_ssim(bold + torch.tensor([[0.0], [0.02]]), bold, backend.ops)  # beside much contrast
    assert same_error < 0.01 * loss


def test_the_losses_of_a_rendering_are_added_with_their_weights() -> None:
    """Each alone and all together; each is told by its name, and its gradient is that of the sum."""
    torch.manual_seed(0)
    rgb, target, opacity, alpha, of_rays = (torch.rand(*shape) for shape in ((8, 3), (8, 3), (8,), (8,), (8,)))
    starts = torch.arange(2.0).repeat(8)
    rays, zeros = Rays(torch.zeros(8, 3), torch.zeros(8, 3)), torch.zeros(16).long()
    path = WorldSpace().path(rays.origins, rays.directions, starts[:8], starts[:8])
    samples = RaySamples(rays, torch.arange(0, 17, 2), zeros, starts, starts + 0.5, zeros[:1], path)
    field = SimpleNamespace(box_diagonal=3.0, backend=select("torch", "cpu"))
    beside = cast(ViewsBeside, SimpleNamespace(disagreement=lambda _, __, depth, of, ___: (depth * of).mean()))

    def loss_of(**given: float) -> float:
        config = LossConfig(**(dict.fromkeys(parts, 0.0) | given))
        leaf, light = opacity.clone().requires_grad_(), rgb.clone().requires_grad_()
        seen = Composited(torch.zeros(8, 1), leaf, 2 * leaf, distortion=of_rays * leaf / opacity)
        geometry = GeometryInputs(
            alpha=alpha, seen=seen, samples=samples, pixels=zeros, field=cast(Field, field), beside=beside
        )
        inputs = LossInputs(**vars(geometry), target=target, rgb=light, rendering=Rendering(light, leaf, None))
        objective, found = Objective(config), of_geometry(config, geometry) | of_colors(config, inputs)
        terms = dict(zip(objective.names, objective.terms(found).tolist(), strict=True))
        assert set(terms) == {"photometric", *(name for name in given)} == set(found)
        assert terms == pytest.approx(
            {"photometric": photometric(rgb, target).item()} | {name: given[name] * parts[name] for name in given}
        )
        whole = sum((weight * found[name] for name, weight in given.items()), found["photometric"])
        expected = torch.autograd.grad(whole, (leaf, light), retain_graph=True, materialize_grads=True)
        objective.backward(found)
        for x, gradient in zip((leaf, light), expected, strict=True):
            found_gradient = torch.zeros_like(x) if x.grad is None else x.grad
            torch.testing.assert_close(found_gradient, gradient)
        return sum(terms.values())

    parts = {
        "pair_ssim": pair_ssim(rgb, target, field.backend.ops).item(),
        "alpha": (opacity - alpha).square().mean().item(),
        "opacity_entropy": opacity_entropy(opacity).item(),
        "distortion": of_rays.mean().item() / 3,
        "multi_view": 2 * opacity.square().mean().item(),
    }
    plain = loss_of()
    assert plain == pytest.approx(photometric(rgb, target).item()) and min(parts.values()) > 0.01
    for name, part in parts.items():
        assert loss_of(**{name: 0.5}) == pytest.approx(plain + 0.5 * part)
    assert loss_of(**dict.fromkeys(parts, 2.0)) == pytest.approx(plain + 2 * sum(parts.values()))


def test_a_loss_of_your_own_may_be_a_constant_or_a_double() -> None:
    """A constant, as of a schedule that has not begun, has no gradient."""
    x = torch.tensor(2.0, requires_grad=True)
    own = {"later": lambda inputs: torch.zeros(()), "exact": lambda inputs: x.double() * 3}
    objective = Objective(LossConfig(**dict.fromkeys(OF_GEOMETRY | OF_COLORS, 0.0)), extra=own)
    found = {"photometric": x * x} | {name: loss(cast(LossInputs, None)) for name, loss in own.items()}
    assert objective.terms(found).tolist() == [4, 0, 6]
    objective.backward(found)
    assert x.grad.item() == 4 + 3


def test_each_of_two_ranks_takes_half_of_a_gradient() -> None:
    loss = torch.tensor(3.0, requires_grad=True)
    for _ in range(2):
        Objective(LossConfig(**dict.fromkeys(OF_GEOMETRY | OF_COLORS, 0.0))).backward(
            {"photometric": 2 * loss}, ranks=2
        )
    assert loss.grad.item() == 2


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
    one_ray = 2 * 0.5 * 0.5 * 2 + 2 * 0.5**2 * 0.5 / 3
    of_rays = backend.ops.distortion_loss(weights, starts, starts + 0.5, torch.tensor([0, 2, 2]))
    assert distortion(of_rays, torch.tensor(4.0)).item() == pytest.approx(one_ray / 2 / 4)
