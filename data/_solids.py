"""Exact intersections of rays with simple solids: boxes, capped cylinders, and either with holes cut out.

A ray meets a convex solid in one interval [t_in, t_out] of its parameter t. Cutting holes is interval
arithmetic on t, so the surface that is found is the surface itself: there is no marching and no tolerance.
Made for the bundled scene (_bricks.py), where float64 keeps the pictures the same from machine to machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from nerf.cameras.rays import Rays

Point = tuple[float, float, float]

# Stands in for a zero direction component: slabs then need no special case for rays parallel to a face.
TINY = 1e-30
NEIGHBORS = 32  # parts beside each other in a scene's list that share a bounding sphere


class Interval(NamedTuple):
    """Where R rays are inside a convex solid: t_in <= t <= t_out, empty where t_in > t_out."""

    t_in: Tensor  # [R] world distance, negative behind the origin
    t_out: Tensor  # [R]


class Solid(Protocol):
    """A convex body."""

    def bounds(self) -> tuple[Point, Point]:
        """Corners of the axis-aligned bounding box in world space."""
        ...

    def interval(self, rays: Rays) -> Interval:
        """Where rays [R] are inside; no direction component may be zero."""
        ...

    def normals(self, points: Tensor) -> Tensor:
        """Outward unit normals [R,3] at surface points [R,3]."""
        ...


@dataclass(frozen=True)
class Box:
    """Axis-aligned box between two corners in world space."""

    lower: Point
    upper: Point

    def bounds(self) -> tuple[Point, Point]:
        """Corners of the axis-aligned bounding box in world space."""
        return self.lower, self.upper

    def interval(self, rays: Rays) -> Interval:
        """Where rays [R] are inside; no direction component may be zero."""
        t_lower = (rays.origins.new_tensor(self.lower) - rays.origins) / rays.directions
        t_upper = (rays.origins.new_tensor(self.upper) - rays.origins) / rays.directions
        return Interval(torch.minimum(t_lower, t_upper).amax(-1), torch.maximum(t_lower, t_upper).amin(-1))

    def normals(self, points: Tensor) -> Tensor:
        """Outward unit normals [R,3] at surface points [R,3]."""
        lower, upper = points.new_tensor(self.lower), points.new_tensor(self.upper)
        offset = (2 * points - lower - upper) / (upper - lower)
        face = torch.nn.functional.one_hot(offset.abs().argmax(-1), 3)
        return face * offset.sign()


@dataclass(frozen=True)
class Cylinder:
    """Capped circular cylinder along a coordinate axis: 0 is x, 1 is y, 2 is z."""

    center: Point
    radius: float
    half_height: float
    axis: int = 2

    def bounds(self) -> tuple[Point, Point]:
        """Corners of the axis-aligned bounding box in world space."""
        reach = [self.half_height if axis == self.axis else self.radius for axis in range(3)]
        x, y, z = self.center
        return (x - reach[0], y - reach[1], z - reach[2]), (x + reach[0], y + reach[1], z + reach[2])

    def interval(self, rays: Rays) -> Interval:
        """Where rays [R] are inside; no direction component may be zero."""
        (u, v, w), (du, dv, dw) = self._in_axes(rays.origins), rays.directions[:, self._axes()].unbind(-1)
        # |o + t d| = radius across the axis; the discriminant in terms of the cross product does not cancel.
        a, b = du * du + dv * dv, u * du + v * dv
        discriminant = a * self.radius**2 - (u * dv - v * du) ** 2
        root = discriminant.clamp(min=0).sqrt()
        t_middle, t_half = -w / dw, self.half_height / dw.abs()
        t_in = torch.maximum((-b - root) / a, t_middle - t_half)
        t_out = torch.minimum((-b + root) / a, t_middle + t_half)
        return Interval(t_in.masked_fill(discriminant < 0, torch.inf), t_out)

    def normals(self, points: Tensor) -> Tensor:
        """Outward unit normals [R,3] at surface points [R,3]."""
        u, v, w = self._in_axes(points)
        radial = torch.hypot(u, v)
        on_cap = w.abs() / self.half_height > radial / self.radius
        normals = torch.empty_like(points)
        zero = torch.zeros_like(w)
        normals[:, self._axes()] = torch.stack(
            [
                torch.where(on_cap, zero, u / radial),
                torch.where(on_cap, zero, v / radial),
                torch.where(on_cap, w.sign(), zero),
            ],
            dim=-1,
        )
        return normals

    def _axes(self) -> list[int]:
        """World axes in the cylinder's order: two across it, then the one along it."""
        return [(self.axis + 1) % 3, (self.axis + 2) % 3, self.axis]

    def _in_axes(self, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return (points - points.new_tensor(self.center))[:, self._axes()].unbind(-1)


@dataclass(frozen=True)
class Part:
    """A convex body without the volume of its cuts, in one material."""

    body: Solid
    material: str
    cuts: tuple[Solid, ...] = ()

    def first_hit(self, rays: Rays) -> tuple[Tensor, Tensor]:
        """Nearest surface: t [R], inf where the part is missed, and its outward unit normals [R,3]."""
        t_in, t_out = self.body.interval(rays)
        t = t_in.clamp(min=0)
        normals = self.body.normals(_along(rays, t))
        holes = [(cut.interval(rays), cut) for cut in self.cuts]
        # A ray that starts in a hole reappears where the hole ends. That may lie in another hole, also in one
        # listed earlier, hence one sweep over the holes per hole.
        for hole, cut in holes * len(holes):
            in_hole = (hole.t_in <= t) & (t < hole.t_out)
            t = torch.where(in_hole, hole.t_out, t)
            normals = torch.where(in_hole[:, None], -cut.normals(_along(rays, t)), normals)
        return t.masked_fill(t >= t_out, torch.inf), normals


class SurfaceHits(NamedTuple):
    """The nearest surface along each of R rays."""

    t: Tensor  # [R] float64 world distance, inf where nothing is hit
    normals: Tensor  # [R,3] float64 unit, outward; zero where nothing is hit
    parts: Tensor  # [R] int64 index of the part, -1 where nothing is hit


def nearest_hits(parts: Sequence[Part], rays: Rays) -> SurfaceHits:
    """Nearest surface of any part along R rays with unit directions and origins outside every part."""
    directions = rays.directions.double()
    directions = torch.where(directions.abs() < TINY, TINY, directions)
    rays = Rays(rays.origins.double(), directions)
    t = torch.full_like(rays.origins[:, 0], torch.inf)
    normals = torch.zeros_like(rays.origins)
    indices = torch.full_like(t, -1, dtype=torch.int64)
    bounds = torch.tensor([part.body.bounds() for part in parts], dtype=torch.float64, device=t.device)
    groups = bounds.split(NEIGHBORS)
    lines = _Lines.of(rays)
    around = torch.stack([torch.stack([group[:, 0].amin(0), group[:, 1].amax(0)]) for group in groups])
    for first, (group, near) in enumerate(zip(groups, _near_bounding_spheres(around, lines), strict=True)):
        close = near.nonzero().squeeze(-1)
        for index, near_part in enumerate(_near_bounding_spheres(group, lines.at(close)), first * NEIGHBORS):
            candidates = close[near_part]
            if len(candidates) == 0:
                continue
            part_t, part_normals = parts[index].first_hit(Rays(rays.origins[candidates], rays.directions[candidates]))
            closer = part_t < t[candidates]
            rows = candidates[closer]
            t[rows], normals[rows], indices[rows] = part_t[closer], part_normals[closer], index
    return SurfaceHits(t, normals, indices)


class _Lines(NamedTuple):
    """R lines as float32: their unit directions and their points nearest to the world origin, [R,3] each."""

    feet: Tensor
    directions: Tensor

    @classmethod
    def of(cls, rays: Rays) -> "_Lines":
        feet = rays.origins - (rays.origins * rays.directions).sum(-1, keepdim=True) * rays.directions
        return cls(feet.float(), rays.directions.float())

    def at(self, rows: Tensor) -> "_Lines":
        return _Lines(self.feet[rows], self.directions[rows])


def _near_bounding_spheres(bounds: Tensor, lines: _Lines) -> Tensor:
    """Which lines pass through the spheres around boxes, bounds [P,2,3], as [P,R] bool: skips most of the work.

    float32 will do, as the spheres are taken a little larger. With f the point of a line nearest to the world
    origin, a center c lies at the squared distance |c|^2 - 2 c.f + |f|^2 - (c.d)^2 from it.
    """
    bounds = bounds.float()
    centers = bounds.mean(1)
    radius_squared = (0.5 * (bounds[:, 1] - bounds[:, 0])).square().sum(-1) + 1e-4
    reach = (centers @ lines.directions.T).square_()
    reach.addmm_(centers, lines.feet.T, alpha=2).sub_(lines.feet.square().sum(-1))
    return reach >= (centers.square().sum(-1) - radius_squared)[:, None]


def _along(rays: Rays, t: Tensor) -> Tensor:
    return rays.origins + t[:, None] * rays.directions
