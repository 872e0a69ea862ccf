"""Which cells of the grid are worth sampling.

Density is activated after interpolation, and both interpolation and activation are monotone: no point of a cell is
denser than its densest vertex. So the vertices alone decide, exactly, and nothing needs to be sampled.
"""

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

    def refresh(self, vertex_alpha: Tensor, threshold: float) -> None:
        """Keeps the cells with a vertex of at least this opacity, and those around them that have not been given up.

        vertex_alpha [X,Y,Z]: opacity of one voxel's length at each vertex.
        """
        dense = functional.max_pool3d(vertex_alpha[None, None], 2, stride=1)[0, 0] >= threshold
        self.occupied = self.occupied & dilate(dense)

    def resample(self, resolution: Resolution) -> None:
        """Carries the occupancy to a grid of another resolution: a cell is occupied if it touches an occupied one."""
        cells = [n - 1 for n in resolution]
        near = dilate(self.occupied).float()
        self.occupied = functional.interpolate(near[None, None], size=cells, mode="nearest")[0, 0] > 0


def dilate(occupied: Tensor) -> Tensor:
    """Occupied cells [X,Y,Z] and all their neighbours."""
    return functional.max_pool3d(occupied.float()[None, None], 3, stride=1, padding=1)[0, 0] > 0


def uniform(resolution: Resolution, device: torch.device) -> OccupancyGrid:
    """Every cell occupied."""
    return OccupancyGrid(torch.ones([n - 1 for n in resolution], dtype=torch.bool, device=device))
