"""The space of unbounded scenes: the world inside an inner box, and around it a shell that holds the rest."""

from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor

from nerf.ops.contraction import contract, contracted_to_distance, expand, leave_box
from nerf.scene.space import SceneRays, Space, WarpedRays, distances_of_ball, rows_of_rays


@dataclass(frozen=True)
class ContractedRays(WarpedRays):
    """Rays in the world that run on through the shell; t is contracted distance."""

    space: "ContractedSpace"

    def positions(self, t: Tensor, ray_indices: Tensor, ray_offsets: Tensor | None = None) -> Tensor:
        distances = self.distances(t, ray_indices, ray_offsets)
        return self.space.to_scene(super().positions(distances, ray_indices, ray_offsets))

    def world_depth(self, depth: Tensor, opacity: Tensor, ops: ModuleType) -> Tensor:
        if self.origins.requires_grad or self.directions.requires_grad:  # learned poses
            return super().world_depth(depth, opacity, ops)
        space = self.space
        box = space.center, space.half, space.contraction
        return ops.world_depth(depth, opacity, self.origins, self.directions, *box)

    def distances(self, t: Tensor, ray_indices: Tensor | None = None, ray_offsets: Tensor | None = None) -> Tensor:
        # World distance from which on t is pressed, and t from there to infinity; only asked for where they are needed.
        space = self.space
        of_rays = leave_box((self.origins - space.center) / space.half, self.directions / space.half, space.thickness)
        leave, limit = (rows_of_rays(x, ray_indices, ray_offsets) for x in of_rays)
        return contracted_to_distance(t, leave, limit)


@dataclass(frozen=True)
class ContractedSpace(Space):
    """The inner box as it is, and all the rest of the world in a shell around it: unbounded scenes.

    The formulas stand in nerf/ops/contraction.py; lengths are world units inside the inner box.
    """

    kind = "unbounded"
    center: Tensor  # [3] world, of the inner box
    half: Tensor  # [3] half its edges
    contraction: float  # thickness of the shell, in halves of the box
    near: float = 0.0

    @property
    def thickness(self) -> Tensor:
        """The contraction where the points are, []: a division by a number would round otherwise on a GPU."""
        return self.half.new_full((), self.contraction)

    def path(self, origins: Tensor, directions: Tensor, near: Tensor, far: Tensor) -> SceneRays:
        return ContractedRays(origins, directions, near, far, self)

    def to_scene(self, points: Tensor) -> Tensor:
        return self.center + self.half * contract((points - self.center) / self.half, self.thickness)

    def to_world(self, points: Tensor) -> Tensor:
        return self.center + self.half * expand((points - self.center) / self.half, self.thickness)

    @property
    def inner_box(self) -> Tensor:
        return torch.stack([self.center - self.half, self.center + self.half])

    def pixel_sizes(self, distances: Tensor, focals: Tensor) -> Tensor:
        return distances / focals

    def depth_range(self, centers: Tensor, lower: Tensor, size: Tensor) -> tuple[float, float]:
        return distances_of_ball(centers, self.center, self.half.norm().item())

    def unit(self, size: Tensor) -> Tensor:
        return 2 * self.half.norm()

    def to(self, device: torch.device | str) -> "ContractedSpace":
        return ContractedSpace(self.center.to(device), self.half.to(device), self.contraction, self.near)
