"""Which cells of the grid are worth sampling."""

import torch
from torch import Tensor
from torch.nn import functional

from nerf.scene_box import Resolution


class OccupancyGrid:
    """One bool per cell of the field's grid."""

    def __init__(self, occupied: Tensor) -> None:
        self.occupied = occupied  # [X-1,Y-1,Z-1] bool

    @property
    def share(self) -> float:
        """Occupied share of the cells. Reads from the device."""
        return self.occupied.float().mean().item()

    def vertex_rows(self) -> Tensor:
        """The vertices that touch an occupied cell, [L] int64: where samples can leave a gradient.

        A vertex counts as its row in a grid of values, (x * Y + y) * Z + z. Reads from the device.
        """
        touched = functional.max_pool3d(self.occupied.float()[None, None], 2, stride=1, padding=1)
        return touched.view(-1).nonzero()[:, 0]

    def resample(self, resolution: Resolution) -> None:
        """Carries the occupancy to a grid of another resolution: a cell is occupied if it touches an occupied one."""
        cells = [n - 1 for n in resolution]
        near = with_neighbors(self.occupied).float()
        self.occupied = functional.interpolate(near[None, None], size=cells, mode="nearest")[0, 0] > 0


def with_neighbors(occupied: Tensor) -> Tensor:
    """Occupied cells [X,Y,Z] and those that share a face with one."""
    result = occupied.clone()
    for axis in range(3):
        count = occupied.shape[axis] - 1
        lower, upper = result.narrow(axis, 0, count), result.narrow(axis, 1, count)
        lower |= occupied.narrow(axis, 1, count)
        upper |= occupied.narrow(axis, 0, count)
    return result


def uniform(resolution: Resolution, device: torch.device) -> OccupancyGrid:
    """Every cell occupied."""
    return OccupancyGrid(torch.ones([n - 1 for n in resolution], dtype=torch.bool, device=device))
