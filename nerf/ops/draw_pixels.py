"""draw_pixels: the pixels of a batch, one from each of equal parts of a set."""

import torch
from torch import Tensor

from nerf.ops.registry import example, fake, numbers


def draw_pixels(random: Tensor, offsets: Tensor, shifts: Tensor, count: int) -> Tensor:
    """A pixel from each of R equal parts of a set, rising, [R] int64.

    random [R] in [0,1): where in its part the pixel lies; of float32 numbers a part of more than 2^24 pixels is not
    drawn from evenly. A number that is none, or outside, draws the nearest pixel of the set.

    The set has count pixels, 1 to 2^53, in K runs (nerf/images/pixel_runs.py): offsets [K+1] int64, number of pixels
    before each run, rising from 0 to count; shifts [K] int64, the first pixel of each run minus its offset. Where count
    is not the last of offsets, ValueError is raised on the CPU, and on CUDA some pixel is drawn. Not differentiable.
    """
    part = count / max(len(random), 1)
    within = torch.arange(len(random), dtype=torch.float64, device=random.device) + random
    drawn = (within * part).clamp(0, count - 1).nan_to_num(0.0).long().clamp(max=count - 1)
    run = torch.searchsorted(offsets, drawn, right=True) - 1
    return drawn + shifts.index_select(0, run.clamp(0, len(shifts) - 1))


@fake("draw_pixels")
def _(random, offsets, shifts, count):
    return offsets.new_empty(random.shape)


@example("draw_pixels")
def _():
    lengths = (10 * numbers(40, seed=1)).long()
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    return numbers(50), offsets, 5 * torch.arange(40), int(offsets[-1])
