"""Right poses, and how files in other conventions store them."""

from pathlib import Path

import torch
from torch import Tensor

from nerf.diagnostics.conventions import CONVENTIONS, Convention

BRICKS = Path(__file__).resolve().parents[2] / "data" / "bricks"


# What the three columns of a stored rotation are in terms of the camera's right (1), up (2) and backward (3) axes, with
# their signs; in the order of CONVENTIONS.
COLUMNS = (
    (1, -2, -3),  # OpenCV: right, down, forward
    (1, 2, 3),  # then inverted
    (1, -2, -3),  # then inverted
    (-1, 2, 3),
    (1, 2, -3),
    (1, -2, 3),
    (-2, 1, 3),  # LLFF: down, right, backward
    (2, -1, 3),
    (-1, -2, 3),
)


def misread(poses: Tensor, convention: Convention) -> Tensor:
    """Right poses [I,3,4] as a file in that convention stores them."""
    columns = COLUMNS[CONVENTIONS.index(convention)]
    axes = [poses[:, :, abs(column) - 1] * (1 if column > 0 else -1) for column in columns]
    rotation, center = torch.stack(axes, dim=-1), poses[:, :, 3:]
    if not convention.name.startswith("world to camera"):
        return torch.cat([rotation, center], dim=-1)
    inverse = rotation.transpose(1, 2)
    return torch.cat([inverse, -inverse @ center], dim=-1)
