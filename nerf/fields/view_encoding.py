"""Encoding of the view direction for an MLP: the direction, and sines and cosines of its multiples.

gamma(d) = (d, sin(2^k d), cos(2^k d)) for k = 0 .. F-1 (Mildenhall et al. 2020, eq. 4, without pi). It resolves
narrower highlights than spherical harmonics of low degree.
"""

import torch
from torch import Tensor


def encoding_width(num_frequencies: int) -> int:
    """Length of the encoding of one direction, 3 + 6 * num_frequencies."""
    return 3 + 6 * num_frequencies


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
