"""Scene space: where a scene of each kind lives, so that one box with equal cells serves it.

bounded: the world itself, or the world along other axes, here. forward_facing: ndc.py. unbounded: contraction.py.
Fields, grids and occupancy know scene space alone. SceneRays say how world rays run through it; their parameter t is
length in scene space, the unit of density, of the lattice and of all losses. In a bounded scene that is world distance.

Legend: R rays, M samples, N points.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import Tensor

from nerf.images.metrics import MIN_OPACITY


def rows_of_rays(x: Tensor, ray_indices: Tensor | None, ray_offsets: Tensor | None = None) -> Tensor:
    """The values x [R,...] of the rays of samples: [M,...]. Without ray_indices: x.

    ray_offsets [R+1]: where packed samples of a ray begin. On a GPU the gradient of a ray is then summed over them in
    their order; index_select adds in a free one, and many times to the same few numbers, which takes longer.
    """
    if ray_indices is None:
        return x
    if ray_offsets is None or not x.is_cuda or not x.requires_grad:
        return x.index_select(0, ray_indices)
    return _RowsOfRays.apply(x, ray_indices, ray_offsets)


class _RowsOfRays(torch.autograd.Function):
    """index_select whose backward pass is a sum over each ray's samples; rows behind the last ray's are left out."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ray_indices: Tensor, ray_offsets: Tensor) -> Tensor:
        ctx.save_for_backward(ray_offsets)
        return x.index_select(0, ray_indices)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (ray_offsets,) = ctx.saved_tensors
        # unsafe: without it the offsets are checked on the host.
        return torch.segment_reduce(grad.contiguous(), "sum", offsets=ray_offsets, unsafe=True), None, None


def in_axes(vectors: Tensor, axes: Tensor) -> Tensor:
    """World vectors [N,3] along three axes, the columns of axes [3,3]: vectors @ axes, as sums in the dtype of both.

    A matrix product rounds to TF32 on a GPU where a program has asked PyTorch for it. A ray is then half a pixel off.
    """
    x, y, z = vectors[:, :, None].unbind(1)
    return torch.addcmul(torch.addcmul(x * axes[0], y, axes[1]), z, axes[2])


@dataclass(frozen=True)
class SceneRays:
    """How R rays run through scene space; here as straight as in the world."""

    origins: Tensor  # [R,3]
    directions: Tensor  # [R,3]: per unit of t
    near: Tensor  # [R], or [1] for all rays: what march_rays takes for near and far
    far: Tensor  # [R], or [1] for all rays

    def positions(self, t: Tensor, ray_indices: Tensor, ray_offsets: Tensor | None = None) -> Tensor:
        """Scene positions [M,3] at t [M] of the rays ray_indices [M]. Differentiable in the rays.

        ray_offsets [R+1]: of samples packed in the order of the rays; a ray's gradient is then their sum in one order.
        """
        origins = rows_of_rays(self.origins, ray_indices, ray_offsets)
        return origins + t[:, None] * rows_of_rays(self.directions, ray_indices, ray_offsets)

    def distances(self, t: Tensor, ray_indices: Tensor | None = None, ray_offsets: Tensor | None = None) -> Tensor:
        """World distance [M] along the rays at t [M]; without ray_indices one t for each ray.

        ray_offsets: see positions.
        """
        return t

    def world_depth(self, depth: Tensor, opacity: Tensor, ops: ModuleType) -> Tensor:
        """Composited t [R] to composited world distance: a mean times the opacity [R]. ops: a backend's operations."""
        return depth


@dataclass(frozen=True)
class WarpedRays(SceneRays):
    """A path on which t is no world distance."""

    def world_depth(self, depth: Tensor, opacity: Tensor, ops: ModuleType) -> Tensor:
        """The mean is taken in scene space, where near and far count alike and infinity is a number."""
        return self.distances(depth / opacity.clamp(min=MIN_OPACITY)) * opacity


class Space(ABC):
    """The map between the world and scene space."""

    kind: ClassVar[str]
    contraction: float = 0.0  # what march_rays takes for it
    near: float  # world distance from a camera: nothing is seen nearer
    axes: Tensor | None = None  # of a box that is turned to its object, see WorldSpace

    @abstractmethod
    def path(self, origins: Tensor, directions: Tensor, near: Tensor, far: Tensor) -> SceneRays:
        """How world rays run: origins, unit directions [R,3]; near, far world distances [R], or [1] for all rays."""

    @abstractmethod
    def to_scene(self, points: Tensor) -> Tensor:
        """World points [N,3] to scene space. Differentiable."""

    @abstractmethod
    def to_world(self, points: Tensor) -> Tensor:
        """Scene points [N,3] to the world."""

    @property
    def inner_box(self) -> Tensor | None:
        """The part [2,3] of a world without end whose voxels are equal, minimum and maximum; None: the world ends."""
        return None

    def is_near(self, points: Tensor) -> Tensor:
        """Whether scene points [N,3] are near enough to have a shape that photos tell, [N] bool: no backdrop.

        Where the world has no end, nobody can say, and all are.
        """
        return torch.ones_like(points[:, 0], dtype=torch.bool)

    @abstractmethod
    def pixel_sizes(self, distances: Tensor, focals: Tensor) -> Tensor:
        """Lengths in scene space of pixels [I], seen from world distances [I] with focal lengths [I] in pixels."""

    @abstractmethod
    def depth_range(self, centers: Tensor, lower: Tensor, size: Tensor) -> tuple[float, float]:
        """World distances from cameras at centers [I,3] between which the scene is, whose box has this size [3]."""

    @abstractmethod
    def unit(self, size: Tensor) -> Tensor:
        """A length of the world, [], by which slopes and the like are judged; the scene's box has this size [3]."""

    @abstractmethod
    def to(self, device: torch.device | str) -> "Space": ...


def distances_of_ball(centers: Tensor, middle: Tensor, radius: float) -> tuple[float, float]:
    """Nearest and farthest distance of a ball around middle [3] from the median of cameras at centers [I,3]."""
    distance = (centers - middle).norm(dim=-1).median().item()
    return max(distance - radius, 0.0), distance + radius


@dataclass(frozen=True)
class WorldSpace(Space):
    """The world itself, or the world along other axes: scenes inside a box."""

    kind = "bounded"
    near: float = 0.0
    axes: Tensor | None = None  # [3,3] the columns, orthonormal and right-handed; None: the axes of the world

    def path(self, origins: Tensor, directions: Tensor, near: Tensor, far: Tensor) -> SceneRays:
        return SceneRays(self.to_scene(origins), self.to_scene(directions), near, far)

    def to_scene(self, points: Tensor) -> Tensor:
        return points if self.axes is None else in_axes(points, self.axes)

    def to_world(self, points: Tensor) -> Tensor:
        return points if self.axes is None else in_axes(points, self.axes.T)

    def pixel_sizes(self, distances: Tensor, focals: Tensor) -> Tensor:
        return distances / focals

    def depth_range(self, centers: Tensor, lower: Tensor, size: Tensor) -> tuple[float, float]:
        middle = self.to_world((lower + size / 2)[None])[0]
        return distances_of_ball(centers, middle, size.norm().item() / 2)

    def unit(self, size: Tensor) -> Tensor:
        return size.norm()

    def to(self, device: torch.device | str) -> "WorldSpace":
        return self if self.axes is None else WorldSpace(self.near, self.axes.to(device))
