"""The small network of a web page: where its channels begin, and what its steps are."""

import pytest
import torch

from nerf.export.web.distill import HIDDEN_RATE, RATE, SmallMlp, _teach


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
    network = SmallMlp(features=8, kept=4, width=16, layers=2)
    features, directions = torch.randn(500, 8), torch.nn.functional.normalize(torch.randn(500, 3), dim=-1)
    before = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    hidden = [layer.weight for layer in network.hidden]
    lessons = torch.rand(500, 3), torch.ones(500), 1, torch.Generator().manual_seed(0)
    _teach(lambda rows: network(features[rows], directions[rows]), [*network.parameters()], hidden, *lessons)
    change = {name: (parameter.detach() - before[name]) for name, parameter in network.named_parameters()}
    for name, moved in change.items():
        if name in ("hidden.0.weight", "hidden.1.weight"):
            assert 0.6 * HIDDEN_RATE < torch.linalg.matrix_norm(moved, 2) < 1.25 * HIDDEN_RATE
            assert moved.abs().max() > 1.2 * RATE
        else:
            assert moved.abs().max() == pytest.approx(RATE, rel=1e-3)
