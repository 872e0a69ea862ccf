"""Right poses, and how files in other conventions store them."""

from pathlib import Path

import torch
from torch import Tensor

from nerf.consistency import Convention

BRICKS = Path(__file__).resolve().parents[1] / "data" / "bricks"


def misread(poses: Tensor, convention: Convention) -> Tensor:
    """The poses as a file in that convention stores them: what convert turns into the right ones."""
    rotation, center = poses[:, :, :3], poses[:, :, 3:]
    if not convention.name.startswith("world to camera"):  # convert multiplies the rotation by a matrix of its own
        axes = convention.convert(torch.eye(3, 4)[None])[0, :, :3]
        return torch.cat([rotation @ axes.T, center], dim=-1)
    if "OpenCV" in convention.name:
        rotation = rotation * torch.tensor([1.0, -1.0, -1.0])
    inverse = rotation.transpose(1, 2)
    return torch.cat([inverse, -inverse @ center], dim=-1)
