"""Ranges in which float32 computes with cameras and scenes: squares, volumes and quotients of what lies in them stay
finite. What files and settings say is held to them where it is read.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

FARTHEST = 1e12  # world units: coordinates of cameras, points and boxes, depths; the volume of a box is at most 8e36
SMALLEST_EDGE = 1e-9  # world units, of a box
SMALLEST_SHARE = 3e-5  # of a box's coordinates that its edges must have, or float32 has too few steps in it
FOCALS = (1e-3, 1e12)  # pixels
FARTHEST_CENTER = 1e9  # pixels: principal points
LARGEST_COEFFICIENT = 1e6  # of a lens; strong ones have some tens
SMALLEST_ANGLE = 1e-9  # radians, of view
SLOWEST, FASTEST = 1e-3, 1e3  # frames per second of a path
LARGEST_SIDE = 1 << 20  # pixels of an image
ROUNDED = 3e-4  # of the distance of cameras from their middle: a third of a pixel, where they see a thousand across it


def rounded_positions(centers: Tensor) -> tuple[str, ...]:
    """A sentence where float32 rounds positions of cameras [I,3] by more than ROUNDED of how far they are apart."""
    if len(centers) == 0:
        return ()
    centers = centers.double()
    apart = float((centers - centers.mean(0)).norm(dim=-1).max())
    largest = float(centers.abs().max())
    rounding = largest * torch.finfo(torch.float32).eps
    if not (math.isfinite(largest) and rounding > ROUNDED * apart > 0):
        return ()
    return (
        f"Camera positions reach {largest:.3g}, and are at most {apart:.3g} from their middle: single precision rounds "
        f"them by {rounding:.2g}, which blurs the scene. Subtract the middle from all positions and points.",
    )


def unusable_intrinsics(fx: float, fy: float, cx: float, cy: float) -> str | None:
    """What is wrong with intrinsics in pixels, for messages; None where nothing is."""
    for name, value in (("fx", fx), ("fy", fy)):
        if not FOCALS[0] <= value <= FOCALS[1]:  # NaN is in no range
            return f"{name} is {value:g}, expected a focal length of {FOCALS[0]:g} to {FOCALS[1]:g} pixels"
    for name, value in (("cx", cx), ("cy", cy)):
        if not abs(value) <= FARTHEST_CENTER:
            return f"{name} is {value:g}, expected a principal point within {FARTHEST_CENTER:g} pixels"
    return None


def is_box(low: Sequence[float], high: Sequence[float]) -> bool:
    """Whether two corners span a box in which float32 can tell voxels apart."""
    return all(
        max(abs(a), abs(b)) <= FARTHEST and b - a >= max(SMALLEST_EDGE, SMALLEST_SHARE * max(abs(a), abs(b)))
        for a, b in zip(low, high)
    )


def is_coordinate(value: object) -> bool:
    """Whether a number is one of a place in the world."""
    return isinstance(value, float) and math.isfinite(value) and abs(value) <= FARTHEST
