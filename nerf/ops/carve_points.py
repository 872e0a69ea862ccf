"""carve_points: the points that no view sees as wholly transparent, of which the visual hull is made."""

import torch
from torch import Tensor

from nerf.ops.registry import example, fake, numbers


def carve_points(points: Tensor, c2w: Tensor, intrinsics: Tensor, counts: Tensor, reach: Tensor) -> Tensor:
    """Whether points [N,3] are seen as empty by none of V pinhole views of one size, [N] bool.

    c2w [V,3,4] and intrinsics [V,4] as in Cameras, of the dtype of points. counts [V,H+1,W+1] int32: how many pixels
    above and to the left of a corner of a pixel show something of the scene. reach [V] int64, 0 or more: a view sees a
    point as empty if no pixel does within so many rows and columns of the point's own. A point behind a camera or
    beside its image is not seen.

    A reach below 0 raises ValueError on the CPU, and on CUDA it is taken for 0. Not differentiable.
    """
    offset = points - c2w[:, None, :, 3]
    right, up, backward = (offset @ c2w[:, :, :3]).unbind(-1)
    fx, fy, cx, cy = intrinsics[:, :, None].unbind(1)
    depth = -backward
    inverse = torch.where(depth > 0, depth, torch.ones_like(depth)).reciprocal()
    pixels = torch.stack([cx + fx * right * inverse, cy - fy * up * inverse], dim=-1)
    return ~seen_as_empty(pixels, depth, counts, reach).any(0)


def seen_as_empty(pixels: Tensor, depth: Tensor, counts: Tensor, reach: Tensor) -> Tensor:
    """Which points are seen by V views, and as empty, [V,N] bool.

    pixels [V,N,2]: their u and v; depth [V,N]: positive in front of the camera; counts and reach as in carve_points.
    """
    height, width = (size - 1 for size in counts.shape[1:])
    u, v = pixels.unbind(-1)
    seen = (depth > 0) & (u >= 0) & (u < width) & (v >= 0) & (v < height)
    column, row = (torch.where(seen, place, torch.zeros_like(place)).long() for place in (u, v))
    reach = reach[:, None].clamp(0, width + height)
    left, right = (column - reach).clamp_(min=0), (column + reach + 1).clamp_(max=width)
    upper, lower = (row - reach).clamp_(min=0), (row + reach + 1).clamp_(max=height)
    flat = counts.flatten(1)

    def above_and_left(row: Tensor, column: Tensor) -> Tensor:
        return flat.gather(1, row * (width + 1) + column)

    inside = above_and_left(lower, right) - above_and_left(upper, right)
    return seen & (inside <= above_and_left(lower, left) - above_and_left(upper, left))


@fake("carve_points")
def _(points, c2w, intrinsics, counts, reach):
    return points.new_empty(points.shape[0], dtype=torch.bool)


@example("carve_points")
def _():
    turned = torch.linalg.qr(2 * numbers(3, 3, 3) - 1)[0]
    c2w = torch.cat([turned, 4 * turned[:, :, 2:]], dim=-1)  # from all sides to the middle
    counts = (numbers(3, 8, 9, seed=1) < 0.1).int().cumsum(1, dtype=torch.int32).cumsum(2, dtype=torch.int32)
    intrinsics = torch.tensor([[12.0, 11.0, 4.5, 4.0]]).repeat(3, 1)
    corners = torch.nn.functional.pad(counts, (1, 0, 1, 0))
    return numbers(40, 3, low=-2, high=2, seed=2), c2w, intrinsics, corners, torch.arange(3)
