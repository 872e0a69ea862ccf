"""The exposure of each photo: a gain and a bias for each colour, learned while training, fitted for a score.

A photo is modelled as gain * rendering + bias where it shows the scene; what this program blends in behind transparent
pixels has no exposure. Learned ones are relative to their mean over all images, or the scene could grow darker while
every gain grows.

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
RIDGE = 1e-6  # keeps the fit at no change where there is nothing to fit
MAX_PIXELS = 1 << 18  # of a view, which tell whether its exposure is another one


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
        """What the photos would show of rendered colours rgb [R,3]; alpha [R,1] of the photos, image [R] int64."""
        relative = self.values - self.values.mean(0)
        log_gain, bias = take_rows(relative, image, self.backend).chunk(2, dim=-1)
        return exposed(rgb, alpha, log_gain.exp(), bias)

    def advance(self, clock: RunClock) -> None:
        """Sets the learning rate of a run that has come so far; called outside of a CUDA graph."""
        self.optimizer.decay.fill_(LR_DECAY**clock.progress)

    def step(self, taken: Tensor | None = None) -> None:
        """One step of Adam with the gradients in place, which are dropped. taken: see MaskedAdam.step."""
        self.optimizer.step(taken)


def exposed(rgb: Tensor, alpha: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """gain * rgb + bias on the share alpha of each pixel that is photo, rgb on the rest. Shapes [...,3] and [...,1]."""
    return rgb + alpha * ((gain - 1) * rgb + bias)


def fit(rgb: Tensor, truth: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """The gain [3] and bias [3] that bring a rendering rgb [...,3] closest to a photo truth [...,3], alpha [...,1].

    Least squares of truth - exposed(rgb, alpha, gain, bias), colour by colour.
    """
    rgb, truth, alpha = (x.double().flatten(0, -2) for x in (rgb, truth, alpha))
    columns = torch.stack([alpha * rgb, alpha.expand_as(rgb)], dim=-1).transpose(0, 1)  # [3,N,2]
    normal = columns.mT @ columns + RIDGE * torch.eye(2, dtype=rgb.dtype, device=rgb.device)
    right = columns.mT @ (truth - rgb).T[:, :, None]
    change, bias = torch.linalg.solve(normal, right)[:, :, 0].unbind(-1)
    return (1 + change).float(), bias.float()


def fit_left_score_right(rgb: Tensor, truth: Tensor, alpha: Tensor, counts: Tensor | None = None) -> Tensor:
    """A rendering rgb [H,W,3] with the exposure that its left half fits, for its right half to be scored.

    counts [H,W] bool: the pixels that the fit looks at; None: all.
    """
    half = rgb.shape[1] // 2
    left = [x[:, :half] if counts is None else x[:, :half][counts[:, :half]] for x in (rgb, truth, alpha)]
    gain, bias = fit(*left)
    return exposed(rgb, alpha, gain, bias)


def fitting_gain(rgb: Tensor, truth: Tensor, alpha: Tensor, counts: Tensor | None = None) -> float:
    """How many dB nearer to its photo the right half of a rendering rgb [H,W,3] is with the exposure of the left half.

    About 0 where the photo is exposed as those that were trained on. counts: see fit_left_score_right; 0 where half of
    the view has no pixel that counts. Of large views it looks at every so-manieth pixel.
    """
    step = math.ceil(math.sqrt(rgb.shape[0] * rgb.shape[1] / MAX_PIXELS))
    rgb, truth, alpha = (x[::step, ::step] for x in (rgb, truth, alpha))
    counts = None if counts is None else counts[::step, ::step]
    half = rgb.shape[1] // 2
    right = None if counts is None else counts[:, half:]
    if half == 0 or (counts is not None and not (counts[:, :half].any() and right.any())):
        return 0.0
    fitted = fit_left_score_right(rgb, truth, alpha, counts)
    before, after = (metrics.psnr(x[:, half:], truth[:, half:], right) for x in (rgb, fitted))
    return after - before
