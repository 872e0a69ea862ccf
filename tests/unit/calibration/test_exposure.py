"""Exposures: learned while training, and fitted on one half of a view for the score of the other."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fixtures import write_sphere_scene
from tiny_runs import tiny_config, tiny_images

from nerf.calibration.exposure import MAX_PIXELS, Exposure, exposed, fit, fit_left_score_right, fitting_gain
from nerf.config.recipes import resolve_config
from nerf.config.schema import ExposureConfig
from nerf.datasets.blender import load_blender
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.evaluation.scores import evaluate
from nerf.images import metrics
from nerf.images.metrics import psnr
from nerf.ops.backend import select
from nerf.runs.notes import JUDGED_STEPS, run_notes
from nerf.training.initial_state import init_state
from nerf.training.loop import train
from nerf.training.state import make_sampler


@pytest.fixture
def splits(tmp_path: Path) -> tuple[PosedImages, PosedImages]:
    """Train and test views that are large enough for half of one to be scored."""
    write_sphere_scene(tmp_path, views=8, size=24)
    return load_blender(tmp_path, "train"), load_blender(tmp_path, "test")


GAIN, BIAS = torch.tensor([0.8, 1.1, 0.9]), torch.tensor([0.05, -0.02, 0.1])


def test_a_known_exposure_is_fitted_exactly() -> None:
    rgb, alpha = torch.rand(9, 12, 3), torch.rand(9, 12, 1)
    gain, bias = fit(rgb, exposed(rgb, alpha, GAIN, BIAS), alpha)
    torch.testing.assert_close(gain, GAIN, rtol=0, atol=1e-5)
    torch.testing.assert_close(bias, BIAS, rtol=0, atol=1e-5)


def test_where_no_photo_is_nothing_is_fitted() -> None:
    rgb = torch.rand(4, 6, 3)
    gain, bias = fit(rgb, torch.rand(4, 6, 3), torch.zeros(4, 6, 1))
    assert torch.equal(gain, torch.ones(3)) and torch.equal(bias, torch.zeros(3))


def test_the_right_half_does_not_fit_itself() -> None:
    """The truth's right half is of another exposure: it must be scored with that of the left."""
    rgb, alpha = torch.rand(8, 10, 3), torch.ones(8, 10, 1)
    truth = torch.cat([exposed(rgb, alpha, GAIN, BIAS)[:, :5], torch.rand(8, 5, 3)], dim=1)
    expected = exposed(rgb, alpha, GAIN, BIAS)
    torch.testing.assert_close(fit_left_score_right(rgb, truth, alpha), expected, rtol=0, atol=1e-5)


def test_a_fitted_exposure_is_worth_what_the_photo_differs_by() -> None:
    torch.manual_seed(0)
    rgb, alpha = 0.1 + 0.7 * torch.rand(8, 10, 3), torch.ones(8, 10, 1)
    noise = 0.01 * torch.randn(8, 10, 3)
    assert fitting_gain(rgb, exposed(rgb, alpha, GAIN, BIAS) + noise, alpha) > 10
    assert abs(fitting_gain(rgb, rgb + noise, alpha)) < 0.5
    left = torch.arange(10).expand(8, 10) < 5
    for counts in (left, ~left, torch.zeros(8, 10, dtype=torch.bool)):
        assert fitting_gain(rgb, exposed(rgb, alpha, GAIN, BIAS), alpha, counts) == 0
    assert fitting_gain(rgb, exposed(rgb, alpha, GAIN, BIAS), alpha, torch.ones_like(left)) > 10
    assert fitting_gain(rgb[:, :1], rgb[:, 1:2], alpha[:, :1]) == 0  # one pixel wide


def test_of_a_large_view_few_pixels_tell_its_exposure(monkeypatch: pytest.MonkeyPatch) -> None:
    rgb, alpha, seen = 0.1 + 0.7 * torch.rand(600, 900, 3), torch.ones(600, 900, 1), []
    psnr_of = metrics.psnr
    monkeypatch.setattr(metrics, "psnr", lambda *given: seen.append(given[0].shape[:2].numel()) or psnr_of(*given))
    assert fitting_gain(rgb, exposed(rgb, alpha, GAIN, BIAS), alpha, alpha[..., 0] > 0) > 10
    assert seen == [300 * 225] * 2 and MAX_PIXELS < 600 * 900


