"""The variant "thin" of the bundled scene: wires, nets and ropes in a wide box that is nearly empty.

Most of its parts are half a pixel to a pixel wide in pictures of 200x200, and they reach all through a box of 1.6 x 1.6
x 1.4, of which they fill less than a hundredth: what a method loses here is what is finer than its voxels. All
surfaces are matt.
"""

import math
from collections.abc import Sequence
from functools import cache
from itertools import chain, pairwise

import torch
from _bricks import GROUND_SHADE_HEIGHT, render_parts, shade
from _round_solids import Rod, Sphere
from _solids import Part, Point, SurfaceHits
from torch import Tensor

from nerf.cameras.rays import Rays

COLORS = {
    "steel": (0.36, 0.40, 0.46),
    "hemp": (0.76, 0.60, 0.38),
    "white": (0.94, 0.93, 0.90),
    "red": (0.86, 0.14, 0.12),
    "teal": (0.05, 0.60, 0.62),
    "orange": (0.98, 0.52, 0.08),
    "violet": (0.50, 0.24, 0.66),
}
MAST, WIRE, NET, STRAND, WICKER = 0.013, 0.003, 0.004, 0.007, 0.0055  # radii in world units
TOP, BOTTOM, REACH = 0.72, -0.66, 0.78  # heights of the masts' ends, and how far they stand from the middle
PIECE = 0.12  # the longest rod in world units


def _line(points: Sequence[Point], radius: float, color: str) -> list[Part]:
    """Rods from each point to the next, long ones in pieces: what is small has a small bounding sphere."""
    parts = []
    for start, end in pairwise(points):
        pieces = math.ceil(math.dist(start, end) / PIECE)
        parts += [Part(Rod(a, b, radius), color) for a, b in pairwise(_hanging(start, end, 0.0, pieces))]
    return parts


def _hanging(start: Point, end: Point, sag: float, pieces: int) -> list[Point]:
    """Points of a parabola between two places, `sag` below their line in the middle."""
    steps = [i / pieces for i in range(pieces + 1)]
    points = [tuple(a + s * (b - a) for a, b in zip(start, end, strict=True)) for s in steps]
    return [(x, y, z - 4 * sag * s * (1 - s)) for (x, y, z), s in zip(points, steps, strict=True)]


def _rope(start: Point, end: Point, sag: float, color: str) -> list[Part]:
    """Three strands that are laid around a hanging line."""
    line = _hanging(start, end, sag, 60)
    strands = []
    for strand in range(3):
        turns = [2 * math.pi * (strand / 3 + 0.11 * i) for i in range(len(line))]
        # The line runs close to level, so that a circle across it is upright.
        sideways = (start[1] - end[1], end[0] - start[0])
        length = math.hypot(*sideways)
        points = [
            (
                x + STRAND * math.cos(turn) * sideways[0] / length,
                y + STRAND * math.cos(turn) * sideways[1] / length,
                z + STRAND * math.sin(turn),
            )
            for (x, y, z), turn in zip(line, turns, strict=True)
        ]
        strands += _line(points, STRAND, color)
    return strands


def _net(columns: int, rows: int) -> list[Part]:
    """A net that hangs between two masts and bulges out of their plane."""

    def knot(column: int, row: int) -> Point:
        u, v = column / columns, row / rows
        bulge = 0.22 * math.sin(math.pi * u) * math.sin(math.pi * v)
        return (-REACH + 2 * REACH * u, REACH - bulge, 0.6 - 0.9 * v - 0.15 * math.sin(math.pi * u))

    across = [[knot(column, row) for column in range(columns + 1)] for row in range(rows + 1)]
    down = list(zip(*across, strict=True))
    return list(chain.from_iterable(_line(thread, NET, "white") for thread in [*across, *down]))


