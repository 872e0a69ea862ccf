"""Features as color: principal components that stay from picture to picture, of every field that has a grid."""

import math
from dataclasses import replace

import pytest
import torch
from tiny_runs import STEPS, run_to, tiny_config, tiny_images, tiny_state
from viewed import tiny_scene

from nerf.fields.field import Field
from nerf.fields.registry import FIELDS
from nerf.ops.backend import select
from nerf.rendering.background import Background
from nerf.training.state import make_sampler
from nerf.viewer.features import FeatureColors
from nerf.viewer.look import Look
from nerf.viewer.modes import MODES, draw_pixels, modes_of
from nerf.viewer.scene import Scene


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_shows_its_features(name: str, device: str) -> None:
    config, state = tiny_state(tiny_config(name), select("native", device))
    run_to(config, state, STEPS)
    background = Background.of(config.dataset, state.field.background).eval(state.device)
    scene = Scene(state.field, make_sampler(config, state), background, tiny_images().cameras)
    cameras = scene.cameras.to(device)
    assert "features" in modes_of(scene) and "error" not in modes_of(scene)

    def picture(mode: str, view: int) -> torch.Tensor:
        pixels = scene.cameras.width * scene.cameras.height
        return draw_pixels(scene, Look(mode), cameras[view], 0, pixels, 1)

    first, solid = picture("features", 0), picture("opacity", 0)[:, 0] > 128  # the settings of a GPU leave some fog
    assert solid.sum() > 50
    assert first[solid].float().std(0).min() > 10  # all three components vary on the sphere
    colors = scene.feature_colors
    picture("features", 3)
    assert scene.feature_colors is colors and picture("features", 0).equal(first)
    again = Scene(scene.field, scene.sampler, scene.background, scene.cameras)
    draw_pixels(again, Look("features"), cameras[2], 0, 9, 1)
    channels = torch.eye(len(colors.mean), device=device)
    assert again.feature_colors(channels).equal(colors(channels))


def test_a_field_without_a_grid_has_no_features() -> None:
    class Gridless(Field):
        raw_density = forward = parameter_groups = None

    scene = replace(tiny_scene(), field=Gridless.__new__(Gridless))
    assert modes_of(scene) == [mode for mode in MODES if mode != "features"]


def test_the_axes_are_the_principal_components() -> None:
    generator = torch.Generator().manual_seed(1)
    spread = torch.tensor([0.1, 3.0, 0.01, 2.0, 1.0])
    features = 5 + spread * torch.randn(4000, 5, generator=generator)
    colors = FeatureColors.of(features)
    assert colors.axes.abs().argmax(0).tolist() == [1, 3, 4]
    assert (colors.axes.gather(0, colors.axes.abs().argmax(0, keepdim=True)) > 0.9).all()
    found = colors(features)
    assert ((found == 0) | (found == 1)).float().mean() == pytest.approx(0.04, abs=0.01)
    torch.testing.assert_close(found.mean(0), torch.full((3,), 0.5), rtol=0, atol=0.02)


@pytest.mark.parametrize("features", [torch.zeros(0, 4), torch.ones(7, 4), torch.rand(9, 2), torch.rand(1, 1)])
def test_few_features_still_have_colors(features: torch.Tensor) -> None:
    found = FeatureColors.of(features)(features)
    assert found.shape == (len(features), 3) and all(math.isfinite(value) for value in found.flatten().tolist())
