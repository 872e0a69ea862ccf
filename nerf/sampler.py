"""From rays to samples: draws the jitter, maps rays to the grid and marches them through the occupied cells."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nerf.config import SamplerConfig
from nerf.occupancy import OccupancyGrid
from nerf.ops.backend import Backend
from nerf.rays import Rays, RaySamples
from nerf.scene_box import GridMap


@dataclass(frozen=True)
class RaySampler:
    """Places samples on a regular lattice along each ray, at occupied cells only."""

    backend: Backend
    grid_map: GridMap  # of the occupancy's grid
    occupancy: OccupancyGrid
    step_size: float  # world units
    config: SamplerConfig

    def sample(self, rays: Rays, jitter: Tensor | None = None, capacity: int = 0) -> RaySamples:
        """Samples of R rays.

        jitter [R] in [-0.5, 0.5) shifts each ray's lattice by that share of a step; None places it deterministically.
        capacity: see march_rays; 0 reads the number of samples back from the device.
        """
        origins, directions = self.grid_map.rays_to_grid(rays)
        zeros = torch.zeros_like(origins[:, 0])
        ray_offsets, ray_indices, t_starts, t_ends, overflow = self.backend.ops.march_rays(
            origins,
            directions,
            zeros if jitter is None else jitter,
            self.occupancy.occupied,
            zeros + self.config.near,
            zeros + self.config.far,
            self.step_size,
            capacity,
        )
        return RaySamples(rays, ray_offsets, ray_indices, t_starts, t_ends, overflow)