def _basket(center: Point, radius: float, height: float) -> list[Part]:
    """A woven cylinder: hoops that go in and out around upright canes, and wires from its rim to a mast's height."""
    canes, hoops = 24, 9
    x, y, z = center
    parts = []
    for hoop in range(hoops):
        level = z + height * hoop / (hoops - 1)
        points = []
        for i in range(2 * canes + 1):
            angle = math.pi * i / canes
            side = 0 if i % 2 else 1 if (i // 2 + hoop) % 2 else -1
            away = radius + WICKER * 1.5 * side
            points.append((x + away * math.cos(angle), y + away * math.sin(angle), level))
        parts += _line(points, WICKER, "orange" if hoop % 2 else "hemp")
    for cane in range(canes):
        angle = 2 * math.pi * cane / canes
        foot = (x + radius * math.cos(angle), y + radius * math.sin(angle))
        parts += _line([(*foot, z), (*foot, z + height)], WIRE, "steel")
    for cane in range(0, canes, canes // 4):
        angle = 2 * math.pi * cane / canes
        rim = (x + radius * math.cos(angle), y + radius * math.sin(angle), z + height)
        parts += _line([rim, (x, y, TOP)], WIRE, "red")
    return parts


def _spring(center: Point, radius: float, height: float) -> list[Part]:
    turns, pieces = 9, 20
    angles = [2 * math.pi * i / pieces for i in range(turns * pieces + 1)]
    x, y, z = center
    return _line(
        [(x + radius * math.cos(a), y + radius * math.sin(a), z + height * a / angles[-1]) for a in angles],
        WIRE * 1.5,
        "violet",
    )


@cache
def thin_parts() -> tuple[Part, ...]:
    """All parts of the scene; parts near each other stand beside each other."""
    corners = [(-REACH, -REACH), (REACH, -REACH), (REACH, REACH), (-REACH, REACH)]
    around = [*corners, corners[0]]
    parts = []
    for x, y in corners:
        parts += _line([(x, y, BOTTOM), (x, y, TOP)], MAST, "steel")
    for (ax, ay), (bx, by) in pairwise(around):
        parts += _line(_hanging((ax, ay, TOP), (bx, by, TOP), 0.02, 8), WIRE, "steel")
        parts += _line([(ax, ay, BOTTOM), (bx, by, BOTTOM)], WIRE, "teal")
    for x, y in corners:
        parts += _line([(x, y, TOP), (0.0, 0.0, TOP)], WIRE, "teal")
        parts += _line([(x, y, BOTTOM), (0.55 * x, 0.55 * y, 0.05)], WIRE, "red")
    parts += _net(30, 16)
    parts += _rope((-REACH, -REACH, 0.5), (REACH, -REACH, 0.5), 0.4, "hemp")
    parts += _rope((-REACH, -REACH, 0.15), (-REACH, REACH, 0.3), 0.28, "hemp")
    parts += _rope((REACH, -REACH, 0.0), (REACH, REACH, 0.25), 0.25, "red")
    parts += _basket((0.0, 0.0, -0.4), 0.25, 0.4)
    parts += _spring((-0.42, -0.4, -0.5), 0.1, 0.75)
    for i, (x, y, z) in enumerate(_hanging((REACH, -REACH, 0.68), (-REACH, REACH, 0.68), 0.2, 10)[1:-1]):
        parts.append(Part(Sphere((x, y, z), 0.02), ("orange", "teal", "violet")[i % 3]))
    parts += _line(_hanging((REACH, -REACH, 0.68), (-REACH, REACH, 0.68), 0.2, 20), WIRE, "white")
    return tuple(parts)


def render_thin(rays: Rays) -> tuple[Tensor, Tensor, Tensor]:
    """Exact color and depth along rays whose origins lie outside every part, as `render_bricks` gives them."""
    return render_parts(thin_parts(), _color, rays)


def _color(rays: Rays, hits: SurfaceHits) -> Tensor:
    matt = torch.zeros_like(hits.t)
    color = hits.normals.new_tensor([COLORS[part.material] for part in thin_parts()])[hits.parts]
    in_the_air = torch.full_like(hits.t, GROUND_SHADE_HEIGHT)
    return shade(color, matt, hits.normals, rays.directions.double(), in_the_air)
