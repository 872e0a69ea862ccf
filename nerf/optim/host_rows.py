"""Rows of a sparse grid in host memory, and those of them that a step brings to the device.

A step reads the features of its visible samples and, for total variation, those beside them: a small part of a large
grid. They are copied to the device as a sparse grid of their own, the window, in which interpolation, total variation
and Adam do what they do in the whole grid. Adam leaves values alone whose gradient is zero, so only the corners of the
samples' cells go back: the same numbers as if all of the grid were on the device.

Legend: X Y Z vertices of the lattice, W words of 32 vertices along z, K vertices of the window, T corners, C channels.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nerf.ops.backend import Backend
from nerf.ops.host_memory import host_zeros
from nerf.ops.vertex_rows import LOWER_HALF, VERTICES_PER_WORD, VertexRows, bits_set


@dataclass(frozen=True)
class Window:
    """What a step has on the device of a sparse grid in host memory."""

    rows: VertexRows  # of the K vertices
    values: Tensor  # [K,C], a leaf with a gradient
    stored: Tensor  # [K] int64: their rows in the grid
    corners: Tensor  # [T] int64: rows of the window that interpolation reads, rising

    @property
    def nbytes(self) -> int:
        """Bytes on the device, with a gradient of the values and two moments of the corners."""
        lists = self.rows.vertices, self.rows.table, self.stored, self.corners
        moments = 2 * self.corners.numel() * self.values.shape[1] * self.values.element_size()
        return sum(x.nbytes for x in lists) + 2 * self.values.nbytes + moments

    @property
    def corner_vertices(self) -> Tensor:
        """The vertices that interpolation reads, [T] int64."""
        return self.rows.vertices.index_select(0, self.corners)


class HostRows:
    """Where a field's appearance grid is while it is in host memory."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.in_step = False  # outside of steps the grid is read in place, and gets no gradient
        self.window: Window | None = None  # the step's, from its forward to its optimizer
        self.most_bytes = 0  # of a window so far

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return host_zeros(shape, dtype, self.backend.device)

    def begin_step(self) -> None:
        """From now until end_step() the grid's values are brought to the device, with a gradient."""
        self.in_step, self.window = True, None

    def end_step(self) -> Window:
        """The window of the step that ends."""
        window, self.in_step, self.window = self.window, False, None
        if window is None:
            raise RuntimeError("a step of a grid in host memory begins with Field.begin_step() and evaluates the field")
        return window

    def bring(self, grid: Tensor, coords: Tensor, rows: VertexRows) -> Window:
        """The window of points [N,3] in lattice units, whose values are copied from the grid [L,C]."""
        if self.window is not None:
            raise RuntimeError(
                "a step evaluates the field once where its features are in host memory; use train.features=device for "
                "a loss that evaluates it again"
            )
        self.window = _window(self.backend, grid, coords, rows)
        self.most_bytes = max(self.most_bytes, self.window.nbytes)
        return self.window


@torch.no_grad()
def _window(backend: Backend, grid: Tensor, coords: Tensor, rows: VertexRows) -> Window:
    table = backend.ops.mark_vertices(coords, *rows.arguments)
    depth, words = rows.resolution[2], table.view(-1)
    place = words.nonzero()[:, 0]
    marks = words.index_select(0, place)
    read, within = marks >> VERTICES_PER_WORD & LOWER_HALF, rows.table.view(-1).index_select(0, place)
    count = bits_set(read)
    words.index_copy_(0, place, read | (count.cumsum(0) - count) << VERTICES_PER_WORD)  # the marks become the table
    bits = torch.arange(VERTICES_PER_WORD, device=table.device)
    word, bit = (read[:, None] >> bits & 1).nonzero().unbind(1)
    per_line = table.shape[2]
    place, within, marks = (x.index_select(0, word) for x in (place, within, marks))
    line = place.div(per_line, rounding_mode="floor")
    vertices = line * depth + (place - line * per_line) * VERTICES_PER_WORD + bit
    below = (torch.ones_like(bit) << bit) - 1
    stored = (within >> VERTICES_PER_WORD & LOWER_HALF) + bits_set(within & below)
    values = grid.index_select(0, stored).requires_grad_()
    if backend.adds_to_gradients:
        values.grad = torch.zeros_like(values)
    corners = (marks >> bit & 1).nonzero()[:, 0]
    return Window(VertexRows(rows.resolution, vertices, table), values, stored, corners)
