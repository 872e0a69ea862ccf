"""From rays to samples: maps rays into scene space and marches them through the occupied cells.

Legend: R rays, P pixels.
"""

import functools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.cameras.rays import Rays
from nerf.config.schema import SamplerConfig
from nerf.fields.field import Field
from nerf.ops.backend import Backend
from nerf.rendering.samples import RaySamples
from nerf.scene.box import GridMap
from nerf.scene.occupancy import OccupancyGrid
from nerf.scene.space import SceneRays


@dataclass(frozen=True)
class RaySampler:
    """Places samples on a regular lattice along each ray, in occupied cells only."""

    backend: Backend
    grid_map: GridMap  # of the occupancy grid
    occupancy: OccupancyGrid
    step_size: float  # in scene space
    config: SamplerConfig

    @classmethod
    def of_field(cls, field: Field, occupancy: OccupancyGrid, config: SamplerConfig) -> "RaySampler":
        """The sampler for a field and its occupancy grid at their current resolution."""
        step_size = config.step_size_voxels * field.voxel_size
        return cls(field.backend, field.grid_map, occupancy, step_size, config)

    @property
    def rays_per_pixel(self) -> int:
        """Rays per pixel of rendered images, and of training batches late in a run. Older runs, without it, have 1."""
        return self.config.rays_per_pixel or 1

    def sample(self, rays: Rays, jitter: Tensor | None = None, capacity: int = 0) -> RaySamples:
        """Samples of R rays.

        jitter [P] in [-0.5, 0.5): shift of each pixel's lattice in steps; None: no shift. The rays of one pixel are
        also shifted against each other. capacity: see march_rays; 0 reads the number of samples from the device.
        """
        path, march = self.march(rays, jitter)
        ray_offsets, ray_indices, t_starts, t_ends, overflow = self.backend.ops.march_rays(
            *march,
            capacity,
            self.grid_map.space.contraction,
            self.grid_map.lower,
            self.grid_map.scale,
            self.occupancy.words,
        )
        return RaySamples(rays, ray_offsets, ray_indices, t_starts, t_ends, overflow, path)

    def march(self, rays: Rays, jitter: Tensor | None) -> tuple[SceneRays, tuple]:
        """The rays in scene space, and the first arguments of all marching operations, origins to step_size.

        These are in scene space too: the operations take grid_arguments beside them.

        The scene rays are differentiable if cameras are learned. The positions of samples along them are not.
        """
        space, origins = self.grid_map.space, rays.origins
        near = max(self.config.near, space.near)
        far = math.inf if self.config.far is None else self.config.far
        path = space.path(origins, rays.directions, *_ends(near, far, origins.device, origins.dtype))
        jitter = origins.new_zeros(len(rays) // rays.per_pixel) if jitter is None else jitter
        scene_rays = path.origins.detach(), path.directions.detach(), jitter
        return path, (*scene_rays, self.occupancy.occupied, path.near.detach(), path.far.detach(), self.step_size)

    @property
    def grid_arguments(self) -> dict[str, Tensor]:
        """Arguments by name of operations that look at density: where the grid is, and what is known of its cells."""
        places = {"lower": self.grid_map.lower, "scale": self.grid_map.scale}
        return places | {"words": self.occupancy.words, "clear": self.occupancy.clear}


@functools.cache
def _ends(near: float, far: float, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """near and far [1] of all rays, cached per device, because to fill them takes a step two kernels."""
    with torch.inference_mode(False):  # training may come after a picture
        return tuple(torch.tensor([end], device=device, dtype=dtype) for end in (near, far))


def depth_range(sampler: RaySampler, cameras: Cameras) -> tuple[float, float]:
    """Smallest and largest possible distance from a camera to the scene, world units, for depth images."""
    lower = sampler.grid_map.lower
    size = torch.tensor(sampler.occupancy.occupied.shape, device=lower.device) / sampler.grid_map.scale
    return sampler.grid_map.space.depth_range(cameras.centers.to(lower.device), lower, size)
