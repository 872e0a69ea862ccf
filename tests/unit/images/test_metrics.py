"""Scores against closed forms and against SSIM written out window by window."""

import math

import numpy as np
import pytest
import torch

from nerf.images import metrics
from nerf.images.metrics import median_depth_error, mse_to_psnr, psnr, ssim, ssim_window, summarize


def random_pair(height: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(height, width, 3, generator=generator)
    noise = torch.randn(height, width, 3, generator=generator)
    return (target + 0.1 * noise).clamp(0, 1), target


def slow_ssim(image: np.ndarray, target: np.ndarray) -> float:
    """Equations 13 to 16 of Wang et al. (2004), with variances from differences to the window's mean."""
    row, column = np.mgrid[-5:6, -5:6]
    weights = np.exp(-(row**2 + column**2) / (2 * 1.5**2))
    weights /= weights.sum()
    height, width, channels = image.shape
    scores = []
    for channel in range(channels):
        for v in range(height - 10):
            for u in range(width - 10):
                x = image[v : v + 11, u : u + 11, channel]
                y = target[v : v + 11, u : u + 11, channel]
                mean_x, mean_y = (weights * x).sum(), (weights * y).sum()
                variance_x = (weights * (x - mean_x) ** 2).sum()
                variance_y = (weights * (y - mean_y) ** 2).sum()
                covariance = (weights * (x - mean_x) * (y - mean_y)).sum()
                numerator = (2 * mean_x * mean_y + 1e-4) * (2 * covariance + 9e-4)
                denominator = (mean_x**2 + mean_y**2 + 1e-4) * (variance_x + variance_y + 9e-4)
                scores.append(numerator / denominator)
    return float(np.mean(scores))


@pytest.mark.parametrize("mse, decibels", [(1.0, 0.0), (0.01, 20.0), (0.0, math.inf)])
def test_mse_to_psnr(mse, decibels):
    assert mse_to_psnr(mse) == pytest.approx(decibels)


def test_psnr_of_a_diverged_image_is_not_a_number():
    assert math.isnan(psnr(torch.full((2, 2, 3), math.nan), torch.zeros(2, 2, 3)))


def test_psnr_of_a_constant_offset():
    target = torch.full((4, 5, 3), 0.5)
    assert psnr(target + 0.1, target) == pytest.approx(20.0, abs=1e-4)


def test_psnr_clamps_both_images():
    image, target = torch.full((4, 5, 3), 1.7), torch.full((4, 5, 3), -0.3)
    assert psnr(image, target) == pytest.approx(0.0)
    assert psnr(image, torch.ones(4, 5, 3)) == math.inf


def test_ssim_of_identical_images_is_one():
    _, target = random_pair(16, 20)
    assert ssim(target, target) == pytest.approx(1.0, abs=1e-12)


def test_ssim_of_constant_images():
    """Without variance only the luminance term is left."""
    image, target = torch.full((12, 12, 3), 0.25), torch.full((12, 12, 3), 0.75)
    expected = (2 * 0.25 * 0.75 + 1e-4) / (0.25**2 + 0.75**2 + 1e-4)
    assert ssim(image, target) == pytest.approx(expected, abs=1e-9)


def test_ssim_matches_the_definition():
    image, target = random_pair(14, 17)
    expected = slow_ssim(image.double().numpy(), target.double().numpy())
    assert ssim(image, target) == pytest.approx(expected, abs=1e-9)


def test_ssim_clamps_both_images():
    image, target = random_pair(12, 12)
    assert ssim(3 * image - 1, target) == pytest.approx(ssim((3 * image - 1).clamp(0, 1), target), abs=1e-12)


def test_ssim_needs_room_for_its_window():
    image, target = random_pair(11, 11)
    assert 0 < ssim(image, target) < 1
    with pytest.raises(ValueError, match=r"image: found \[10, 11, 3\], expected at least 11 pixels"):
        ssim(image[:10], target[:10])


def test_a_smaller_window_is_the_middle_of_the_usual_one():
    """Of one window, so that each mean is a sum written out here."""
    image, target = random_pair(5, 5)
    sizes = ((800, 800), (11, 40), (40, 10), (9, 9), (2, 7), (1, 1))
    assert [ssim_window(*size) for size in sizes] == [11, 11, 9, 9, 1, 1]
    weights = torch.exp(-0.5 * ((torch.arange(5.0).double() - 2) / 1.5) ** 2)
    weights = torch.outer(weights, weights)[..., None] / weights.sum() ** 2
    x, y = image.double(), target.double()
    mean_x, mean_y = (weights * x).sum((0, 1)), (weights * y).sum((0, 1))
    var_x, var_y = ((weights * z * z).sum((0, 1)) - mean * mean for z, mean in ((x, mean_x), (y, mean_y)))
    both = (weights * x * y).sum((0, 1)) - mean_x * mean_y
    expected = (2 * mean_x * mean_y + 1e-4) * (2 * both + 9e-4)
    expected /= (mean_x**2 + mean_y**2 + 1e-4) * (var_x + var_y + 9e-4)
    assert ssim(image, target, window=5) == pytest.approx(expected.mean().item(), abs=1e-12)


@pytest.mark.parametrize("score", [psnr, ssim])
def test_scores_refuse_other_shapes_and_dtypes(score):
    target = torch.zeros(12, 12, 3)
    planes = target.permute(2, 0, 1)
    with pytest.raises(ValueError, match=r"image: found .* \[12, 13, 3\], expected float \[12, 12, 3\]"):
        score(torch.zeros(12, 13, 3), target)
    with pytest.raises(ValueError, match=r"image: found torch.uint8 \[12, 12, 3\]"):
        score(target.byte(), target)
    with pytest.raises(ValueError, match=r"target: found .* \[3, 12, 12\], expected float \[any, any, 3\]"):
        score(planes, planes)


def test_pixels_that_do_not_count_change_no_score():
    image, target, counts = torch.rand(30, 40, 3), torch.rand(30, 40, 3), torch.ones(30, 40, dtype=torch.bool)
    for score in (psnr, ssim):
        assert score(image, target, counts) == pytest.approx(score(image, target))
    counts[:, 25:] = False
    spoilt = torch.where(counts[..., None], image, torch.rand(30, 40, 3))
    for score in (psnr, ssim):  # the windows and pixels of the part that counts are those of it alone
        assert score(spoilt, target, counts) == pytest.approx(score(image[:, :25], target[:, :25]))
        assert math.isnan(score(image, target, torch.zeros_like(counts)))


def test_median_depth_error_divides_by_opacity_where_there_is_truth():
    target = torch.tensor([[2.0, 4.0, 3.0, 0.0]])
    opacity = torch.tensor([[0.5, 1.0, 0.8, 1.0]])
    depth = torch.tensor([[1.05, 4.3, 2.4, 9.0]])  # errors 0.1, 0.3, 0 and, not counted, 9
    assert median_depth_error(depth, target, opacity) == pytest.approx(0.1, abs=1e-6)


def test_a_hole_costs_its_full_distance():
    target, nothing = torch.full((1, 3), 2.0), torch.zeros(1, 3)
    assert median_depth_error(nothing, target, nothing) == 2.0


def test_median_depth_error_without_hits_is_nan():
    nothing = torch.zeros(2, 2)
    assert math.isnan(median_depth_error(nothing, nothing, nothing))


def test_median_depth_error_refuses_other_shapes():
    target = torch.ones(2, 3)
    with pytest.raises(ValueError, match=r"depth: found torch.float32 \[2, 3, 1\], expected float \[2, 3\]"):
        median_depth_error(target[..., None], target, target)
    with pytest.raises(ValueError, match="opacity: found torch.bool"):
        median_depth_error(target, target, target.bool())


def test_summarize():
    assert summarize([20.0, 30.0, 31.0]) == {"mean": 27.0, "per_view": [20.0, 30.0, 31.0]}
    some = summarize([20.0, math.nan, 31.0])  # a view whose mask leaves nothing
    assert some["mean"] == 25.5 and math.isnan(some["per_view"][1])
    assert math.isnan(summarize([math.nan])["mean"])
    with pytest.raises(ValueError, match="values: found none"):
        summarize([])


def test_ssim_of_a_large_image_goes_band_by_band(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(4)
    image, target = (torch.rand(47, 31, 3, generator=generator) for _ in range(2))
    counts = torch.rand(47, 31, generator=generator) > 0.005
    expected = metrics.ssim(image, target), metrics.ssim(image, target, counts)
    for pixels in (1, 31 * 5, 31 * 36):
        monkeypatch.setattr(metrics, "SSIM_BAND", pixels)
        found = metrics.ssim(image, target), metrics.ssim(image, target, counts)
        assert found == pytest.approx(expected, rel=1e-12)
