"""What a web page is taught: where the channels of its network begin, what its steps are, and what tuning brings."""

import copy
from dataclasses import replace

import pytest
import torch
from tiny_runs import STEPS, run_to, tiny_config, tiny_images, tiny_state

from nerf.export.web import distill, lessons
from nerf.export.web.bake import LEVELS, VISIBLE, Baked, bake
from nerf.export.web.distill import HIDDEN_RATE, RATE, _teach
from nerf.export.web.lessons import Lessons
from nerf.export.web.network import SmallMlp
from nerf.export.web.tune import BATCH, NETWORK_RATE, tune
from nerf.fields.voxel_deferred import VoxelDeferred
from nerf.ops.backend import select
from nerf.rendering.sampler import RaySampler
from nerf.training.state import make_sampler


def correlated(count: int, channels: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    mixed = torch.randn(channels, channels, generator=generator)
    return torch.randn(count, channels, generator=generator) @ mixed + 3.0


@pytest.mark.parametrize(("channels", "kept"), [(12, 7), (7, 7), (4, 7)])
def test_channels_begin_as_principal_components(channels: int, kept: int) -> None:
    features = correlated(2000, channels)
    network = SmallMlp(channels, kept, 8, 1)
    network.begin(features)
    found = torch.cov(network.projection(features).detach()[:, : min(channels, kept)].T, correction=0)
    torch.testing.assert_close(found, torch.eye(len(found)), atol=2e-3, rtol=0)
    lost = torch.linalg.svdvals(features - features.mean(0))[kept:].square().sum()
    centered = features - features.mean(0)
    basis = torch.linalg.qr(network.projection.weight.detach()[: min(channels, kept)].T)[0]
    torch.testing.assert_close((centered - centered @ basis @ basis.T).square().sum(), lost, atol=0.5, rtol=1e-3)


@pytest.mark.parametrize("channels", [3, 4, 12])
def test_a_diffuse_color_stays_the_first_three_features(channels: int) -> None:
    features = correlated(500, channels)
    network = SmallMlp(channels, 7, 8, 1, diffuse=True)
    network.begin(features)
    kept = network.projection(features).detach()
    torch.testing.assert_close(kept[:, :3], features[:, :3])
    rest = min(channels - 3, 4)
    torch.testing.assert_close(
        torch.cov(kept[:, 3 : 3 + rest].T, correction=0).reshape(rest, rest), torch.eye(rest), atol=2e-3, rtol=0
    )


def test_features_that_do_not_vary_give_finite_channels() -> None:
    network = SmallMlp(12, 7, 8, 1)
    network.begin(torch.ones(1, 12))
    assert network.projection.weight.isfinite().all()


def test_hidden_matrices_are_taught_by_muon_and_all_else_by_adam() -> None:
    torch.manual_seed(0)
    network = SmallMlp(features=8, kept=4, width=16)
    features, directions = torch.randn(500, 8), torch.nn.functional.normalize(torch.randn(500, 3), dim=-1)
    before = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    taught = Lessons(torch.arange(500), features, torch.ones(500), directions, torch.rand(500, 3))
    lesson = network, [*network.parameters()], taught, taught.opacity, 1, torch.Generator().manual_seed(0)
    _teach(lambda rows: network(features[rows], directions[rows]), *lesson)
    change = {name: (parameter.detach() - before[name]) for name, parameter in network.named_parameters()}
    for name, moved in change.items():
        if name in ("hidden.0.weight", "hidden.1.weight"):
            assert 0.6 * HIDDEN_RATE < torch.linalg.matrix_norm(moved, 2) < 1.25 * HIDDEN_RATE
            assert moved.abs().max() > 1.2 * RATE
        else:
            assert moved.abs().max() == pytest.approx(RATE, rel=1e-3)


Taught = tuple[VoxelDeferred, RaySampler, Lessons]


@pytest.fixture(scope="module", params=["native", "torch"])
def taught(request: pytest.FixtureRequest) -> Taught:
    config, state = tiny_state(tiny_config("voxel_deferred"), select(request.param, "cpu"))
    run_to(config, state, STEPS)
    sampler = make_sampler(config, state)
    found = lessons.draw(state.field, sampler, tiny_images().cameras, torch.Generator().manual_seed(0))
    features = found.features[:, :3]
    varied = (features - features.mean(0)) / features.std(0)  # the sphere's own colors hardly differ
    return state.field, sampler, replace(found, colors=(0.5 + 0.2 * varied).clamp(0, 1))


def begun(field: VoxelDeferred, sampler: RaySampler, found: Lessons, kept: int) -> tuple[Baked, SmallMlp]:
    """A page with the linear map that the network has learned in a few steps."""
    torch.manual_seed(0)
    network = SmallMlp(found.features.shape[1], kept, 32)
    network.begin(found.features)
    lesson = network, [*network.parameters()], found, found.opacity, 40, torch.Generator().manual_seed(0)
    _teach(lambda rows: network(found.features[rows], found.directions[rows]), *lesson)
    return bake(field, sampler.occupancy, network.projection.weight.detach()), network


def noisy(field: VoxelDeferred, sampler: RaySampler, found: Lessons) -> tuple[Baked, SmallMlp]:
    """A page as it begins, whose vertices show other colors than they were taught."""
    page, network = begun(field, sampler, found, kept=3)
    noise = torch.randn(page.features.shape, generator=torch.Generator().manual_seed(0))
    return page.with_features(page.feature_values() + noise, torch.ones(len(noise), dtype=torch.bool)), network


def error(page: Baked, network: SmallMlp, field: VoxelDeferred, sampler: RaySampler, found: Lessons) -> float:
    seen, opacity, _ = lessons.composited(page.as_field(field), sampler, tiny_images().cameras, found.pixels)
    shown = network.decode(seen[:, : page.features.shape[1]], found.directions).detach()
    return ((shown - found.colors) * opacity[:, None]).square().mean().item()


def test_vertices_that_show_other_colors_are_tuned(taught: Taught, monkeypatch: pytest.MonkeyPatch) -> None:
    field, sampler, found = taught
    page, network = noisy(*taught)
    grid, before, generator = field.feature_grid.detach().clone(), error(page, network, *taught), torch.Generator()
    monkeypatch.setitem(BATCH, "cpu", 512)
    monkeypatch.setattr("nerf.export.web.tune.NETWORK_RATE", 0.0)
    tuned = tune(page, network, field, sampler, tiny_images().cameras, found, 40, generator.manual_seed(0))
    by_vertices, visible = error(tuned, network, *taught), tuned.raw_density() > field.raw_density_of(VISIBLE)
    seen = tuned.features[visible]
    assert (seen.amin(0) == 0).all() and (seen.amax(0) == LEVELS).all()  # the scale is theirs
    assert by_vertices < 0.6 * before
    assert torch.equal(tuned.density, page.density) and torch.equal(tuned.rows, page.rows)
    assert torch.equal(field.feature_grid, grid) and field.feature_grid.requires_grad
    monkeypatch.setattr("nerf.export.web.tune.NETWORK_RATE", NETWORK_RATE)
    tuned = tune(page, network, field, sampler, tiny_images().cameras, found, 40, generator.manual_seed(0))
    assert error(tuned, network, *taught) < 0.8 * by_vertices


def test_other_pixels_are_drawn_when_those_drawn_were_seen(taught: Taught, monkeypatch: pytest.MonkeyPatch) -> None:
    field, sampler, found = taught
    one = Lessons(*(values[:1] for values in vars(found).values()))
    page, network = noisy(*taught)
    before = error(page, network, *taught)
    monkeypatch.setitem(BATCH, "cpu", 512)
    monkeypatch.setattr("nerf.export.web.tune.NETWORK_RATE", 0.0)
    monkeypatch.setattr(lessons, "draw", lambda *_: found)

    def after(pixels: int) -> float:
        monkeypatch.setattr("nerf.export.web.tune.PIXELS", pixels)
        generator = torch.Generator().manual_seed(0)
        return error(tune(page, network, field, sampler, tiny_images().cameras, one, 40, generator), network, *taught)

    assert after(pixels=5 * 512) < 0.7 * before
    assert after(pixels=40 * 512) > 0.9 * before  # one pixel says nothing of the others


def test_half_of_the_steps_teach_a_quarter_tunes_and_a_quarter_teaches_bytes(
    taught: Taught, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = []
    monkeypatch.setattr(distill, "_teach", lambda *given: stages.append(("teach", given[-2])) or 0.0)
    monkeypatch.setattr(distill, "tune", lambda baked, *given: stages.append(("tune", given[-2])) or baked)
    field, sampler, _ = taught
    distill.distill(field, sampler, tiny_images().cameras, kept=3, width=8, steps=80)
    assert stages == [("teach", 40), ("tune", 20), ("teach", 20)]


@pytest.mark.parametrize("kept", [3, 7])
def test_bytes_composite_to_what_they_stand_for(taught: Taught, kept: int) -> None:
    """Vertices without a row are next to no occupied cell, so the sparse grids of a page show what dense ones would."""
    field, sampler, found = taught
    page, _ = begun(*taught, kept)
    in_one_order = copy.copy(field)
    in_one_order.backend = replace(field.backend, deterministic=True)
    dense = page.as_field(in_one_order)
    assert page.as_field(field).rows is not None and dense.rows is None
    cameras = tiny_images().cameras
    sparse, of_dense = (
        lessons.composited(one, sampler, cameras, found.pixels) for one in (page.as_field(field), dense)
    )
    for one, other in zip(sparse, of_dense, strict=True):
        torch.testing.assert_close(one, other)
    assert (sparse[0][:, kept:] == 0).all() and sparse[0].shape[1] % 4 == 0
    assert dense.feature_grid.shape[:3] == page.resolution
