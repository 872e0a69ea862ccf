"""SPZ, Niantic's compressed file of Gaussians: a fifth of the PLY or less, by the package gsply.

Coordinates are the same as in the PLY. Positions have 24 bits, as many of them behind the point as the scene's extent
leaves; logarithms of sizes have steps of 1/16 from -10 on, opacities, colors and harmonics have 8 bits, rotations 32.
"""

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from nerf.errors import UserError
from nerf.export.packages import require
from nerf.export.splats.gaussians import Gaussians
from nerf.files import replacing

LEAST_LOG_SCALE, MOST_LOG_SCALE = -10.0, 255 / 16 - 10
MOST_FRACTIONAL_BITS = 20
# Flat Gaussians may lose their thickness, which is far below a pixel, but not their width.
MOST_OUTSIDE = 0.01  # fraction of the Gaussians whose largest size may lie outside of the range


def check_spz() -> None:
    """Raises UserError where the package that writes SPZ is missing: to be called before minutes of fitting."""
    require("gsply", "a file name that ends with .spz")


def write_spz(path: Path, gaussians: Gaussians) -> None:
    """Writes SPZ version 3, which viewers have read since 2025.

    Raises UserError where sizes or positions leave the range of the format, and where the file cannot be written.
    """
    from gsply import GSData
    from gsply.spz import write_spz as write

    largest = gaussians.log_scales.amax(-1)
    outside = ((largest < LEAST_LOG_SCALE) | (largest > MOST_LOG_SCALE)).float().mean().item()
    bits = fractional_bits(gaussians.means)
    if outside > MOST_OUTSIDE or bits < 1:
        raise UserError(
            f"{path.name}: SPZ holds sizes from {math.exp(LEAST_LOG_SCALE):.1g} to {math.exp(MOST_LOG_SCALE):.0f} and "
            f"positions up to {2**22} world units; {outside:.0%} of the sizes are outside, and positions go up to "
            f"{gaussians.means.abs().max().item():.3g}. Write a .ply, which holds any."
        )
    harmonics = gaussians.harmonics
    content = GSData.from_arrays(
        means=_array(gaussians.means),
        scales=_array(gaussians.log_scales),
        quats=_array(functional.normalize(gaussians.rotations, dim=-1)),
        opacities=_array(gaussians.logits),
        sh0=_array(harmonics[:, 0]),
        shN=_array(harmonics[:, 1:]) if harmonics.shape[1] > 1 else None,
        format="ply",
    )
    with replacing(path) as partial:
        write(partial, content, version=3, fractional_bits=bits)


def fractional_bits(means: Tensor) -> int:
    """Bits behind the point with which positions [N,3] fit into 24 bits with a sign; below 1 where none fit."""
    extent = max(means.abs().max().item(), 1e-9)
    return min(MOST_FRACTIONAL_BITS, math.floor(math.log2((2**23 - 1) / extent)))


def _array(values: Tensor) -> np.ndarray:
    return np.ascontiguousarray(values.detach().to("cpu", torch.float32).numpy())
