"""Depths of a scene whose capture comes without any: where a plane sweep sees surfaces in its photos.

Nothing in it is random: the same photos and poses give the same depths.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from nerf.datasets.capture import FEWEST_POINTS
from nerf.datasets.plane_sweep import PlaneSweep
from nerf.datasets.posed_images import PosedImages

MOST_IMAGES = 20  # are looked at, spread over all: a second's work
# Of the patches, so many have to give a point: right poses give 0.58 to 0.81 on photos, chance up to 0.1.
LEAST_SHARE = 0.25


@dataclass(frozen=True)
class SweptDepths:
    """What a plane sweep found."""

    points: np.ndarray | None  # [P,3] float64 world, on the scene's surfaces; None: nothing to rely on
    said: str  # what was looked at and what was found, in words that follow "by"


def sweep_depths(images: PosedImages) -> SweptDepths:
    """Points on surfaces that several of the images see, from at most MOST_IMAGES of them."""
    count = min(len(images), MOST_IMAGES)
    chosen = torch.linspace(0, len(images) - 1, count).round().long().tolist()
    points, patches = PlaneSweep(images, thinned=True).distinct_points(chosen)
    agree = f"{len(points)} of {patches} patches of {count} photos agree at one depth"
    least = max(FEWEST_POINTS, math.ceil(LEAST_SHARE * patches))
    if len(points) < least:
        return SweptDepths(None, f"a plane sweep ({agree}, at least {least} have to)")
    return SweptDepths(points.double().numpy(), f"a plane sweep ({agree})")
