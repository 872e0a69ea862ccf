"""A field's grids without the vertices that no rendering can read: what the model file stores.

Marching looks values up at the very point that it found in an occupied cell, so the corners of these are all it reads.

Legend: X Y Z grid vertices, V stored vertices, C channels.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nerf.fields.field import Field
from nerf.occupancy import OccupancyGrid, corners_of
from nerf.scene_box import Resolution

LARGEST_HALF = torch.finfo(torch.float16).max


@dataclass(frozen=True)
class PackedGrids:
    """Grids at the vertices of occupied cells, in host memory."""

    occupied: Tensor  # [ceil((X-1)(Y-1)(Z-1) / 8)] uint8: one bit per cell, the first in the highest bit
    values: dict[str, Tensor]  # by grid [V,C] float16, the vertices in memory order


def pack(field: Field, occupancy: OccupancyGrid) -> PackedGrids:
    """The grids of a field, of any device."""
    readable = corners_of(occupancy.occupied)
    grids = {name: getattr(field, name).detach() for name in ("density_grid", field.color_grid_name)}
    bits = torch.from_numpy(np.packbits(occupancy.occupied.cpu().numpy()))
    values = {name: grid[readable].clamp(-LARGEST_HALF, LARGEST_HALF).half().cpu() for name, grid in grids.items()}
    return PackedGrids(bits, values)


def unpack(packed: PackedGrids, resolution: Resolution) -> tuple[dict[str, Tensor], Tensor]:
    """Grids [X,Y,Z,C] by name, zero at vertices that were not stored, and occupied cells [X-1,Y-1,Z-1] bool.

    Raises ValueError where the packed tensors do not fit the resolution.
    """
    cells = [n - 1 for n in resolution]
    count = math.prod(cells)
    if len(packed.occupied) != -(-count // 8):
        raise ValueError(f"{len(packed.occupied)} bytes of occupancy, expected a bit for each of {count} cells")
    occupied = torch.from_numpy(np.unpackbits(packed.occupied.numpy(), count=count)).view(cells).bool()
    readable = corners_of(occupied)
    stored, grids = int(readable.sum()), {}
    for name, values in packed.values.items():
        if values.dim() != 2 or len(values) != stored:
            raise ValueError(f"{name} has the shape {list(values.shape)}, expected [{stored}, channels]")
        grids[name] = torch.zeros(*resolution, values.shape[1])
        grids[name][readable] = values.float()
    return grids, occupied
