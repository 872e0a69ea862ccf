"""Rows of a sparse grid in host memory, and those of them that a step brings to the device.

A step reads the features of its visible samples and, for total variation, those beside them: a small part of a large
grid. They are copied to the device as a sparse grid of their own, the window, in which interpolation and total
variation do what they do in the whole grid. Adam leaves values alone whose gradient is zero, so only the corners of the
samples' cells go back: the same numbers as if all of the grid were on the device.

They are stored with 16 bits, half of what goes over the bus: Adam rounds at random (nerf/ops/rounding.py), so small
changes add up. Windows are float32.

On a GPU the next step's window is brought while this one computes, if batches are small. What it changes of its rows
is carried over on the device.

On a GPU a window has room for a fixed number of rows, so that a step can be captured. A step that needs more is left
out, as one whose loss is not finite; the host sees that without waiting, and makes more room for the steps after it.

Legend: X Y Z vertices of the lattice, W words of 32 vertices along z, K rows of the window, T corners, C channels.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nerf.ops.backend import Backend
from nerf.ops.host_memory import HostCounts, host_zeros
from nerf.ops.vertex_rows import LOWER_HALF, VERTICES_PER_WORD, VertexRows

# As values and moments are stored, which adam_rows takes together: squares of gradients need the range of a float32.
VALUES, MOMENTS = torch.float16, torch.bfloat16
ROWS_AT_A_TIME = 1 << 20  # that are converted, to bound memory on the device
# Of a step whose window is brought while the one before computes. With more rays the bus takes most of a step anyhow,
# and a second window costs more than it brings (docs/large_scenes.md).
MOST_RAYS_AHEAD = 1024


@dataclass(frozen=True)
class Window:
    """What a step has on the device of a sparse grid in host memory. Lists have -1 behind their last entry."""

    table: Tensor  # [X,Y,W] int64: finds the rows, as that of a sparse grid
    size_z: int  # Z
    values: Tensor  # [K,C], in a step a leaf with a gradient
    stored: Tensor  # [K] int64: their rows in the grid
    corners: Tensor  # [T] int64: rows of the window that interpolation reads
    vertices: Tensor  # [T] int64: of the corners, rising
    fits: Tensor | None  # [] bool: there was room for all of them; None: there always is

    @property
    def arguments(self) -> tuple[Tensor, int]:
        """table and size_z, as operations take them."""
        return self.table, self.size_z

    @property
    def nbytes(self) -> int:
        """Bytes on the device, without a gradient of the values."""
        return sum(x.nbytes for x in (self.table, self.stored, self.corners, self.vertices, self.values))


class HostRows:
    """Where a field's appearance grid is while it is in host memory."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.in_step = False  # outside of steps the grid is read in place, and gets no gradient
        self.window: Window | None = None  # the step's, from its forward to its optimizer
        self.most_bytes = 0  # of the windows of a step so far, with a gradient
        self.capacity = 0, 0  # rows and corners of each window; 0: as many as it needs, which is read from the device
        self._largest = HostCounts(2, backend.device)
        self._found: Window | None = None  # the step's, if it was brought before

    def no_values(self, rows: int, channels: int) -> Tensor:
        """Zeros in host memory for a grid [L,C]."""
        return host_zeros((rows, channels), VALUES, self.backend.device)

    def no_moments(self, rows: int, channels: int) -> Tensor:
        """Zeros in host memory for both moments of a grid [2,A,C]."""
        return host_zeros((2, rows, channels), MOMENTS, self.backend.device)

    def begin_step(self, window: Window | None = None) -> None:
        """From now until end_step() the grid's values are brought to the device, with a gradient.

        window: of the points at which the field will be evaluated, if it has been brought already (make_window).
        """
        self.in_step, self.window, self._found = True, None, window

    def end_step(self) -> Window:
        """The window of the step that ends."""
        window, self.in_step, self.window, self._found = self.window, False, None, None
        if window is None:
            raise RuntimeError("a step of a grid in host memory begins with Field.begin_step() and evaluates the field")
        return window

    @torch.no_grad()
    def count_rows(self, coords: Tensor, rows: VertexRows) -> list[int]:
        """How many rows and corners the window of points [N,3] in lattice units has. Waits for the device."""
        marks = self.backend.ops.mark_vertices(coords, *rows.arguments)
        return self.backend.ops.bring_rows(coords.new_empty(0, 0), marks, *rows.arguments, 1, 1)[-1].tolist()

    def set_capacity(self, rows: int, corners: int) -> None:
        """From now on windows have room for so many rows and corners. 0: for as many as they need."""
        self.capacity = rows, corners

    def forget_requests(self) -> None:
        """largest_request() is of the steps from now on. None may be queued."""
        self._largest.clear()

    def largest_request(self) -> list[int]:
        """The most rows and corners of a window with fixed room. Does not wait for steps that are queued."""
        return self._largest.read()

    def begin_window(self, grid: Tensor, coords: Tensor, rows: VertexRows) -> Window:
        """The step's window at points [N,3] in lattice units, with a gradient: of the grid [L,C] if not made before."""
        if self.window is not None:
            raise RuntimeError(
                "a step evaluates the field once where its features are in host memory; use train.features=device for "
                "a loss that evaluates it again"
            )
        window = self.make_window(grid, coords, rows) if self._found is None else self._found
        values = window.values.detach().requires_grad_()
        if self.backend.adds_to_gradients:
            values.grad = torch.zeros_like(values)
        self.window = replace(window, values=values)
        self.most_bytes = max(self.most_bytes, window.nbytes + values.nbytes)
        return self.window

    @torch.no_grad()
    def window_outside_steps(self, grid: Tensor, coords: Tensor, rows: VertexRows) -> Window:
        """What interpolation at points [N,3] in lattice units reads of the grid [L,C], for outside of steps.

        Without a gradient. Waits for the device.
        """
        corners = self.backend.ops.mark_vertices(coords, *rows.arguments) & LOWER_HALF
        marks = corners | corners << VERTICES_PER_WORD
        table, values, *lists, _ = self.backend.ops.bring_rows(grid, marks, *rows.arguments)
        return Window(table, rows.resolution[2], values, *lists, None)

    @torch.no_grad()
    def make_window(self, grid: Tensor, coords: Tensor, rows: VertexRows) -> Window:
        """The window of a step at points [N,3] in lattice units, without a gradient."""
        ops = self.backend.ops
        marks = ops.mark_vertices(coords, *rows.arguments)
        table, values, *lists, counts = ops.bring_rows(grid, marks, *rows.arguments, *self.capacity)
        fits = None
        if self.capacity[0]:
            fits = (counts[0] <= self.capacity[0]) & (counts[1] <= self.capacity[1])
            self._largest.keep_larger(counts)
        return Window(table, rows.resolution[2], values, *lists, fits)

    @torch.no_grad()
    def carry_over(self, last: Window, window: Window) -> Window:
        """The next step's window with the values that the last step left in its own; its rows have gone back since."""
        self.most_bytes = max(self.most_bytes, last.nbytes + last.values.nbytes + window.nbytes)
        there = window.table & LOWER_HALF
        capacity = len(window.stored), 1
        _, carried, known, *_ = self.backend.ops.bring_rows(
            last.values.detach(), there << VERTICES_PER_WORD, *last.arguments, *capacity
        )
        return replace(window, values=torch.where(known[:, None] >= 0, carried, window.values))


def copy_rows(source: Tensor, target: Tensor) -> Tensor:
    """Copies rows [A,...] into a tensor of another dtype or in another memory, and returns that."""
    for part, rows in zip(target.split(ROWS_AT_A_TIME), source.split(ROWS_AT_A_TIME), strict=True):
        part.copy_(rows)
    return target
