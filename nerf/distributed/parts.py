"""The division of the lattice among ranks: boxes of cells, cut so that each holds as many occupied ones.

A k-d tree (Bentley 1975): a box for n ranks is cut across its longest side, where n // 2 of n shares of its occupied
cells lie below the cut, and so on in each half. Every rank computes the same division from the same occupancy.

Straight rays meet a box once. In contracted space they are bent, and can meet it again (segments.py).

Lists of vertices are computed when they are asked for, in the box alone: those of all ranks would take as much memory
on each of them as the whole scene's.

Legend: X Y Z vertices of the grid, L rows of a list of vertices.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nerf.errors import UserError
from nerf.scene.occupancy import OccupancyGrid, cells_to_vertices, with_neighbors

Box = tuple[tuple[int, int], ...]  # first cell and the one behind the last, of each axis; or vertex


@dataclass(frozen=True)
class Division:
    """Which rank owns which cells, and which vertices follow from it. All lists rise."""

    boxes: tuple[Box, ...]  # of each rank
    occupied: Tensor  # [X-1,Y-1,Z-1] bool: what is divided
    everywhere: bool  # every vertex has a value; else those that OccupancyGrid.stored_vertices lists
    shared: Tensor  # [L] int64: vertices of occupied cells of several ranks; each has a replica, kept equal
    halo: Tensor  # [L] int64: vertices beside one that another rank has, whose values it needs

    def own_cells(self, rank: int) -> Tensor:
        """The occupied cells of a rank, [X-1,Y-1,Z-1] bool."""
        own = torch.zeros_like(self.occupied)
        own[_slices(self.boxes[rank])] = self.occupied[_slices(self.boxes[rank])]
        return own

    def in_box(self, rank: int, cells: Tensor) -> Tensor:
        """Which of these cells [M,3] int64 are a rank's, occupied or not, [M] bool."""
        first, last = cells.new_tensor(self.boxes[rank]).unbind(1)
        return ((cells >= first) & (cells < last)).all(1)

    def rows(self, rank: int) -> Tensor:
        """The vertices that a rank trains: those of its occupied cells, [L] int64."""
        return self._listed(self._trained(rank), self._window(rank, 0))

    def all_rows(self) -> Tensor:
        """The vertices of any occupied cell, [L] int64."""
        return OccupancyGrid(self.occupied).active_vertices()

    def kept(self, rank: int) -> Tensor:
        """The vertices whose values a rank answers for, [L] int64: those it trains, and in its box those none trains.

        Together all vertices that have a value. One that several ranks train is in the list of each.
        """
        window, home = self._window(rank, 0), self._home(rank)
        mask = self._trained(rank)
        mask[_inside(window, home)] |= self._untrained(home)
        return self._listed(mask, window)

    def stored(self, rank: int) -> Tensor:
        """The vertices whose values a rank needs, [L] int64, at least one: those it keeps, and a layer of neighbors."""
        window, home = self._window(rank, 1), self._home(rank)
        mask = torch.zeros([b - a for a, b in window], dtype=torch.bool, device=self.occupied.device)
        mask[_inside(window, self._window(rank, 0))] = self._trained(rank)
        mask = with_neighbors(mask)
        mask[_inside(window, home)] |= self._untrained(home)
        if not mask.any():  # operations need a row
            mask.view(-1)[0] = True
        return self._listed(mask, window)

    def _window(self, rank: int, layers: int) -> Box:
        """The vertices of a rank's box, and so many layers around it."""
        sizes = self.occupied.shape
        return tuple((max(0, a - layers), min(n + 1, b + 1 + layers)) for (a, b), n in zip(self.boxes[rank], sizes))

    def _home(self, rank: int) -> Box:
        """The vertices of a rank's box that are in no other's: the last layer is the next box's, if there is one."""
        return tuple((a, b + (b == n)) for (a, b), n in zip(self.boxes[rank], self.occupied.shape))

    def _trained(self, rank: int) -> Tensor:
        """Which vertices of a rank's box touch an occupied cell of its own."""
        return cells_to_vertices(self.occupied[_slices(self.boxes[rank])])

    def _active(self, window: Box) -> Tensor:
        """Which vertices of a window touch an occupied cell of any rank."""
        cells = tuple((max(0, a - 1), min(n, b)) for (a, b), n in zip(window, self.occupied.shape))
        return cells_to_vertices(self.occupied[_slices(cells)])[_inside(cells, window)]

    def _untrained(self, window: Box) -> Tensor:
        """Which vertices of a window have a value that no rank trains."""
        active = self._active(window)
        if self.everywhere:
            return ~active
        wider = tuple((max(0, a - 1), min(n + 1, b + 1)) for (a, b), n in zip(window, self.occupied.shape))
        return with_neighbors(self._active(wider))[_inside(wider, window)] & ~active

    def _listed(self, mask: Tensor, window: Box) -> Tensor:
        """The vertices of a window that a mask has, [L] int64."""
        _, y, z = (n + 1 for n in self.occupied.shape)
        i, j, k = (place + a for place, (a, _) in zip(mask.nonzero().unbind(1), window))
        return (i * y + j) * z + k


