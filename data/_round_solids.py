"""Exact intersections of rays with spheres and with rods of any direction: what the variants add to boxes."""

from dataclasses import dataclass

import torch
from _solids import TINY, Interval, Point
from torch import Tensor

from nerf.cameras.rays import Rays


@dataclass(frozen=True)
class Sphere:
    """A ball about a center in world space."""

    center: Point
    radius: float

    def bounds(self) -> tuple[Point, Point]:
        """Corners of the axis-aligned bounding box in world space."""
        return _around(self.center, self.center, self.radius)

    def interval(self, rays: Rays) -> Interval:
        """Where rays [R] with unit directions are inside."""
        return _in_ball(rays.origins - rays.origins.new_tensor(self.center), rays.directions, self.radius)

    def normals(self, points: Tensor) -> Tensor:
        """Outward unit normals [R,3] at surface points [R,3]."""
        return torch.nn.functional.normalize(points - points.new_tensor(self.center), dim=-1)


@dataclass(frozen=True)
class Rod:
    """All that lies within a radius of the segment between two different points: a wire with round ends."""

    start: Point
    end: Point
    radius: float

    def bounds(self) -> tuple[Point, Point]:
        """Corners of the axis-aligned bounding box in world space."""
        return _around(self.start, self.end, self.radius)

    def interval(self, rays: Rays) -> Interval:
        """Where rays [R] with unit directions are inside: the hull of the tube's interval and of both balls', as a rod
        is convex."""
        start, axis, length = self._segment(rays.origins)
        offset = rays.origins - start
        along, turn = offset @ axis, rays.directions @ axis
        across, d_across = offset - along[:, None] * axis, rays.directions - turn[:, None] * axis
        a, b = d_across.square().sum(-1).clamp(min=TINY), (across * d_across).sum(-1)
        # The discriminant in terms of the cross product does not cancel.
        discriminant = a * self.radius**2 - torch.linalg.cross(across, d_across).square().sum(-1)
        root = discriminant.clamp(min=0).sqrt()
        turn = torch.where(turn.abs() < TINY, TINY, turn)
        slab = torch.stack([-along / turn, (length - along) / turn])
        tube_in = torch.maximum((-b - root) / a, slab.amin(0))
        tube_out = torch.minimum((-b + root) / a, slab.amax(0))
        missed = (discriminant < 0) | (tube_in > tube_out)
        pieces = [Interval(tube_in.masked_fill(missed, torch.inf), tube_out.masked_fill(missed, -torch.inf))]
        pieces += [_in_ball(rays.origins - rays.origins.new_tensor(p), rays.directions, self.radius)
                   for p in (self.start, self.end)]  # fmt: skip
        t_in, t_out = (torch.stack(ends) for ends in zip(*pieces, strict=True))
        return Interval(t_in.amin(0), t_out.amax(0))

    def normals(self, points: Tensor) -> Tensor:
        """Outward unit normals [R,3] at surface points [R,3]."""
        start, axis, length = self._segment(points)
        along = ((points - start) @ axis).clamp(0, length)
        return torch.nn.functional.normalize(points - start - along[:, None] * axis, dim=-1)

    def _segment(self, like: Tensor) -> tuple[Tensor, Tensor, float]:
        start = like.new_tensor(self.start)
        axis = like.new_tensor(self.end) - start
        length = axis.norm().item()
        return start, axis / length, length


def _in_ball(offset: Tensor, directions: Tensor, radius: float) -> Interval:
    """Where rays, given by their origins relative to the center, are inside: inf to -inf for a miss."""
    b = (offset * directions).sum(-1)
    discriminant = radius**2 - torch.linalg.cross(offset, directions).square().sum(-1)
    root, missed = discriminant.clamp(min=0).sqrt(), discriminant < 0
    return Interval((-b - root).masked_fill(missed, torch.inf), (-b + root).masked_fill(missed, -torch.inf))


def _around(a: Point, b: Point, radius: float) -> tuple[Point, Point]:
    ends = list(zip(a, b, strict=True))
    lower, upper = [min(pair) - radius for pair in ends], [max(pair) + radius for pair in ends]
    return (lower[0], lower[1], lower[2]), (upper[0], upper[1], upper[2])