@pytest.mark.parametrize("learn", [False, True])
def test_who_trains_on_photos_of_other_exposures_is_told(splits: tuple[PosedImages, PosedImages], learn: bool) -> None:
    images, views = splits
    config = replace(tiny_config(), exposure=ExposureConfig(learn=learn))
    state = init_state(resolve_config(config, "cpu"), images, select("native", "cpu"))
    assert evaluate(state.field, make_sampler(config, state), views, torch.ones(3)).exposure_gain == []  # rendered
    photos = replace(views, pixels=views.pixels[:, :3].contiguous(), depths=None)
    found = evaluate(state.field, make_sampler(config, state), photos, torch.ones(3))
    assert len(found.exposure_gain) == len(views)

    def notes(gains: list[float]) -> list[str]:
        return [n for n in run_notes(config, state, [], replace(found, exposure_gain=gains)) if "exposure" in n]

    assert notes([0.2, 1.4]) == []  # nothing is trained, and the rendering differs by more than exposure
    state.clock.step, state.num_upsamplings = JUDGED_STEPS, len(config.field.upsample_at)
    (note,) = notes([0.2, 1.4])
    assert "by 0.8 dB in the mean, by 1.4 dB at most" in note and note.endswith("evaluation.exposure=fit.")
    assert ("exposure.learn=true" in note) is not learn
    assert notes([0.2, 0.4]) == notes([]) == []


@pytest.mark.parametrize("name", ["native", "torch"])
def test_exposures_are_relative_and_reach_their_own_image_alone(name: str) -> None:
    exposure = Exposure(3, ExposureConfig(), select(name, "cpu"))
    with torch.no_grad():
        exposure.values += 0.7  # all alike: no change
    rgb, alpha = torch.rand(5, 3), torch.ones(5, 1)
    image = torch.tensor([0, 2, 2, 0, 2])
    torch.testing.assert_close(exposure(rgb, alpha, image), rgb)
    exposure(rgb, alpha, image)[1, 0].backward()
    gradient = exposure.values.grad
    torch.testing.assert_close(gradient.sum(0), torch.zeros(6))  # the mean does not move
    assert gradient[2, 0] > 0 and gradient[2, 3] > 0 and not gradient[:, [1, 2, 4, 5]].any()


def test_photos_of_other_exposures_cost_less_when_these_are_learned(splits: tuple[PosedImages, PosedImages]) -> None:
    """Every second training photo is darker: learned and fitted exposures bring back what they cost."""
    scores = {}
    images, views = splits
    dark = images.pixels.clone()
    by_image = dark.view(len(images), -1, 4)
    by_image[::2, :, :3] = (by_image[::2, :, :3].float() * 0.6).round().to(torch.uint8)
    for learn in (False, True):
        config = tiny_config(steps=150)
        config = replace(config, exposure=ExposureConfig(learn=learn, lr=2e-2))
        backend = select("native", "cpu")
        config = resolve_config(config, backend.device.type)
        state = init_state(config, replace(images, pixels=dark), backend)
        list(train(config, state))
        sampler = make_sampler(config, state)
        found = evaluate(state.field, sampler, views, torch.ones(3), exposure="fit")
        scores[learn] = sum(found.psnr) / len(found.psnr)
    assert scores[True] > scores[False] + 1.5
    gray = state.exposure(torch.full((8, 3), 0.5), torch.ones(8, 1), torch.arange(8)).detach().mean(1)
    assert gray[::2].max() < gray[1::2].min()
    assert (gray[::2].mean() / gray[1::2].mean()).item() == pytest.approx(0.6, abs=0.1)


def test_the_score_is_that_of_the_right_half(splits: tuple[PosedImages, PosedImages]) -> None:
    config = resolve_config(tiny_config(), "cpu")
    state = init_state(config, tiny_images(), select("native", "cpu"))
    seen = []
    scores = evaluate(
        state.field, make_sampler(config, state), splits[1], torch.ones(3),
        on_view=lambda index, rendering, truth: seen.append((rendering.rgb, truth)), exposure="fit",
    )  # fmt: skip
    assert scores.exposure_gain == []
    assert scores.psnr == [psnr(rgb[:, 12:], truth[:, 12:]) for rgb, truth in seen]


def test_views_too_small_to_be_halved_are_refused() -> None:
    config = resolve_config(tiny_config(), "cpu")
    state = init_state(config, tiny_images(), select("native", "cpu"))
    with pytest.raises(UserError, match="20 pixels of width are too few, expected at least 22"):
        evaluate(state.field, make_sampler(config, state), tiny_images("test"), torch.ones(3), exposure="fit")
