"""How rays run through a grid, in PyTorch: where they enter and leave it, and where they are between.

Legend: R rays, K points on each.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from nerf.ops.contraction import FARTHEST, contract, contracted_to_distance, distance_to_contracted, leave_box

Position = Callable[[Tensor, slice | Tensor], Tensor]  # grid units [rows,K,3] of some rows of the rays at t [rows,K]


def rays_to_march(
    origins: Tensor,
    directions: Tensor,
    jitter: Tensor,
    near: Tensor,
    far: Tensor,
    lower: Tensor | None,
    scale: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Origins and directions [R,3] in grid units, jitter, near and far [R], from what march_rays takes for them."""
    if scale is not None:
        origins, directions = (origins - lower) * scale, directions * scale
    if len(jitter) != len(origins):
        together = len(origins) // len(jitter)
        places = (torch.arange(together, device=jitter.device, dtype=jitter.dtype) + 0.5) / together
        jitter = (torch.remainder(jitter[:, None] + places, 1.0) - 0.5).flatten()
    near, far = (x.expand(len(origins)) for x in (near, far))
    return origins, directions, jitter, near, far


def rays_through_grid(
    origins: Tensor, directions: Tensor, near: Tensor, far: Tensor, upper: Tensor, contraction: float
) -> tuple[Tensor, Tensor, Position]:
    """t_min and t_max [R] of rays in the grid [0, upper], and where they are between."""
    if contraction:
        return _contracted_rays(origins, directions, near, far, upper, contraction)
    return _straight_rays(origins, directions, near, far, upper)


def _straight_rays(
    origins: Tensor, directions: Tensor, near: Tensor, far: Tensor, upper: Tensor
) -> tuple[Tensor, Tensor, Position]:
    """As rays_through_grid, for a grid that is a box of the world."""
    parallel = directions == 0
    within = (origins >= 0) & (origins <= upper)
    at_lower, at_upper = (0 - origins) / directions, (upper - origins) / directions
    infinity = torch.full_like(origins, torch.inf)
    entry = torch.where(parallel, torch.where(within, -infinity, infinity), torch.minimum(at_lower, at_upper))
    leave = torch.where(parallel, torch.where(within, infinity, -infinity), torch.maximum(at_lower, at_upper))

    def position(t: Tensor, rows: slice | Tensor) -> Tensor:
        return origins[rows, None] + t[..., None] * directions[rows, None]

    return torch.maximum(near, entry.amax(-1)), torch.minimum(far, leave.amin(-1)), position


def _contracted_rays(
    origins: Tensor, directions: Tensor, near: Tensor, far: Tensor, upper: Tensor, contraction: float
) -> tuple[Tensor, Tensor, Position]:
    """As rays_through_grid, for a grid that holds all of space; t is contracted distance."""
    half, thickness = upper / 2, upper.new_full((), contraction)
    inner = half / (1 + thickness)
    origins, directions = (origins - half) / inner, directions / inner
    leave, limit = leave_box(origins, directions, thickness)
    farthest = torch.minimum(far, leave + limit * FARTHEST)

    def position(t: Tensor, rows: slice | Tensor) -> Tensor:
        distance = contracted_to_distance(t, leave[rows, None], limit[rows, None])
        points = origins[rows, None] + distance[..., None] * directions[rows, None]
        return half + inner * contract(points, thickness)

    return distance_to_contracted(near, leave, limit), distance_to_contracted(farthest, leave, limit), position
