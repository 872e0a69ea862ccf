"""A field's grids reduced to the vertices that rendering reads, for the model file.

All samples lie in occupied cells, so rendering reads only the vertices of occupied cells.

Legend: X Y Z grid vertices, V stored vertices, C channels.
"""

import math
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nerf.errors import is_out_of_memory
from nerf.fields.field import POINTS_AT_A_TIME, Field
from nerf.scene.box import Resolution
from nerf.scene.occupancy import OccupancyGrid, cells_to_vertices

LARGEST_HALF = torch.finfo(torch.float16).max
LEVEL = 1  # of deflate; level 6 takes twice as long and saves two percent


@dataclass(frozen=True)
class PackedGrids:
    """Grids at the vertices of occupied cells, in host memory."""

    occupied: Tensor  # [ceil((X-1)(Y-1)(Z-1) / 8)] uint8: one bit per cell, the first in the highest bit
    values: dict[str, Tensor]  # [V,C] float16 by name of the grid, the vertices in memory order


def pack(field: Field, occupancy: OccupancyGrid) -> PackedGrids:
    """The packed grids of a field on any device."""
    readable = occupancy.active_vertices()
    own = {id(grid) for grid in field.grids}
    grids = {name: parameter.detach() for name, parameter in field.named_parameters() if id(parameter) in own}
    bits = torch.from_numpy(np.packbits(occupancy.occupied.cpu().numpy()))

    def half(values: Tensor) -> Tensor:
        return values.clamp(-LARGEST_HALF, LARGEST_HALF).half().cpu()

    some = readable.split(POINTS_AT_A_TIME)  # grids may be larger than the device's memory
    halves = {name: torch.cat([half(field.values_at(grid, x)) for x in some]) for name, grid in grids.items()}
    return PackedGrids(bits, halves)


def occupied_cells(bits: Tensor, resolution: Resolution) -> Tensor:
    """The occupied cells [X-1,Y-1,Z-1] bool from PackedGrids.occupied. Raises ValueError if it does not fit."""
    cells = [n - 1 for n in resolution]
    count = math.prod(cells)
    if len(bits) != -(-count // 8):
        raise ValueError(f"{len(bits)} bytes of occupancy, expected a bit for each of {count} cells")
    return torch.from_numpy(np.unpackbits(bits.numpy(), count=count)).view(cells).bool()


def unpack(packed: PackedGrids, resolution: Resolution) -> tuple[dict[str, Tensor], Tensor]:
    """The grids [X,Y,Z,C] by name, zero at vertices that were not stored, and the occupied cells [X-1,Y-1,Z-1] bool.

    Raises ValueError if the packed tensors do not fit the resolution.
    """
    occupied = occupied_cells(packed.occupied, resolution)
    readable = cells_to_vertices(occupied)
    stored, grids = int(readable.sum()), {}
    for name, values in packed.values.items():
        if values.dim() != 2 or len(values) != stored:
            raise ValueError(f"{name} has the shape {list(values.shape)}, expected [{stored}, channels]")
        if not values.isfinite().all():
            raise ValueError(f"{name} holds values that are not finite")
        grids[name] = torch.zeros(*resolution, values.shape[1])
        grids[name][readable] = values.float()
    return grids, occupied


def deflated(values: Tensor) -> dict[str, Any]:
    """Values [V,C] float16, compressed without loss to about four fifths, as plain containers for a file.

    The high and low bytes of each channel are compressed separately. High bytes hold sign and exponent, which are
    similar.
    """
    rows, channels = values.shape
    halves = np.ascontiguousarray(values.numpy().T).astype("<f2").view(np.uint8).reshape(channels, rows, 2)
    planes = [np.ascontiguousarray(halves[c, :, byte]) for c in range(channels) for byte in (0, 1)]
    packed = _in_threads(lambda plane: zlib.compress(plane, LEVEL), planes)
    return {"shape": [rows, channels], "planes": [torch.from_numpy(np.frombuffer(p, np.uint8).copy()) for p in packed]}


def _in_threads(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """The function of each item, in threads, as zlib releases the GIL; or without, where none can be started."""
    try:
        with ThreadPoolExecutor() as pool:
            return list(pool.map(function, items))
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return [function(item) for item in items]


def inflated(content: dict[str, Any]) -> Tensor:
    """The values [V,C] float16 from the result of deflated(). Raises ValueError or zlib.error if it is damaged."""
    rows, channels = content["shape"]
    if len(content["planes"]) != 2 * channels:
        raise ValueError(f"{len(content['planes'])} planes, expected {2 * channels}, two for each channel")

    def plane(packed: Tensor) -> np.ndarray:
        stream = zlib.decompressobj()
        found = stream.decompress(packed.numpy().tobytes(), rows + 1)  # bounded, against damaged or hostile files
        if len(found) != rows:
            raise ValueError(f"a plane of {len(found)} bytes, expected {rows}")
        return np.frombuffer(found, np.uint8)

    planes = _in_threads(plane, content["planes"])
    halves = np.stack(planes).reshape(channels, 2, rows).transpose(2, 0, 1)
    return torch.from_numpy(np.ascontiguousarray(halves).view("<f2")[..., 0].astype(np.float16))
