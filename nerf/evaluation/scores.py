"""Scores of a field on the views of a split: PSNR, SSIM, LPIPS of float images, and depth error if depth is known.

Masked pixels are excluded from all scores. LPIPS needs whole images, so its input shows the ground truth there.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nerf.calibration.exposure import fit_left_score_right, fitting_gain
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.fields.field import Field
from nerf.images import metrics
from nerf.images.lpips import SMALLEST_SIDE, Lpips, LpipsUnavailable
from nerf.ops.backend import synchronize
from nerf.rendering.ensemble import Member, render_mean
from nerf.rendering.render import Rendering
from nerf.rendering.sampler import RaySampler

# The names in metrics.json.
SCORES = ("views", "psnr", "ssim", "ssim_window", "lpips", "median_depth_error", "render_seconds_per_view")


@dataclass(frozen=True)
class Scores:
    """Scores of a split, per view."""

    views: list[str]  # names of the scored views, in the order of the lists below
    psnr: list[float]  # dB
    ssim: list[float]
    depth_error: list[float]  # world units, median over hit pixels; empty if no depth is known
    seconds_per_view: float  # rendering only
    lpips: list[float]  # VGG, inputs in [-1,1]; empty if not requested or not available
    no_lpips: str | None  # why LPIPS is not available
    exposure_gain: list[float]  # dB (exposure.fitting_gain); for photos only
    ssim_window: int = metrics.SSIM_WINDOW  # pixels; smaller for very small views

    def __repr__(self) -> str:
        """One line, however many views there are."""
        means = {"PSNR {:.2f} dB": self.psnr, "SSIM {:.4f}": self.ssim, "LPIPS {:.4f}": self.lpips}
        words = [form.format(metrics.mean_of_known(values)) for form, values in means.items() if values]
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
    on_view: Callable[[int, Rendering, Tensor], None] = lambda index, rendering, target: None,
    with_lpips: bool = False,
    exposure: str = "none",
    others: Sequence[Member] = (),
) -> Scores:
    """Renders and scores every k-th view.

    Renderings are darkened by the vignetting of the images, if it is known. background [3]: behind the scene, for
    renderings and for ground truth with alpha. on_view: called with index, rendering and ground truth [H,W,3] of each
    scored view. exposure="fit": the exposure of each rendering is fitted to its photo on the left half, and the right
    half is scored. others: more fields of the scene, with cameras of the same views; then what is scored is the mean of
    the pictures of all. Raises UserError if half a view is too small to fit an exposure.
    """
    device = background.device
    narrowest = images.cameras.image_sizes[:, 0].min().item()
    if exposure == "fit" and narrowest < 2 * metrics.SSIM_WINDOW:
        raise UserError(
            f"exposure=fit scores half of each view, and {narrowest} pixels of width are too few, expected at least "
            f"{2 * metrics.SSIM_WINDOW}; take exposure=none, in training evaluation.exposure=none, or larger views."
        )
    members = [Member(field, sampler, images.cameras.to(device), background, images.vignetting), *others]
    # Synthetic views, all with the same exposure; a capture, which has a scene, may have depth files.
    rendered = images.has_alpha or (images.depths is not None and images.scene is None)
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
    if device.type == "cuda":  # untimed: the first image of a process loads kernels, the second is recorded
        for _ in range(2):
            render_mean(members, 0)
    psnr, ssim, lpips, depth_error, exposure_gain, seconds = [], [], [], [], [], 0.0
    for index in range(0, len(images), every):
        target = images.image_over(index, background.cpu()).to(device)
        alpha = torch.ones_like(target[..., :1])
        if images.has_alpha:
            alpha = images.image(index)[..., 3:].to(device) / 255
        synchronize(device)
        started = time.perf_counter()
        rendering = render_mean(members, index, photo_alpha=alpha)
        synchronize(device)
        seconds += time.perf_counter() - started
        valid = images.valid_mask(index)
        valid = None if valid is None else valid.to(device)
        pred, rgb_gt, scored = rendering.rgb, target, valid
        if exposure == "fit":
            rendering = replace(rendering, rgb=fit_left_score_right(rendering.rgb, target, alpha, valid))
            half = target.shape[1] // 2
            pred, rgb_gt = rendering.rgb[:, half:], target[:, half:]
            scored = None if valid is None else valid[:, half:]
        elif not rendered:
            exposure_gain.append(fitting_gain(rendering.rgb, target, alpha, valid))
        psnr.append(metrics.psnr(pred, rgb_gt, scored))
        ssim.append(metrics.ssim(pred, rgb_gt, scored, window))
        if perceptual is not None:
            whole = pred if scored is None else torch.where(scored[..., None], pred, rgb_gt)
            lpips.append(perceptual(whole, rgb_gt))
        known = images.depth(index)
        if known is not None:
            known = known.to(device) if valid is None else known.to(device) * valid
            depth_error.append(metrics.median_depth_error(rendering.depth, known, rendering.opacity))
        on_view(index, rendering, target)
    names = [images.names[index] for index in range(0, len(images), every)]
    return Scores(names, psnr, ssim, depth_error, seconds / len(psnr), lpips, no_lpips, exposure_gain, window)
