"""Scene space: where a scene of each kind lives, so that one box with equal cells serves it.

box: the world itself. forward: the frustum of a camera, straightened (NDC). unbounded: the world inside an inner box,
and around it a shell that holds the rest. Fields, grids and occupancy know scene space alone. A Path says how world
rays run through it; its parameter t is length in scene space, the unit of density, of the lattice and of all losses. In
a box that is world distance. Legend: R rays, M samples, N points.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from nerf.ops.contraction import contract, contracted_to_distance, expand, leave_box

MIN_FORWARD = 1e-4  # of a unit direction along the frustum's axis; rays that go more sideways never reach its far end
SHOWN_SHARE = 0.8  # of that way, in pictures of depth
MIN_OPACITY = 1e-6  # a mean over less is none
FAR_SHARE = 1 - 2.0**-20  # of the way through the frustum; the rest is farther than float32 can tell


@dataclass(frozen=True)
class Path:
    """How R rays run through scene space; here as straight as in the world."""

    origins: Tensor  # [R,3]
    directions: Tensor  # [R,3]: per unit of t
    near: Tensor  # [R] what march_rays takes for near and far
    far: Tensor  # [R]

    def positions(self, t: Tensor, ray_indices: Tensor) -> Tensor:
        """Scene positions [M,3] at t [M] of the rays ray_indices [M]. Differentiable in the rays."""
        origins = self.origins.index_select(0, ray_indices)
        return origins + t[:, None] * self.directions.index_select(0, ray_indices)

    def distances(self, t: Tensor, ray_indices: Tensor | None = None) -> Tensor:
        """World distance [M] along the rays at t [M]; without ray_indices one t for each ray."""
        return t

    def world_depth(self, depth: Tensor, opacity: Tensor) -> Tensor:
        """Composited t [R] to composited world distance: a mean times the opacity [R]."""
        return depth


@dataclass(frozen=True)
class PacedPath(Path):
    """A path on which t is no world distance."""

    def world_depth(self, depth: Tensor, opacity: Tensor) -> Tensor:
        """The mean is taken in scene space, where near and far count alike and infinity is a number."""
        return self.distances(depth / opacity.clamp(min=MIN_OPACITY)) * opacity


class Space(ABC):
    """The map between the world and scene space."""

    kind: ClassVar[str]
    contraction: float = 0.0  # what march_rays takes for it
    near: float  # world distance from a camera: nothing is seen nearer

    @abstractmethod
    def path(self, origins: Tensor, directions: Tensor, near: Tensor, far: Tensor) -> Path:
        """The way of world rays: origins, unit directions [R,3]; near, far [R] world distances."""

    @abstractmethod
    def to_scene(self, points: Tensor) -> Tensor:
        """World points [N,3] to scene space. Differentiable."""

    @abstractmethod
    def to_world(self, points: Tensor) -> Tensor:
        """Scene points [N,3] to the world."""

    @abstractmethod
    def is_near(self, points: Tensor) -> Tensor:
        """Whether scene points [N,3] are near enough to have a shape that photos tell, [N] bool: no backdrop."""

    @abstractmethod
    def pixel_sizes(self, distances: Tensor, focals: Tensor) -> Tensor:
        """Lengths in scene space of pixels [I], seen from world distances [I] with focal lengths [I] in pixels."""

    @abstractmethod
    def depth_range(self, centers: Tensor, lower: Tensor, size: Tensor) -> tuple[float, float]:
        """World distances from cameras at centers [I,3] between which the scene is, whose box has this size [3]."""

    @abstractmethod
    def to(self, device: torch.device | str) -> "Space": ...


def _distances_of_ball(centers: Tensor, middle: Tensor, radius: float) -> tuple[float, float]:
    distance = (centers - middle).norm(dim=-1).median().item()
    return max(distance - radius, 0.0), distance + radius


@dataclass(frozen=True)
class WorldSpace(Space):
    """The world itself: scenes inside a box."""

    kind = "box"
    near: float = 0.0

    def path(self, origins: Tensor, directions: Tensor, near: Tensor, far: Tensor) -> Path:
        return Path(origins, directions, near, far)

    def to_scene(self, points: Tensor) -> Tensor:
        return points

    def to_world(self, points: Tensor) -> Tensor:
        return points

    def is_near(self, points: Tensor) -> Tensor:
        return torch.ones_like(points[:, 0], dtype=torch.bool)

    def pixel_sizes(self, distances: Tensor, focals: Tensor) -> Tensor:
        return distances / focals

    def depth_range(self, centers: Tensor, lower: Tensor, size: Tensor) -> tuple[float, float]:
        return _distances_of_ball(centers, lower + size / 2, size.norm().item() / 2)

    def to(self, device: torch.device | str) -> "WorldSpace":
        return self


@dataclass(frozen=True)
class FrustumPath(PacedPath):
    """Straight lines from the near plane to infinity, on which distance is projective in t."""

    length: Tensor  # [R] t at infinity
    depth: Tensor  # [R] of the ray's origin along the axis
    forward: Tensor  # [R] depth per world distance
    near_plane: float

    def distances(self, t: Tensor, ray_indices: Tensor | None = None) -> Tensor:
        length, depth, forward = (
            x if ray_indices is None else x.index_select(0, ray_indices)
            for x in (self.length, self.depth, self.forward)
        )
        share = (t / length).clamp(max=FAR_SHARE)
        return (self.near_plane / (1 - share) - depth) / forward


@dataclass(frozen=True)
class FrustumSpace(Space):
    """Normalised device coordinates of a reference camera (Mildenhall et al. 2020, appendix C): forward-facing scenes.

    A point at (x, y) and depth z of the camera lies at (x / z, y / z, thickness * (1 - near_plane / z)): tangents of
    its view angle, and disparity. Straight lines stay straight, all that is behind the near plane fits into thickness,
    and a cell is as wide as a pixel at every depth. Rays that go backwards or sideways meet nothing.
    """

    kind = "forward"
    c2w: Tensor  # [3,4] the reference camera
    near_plane: float  # depth of the reference camera
    thickness: float
    near: float = 0.0

    def path(self, origins: Tensor, directions: Tensor, near: Tensor, far: Tensor) -> Path:
        starts, slopes = self._in_camera(origins), directions @ self.c2w[:, :3]
        depth, forward = -starts[:, 2], -slopes[:, 2]
        ahead = forward > MIN_FORWARD
        forward = torch.where(ahead, forward, 1.0)
        tangents = slopes[:, :2] / forward[:, None]  # where the ray ends, at infinity
        on_plane = starts[:, :2] + (self.near_plane - depth)[:, None] * tangents
        entry = on_plane / self.near_plane
        way = torch.nn.functional.pad(tangents - entry, (0, 1), value=self.thickness)
        length = way.norm(dim=-1)

        def share(distance: Tensor) -> Tensor:
            return 1 - self.near_plane / (depth + distance * forward).clamp(min=self.near_plane)

        first, last = share(near) * length, share(far) * length
        return FrustumPath(
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
        return (points - self.c2w[:, 3]) @ self.c2w[:, :3]

    def to_scene(self, points: Tensor) -> Tensor:
        x, y, z = self._in_camera(points).unbind(-1)
        return torch.stack([-x / z, -y / z, self.thickness * (1 + self.near_plane / z)], dim=-1)

    def to_world(self, points: Tensor) -> Tensor:
        depth = self.near_plane / (1 - points[:, 2] / self.thickness)
        in_camera = torch.cat([points[:, :2] * depth[:, None], -depth[:, None]], dim=-1)
        return in_camera @ self.c2w[:, :3].T + self.c2w[:, 3]

    def is_near(self, points: Tensor) -> Tensor:
        return points[:, 2] <= SHOWN_SHARE * self.thickness

    def pixel_sizes(self, distances: Tensor, focals: Tensor) -> Tensor:
        return 1 / focals

    def depth_range(self, centers: Tensor, lower: Tensor, size: Tensor) -> tuple[float, float]:
        return self.near_plane, self.near_plane / (1 - SHOWN_SHARE)

    def to(self, device: torch.device | str) -> "FrustumSpace":
        return FrustumSpace(self.c2w.to(device), self.near_plane, self.thickness, self.near)


@dataclass(frozen=True)
class ContractedPath(PacedPath):
    """Rays in the world that run on through the shell; t is contracted distance."""

    leave: Tensor  # [R] world distance from which on t is pressed
    limit: Tensor  # [R] t from there to infinity
    space: "ContractedSpace"

    def positions(self, t: Tensor, ray_indices: Tensor) -> Tensor:
        return self.space.to_scene(super().positions(self.distances(t, ray_indices), ray_indices))

    def distances(self, t: Tensor, ray_indices: Tensor | None = None) -> Tensor:
        leave, limit = (
            x if ray_indices is None else x.index_select(0, ray_indices) for x in (self.leave, self.limit)
        )
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

    def path(self, origins: Tensor, directions: Tensor, near: Tensor, far: Tensor) -> Path:
        leave, limit = leave_box((origins - self.center) / self.half, directions / self.half, self.thickness)
        return ContractedPath(origins, directions, near, far, leave, limit, self)

    def to_scene(self, points: Tensor) -> Tensor:
        return self.center + self.half * contract((points - self.center) / self.half, self.thickness)

    def to_world(self, points: Tensor) -> Tensor:
        return self.center + self.half * expand((points - self.center) / self.half, self.thickness)

    def is_near(self, points: Tensor) -> Tensor:
        return ((points - self.center).abs() <= self.half).all(-1)

    def pixel_sizes(self, distances: Tensor, focals: Tensor) -> Tensor:
        return distances / focals

    def depth_range(self, centers: Tensor, lower: Tensor, size: Tensor) -> tuple[float, float]:
        return _distances_of_ball(centers, self.center, self.half.norm().item())

    def to(self, device: torch.device | str) -> "ContractedSpace":
        return ContractedSpace(self.center.to(device), self.half.to(device), self.contraction, self.near)


SPACES: dict[str, type[Space]] = {c.kind: c for c in (WorldSpace, FrustumSpace, ContractedSpace)}


def space_state(space: Space) -> dict[str, object]:
    """Tensors and plain numbers from which restore_space makes the space again."""
    return {"kind": space.kind, **{f.name: getattr(space, f.name) for f in fields(space)}}


def restore_space(state: dict[str, object], device: torch.device) -> Space:
    """The space of a state, on the device."""
    values = {name: value for name, value in state.items() if name != "kind"}
    return SPACES[str(state["kind"])](**values).to(device)
