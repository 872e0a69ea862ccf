"""The small network of a web page: where its channels begin."""

import pytest
import torch

from nerf.export.web.distill import SmallMlp


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
