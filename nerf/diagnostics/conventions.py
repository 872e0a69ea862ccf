"""Conventions of pose matrices, and their conversion to ours."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Convention:
    """A convention of pose matrices. convert: poses [I,3,4] in this convention to poses in ours."""

    name: str
    remedy: str
    convert: Callable[[Tensor], Tensor]


def _turned(*columns: tuple[int, int]) -> Callable[[Tensor], Tensor]:
    """Poses whose right, up and backward axes are the named columns, each with its sign."""

    def convert(poses: Tensor) -> Tensor:
        return torch.stack([*(sign * poses[:, :, axis] for axis, sign in columns), poses[:, :, 3]], dim=-1)

    return convert


def _inverted(poses: Tensor) -> Tensor:
    rotation = poses[:, :, :3].transpose(1, 2)
    return torch.cat([rotation, -rotation @ poses[:, :, 3:]], dim=-1)


_OPENCV = _turned((0, 1), (1, -1), (2, -1))

GIVEN = "camera to world, OpenGL axes (x right, y up, looking along -z)"
CONVENTIONS = (
    Convention(
        "camera to world, OpenCV axes (x right, y down, looking along +z)",
        "negate the second and the third column of each pose's rotation",
        _OPENCV,
    ),
    Convention("world to camera, OpenGL axes", "invert each pose matrix: camera to world is expected", _inverted),
    Convention(
        "world to camera, OpenCV axes (as COLMAP stores it)",
        "invert each pose matrix, then negate the second and the third column of its rotation",
        lambda poses: _OPENCV(_inverted(poses)),
    ),
    Convention(
        "left-handed axes, x mirrored (or mirrored images)",
        "negate the first column of each pose's rotation, or mirror the images back",
        _turned((0, -1), (1, 1), (2, 1)),
    ),
    Convention(
        "left-handed axes, looking along +z (x right, y up)",
        "negate the third column of each pose's rotation",
        _turned((0, 1), (1, 1), (2, -1)),
    ),
    Convention(
        "left-handed axes, y down, looking along -z (or images upside down and mirrored)",
        "negate the second column of each pose's rotation",
        _turned((0, 1), (1, -1), (2, 1)),
    ),
    Convention(
        "LLFF's axes (x down, y right, looking along -z), or images turned to the left",
        "make the second column of each pose's rotation its first, and minus the first its second; or turn the images",
        _turned((1, 1), (0, -1), (2, 1)),
    ),
    Convention(
        "x up, y left (images turned to the right)",
        "make minus the second column of each pose's rotation its first, and the first its second; or turn the images",
        _turned((1, -1), (0, 1), (2, 1)),
    ),
    Convention(
        "x left, y down, looking along -z (images upside down)",
        "negate the first and the second column of each pose's rotation, or turn the images",
        _turned((0, -1), (1, -1), (2, 1)),
    ),
)