def divide(occupied: Tensor, ranks: int, everywhere: bool = True) -> Division:
    """Divides the cells [X-1,Y-1,Z-1] bool among ranks. Raises UserError where there are fewer cells than ranks.

    occupied: not to be changed afterwards. everywhere: see Division.
    """
    if ranks > occupied.numel() or ranks > 255:
        raise UserError(
            f"{ranks} ranks are more than the {min(occupied.numel(), 255)} parts that this grid can have; start fewer "
            "processes with --nproc-per-node."
        )
    whole = tuple((0, n) for n in occupied.shape)
    boxes = tuple(_cut(occupied.cpu(), whole, ranks))
    division = Division(boxes, occupied, everywhere, *2 * (torch.empty(0, dtype=torch.int64),))
    replicas = torch.zeros([n + 1 for n in occupied.shape], dtype=torch.uint8, device=occupied.device)
    near = torch.zeros_like(replicas, dtype=torch.bool)
    for rank in range(ranks):
        inner, outer = division._window(rank, 0), division._window(rank, 1)
        own = torch.zeros([b - a for a, b in outer], dtype=torch.bool, device=occupied.device)
        own[_inside(outer, inner)] = division._trained(rank)
        replicas[_slices(outer)] += own
        near[_slices(outer)] |= with_neighbors(own) & ~own
    shared = (replicas > 1).view(-1).nonzero()[:, 0]
    halo = ((replicas > 0) & near).view(-1).nonzero()[:, 0]
    return Division(boxes, occupied, everywhere, shared, halo)


def _slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(*side) for side in box)


def _inside(outer: Box, inner: Box) -> tuple[slice, ...]:
    """Where an inner box is in a tensor of an outer one."""
    return tuple(slice(c - a, d - a) for (a, _), (c, d) in zip(outer, inner))


def _cut(occupied: Tensor, box: Box, ranks: int) -> list[Box]:
    """The boxes of so many ranks in a box. occupied: of the whole grid, bool."""
    if ranks == 1:
        return [box]
    below = ranks // 2
    inside = occupied[tuple(slice(*side) for side in box)]
    sizes = [last - first for first, last in box]
    best = None
    for axis in sorted(range(3), key=lambda a: -sizes[a]):
        across = sizes[axis]
        rest = inside.numel() // across
        lowest, highest = -(-below // rest), across - -(-(ranks - below) // rest)  # each side has a cell for each rank
        if across < 2 or lowest > highest:
            continue
        filled = inside.sum([a for a in range(3) if a != axis]).cumsum(0)
        misses = (filled[lowest - 1 : highest] - filled[-1] * below / ranks).abs()
        middle = (torch.arange(lowest, highest + 1) - across * below / ranks).abs() / (across + 1)
        at = int((misses + 0.5 * middle).argmin())  # of equal cuts the one nearest the middle
        cut = box[axis][0] + lowest + at
        best = (axis, cut)
        break
    if best is None:
        raise UserError(f"{ranks} ranks are too many for a box of {' x '.join(map(str, sizes))} cells; start fewer.")
    axis, cut = best
    lower, upper = list(box), list(box)
    lower[axis], upper[axis] = (box[axis][0], cut), (cut, box[axis][1])
    return _cut(occupied, tuple(lower), below) + _cut(occupied, tuple(upper), ranks - below)
