"""Encoding of the view direction for an MLP: the direction, and sines and cosines of its multiples.

gamma(d) = (d, sin(2^k d), cos(2^k d)) for k = 0 .. F-1 (Mildenhall et al. 2020, eq. 4, without pi). It resolves
narrower highlights than spherical harmonics of low degree.
"""

import torch
from torch import Tensor


def encoding_width(num_frequencies: int) -> int:
    """Length of the encoding of one direction, 3 + 6 * num_frequencies."""
    return 3 + 6 * num_frequencies


def annealed_weights(num_frequencies: int, fraction: float, width: int) -> Tensor:
    """What the columns of encode_view weigh when a fraction of the frequencies has come in, [width] in [0,1].

    The direction itself weighs 1, frequency k weighs F fraction - k, between 0 and 1: from low frequencies to high ones
    (Lin et al. 2021, section 3.3; Yang et al. 2023, "FreeNeRF", section 3.2; there for positions).
    """
    open_ones = (num_frequencies * fraction - torch.arange(num_frequencies)).clamp(0, 1).repeat_interleave(3)
    weights = torch.ones(width)
    weights[3 : encoding_width(num_frequencies)] = open_ones.repeat(2)
    return weights


def encode_view(directions: Tensor, num_frequencies: int, width: int, dtype: torch.dtype | None = None) -> Tensor:
    """Unit directions [N,3] encoded with F frequencies, [N,width]: 3 + 6 F numbers, then zeros as padding.

    dtype: of the result; None: that of the directions. Not differentiable.
    """
    directions = directions.detach()
    scales = 2.0 ** torch.arange(num_frequencies, device=directions.device)
    angles = (directions[:, None] * scales[:, None]).flatten(1)
    # In place, because torch.cat is many times slower for such short rows.
    encoded = directions.new_zeros(len(directions), width, dtype=dtype)
    encoded[:, :3] = directions
    torch.sin(angles, out=encoded[:, 3 : 3 + 3 * num_frequencies])
    torch.cos(angles, out=encoded[:, 3 + 3 * num_frequencies : encoding_width(num_frequencies)])
    return encoded
