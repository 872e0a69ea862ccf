"""The view direction as a network sees it: the direction, and sines and cosines of its multiples.

gamma(d) = (d, sin(2^k d), cos(2^k d)) for k = 0 .. F-1 (Mildenhall et al. 2020, eq. 4, without pi): highlights are
narrower than what a few spherical harmonics can tell apart.
"""

import torch
from torch import Tensor


def encoding_width(num_frequencies: int) -> int:
    """Numbers per direction."""
    return 3 + 6 * num_frequencies


def encode_view(directions: Tensor, num_frequencies: int, width: int, dtype: torch.dtype | None = None) -> Tensor:
    """Unit directions [N,3] encoded with F frequencies, [N,width]: behind the encoding's 3 + 6 F numbers zeros.

    dtype: of the result, rounded from that of the directions; None: theirs. Not differentiable.
    """
    directions = directions.detach()
    scales = 2.0 ** torch.arange(num_frequencies, device=directions.device)
    angles = (directions[:, None] * scales[:, None]).flatten(1)
    # In place: torch.cat takes many times as long over rows of so few numbers.
    encoded = directions.new_zeros(len(directions), width, dtype=dtype)
    encoded[:, :3] = directions
    torch.sin(angles, out=encoded[:, 3 : 3 + 3 * num_frequencies])
    torch.cos(angles, out=encoded[:, 3 + 3 * num_frequencies : encoding_width(num_frequencies)])
    return encoded
