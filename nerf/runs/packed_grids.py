"""A field's grids without the vertices that no rendering can read: what the model file stores.

Marching looks values up at the very point that it found in an occupied cell, so the corners of these are all it reads.

Legend: X Y Z grid vertices, V stored vertices, C channels.
"""

import math
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nerf.fields.field import Field
from nerf.scene.box import Resolution
from nerf.scene.occupancy import OccupancyGrid, cells_to_vertices

LARGEST_HALF = torch.finfo(torch.float16).max
LEVEL = 1  # of deflate; 6 takes twice as long for two percent


@dataclass(frozen=True)
class PackedGrids:
    """Grids at the vertices of occupied cells, in host memory."""

    occupied: Tensor  # [ceil((X-1)(Y-1)(Z-1) / 8)] uint8: one bit per cell, the first in the highest bit
    values: dict[str, Tensor]  # by grid [V,C] float16, the vertices in memory order


def pack(field: Field, occupancy: OccupancyGrid) -> PackedGrids:
    """The grids of a field, of any device."""
    readable = cells_to_vertices(occupancy.occupied)
    own = {id(grid) for grid in field.grids}
    grids = {name: parameter.detach() for name, parameter in field.named_parameters() if id(parameter) in own}
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
    readable = cells_to_vertices(occupied)
    stored, grids = int(readable.sum()), {}
    for name, values in packed.values.items():
        if values.dim() != 2 or len(values) != stored:
            raise ValueError(f"{name} has the shape {list(values.shape)}, expected [{stored}, channels]")
        grids[name] = torch.zeros(*resolution, values.shape[1])
        grids[name][readable] = values.float()
    return grids, occupied


def deflated(values: Tensor) -> dict[str, Any]:
    """A grid's values [V,C] float16 without loss in four fifths of their bytes, for a file.

    Channel by channel the high bytes and the low ones apart: the high ones hold sign and exponent, and are much alike.
    """
    rows, channels = values.shape
    halves = np.ascontiguousarray(values.numpy().T).astype("<f2").view(np.uint8).reshape(channels, rows, 2)
    planes = [np.ascontiguousarray(halves[c, :, byte]) for c in range(channels) for byte in (0, 1)]
    with ThreadPoolExecutor() as pool:  # deflate lets other threads run
        packed = list(pool.map(lambda plane: zlib.compress(plane, LEVEL), planes))
    return {"shape": [rows, channels], "planes": [torch.from_numpy(np.frombuffer(p, np.uint8).copy()) for p in packed]}


def inflated(content: dict[str, Any]) -> Tensor:
    """What deflated() made its content of. Raises ValueError or zlib.error where it is damaged."""
    rows, channels = content["shape"]
    if len(content["planes"]) != 2 * channels:
        raise ValueError(f"{len(content['planes'])} planes, expected {2 * channels}, two for each channel")

    def plane(packed: Tensor) -> np.ndarray:
        stream = zlib.decompressobj()
        found = stream.decompress(packed.numpy().tobytes(), rows + 1)  # a few bytes may claim to be gigabytes
        if len(found) != rows:
            raise ValueError(f"a plane of {len(found)} bytes, expected {rows}")
        return np.frombuffer(found, np.uint8)

    with ThreadPoolExecutor() as pool:
        planes = list(pool.map(plane, content["planes"]))
    halves = np.stack(planes).reshape(channels, 2, rows).transpose(2, 0, 1)
    return torch.from_numpy(np.ascontiguousarray(halves).view("<f2")[..., 0].astype(np.float16))
