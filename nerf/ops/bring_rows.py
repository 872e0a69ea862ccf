"""bring_rows: rows of a sparse grid that is elsewhere, as in host memory, as a sparse grid of their own at hand."""

import torch
from torch import Tensor

from nerf.ops.mark_vertices import mark_vertices
from nerf.ops.registry import example, fake, numbers, without_gradients
from nerf.ops.vertex_rows import LOWER_HALF, VERTICES_PER_WORD, VertexRows, listed_vertices


def bring_rows(
    grid: Tensor, marks: Tensor, table: Tensor, size_z: int, capacity: int = 0, corner_capacity: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The marked rows of a sparse grid [L,C] as a sparse grid of their own, the window.

    marks [X,Y,ceil(Z/32)] int64: of mark_vertices with the grid's table [X,Y,ceil(Z/32)] int64 and size_z Z. The
    vertices marked in the upper half of a word are brought; those marked in the lower half too are corners.

    capacity, corner_capacity: 0 gives exactly the K vertices and T corners, with one host read. Otherwise K = capacity
    and T = corner_capacity; what does not fit is left out, and counts tells that. Behind the last row values are 0 and
    the lists have -1, which operations pass over.

    Returns the window's table [X,Y,ceil(Z/32)] int64, its values [K,C], of a float16 grid float32, their rows in the
    grid [K] int64, the corners' rows in the window [T] int64, rising, the corners' vertices [T] int64, and counts [2]
    int64: the marked vertices, and the corners of them, whether they fit or not. Not differentiable.
    """
    grid = grid.detach()
    size = (*table.shape[:2], size_z)
    read = marks >> VERTICES_PER_WORD & LOWER_HALF
    window = VertexRows.of(listed_vertices(read, size_z), size)
    there = VertexRows(size, listed_vertices(table, size_z), table)
    corners = window.rows(listed_vertices(marks & read, size_z))
    counts = torch.tensor([len(window.vertices), len(corners)], device=grid.device)
    stored = there.rows(window.vertices)
    if capacity:
        corners = _with_room(corners.masked_fill(corners >= capacity, -1), corner_capacity)
        stored = _with_room(stored, capacity)
    values = grid.index_select(0, stored.clamp(min=0)) if len(grid) else grid.new_zeros(len(stored), grid.shape[1])
    values = values.to(_wide(grid)).masked_fill(stored[:, None] < 0, 0.0)
    vertices = torch.full_like(corners, -1)
    fits = corners >= 0
    vertices[fits] = window.vertices[corners[fits]]
    return window.table, values, stored, corners, vertices, counts


def _wide(grid: Tensor) -> torch.dtype:
    """The dtype of the copies of a grid's values."""
    return torch.float32 if grid.dtype == torch.float16 else grid.dtype


def _with_room(rows: Tensor, count: int) -> Tensor:
    """The first rows of a list, and -1 behind the last one."""
    return torch.nn.functional.pad(rows, (0, max(0, count - len(rows))), value=-1)[:count]


without_gradients("bring_rows")


@fake("bring_rows")
def _(grid, marks, table, size_z, capacity=0, corner_capacity=0):
    if capacity == 0:
        capacity, corner_capacity = (torch.library.get_ctx().new_dynamic_size() for _ in range(2))
    return (
        table.new_empty(table.shape),
        grid.new_empty(capacity, grid.shape[1], dtype=_wide(grid)),
        table.new_empty(capacity),
        table.new_empty(corner_capacity),
        table.new_empty(corner_capacity),
        table.new_empty(2),
    )


@example("bring_rows")
def _():
    there = (numbers(5, 6, 40) < 0.7).view(-1).nonzero()[:, 0]
    rows = VertexRows.of(there, (5, 6, 40))
    coords = numbers(30, 3, low=-0.2, high=1.2, seed=1) * torch.tensor([4.0, 5.0, 39.0])
    return numbers(len(there), 4, seed=2), mark_vertices(coords, *rows.arguments), *rows.arguments, 500, 300
