"""What sets the fields apart: where color is made."""

from dataclasses import replace

import pytest
import torch
from tiny_runs import field_config

from nerf.config.recipes import resolve_config
from nerf.config.schema import FIELDS, Config, TrainConfig
from nerf.fields import field as field_module
from nerf.fields.field import Field
from nerf.fields.registry import build_field
from nerf.ops.backend import select
from nerf.ops.mlp import has_fused_kernel
from nerf.scene.box import SceneBox

BOX = SceneBox(torch.tensor([[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]]))
NAMES = [name for name in FIELDS if name != "auto"]


def field_of(name: str, **settings: object) -> Field:
    """A small field with numbers in its grids."""
    torch.manual_seed(0)
    field = build_field(replace(field_config(name), **settings), BOX, (5, 5, 5), 0.5, select("native", "cpu"))
    with torch.no_grad():
        for grid in (field.density_grid, field.appearance_grid):
            grid.normal_()
    return field


def directions(count: int) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(count, 3), dim=-1)


@pytest.mark.parametrize("name", NAMES)
def test_one_opaque_sample_makes_a_color(name: str) -> None:
    field, views = field_of(name), directions(7)
    density, values = field(torch.rand(7, 3), views, torch.arange(7))
    assert density.shape == (7,) and (density >= 0).all()
    rgb = field.shade(values, torch.ones(7), views)
    assert rgb.shape == (7, 3) and ((rgb > 0) & (rgb < 1)).all()
    assert (rgb - field.shade(values, torch.ones(7), directions(7))).abs().max() > 0.01 or name != "voxel_deferred"


@pytest.mark.parametrize("name", NAMES)
def test_light_is_in_proportion_to_opacity(name: str) -> None:
    """The same values with less weight: less light of the same color; none without any."""
    field, views = field_of(name), directions(7)
    _, values = field(torch.rand(7, 3), views, torch.arange(7))
    opacity = torch.linspace(0.1, 0.9, 7)
    whole = field.shade(values, torch.ones(7), views)
    torch.testing.assert_close(field.shade(values * opacity[:, None], opacity, views), whole * opacity[:, None])
    assert not field.shade(torch.zeros_like(values), torch.zeros(7), views).any()


def test_deferred_features_are_averaged_before_they_are_shaded() -> None:
    """Two samples of equal weight look like one with their mean features; with colors per sample they do not."""
    views = directions(1)
    for name, same in (("voxel_deferred", True), ("voxel_mlp", False)):
        field = field_of(name, **({"feature_sines": False} if same else {}))
        coords = torch.tensor([[0.1, 0.2, 0.3], [2.6, 1.4, 3.0]])
        _, values = field(coords, views, torch.zeros(2, dtype=torch.int64))
        features = field.interpolate(field.feature_grid, coords).mean(0)
        mlp_of_mean = torch.sigmoid(field.mlp(torch.cat([features[None], field.encode_view(views)], dim=-1)))
        assert torch.allclose(field.shade(values.mean(0)[None], torch.ones(1), views), mlp_of_mean, atol=1e-6) == same


def test_the_mlp_sees_features_and_sines_of_them() -> None:
    """The frequencies of features rise in equal ratios; what is composited stays the features alone."""
    plain, views = field_of("voxel_deferred", feature_sines=False), directions(7)
    field = field_of("voxel_deferred", feature_sines=True)
    channels = field.config.feature_channels
    values, opacity = torch.randn(7, channels), torch.linspace(0.1, 1, 7)
    frequencies = torch.tensor([0.316 * (10 / 0.316) ** (i / (channels - 1)) for i in range(channels)])
    features = values / opacity[:, None]
    expected = (features + torch.sin(frequencies * features)) * opacity[:, None]
    torch.testing.assert_close(field.shade(values, opacity, views), plain.shade(expected, opacity, views))
    coords = torch.rand(7, 3)
    torch.testing.assert_close(*(f(coords, views, torch.arange(7))[1] for f in (plain, field)))


@pytest.mark.parametrize("layers", [0, 1, 2, 3])
def test_pictures_and_training_see_one_network(layers: int) -> None:
    """Without gradients its layers are other kernels."""
    field = field_of("voxel_deferred", hidden_layers=layers)
    inputs = torch.randn(9, field.mlp[0].in_features)
    with torch.no_grad():
        shown = field.network(inputs)
    torch.testing.assert_close(shown, field.network(inputs).detach())


