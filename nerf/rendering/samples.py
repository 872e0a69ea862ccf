"""Samples on rays: the result of marching and the input of a field."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nerf.cameras.rays import Rays
from nerf.scene.box import GridMap
from nerf.scene.space import SceneRays


@dataclass(frozen=True)
class RaySamples:
    """M intervals on R rays, packed: ray r owns the samples ray_offsets[r] to ray_offsets[r + 1].

    With a fixed capacity the rows from ray_offsets[R] on belong to no ray: index 0, length 0.
    t is length along the ray in scene space: in a box, world distance.
    """

    rays: Rays
    ray_offsets: Tensor  # [R+1] int64, rising
    ray_indices: Tensor  # [M] int64
    t_starts: Tensor  # [M]
    t_ends: Tensor  # [M]
    overflow: Tensor  # [1] int64: rays dropped because they did not fit the capacity
    path: SceneRays  # the rays in scene space
    midpoints: Tensor | None = None  # [M,3] in grid units, if marching has computed them

    def positions(self) -> Tensor:
        """Midpoints of the intervals in scene space, [M,3]."""
        return self.path.positions(0.5 * (self.t_starts + self.t_ends), self.ray_indices, self.ray_offsets)

    def coords(self, grid_map: GridMap) -> Tensor:
        """Midpoints in units of the marched grid, [M,3]. Differentiable in the path if that requires gradients."""
        if self.midpoints is None or self.path.origins.requires_grad or self.path.directions.requires_grad:
            return grid_map.to_grid(self.positions())
        return self.midpoints

    def world_positions(self) -> Tensor:
        """Midpoints in world space, [M,3]."""
        distances = self.path.distances(0.5 * (self.t_starts + self.t_ends), self.ray_indices)
        origins = self.rays.origins.index_select(0, self.ray_indices)
        return origins + distances[:, None] * self.directions()

    def directions(self) -> Tensor:
        """Unit direction of each sample's ray in the world, [M,3]."""
        return self.rays.directions.index_select(0, self.ray_indices)

    def select(self, keep: Tensor, capacity: int = 0) -> "RaySamples":
        """The samples where keep [M] bool is true, packed in the order of the rays.

        capacity: 0 returns exactly these and reads their number from the device. Otherwise the result has capacity
        rows, nothing is read from the device, samples that do not fit are dropped, and overflow counts their rays.
        """
        kept_before = torch.nn.functional.pad(keep.cumsum(0), (1, 0))
        ray_offsets, overflow = kept_before[self.ray_offsets], self.overflow
        per_sample = (self.ray_indices, self.t_starts, self.t_ends)
        if capacity == 0:
            rows = keep.nonzero()[:, 0]
            selected = [x[rows] for x in per_sample]
        else:
            overflow = overflow + ((ray_offsets[1:] > capacity) & (ray_offsets.diff() > 0)).sum()
            ray_offsets = ray_offsets.clamp(max=capacity)
            # The last row takes dropped samples.
            slot = torch.where(keep, kept_before[:-1], capacity).clamp(max=capacity)
            selected = [x.new_zeros(capacity + 1).scatter_(0, slot, x)[:capacity] for x in per_sample]
            used = torch.arange(capacity, device=keep.device) < ray_offsets[-1]
            selected = [torch.where(used, x, torch.zeros_like(x)) for x in selected]
        return RaySamples(self.rays, ray_offsets, *selected, overflow, self.path)
