"""The division of the lattice among ranks: boxes of cells, cut so that each holds as many occupied ones.

A k-d tree (Bentley 1975): a box for n ranks is cut across its longest side, where n // 2 of n shares of its occupied
cells lie below the cut, and so on in each half. Every rank computes the same division from the same occupancy.

Straight rays meet a box once. In contracted space they are bent, and can meet it again (segments.py).

Legend: X Y Z vertices of the grid, L rows of a list of vertices.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nerf.errors import UserError
from nerf.scene.occupancy import cells_to_vertices

Box = tuple[tuple[int, int], ...]  # first cell and the one behind the last, of each axis


@dataclass(frozen=True)
class Division:
    """Which rank owns which cells, and which vertices follow from it."""

    boxes: tuple[Box, ...]  # of each rank
    owner: Tensor  # [X-1,Y-1,Z-1] uint8
    rows: tuple[Tensor, ...]  # of each rank: vertices of its occupied cells, [L] int64, rising
    all_rows: Tensor  # [L] int64: vertices of any occupied cell
    shared: Tensor  # [L] int64: vertices of occupied cells of several ranks; each has a replica, kept equal
    halo: Tensor  # [L] int64: vertices beside one that another rank has, whose values it needs

    def own_cells(self, rank: int, occupied: Tensor) -> Tensor:
        """The occupied cells of a rank, [X-1,Y-1,Z-1] bool."""
        return occupied & (self.owner == rank)


def divide(occupied: Tensor, ranks: int) -> Division:
    """Divides the cells [X-1,Y-1,Z-1] bool among ranks. Raises UserError where there are fewer cells than ranks."""
    if ranks > occupied.numel() or ranks > 255:
        raise UserError(
            f"{ranks} ranks are more than the {min(occupied.numel(), 255)} parts that this grid can have; start fewer "
            "processes with --nproc-per-node."
        )
    whole = tuple((0, n) for n in occupied.shape)
    counts = occupied.cpu().to(torch.int64)
    boxes = tuple(_cut(counts, whole, ranks))
    owner = torch.zeros(occupied.shape, dtype=torch.uint8, device=occupied.device)
    for rank, box in enumerate(boxes):
        owner[tuple(slice(*side) for side in box)] = rank
    replicas = torch.zeros([n + 1 for n in occupied.shape], dtype=torch.uint8, device=occupied.device)
    near = torch.zeros_like(replicas)
    active = []
    for rank in range(ranks):
        vertices = cells_to_vertices(occupied & (owner == rank))
        active.append(vertices.view(-1).nonzero()[:, 0])
        replicas += vertices
        near += _beside(vertices) & ~vertices
    all_rows = (replicas > 0).view(-1).nonzero()[:, 0]
    shared = (replicas > 1).view(-1).nonzero()[:, 0]
    halo = ((replicas > 0) & (near > 0)).view(-1).nonzero()[:, 0]
    return Division(boxes, owner, tuple(active), all_rows, shared, halo)


def _cut(occupied: Tensor, box: Box, ranks: int) -> list[Box]:
    """The boxes of so many ranks in a box. occupied: 0 or 1 in each cell of the grid."""
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


def _beside(vertices: Tensor) -> Tensor:
    """The vertices [X,Y,Z] that share an edge with one of these."""
    found = torch.zeros_like(vertices)
    for axis in range(3):
        count = vertices.shape[axis] - 1
        found.narrow(axis, 0, count).logical_or_(vertices.narrow(axis, 1, count))
        found.narrow(axis, 1, count).logical_or_(vertices.narrow(axis, 0, count))
    return found
