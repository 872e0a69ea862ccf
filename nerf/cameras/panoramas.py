"""Panoramas: pictures of all directions, and pinholes that see the same, for what needs straight lines.

A panorama is equirectangular (nerf/cameras/distortion.py). A pinhole in its place has a field of view of 90 degrees and
as many pixels per radian in its middle, so none of its detail is lost. Six of them, the faces of a cube, see what it
sees.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from nerf.cameras.cameras import PANORAMA, Cameras
from nerf.cameras.distortion import COEFFICIENTS, Lenses
from nerf.cameras.poses import estimate_target

# Rotations of the faces' axes (right, up, backward) in the panorama's: ahead, right, behind, left, up, down.
FACES = (
    ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    ((0, 0, 1), (0, 1, 0), (-1, 0, 0)),
    ((-1, 0, 0), (0, 1, 0), (0, 0, -1)),
    ((0, 0, -1), (0, 1, 0), (1, 0, 0)),
    ((1, 0, 0), (0, 0, 1), (0, -1, 0)),
    ((1, 0, 0), (0, 0, -1), (0, 1, 0)),
)


def full_turn(width: float, height: float) -> tuple[float, float, float, float]:
    """fx, fy, cx, cy of a panorama of this size that shows the whole sphere: pixels per radian, and its middle."""
    return width / (2 * math.pi), height / math.pi, width / 2, height / 2


def views_ahead(cameras: Cameras) -> Cameras:
    """The cameras with a pinhole that looks ahead in place of each panorama."""
    return _replaced(cameras, 1)


def cube_faces(cameras: Cameras) -> Cameras:
    """The cameras with six pinholes in place of each panorama: ahead, right, behind, left, up, down."""
    return _replaced(cameras, len(FACES))


def common_target(cameras: Cameras) -> Tensor:
    """The point [3] that the cameras look at, float64 in host memory; see nerf/cameras/poses.py:estimate_target.

    Raises ValueError where there is none, and for panoramas, which look at everything.
    """
    if cameras.has_panoramas:
        raise ValueError(
            "cameras: found panoramas, which see in all directions, expected cameras that surround a target and look "
            "at it"
        )
    return estimate_target(cameras.c2w.double().cpu())


def _replaced(cameras: Cameras, faces: int) -> Cameras:
    """The cameras with the first `faces` of the FACES in place of each panorama; the others stay, once each."""
    if not cameras.has_panoramas:
        return cameras
    around = cameras.panoramas.cpu()
    counts = torch.where(around, faces, 1)
    owner = torch.arange(len(cameras)).repeat_interleave(counts)
    number = torch.arange(len(owner)) - (counts.cumsum(0) - counts)[owner]
    chosen, replaces = owner.to(cameras.c2w.device), around[owner].to(cameras.c2w.device)
    turned = torch.tensor(FACES).transpose(1, 2)[number].to(cameras.c2w)  # columns are the axes
    c2w, intrinsics, sizes = cameras.c2w[chosen], cameras.intrinsics[chosen], cameras.image_sizes[chosen]
    c2w = torch.cat([c2w[:, :, :3] @ turned, c2w[:, :, 3:]], dim=-1)
    side = (2 * intrinsics[:, 0]).round().clamp(min=1)
    pinhole = (0.5 * side)[:, None].expand(-1, 4)
    intrinsics = torch.where(replaces[:, None], pinhole, intrinsics)
    sizes = torch.where(replaces[:, None], side.long()[:, None], sizes)
    return Cameras.of_sizes(c2w, intrinsics, sizes, _lenses_left(cameras, owner))


def _lenses_left(cameras: Cameras, owner: Tensor) -> Lenses | None:
    """The lenses of the cameras [I] numbered owner [K], with none for panoramas."""
    models, rows = cameras.lenses.models, cameras.lenses.coefficients.tolist()
    left = [("perspective", ()) if model == PANORAMA else (model, row) for model, row in zip(models, rows, strict=True)]
    left = [(model, row[: len(COEFFICIENTS[model])]) for model, row in (left[index] for index in owner.tolist())]
    lenses = Lenses.of(*zip(*left, strict=True))
    return None if lenses is None else replace(lenses.to(cameras.c2w.device), iterations=cameras.lenses.iterations)
