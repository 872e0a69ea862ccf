"""A field's grids without the vertices that no rendering can read: what the model file stores.

Legend: X Y Z grid vertices, V stored vertices, C channels.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from nerf.fields.field import Field
from nerf.occupancy import OccupancyGrid
from nerf.scene_box import Resolution


@dataclass(frozen=True)
class PackedGrids:
    """Grids at the vertices near occupied cells, in host memory."""

    occupied: Tensor  # [ceil((X-1)(Y-1)(Z-1) / 8)] uint8: one bit per cell, the first in the highest bit
    values: dict[str, Tensor]  # by grid [V,C], the vertices in memory order


def readable_vertices(occupied: Tensor) -> Tensor:
    """Vertices [X,Y,Z] that rendering can read: the corners of occupied cells [X-1,Y-1,Z-1] and of their neighbours.

    A sample is placed in an occupied cell by its ray and looked up by its position. Where it lies on a face, rounding
    between the two can move it into the next cell: with that cell's corners the rendering is the same to the last bit.
    """
    readable = functional.pad(occupied, (2,) * 6)
    for axis in range(3):  # a vertex lies between two cells; these two and the next ones on either side
        count = readable.shape[axis] - 3
        near = [readable.narrow(axis, first, count) for first in range(4)]
        readable = near[0] | near[1] | near[2] | near[3]
    return readable


def pack(field: Field, occupancy: OccupancyGrid) -> PackedGrids:
    """The grids of a field, of any device."""
    readable = readable_vertices(occupancy.occupied)
    grids = {name: getattr(field, name).detach() for name in ("density_grid", field.color_grid_name)}
    bits = torch.from_numpy(np.packbits(occupancy.occupied.cpu().numpy()))
    return PackedGrids(bits, {name: grid[readable].cpu() for name, grid in grids.items()})


def unpack(packed: PackedGrids, resolution: Resolution) -> tuple[dict[str, Tensor], Tensor]:
    """Grids [X,Y,Z,C] by name, zero at vertices that were not stored, and occupied cells [X-1,Y-1,Z-1] bool.

    Raises ValueError where the packed tensors do not fit the resolution.
    """
    cells = [n - 1 for n in resolution]
    count = math.prod(cells)
    if len(packed.occupied) != -(-count // 8):
        raise ValueError(f"{len(packed.occupied)} bytes of occupancy, expected a bit for each of {count} cells")
    occupied = torch.from_numpy(np.unpackbits(packed.occupied.numpy(), count=count)).view(cells).bool()
    readable = readable_vertices(occupied)
    stored, grids = int(readable.sum()), {}
    for name, values in packed.values.items():
        if values.dim() != 2 or len(values) != stored:
            raise ValueError(f"{name} has the shape {list(values.shape)}, expected [{stored}, channels]")
        grids[name] = values.new_zeros(*resolution, values.shape[1])
        grids[name][readable] = values
    return grids, occupied
