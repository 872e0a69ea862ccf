"""Exposure of the photos: a gain and a bias per color channel, learned in training or fitted for evaluation.

A photo is modeled as gain * rendering + bias in its opaque part; the background behind transparent pixels has no
exposure. Learned exposures are relative to their mean over all images. Otherwise the brightness of the scene would be
undetermined.

Legend: R rays, I images, H W pixels.
"""

import math

import torch
from torch import Tensor, nn

from nerf.calibration.pose_refinement import take_rows
from nerf.config.schema import ExposureConfig
from nerf.images import metrics
from nerf.ops.backend import Backend
from nerf.optim.adam import MaskedAdam, ParameterGroup
from nerf.optim.clock import RunClock

LR_DECAY = 0.1  # over the run, exponential
RIDGE = 1e-6  # regularizes the fit towards gain 1 and bias 0
MAX_PIXELS = 1 << 18  # per view, for the exposure gain


class Exposure(nn.Module):
    """Gain and bias of I images."""

    def __init__(self, num_images: int, config: ExposureConfig, backend: Backend) -> None:
        super().__init__()
        self.backend = backend
        self.config = config
        self.values = nn.Parameter(torch.zeros(num_images, 6, device=backend.device))  # log gain, bias
        self.optimizer = MaskedAdam(self, 0.9, 0.99, backend)

    def parameter_groups(self) -> list[ParameterGroup]:
        """The one parameter with its learning rate."""
        return [ParameterGroup("values", self.values, (self.config.lr,))]

    def forward(self, rgb: Tensor, alpha: Tensor, image: Tensor) -> Tensor:
        """Rendered colors rgb [R,3] with the exposure of their photos; alpha [R,1] of the photos, image [R] int64."""
        relative = self.values - self.values.mean(0)
        log_gain, bias = take_rows(relative, image, self.backend).chunk(2, dim=-1)
        return exposed(rgb, alpha, log_gain.exp(), bias)

    def set_progress(self, clock: RunClock) -> None:
        """Sets the learning rate for the clock's progress. Call it outside of a CUDA graph."""
        self.optimizer.decay.fill_(LR_DECAY**clock.progress)

    def step(self, apply: Tensor | None = None) -> None:
        """One Adam step with the current gradients, which are then dropped. apply: see MaskedAdam.step."""
        self.optimizer.step(apply)


def exposed(rgb: Tensor, alpha: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """alpha * (gain * rgb + bias) + (1 - alpha) * rgb, for rgb [...,3] and alpha [...,1] of the photo."""
    return rgb + alpha * ((gain - 1) * rgb + bias)


def fit(rgb: Tensor, target: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """The gain [3] and bias [3] that fit a rendering rgb [...,3] to a photo target [...,3] with alpha [...,1].

    Least squares of target - exposed(rgb, alpha, gain, bias), per color channel.
    """
    rgb, target, alpha = (x.double().flatten(0, -2) for x in (rgb, target, alpha))
    columns = torch.stack([alpha * rgb, alpha.expand_as(rgb)], dim=-1).transpose(0, 1)  # [3,N,2]
    normal = columns.mT @ columns + RIDGE * torch.eye(2, dtype=rgb.dtype, device=rgb.device)
    right = columns.mT @ (target - rgb).T[:, :, None]
    change, bias = torch.linalg.solve(normal, right)[:, :, 0].unbind(-1)
    return (1 + change).float(), bias.float()


def fit_left_score_right(rgb: Tensor, target: Tensor, alpha: Tensor, valid: Tensor | None = None) -> Tensor:
    """A rendering rgb [H,W,3] with the exposure that is fitted on its left half, so that the right half can be scored.

    valid [H,W] bool: the pixels that enter the fit; None: all.
    """
    half = rgb.shape[1] // 2
    left = [x[:, :half] if valid is None else x[:, :half][valid[:, :half]] for x in (rgb, target, alpha)]
    gain, bias = fit(*left)
    return exposed(rgb, alpha, gain, bias)


def fitting_gain(rgb: Tensor, target: Tensor, alpha: Tensor, valid: Tensor | None = None) -> float:
    """The exposure gain: increase in PSNR, in dB, of the right half of a rendering rgb [H,W,3] when its exposure is
    fitted on the left half.

    About 0 if the photo has the exposure of the training photos, and 0 if the mask hides one half of the view. valid:
    see fit_left_score_right. Large views are subsampled to about MAX_PIXELS pixels.
    """
    step = math.ceil(math.sqrt(rgb.shape[0] * rgb.shape[1] / MAX_PIXELS))
    rgb, target, alpha = (x[::step, ::step] for x in (rgb, target, alpha))
    valid = None if valid is None else valid[::step, ::step]
    half = rgb.shape[1] // 2
    right = None if valid is None else valid[:, half:]
    if half == 0 or (valid is not None and not (valid[:, :half].any() and right.any())):
        return 0.0
    fitted = fit_left_score_right(rgb, target, alpha, valid)
    before, after = (metrics.psnr(x[:, half:], target[:, half:], right) for x in (rgb, fitted))
    return after - before
