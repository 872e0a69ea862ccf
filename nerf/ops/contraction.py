"""The contraction of all of space into a cube, as math/march.h computes it, in PyTorch and differentiable.

Units: the inner box is [-1, 1] on each axis and stays as it is; what lies outside is pressed into a shell around it,
`thickness` halves of the box thick. Legend: N points, R rays.
"""

import torch
from torch import Tensor

SMALLEST = 1e-12  # far below thickness^2; keeps the slope of a root finite
FARTHEST = 2.0**22  # times the limit: the largest number whose inverse is told from infinity in float32


def squash(x: Tensor, limit: Tensor) -> Tensor:
    """Presses x >= 0 into [0, limit), with slope 1 at 0. limit: a tensor that broadcasts, on the device of x."""
    return x / (1 + x / limit)


def unsquash(x: Tensor, limit: Tensor) -> Tensor:
    """The inverse of squash; finite from 0 to the limit and beyond."""
    return x / (1 - (x / limit).clamp(max=1 - 1 / FARTHEST))


def contract(points: Tensor, thickness: Tensor) -> Tensor:
    """Points [N,3] to points in the cube of half 1 + thickness (Barron et al. 2022, eq. 10, with the cube's norm).

    With thickness 1 it is theirs: (2 - 1 / norm) / norm. The slope at the inner box is 1 for every thickness.
    """
    norm = points.abs().amax(-1, keepdim=True)
    return (1 + squash((norm - 1).clamp(min=0), thickness)) / norm.clamp(min=1) * points


def expand(points: Tensor, thickness: Tensor) -> Tensor:
    """The inverse of contract."""
    norm = points.abs().amax(-1, keepdim=True)
    return (1 + unsquash((norm - 1).clamp(min=0), thickness)) / norm.clamp(min=1) * points


def leave_box(origins: Tensor, directions: Tensor, thickness: Tensor) -> tuple[Tensor, Tensor]:
    """Of rays [R,3]: from which distance on their steps grow, and how much contracted distance is left there; both [R].

    Steps grow once the steepest axis has left the box and is farther out than the ray passes by the middle, and in all
    they are as long as the way that is left: so no step is much longer than it is in the box.
    """
    steepest, axis = directions.abs().max(-1)
    outward = (origins * torch.where(directions > 0, 1.0, -1.0).to(origins)).gather(-1, axis[:, None])[:, 0]
    passes = (origins - directions / steepest[:, None] * outward[:, None]).abs().amax(-1)
    leave = (passes.clamp(min=1) - outward) / steepest
    limit = torch.maximum(thickness, (passes * (1 + thickness)).clamp(min=SMALLEST).sqrt()) / steepest
    still = steepest == 0
    return leave.masked_fill(still, torch.inf), limit.masked_fill(still, torch.inf)


def distance_to_contracted(distance: Tensor, leave: Tensor, limit: Tensor) -> Tensor:
    """Distance along a ray to its contracted distance: the same up to leave, pressed as the shell is from there on."""
    return torch.where(distance > leave, leave + squash((distance - leave).clamp(min=0), limit), distance)


def contracted_to_distance(contracted: Tensor, leave: Tensor, limit: Tensor) -> Tensor:
    """The inverse of distance_to_contracted."""
    return torch.where(contracted > leave, leave + unsquash((contracted - leave).clamp(min=0), limit), contracted)