def test_diffuse_features_are_color_as_they_are() -> None:
    plain, views = field_of("voxel_deferred"), directions(7)
    values, opacity = torch.randn(7, plain.config.feature_channels), torch.linspace(0.1, 1, 7)
    diffuse = field_of("voxel_deferred", diffuse=True)
    added = diffuse.shade(values, opacity, views) - plain.shade(values, opacity, views)
    torch.testing.assert_close(added, values[:, :3])  # composited: times opacity already


def test_features_are_noisy_while_they_are_learned_and_never_in_a_picture() -> None:
    field, views = field_of("voxel_deferred", feature_noise=0.1), directions(7)
    values, opacity = torch.randn(7, field.config.feature_channels), torch.ones(7)
    clean = field.shade(values, opacity, views)
    field.noise_generator = torch.Generator().manual_seed(0)
    first, second = (field.shade(values, opacity, views) for _ in range(2))
    assert (first - clean).abs().max() > 1e-4 and (second - first).abs().max() > 1e-4
    field.noise_generator.manual_seed(0)
    assert torch.equal(field.shade(values, opacity, views), first)
    with torch.no_grad():
        assert torch.equal(field.shade(values, opacity, views), clean)
    field.requires_grad_(False)  # as where a held-out view's pose is looked for
    assert torch.equal(field.shade(values, opacity, views), clean)


@pytest.mark.parametrize(
    ("device", "seconds", "field", "rays"),
    [
        ("cuda", 15.0, "voxel_deferred", 16384),
        ("cuda", None, "voxel_deferred", 32768),
        ("cpu", 15.0, "voxel_deferred", 4096),
    ],
)
def test_auto_takes_the_field_that_gets_farthest(device: str, seconds: float | None, field: str, rays: int) -> None:
    """Resolving looks at the device's name alone, so it needs no GPU."""
    backend = replace(select("native", "cpu"), device=torch.device(device))
    config = resolve_config(Config(train=TrainConfig(max_seconds=seconds)), backend.device.type)
    assert (config.field.name, config.train.rays_per_step) == (field, rays)
    assert type(config.field) is FIELDS[field]


@pytest.mark.parametrize("at_a_time", [1, 100, 1 << 21])
def test_upsampling_is_trilinear_whatever_the_slab(at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field_module, "POINTS_AT_A_TIME", at_a_time)
    field = field_of("voxel_deferred")
    before = field.feature_grid.detach().permute(3, 0, 1, 2)[None]
    expected = torch.nn.functional.interpolate(before, size=(9, 7, 12), mode="trilinear", align_corners=True)
    field.upsample((9, 7, 12), torch.arange(9 * 7 * 12))
    assert field.density_grid.shape == (9, 7, 12, 1) and field.resolution == (9, 7, 12)
    torch.testing.assert_close(field.feature_grid.detach(), expected[0].permute(1, 2, 3, 0), rtol=1e-4, atol=1e-5)


def test_the_fused_network_is_the_one_that_is_trained() -> None:
    """On a CPU by the same operation's loops; a GPU takes it by itself."""
    plain, fused = (field_of("voxel_deferred", hidden_width=64) for _ in range(2))
    fused.load_state_dict(plain.state_dict())
    assert not fused.fused
    fused.use_bf16 = fused.fused = True
    values, opacity, views = torch.randn(7, plain.config.feature_channels), torch.linspace(0.1, 1, 7), directions(7)
    shown, found = (field.shade(values, opacity, views) for field in (plain, fused))
    torch.testing.assert_close(found, shown, atol=0.01, rtol=0.01)
    for field, light in ((plain, shown), (fused, found)):
        light.sum().backward()
        assert all(parameter.grad is not None for parameter in field.mlp.parameters())
    for ours, exact in zip(fused.mlp.parameters(), plain.mlp.parameters(), strict=True):
        assert (ours.grad - exact.grad).norm() <= 0.1 * exact.grad.norm()


def test_which_networks_have_a_fused_kernel() -> None:
    assert all(has_fused_kernel(44, width, layers, 3) for width in (64, 128, 256) for layers in (1, 4))
    assert not any(
        has_fused_kernel(*sizes) for sizes in ((44, 96, 2, 3), (44, 256, 0, 3), (44, 256, 2, 9), (91, 64, 2, 3))
    )
