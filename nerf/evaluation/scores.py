"""Scores a field on the views of a split: PSNR, SSIM and LPIPS of float images, geometry error where depth is known.

Pixels that do not count (masks) are left out of all of them; LPIPS, whose network sees the whole image, is shown the
truth there.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean

import torch
from torch import Tensor

from nerf.calibration.exposure import fit_left_score_right, fitting_gain
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.fields.field import Field
from nerf.images import metrics
from nerf.images.lpips import SMALLEST_SIDE, Lpips, LpipsUnavailable
from nerf.rendering.render import Rendering, render_image
from nerf.rendering.sampler import RaySampler

# The names in metrics.json.
SCORES = ("views", "psnr", "ssim", "ssim_window", "lpips", "median_depth_error", "render_seconds_per_view")


@dataclass(frozen=True)
class Scores:
    """Metrics of a split, view by view."""

    views: list[str]  # names of the views that were scored, in the order of every list below
    psnr: list[float]  # dB
    ssim: list[float]
    depth_error: list[float]  # world units, median over hit pixels; empty where no depth is known
    seconds_per_view: float  # rendering alone, the device waited for
    lpips: list[float]  # of VGG, its inputs in [-1,1]; empty where it was not asked for or cannot be had
    no_lpips: str | None  # why it cannot be had
    exposure_gain: list[float]  # dB that fitting would add (exposure.fitting_gain); of photos alone
    ssim_window: int = metrics.SSIM_WINDOW  # pixels; smaller where a view is

    def __repr__(self) -> str:
        """One line, however many views there are."""
        means = {"PSNR {:.2f} dB": self.psnr, "SSIM {:.4f}": self.ssim, "LPIPS {:.4f}": self.lpips}
        words = [form.format(fmean(values)) for form, values in means.items() if values]
        return f"Scores({', '.join(words)} over {len(self.views)} views)"

    def summary(self) -> dict[str, object]:
        """Plain values for metrics.json; per_view lists follow the order of views."""
        result: dict[str, object] = {"views": self.views}
        result |= {"psnr": metrics.summarize(self.psnr), "ssim": metrics.summarize(self.ssim)}
        if self.ssim_window != metrics.SSIM_WINDOW:
            result["ssim_window"] = self.ssim_window
        if self.lpips:
            result["lpips"] = metrics.summarize(self.lpips)
        if self.depth_error:
            result["median_depth_error"] = metrics.summarize(self.depth_error)
        result["render_seconds_per_view"] = self.seconds_per_view
        return result


def evaluate(
    field: Field,
    sampler: RaySampler,
    images: PosedImages,
    background: Tensor,
    every: int = 1,
    on_view: Callable[[int, Rendering, Tensor], None] = lambda index, rendering, truth: None,
    with_lpips: bool = False,
    exposure: str = "none",
) -> Scores:
    """Renders and scores every k-th view; on_view sees each with its truth [H,W,3].

    exposure: fit adapts each rendering to the exposure of its photo, from the left half, and scores the right half.
    Raises UserError where half a view is too small to score.
    """
    device = background.device
    narrowest = images.cameras.image_sizes[:, 0].min().item()
    if exposure == "fit" and narrowest < 2 * metrics.SSIM_WINDOW:
        raise UserError(
            f"evaluation.exposure=fit scores half of each view, and {narrowest} pixels of width are too "
            f"few, expected at least {2 * metrics.SSIM_WINDOW}; take evaluation.exposure=none or larger views."
        )
    cameras = images.cameras.to(device)
    rendered = images.has_alpha or images.depths is not None  # by a program, whose exposure is one
    smallest = images.cameras.image_sizes.min().item()
    window = metrics.ssim_window(smallest, smallest)
    perceptual, no_lpips = None, None
    if with_lpips and smallest < SMALLEST_SIDE:
        no_lpips = f"its network needs views of {SMALLEST_SIDE} pixels at least, found {smallest}"
    elif with_lpips:
        try:
            perceptual = Lpips(device)
        except LpipsUnavailable as error:
            no_lpips = str(error)
    if device.type == "cuda":  # the first picture of a process loads kernels, and is no measure of the others
        render_image(field, sampler, cameras, 0, background)
    psnr, ssim, lpips, depth_error, exposure_gain, seconds = [], [], [], [], [], 0.0
    for index in range(0, len(images), every):
        _synchronize(device)
        started = time.perf_counter()
        rendering = render_image(field, sampler, cameras, index, background)
        _synchronize(device)
        seconds += time.perf_counter() - started
        truth = images.image_over(index, background.cpu()).to(device)
        counts = images.counts(index)
        counts = None if counts is None else counts.to(device)
        shown, wanted, scored = rendering.rgb, truth, counts
        alpha = torch.ones_like(truth[..., :1])
        if images.has_alpha:
            alpha = images.image(index)[..., 3:].to(device) / 255
        if exposure == "fit":
            rendering = replace(rendering, rgb=fit_left_score_right(rendering.rgb, truth, alpha, counts))
            half = truth.shape[1] // 2
            shown, wanted = rendering.rgb[:, half:], truth[:, half:]
            scored = None if counts is None else counts[:, half:]
        elif not rendered:
            exposure_gain.append(fitting_gain(rendering.rgb, truth, alpha, counts))
        psnr.append(metrics.psnr(shown, wanted, scored))
        ssim.append(metrics.ssim(shown, wanted, scored, window))
        if perceptual is not None:
            seen = shown if scored is None else torch.where(scored[..., None], shown, wanted)
            lpips.append(perceptual(seen, wanted))
        known = images.depth(index)
        if known is not None:
            known = known.to(device) if counts is None else known.to(device) * counts
            depth_error.append(metrics.median_depth_error(rendering.depth, known, rendering.opacity))
        on_view(index, rendering, truth)
    names = [images.names[index] for index in range(0, len(images), every)]
    return Scores(names, psnr, ssim, depth_error, seconds / len(psnr), lpips, no_lpips, exposure_gain, window)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
