"""The contraction of all of space into a cube, as math/march.h computes it, in PyTorch and differentiable.

Units: the inner box is [-1, 1] on each axis and stays as it is; what lies outside is pressed into a shell around it,
`thickness` halves of the box thick. Legend: N points, R rays.
"""

import torch
from torch import Tensor

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
    """Of rays [R,3]: where each leaves the inner box, and the contracted distance behind that, up to infinity; both [R].

    They are slopes and intercepts of distance_to_contracted. A ray that misses the box leaves the first of its slabs.
    """
    ahead = torch.where(directions > 0, 1.0, -1.0).to(origins)
    leave = torch.where(directions == 0, torch.inf, (ahead - origins) / directions).amin(-1)
    return leave, thickness / directions.abs().amax(-1)


def distance_to_contracted(distance: Tensor, leave: Tensor, limit: Tensor) -> Tensor:
    """Distance along a ray to its contracted distance: the same inside the box, pressed as the shell is outside."""
    return torch.where(distance > leave, leave + squash((distance - leave).clamp(min=0), limit), distance)


def contracted_to_distance(contracted: Tensor, leave: Tensor, limit: Tensor) -> Tensor:
    """The inverse of distance_to_contracted."""
    return torch.where(contracted > leave, leave + unsquash((contracted - leave).clamp(min=0), limit), contracted)
