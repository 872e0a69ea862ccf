"""The space of forward-facing scenes: the frustum of a reference camera, straightened (NDC)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nerf.scene.space import SceneRays, Space, WarpedRays, in_axes, rows_of_rays

MIN_FORWARD = 1e-4  # of a unit direction along the frustum's axis; rays that go more sideways never reach its far end
SHOWN_SHARE = 0.8  # of that way, in pictures of depth
FAR_FRACTION = 1 - 2.0**-20  # of the way through the frustum; the rest is farther than float32 can tell


@dataclass(frozen=True)
class NdcRays(WarpedRays):
    """Straight lines from the near plane to infinity, on which distance is projective in t."""

    length: Tensor  # [R] t at infinity
    depth: Tensor  # [R] of the ray's origin along the axis
    forward: Tensor  # [R] depth per world distance
    near_plane: float

    def distances(self, t: Tensor, ray_indices: Tensor | None = None, ray_offsets: Tensor | None = None) -> Tensor:
        length, depth, forward = (
            rows_of_rays(x, ray_indices, ray_offsets) for x in (self.length, self.depth, self.forward)
        )
        fraction = (t / length).clamp(max=FAR_FRACTION)
        return (self.near_plane / (1 - fraction) - depth) / forward


@dataclass(frozen=True)
class NdcSpace(Space):
    """Normalized device coordinates of a reference camera (Mildenhall et al. 2020, appendix C): forward-facing scenes.

    A point at (x, y) and depth z of the camera lies at (x / z, y / z, thickness * (1 - near_plane / z)): tangents of
    its view angle, and disparity. Straight lines stay straight, all that is behind the near plane fits into thickness,
    and a cell is as wide as a pixel at every depth. Rays that go backwards or sideways meet nothing.
    """

    kind = "forward_facing"
    c2w: Tensor  # [3,4] the reference camera
    near_plane: float  # depth of the reference camera
    thickness: float
    near: float = 0.0

    def path(self, origins: Tensor, directions: Tensor, near: Tensor, far: Tensor) -> SceneRays:
        starts, slopes = self._in_camera(origins), in_axes(directions, self.c2w[:, :3])
        depth, forward = -starts[:, 2], -slopes[:, 2]
        ahead = forward > MIN_FORWARD
        forward = torch.where(ahead, forward, 1.0)
        tangents = slopes[:, :2] / forward[:, None]  # where the ray ends, at infinity
        on_plane = starts[:, :2] + (self.near_plane - depth)[:, None] * tangents
        entry = on_plane / self.near_plane
        way = torch.nn.functional.pad(tangents - entry, (0, 1), value=self.thickness)
        length = way.norm(dim=-1)

        def fraction(distance: Tensor) -> Tensor:
            return 1 - self.near_plane / (depth + distance * forward).clamp(min=self.near_plane)

        first, last = fraction(near) * length, fraction(far) * length
        return NdcRays(
            torch.nn.functional.pad(entry, (0, 1)),
            way / length[:, None],
            first,
            torch.where(ahead, last, -1.0),
            length,
            depth,
            forward,
            self.near_plane,
        )

    def _in_camera(self, points: Tensor) -> Tensor:
        return in_axes(points - self.c2w[:, 3], self.c2w[:, :3])

    def to_scene(self, points: Tensor) -> Tensor:
        x, y, z = self._in_camera(points).unbind(-1)
        return torch.stack([-x / z, -y / z, self.thickness * (1 + self.near_plane / z)], dim=-1)

    def to_world(self, points: Tensor) -> Tensor:
        depth = self.near_plane / (1 - points[:, 2] / self.thickness)
        in_camera = torch.cat([points[:, :2] * depth[:, None], -depth[:, None]], dim=-1)
        return in_axes(in_camera, self.c2w[:, :3].T) + self.c2w[:, 3]

    def is_near(self, points: Tensor) -> Tensor:
        return points[:, 2] <= SHOWN_SHARE * self.thickness

    def pixel_sizes(self, distances: Tensor, focals: Tensor) -> Tensor:
        return 1 / focals

    def depth_range(self, centers: Tensor, lower: Tensor, size: Tensor) -> tuple[float, float]:
        return self.near_plane, self.near_plane / (1 - SHOWN_SHARE)

    def unit(self, size: Tensor) -> Tensor:
        return size.new_full((), self.near_plane)

    def to(self, device: torch.device | str) -> "NdcSpace":
        return NdcSpace(self.c2w.to(device), self.near_plane, self.thickness, self.near)
