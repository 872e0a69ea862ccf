"""Triangles to pixels: which pixels a triangle covers, for baking textures and for pictures of a mesh.

Legend: F triangles, V vertices, N covered pixels, H W pixels.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from nerf.cameras.cameras import Cameras

CANDIDATES_AT_A_TIME = 1 << 22  # pixels of bounding boxes


def covered_pixels(corners: Tensor, width: int, height: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The pixels whose centers lie in triangles.

    corners [F,3,2]: of the triangles, column and row in pixels; the first pixel's center is at (0.5, 0.5). Yields
    triangles [N], pixels [N] as row * width + column, and the barycentric coordinates [N,3] of the centers.
    """
    size = torch.tensor([width, height], device=corners.device)
    first = (corners.amin(1) - 0.5).ceil().clamp(min=0)
    counts = ((corners.amax(1) - 0.5).floor().minimum(size - 1) - first + 1).clamp(min=0).long()
    first, numbers = first.long(), counts.prod(-1)
    numbers = torch.where(corners.isfinite().all(-1).all(-1), numbers, 0)
    ends = numbers.cumsum(0)
    begin = 0
    while begin < len(corners):
        done = 0 if begin == 0 else int(ends[begin - 1])
        end = max(begin + 1, int(torch.searchsorted(ends, done + CANDIDATES_AT_A_TIME, right=True)))
        face = torch.arange(begin, end, device=corners.device).repeat_interleave(numbers[begin:end])
        place = torch.arange(len(face), device=corners.device) + done - (ends - numbers)[face]
        column = first[face, 0] + place % counts[face, 0]
        row = first[face, 1] + place // counts[face, 0]
        weights = _barycentric(corners[face].double(), torch.stack([column, row], dim=-1) + 0.5)
        inside = (weights >= 0).all(-1)  # of triangles without area, NaN
        yield face[inside], (row * width + column)[inside], weights[inside].float()
        begin = end


def _barycentric(corners: Tensor, points: Tensor) -> Tensor:
    """Barycentric coordinates [N,3] of points [N,2] in triangles [N,3,2]."""
    a, b, c = corners.unbind(1)
    u, v, w = b - a, c - a, points - a
    area = u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]
    second = (w[:, 0] * v[:, 1] - w[:, 1] * v[:, 0]) / area
    third = (u[:, 0] * w[:, 1] - u[:, 1] * w[:, 0]) / area
    return torch.stack([1 - second - third, second, third], dim=-1)


def first_surfaces(vertices: Tensor, faces: Tensor, cameras: Cameras, index: int) -> tuple[Tensor, Tensor]:
    """The triangle that each pixel of a camera shows.

    vertices [V,3]: world. Returns triangles [H*W] int64, -1 where there is none, and barycentric coordinates [H*W,3].
    Triangles that reach behind the camera are left out. Raises ValueError for a panorama, in which no edge of a
    triangle is straight.
    """
    if cameras.panoramas[index]:
        raise ValueError("cameras: found a panorama, expected one whose straight lines are straight; see cube_faces")
    width, height = cameras.size(index)
    at, z = cameras.project(index, vertices)
    faces_ahead = (z[faces] > 0).all(1).nonzero()[:, 0]
    corners, depths = at[faces[faces_ahead]], z[faces[faces_ahead]]
    nearest = torch.full((width * height,), torch.inf, device=vertices.device)
    shown = torch.full((width * height,), -1, dtype=torch.int64, device=vertices.device)
    found = torch.zeros(width * height, 3, device=vertices.device)
    for face, pixel, weights in covered_pixels(corners, width, height):
        weights = weights / depths[face]  # perspective: linear in the world, not in the picture
        depth = 1 / weights.sum(-1)
        weights = weights * depth[:, None]
        nearest.scatter_reduce_(0, pixel, depth, "amin")
        wins = depth == nearest[pixel]
        shown[pixel[wins]], found[pixel[wins]] = faces_ahead[face[wins]], weights[wins]
    return shown, found
