"""The scene box: the one place that converts to grid coordinates, from scene space, which in a box is the world.

A grid of X * Y * Z vertices spans the box: vertex 0 lies on aabb[0], vertex X - 1 on aabb[1]. In grid units a cell
is 1 wide. The map is affine, so a ray that is mapped without renormalizing its direction keeps its parameter t:
t stays length in scene space (world distance in a box) and no kernel knows the box. How the world becomes scene space
is the box's Space (nerf/scene/space.py).
"""

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nerf.scene.space import Space, WorldSpace

Resolution = tuple[int, int, int]


@dataclass(frozen=True)
class GridMap:
    """The affine map between points of scene space and the units of one grid."""

    lower: Tensor  # [3] scene position of vertex (0, 0, 0)
    scale: Tensor  # [3] cells per unit of scene space
    space: Space = dataclasses.field(default_factory=WorldSpace)

    def to_grid(self, points: Tensor) -> Tensor:
        """Scene points [N,3] to grid units: 0 on the lower face of the box, resolution - 1 on the upper."""
        return (points - self.lower) * self.scale

    def to_scene(self, coords: Tensor) -> Tensor:
        """Grid units [N,3] to scene points."""
        return coords / self.scale + self.lower


@dataclass(frozen=True)
class SceneBox:
    """A box along the axes of scene space."""

    aabb: Tensor  # [2,3]: minimum, maximum
    space: Space = dataclasses.field(default_factory=WorldSpace)

    @property
    def size(self) -> Tensor:
        """Edge lengths, [3]."""
        return self.aabb[1] - self.aabb[0]

    @property
    def center(self) -> Tensor:
        """The world position of the middle, [3]."""
        return self.space.to_world(self.aabb.mean(0)[None])[0]

    @property
    def unit(self) -> Tensor:
        """A length of the world, [], that grows with the scene: what is small is so beside it."""
        return self.space.unit(self.size)

    def to(self, device: torch.device | str) -> "SceneBox":
        return SceneBox(self.aabb.to(device), self.space.to(device))

    def resolution(self, num_voxels: float) -> Resolution:
        """Vertex counts X, Y, Z of a grid with about num_voxels cubic cells, at least 2 vertices per axis.

        Raises ValueError where num_voxels is not finite and above 0, and for a box without a volume.
        """
        volume = self.size.double().prod().item()
        if not (0 < num_voxels < math.inf and 0 < volume < math.inf):
            raise ValueError(f"num_voxels, volume: found {num_voxels}, {volume}, expected finite numbers above 0")
        # Ratios, so that the unit of the world cannot decide which way a half is rounded.
        x, y, z = (max(2, round((num_voxels * (edge**3 / volume)) ** (1 / 3)) + 1) for edge in self.size.tolist())
        return x, y, z

    def num_voxels(self, voxel_size: float) -> float:
        """How many cubic voxels with edges of this length fill the box. Raises ValueError where that is no number."""
        found = (self.size.double() / voxel_size).prod().item() if voxel_size > 0 else math.inf
        if not 0 < found < math.inf:
            raise ValueError(f"voxel_size: found {voxel_size} in a box of {self.size.tolist()}, expected a part of it")
        return found

    def voxel_size(self, resolution: Resolution) -> float:
        """Geometric mean of a cell's edges."""
        cells = (resolution[0] - 1) * (resolution[1] - 1) * (resolution[2] - 1)
        return (self.size.double().prod().item() / cells) ** (1 / 3)

    def grid_map(self, resolution: Resolution) -> GridMap:
        cells = torch.tensor([n - 1 for n in resolution], dtype=self.aabb.dtype, device=self.aabb.device)
        return GridMap(self.aabb[0], cells / self.size, self.space)
