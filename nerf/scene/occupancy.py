"""Which cells of the grid are worth sampling."""

import functools

import torch
from torch import Tensor
from torch.nn import functional

from nerf.scene.box import Resolution


class OccupancyGrid:
    """One bool per cell of the field's grid."""

    def __init__(self, occupied: Tensor) -> None:
        self.occupied = occupied  # [X-1,Y-1,Z-1] bool
        self._packed: tuple[Tensor, int, Tensor, Tensor] | None = None  # the cells, their version, words, clear

    @property
    def words(self) -> Tensor:
        """The cells as bits, cells_to_words(occupied), kept until these change."""
        return self._words_and_clear()[0]

    @property
    def clear(self) -> Tensor:
        """Whether a word and the 26 around it are empty, bool in the shape of words: rays pass there without a look."""
        return self._words_and_clear()[1]

    def _words_and_clear(self) -> tuple[Tensor, Tensor]:
        cells = self.occupied
        if self._packed is not None and self._packed[0] is cells and self._packed[1] == cells._version:
            return self._packed[2:]
        words = cells_to_words(cells)
        near = functional.max_pool3d((words != 0).float()[None], 3, stride=1, padding=1)[0]
        found = words, near == 0
        # What a CUDA graph records has no values yet.
        if not (cells.is_cuda and torch.cuda.is_current_stream_capturing()):
            self._packed = cells, cells._version, *found
        return found

    @property
    def occupied_fraction(self) -> float:
        """Fraction of the cells that are occupied. Reads from the device."""
        return self.occupied.float().mean().item()

    def active_vertices(self) -> Tensor:
        """The vertices that touch an occupied cell, [L] int64: where samples can leave a gradient.

        A vertex counts as its row in a grid of values, (x * Y + y) * Z + z. Reads from the device.
        """
        return cells_to_vertices(self.occupied).view(-1).nonzero()[:, 0]

    def stored_vertices(self) -> Tensor:
        """The active vertices and their neighbors along the axes, [L] int64: where a sparse grid has values.

        Total variation reads these neighbors, and a cell that pruning restores finds the values that it had.
        """
        return with_neighbors(cells_to_vertices(self.occupied)).view(-1).nonzero()[:, 0]

    def inner_cells(self) -> int:
        """How many occupied cells have six occupied neighbors. Reads from the device.

        Pruning keeps the neighbors of what it finds, so these are about the cells that it found.
        """
        return int(_without_border(self.occupied).sum())

    def resample(self, resolution: Resolution) -> None:
        """Carries the occupancy to a grid of another resolution.

        A cell is occupied if it overlaps an occupied one, or if the cell at its lower corner shares a face with one.
        """
        beside, overlapping = with_neighbors(self.occupied), self.occupied
        for axis, count in enumerate(resolution):
            before = overlapping.shape[axis]
            cells = torch.arange(count - 1, device=overlapping.device)
            first = torch.div(cells * before, count - 1, rounding_mode="floor")
            last = torch.div((cells + 1) * before - 1, count - 1, rounding_mode="floor")
            beside = beside.index_select(axis, first)
            overlapping = overlapping.index_select(axis, first) | overlapping.index_select(axis, last)
        self.occupied = beside | overlapping


def cells_to_words(cells: Tensor) -> Tensor:
    """Cells [X,Y,Z] bool as [ceil(X/4),ceil(Y/4),ceil(Z/4)] int64: cell (x, y, z) of a word is its bit 16 x + 4 y + z.

    The marching operations walk over these (cuda_ext/math/march.h). Cells beyond the grid are empty.
    """
    x, y, z = cells.shape
    words = functional.pad(cells, (0, -z % 4, 0, -y % 4, 0, -x % 4))
    for axis, bits, dtype in ((2, 1, torch.uint8), (1, 4, torch.int32), (0, 16, torch.int64)):
        parts = words.to(dtype).unflatten(axis, (-1, 4)).unbind(axis + 1)
        words = functools.reduce(torch.bitwise_or, (part << bits * k for k, part in enumerate(parts)))
    return words


def cells_to_vertices(cells: Tensor) -> Tensor:
    """Vertices [X,Y,Z] that are a corner of one of the cells [X-1,Y-1,Z-1], both bool."""
    return vertices_to_cells(functional.pad(cells, (1,) * 6))  # between each two cells, and beside the outer ones


def vertices_to_cells(vertices: Tensor) -> Tensor:
    """Cells [X-1,Y-1,Z-1] that have one of the vertices [X,Y,Z] for a corner, both bool."""
    for axis in range(3):
        count = vertices.shape[axis] - 1
        vertices = vertices.narrow(axis, 0, count) | vertices.narrow(axis, 1, count)
    return vertices


def with_neighbors(occupied: Tensor) -> Tensor:
    """Occupied cells [X,Y,Z] and those that share a face with one; or vertices, and those a step away."""
    result = occupied.clone()
    for axis in range(3):
        count = occupied.shape[axis] - 1
        lower, upper = result.narrow(axis, 0, count), result.narrow(axis, 1, count)
        lower |= occupied.narrow(axis, 1, count)
        upper |= occupied.narrow(axis, 0, count)
    return result


def _without_border(occupied: Tensor) -> Tensor:
    """Occupied cells [X,Y,Z] whose six neighbors are occupied; none lies at the border of the grid."""
    result = occupied.clone()
    for axis in range(3):
        count = occupied.shape[axis]
        result.narrow(axis, 0, 1).fill_(False)
        result.narrow(axis, count - 1, 1).fill_(False)
        result.narrow(axis, 1, count - 1).logical_and_(occupied.narrow(axis, 0, count - 1))
        result.narrow(axis, 0, count - 1).logical_and_(occupied.narrow(axis, 1, count - 1))
    return result


def uniform(resolution: Resolution, device: torch.device) -> OccupancyGrid:
    """Every cell occupied."""
    return OccupancyGrid(torch.ones([n - 1 for n in resolution], dtype=torch.bool, device=device))
