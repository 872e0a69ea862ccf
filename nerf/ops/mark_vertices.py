"""mark_vertices: the vertices of a sparse grid that a step reads, so that only their rows have to be at hand."""

import torch
from torch import Tensor

from nerf.ops.registry import example, fake, numbers
from nerf.ops.vertex_rows import LOWER_HALF, VERTICES_PER_WORD, VertexRows


def mark_vertices(coords: Tensor, table: Tensor, size_z: int) -> Tensor:
    """The vertices with a row that interpolation at points reads, and those that total variation reads beside them.

    coords [N,3]: as interpolate_trilinear takes them. table [X,Y,ceil(Z/32)] int64, size_z Z: of the sparse grid
    (nerf/ops/vertex_rows.py). Returns marks of the table's shape, int64: a bit for each of 32 vertices along z, in the
    lower half of a word for the corners of the points' cells, in the upper half for them and their neighbors along the
    axes. Not differentiable.
    """
    sizes = (*table.shape[:2], size_z)
    corners = torch.zeros(sizes, dtype=torch.bool, device=table.device)
    cells = []
    for axis, size in enumerate(sizes):
        x = coords[:, axis].clamp(0, size - 1).nan_to_num(0.0)
        cells.append(x.floor().clamp(0, max(size - 2, 0)).long())
    for corner in range(8):
        bits = (corner >> 2 & 1, corner >> 1 & 1, corner & 1)
        place = [(cell + bit).clamp(max=size - 1) for cell, bit, size in zip(cells, bits, sizes, strict=True)]
        corners[tuple(place)] = True
    read = corners.clone()
    for axis, size in enumerate(sizes):
        read.narrow(axis, 0, size - 1).logical_or_(corners.narrow(axis, 1, size - 1))
        read.narrow(axis, 1, size - 1).logical_or_(corners.narrow(axis, 0, size - 1))
    corners, read = (_bits(mask, sizes) & table & LOWER_HALF for mask in (corners, read))
    return corners | read << VERTICES_PER_WORD


def _bits(mask: Tensor, sizes: tuple[int, int, int]) -> Tensor:
    """Bits [X,Y,ceil(Z/32)] int64 of vertices [X,Y,Z] bool."""
    return VertexRows.of(mask.view(-1).nonzero()[:, 0], sizes).table & LOWER_HALF


@fake("mark_vertices")
def _(coords, table, size_z):
    return table.new_empty(table.shape)


@example("mark_vertices")
def _():
    there = (numbers(5, 6, 40) < 0.7).view(-1).nonzero()[:, 0]
    coords = numbers(30, 3, low=-0.2, high=1.2, seed=1) * torch.tensor([4.0, 5.0, 39.0])
    return coords, VertexRows.of(there, (5, 6, 40)).table, 40
