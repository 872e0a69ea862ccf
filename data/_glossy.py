"""The variant "glossy" of the bundled scene: mirrors, metal and varnish, from perfectly smooth to dull.

Every surface reflects an analytic surrounding (sky, ground and softboxes, each a spherical Gaussian) that roughness
blurs in closed form, so that pictures are exact and free of noise. Surfaces that are smooth enough to show things
reflect the other parts too, after up to three bounces. Colors are sRGB values throughout, as in the bundled scene.
"""

from dataclasses import dataclass
from functools import cache

import torch
from _bricks import render_parts, shade
from _round_solids import Rod, Sphere
from _solids import Box, Cylinder, Part, Point, SurfaceHits, nearest_hits
from torch import Tensor

from nerf.cameras.rays import Rays

FLOOR = -0.3  # z of the top of the board
BOUNCES = 3  # reflections of reflections; the last one sees the surroundings alone
SHARP = 0.12  # up to this roughness a surface shows the other parts, above it the surroundings alone
LIFT = 1e-6  # world units by which a reflected ray starts off its surface


@dataclass(frozen=True)
class Finish:
    """What a surface is: its diffuse color, what it reflects straight on, and how rough it is (0 is a mirror)."""

    color: tuple[float, float, float]
    mirror: tuple[float, float, float]
    roughness: float = 0.0


def _metal(color: tuple[float, float, float], roughness: float) -> Finish:
    return Finish((0.0, 0.0, 0.0), color, roughness)


def _varnish(color: tuple[float, float, float], roughness: float) -> Finish:
    return Finish(color, (0.05, 0.05, 0.05), roughness)


ROUGHNESS = (0.0, 0.15, 0.25, 0.35, 0.5, 0.7)  # of the six spheres in each of two rows
SILVER, GOLD, COPPER = (0.92, 0.92, 0.93), (0.95, 0.76, 0.38), (0.90, 0.55, 0.42)
FINISHES = {
    "board": Finish((0.78, 0.74, 0.68), (0.0, 0.0, 0.0)),
    "red": Finish((0.86, 0.16, 0.14), (0.0, 0.0, 0.0)),
    "green": Finish((0.30, 0.66, 0.25), (0.0, 0.0, 0.0)),
    "yellow": Finish((0.98, 0.80, 0.12), (0.0, 0.0, 0.0)),
    "silver mirror": _metal(SILVER, 0.0),
    "gold mirror": _metal(GOLD, 0.0),
    "brushed copper": _metal(COPPER, 0.25),
    "varnished wood": _varnish((0.50, 0.27, 0.12), 0.05),
    "varnished blue": _varnish((0.08, 0.20, 0.62), 0.1),
    "satin white": _varnish((0.88, 0.87, 0.84), 0.4),
    **{f"gold {i}": _metal(GOLD, roughness) for i, roughness in enumerate(ROUGHNESS)},
    **{f"paint {i}": _varnish((0.62, 0.08, 0.16), roughness) for i, roughness in enumerate(ROUGHNESS)},
}


@dataclass(frozen=True)
class Softbox:
    """A light of the surroundings: amplitude exp(sharpness (direction . center - 1))."""

    center: Point  # need not be of unit length
    sharpness: float
    color: tuple[float, float, float]


SOFTBOXES = (
    Softbox((0.4, -0.6, 0.7), 60.0, (8.0, 7.8, 7.4)),  # the key light of the bundled scene
    Softbox((-0.8, 0.4, 0.45), 25.0, (1.6, 1.8, 2.2)),
    Softbox((0.7, 0.7, 0.25), 150.0, (6.0, 4.6, 2.8)),
    Softbox((-0.5, -0.8, 0.2), 400.0, (8.0, 8.0, 8.0)),
    Softbox((0.1, 0.2, 1.0), 12.0, (0.5, 0.55, 0.6)),
)
ZENITH, HORIZON, BELOW = (0.28, 0.44, 0.72), (0.80, 0.84, 0.88), (0.30, 0.27, 0.24)


def _standing(x: float, y: float, radius: float, finish: str) -> Part:
    return Part(Sphere((x, y, FLOOR + radius), radius), finish)


def _block(corner: Point, size: Point, finish: str) -> Part:
    """A box whose corner is given relative to the middle of the board's top."""
    x, y, z = (corner[0], corner[1], corner[2] + FLOOR)
    return Part(Box((x, y, z), (x + size[0], y + size[1], z + size[2])), finish)


@cache
def glossy_parts() -> tuple[Part, ...]:
    """All parts of the scene."""
    xs = [-0.7 + 0.28 * i for i in range(len(ROUGHNESS))]
    return (
        _block((-0.9, -0.9, -0.08), (1.8, 1.8, 0.08), "board"),
        *(_standing(x, -0.68, 0.12, f"gold {i}") for i, x in enumerate(xs)),
        *(_standing(x, -0.36, 0.12, f"paint {i}") for i, x in enumerate(xs)),
        _standing(-0.45, 0.15, 0.26, "silver mirror"),
        _standing(0.72, 0.05, 0.14, "gold mirror"),
        _block((-0.85, 0.72, 0.0), (1.1, 0.04, 0.7), "silver mirror"),  # a looking glass before the back edge
        _block((-0.89, 0.70, 0.0), (0.04, 0.08, 0.74), "red"),  # and its frame
        _block((0.25, 0.70, 0.0), (0.04, 0.08, 0.74), "red"),
        _block((0.10, 0.08, 0.0), (0.34, 0.30, 0.20), "varnished wood"),
        _block((0.16, 0.13, 0.20), (0.22, 0.20, 0.22), "varnished blue"),
        _block((0.42, 0.62, 0.0), (0.24, 0.2, 0.34), "satin white"),
        Part(Cylinder((0.74, 0.42, FLOOR + 0.3), 0.13, 0.3), "brushed copper"),
        Part(Cylinder((0.27, 0.23, FLOOR + 0.47), 0.05, 0.05), "yellow"),
        _block((-0.10, 0.42, 0.0), (0.12, 0.12, 0.24), "yellow"),
        _block((-0.80, 0.42, 0.0), (0.12, 0.12, 0.16), "green"),
        Part(Rod((-0.1, -0.05, FLOOR + 0.05), (0.0, 0.3, FLOOR + 0.05), 0.05), "green"),
    )


def render_glossy(rays: Rays) -> tuple[Tensor, Tensor, Tensor]:
    """Exact color and depth along rays whose origins lie outside every part, as `render_bricks` gives them."""
    return render_parts(glossy_parts(), _color, rays)


def surroundings(directions: Tensor, roughness: Tensor) -> Tensor:
    """What a surface of some roughness [R] sees of the surroundings in unit directions [R,3]: rgb [R,3], 0 and more.

    A lobe of roughness r counts as a spherical Gaussian of sharpness 1 / (2 r^4), and of two Gaussians that are
    convolved the inverse sharpnesses add up (Wang et al. 2009); a softbox keeps its energy.
    """
    height = directions[:, 2, None]
    spread = 2 * roughness[:, None] ** 4
    sky = torch.lerp(directions.new_tensor(HORIZON), directions.new_tensor(ZENITH), height.clamp(0, 1).sqrt())
    above = torch.sigmoid(height / (0.01 + 0.5 * spread.sqrt()))
    light = torch.lerp(directions.new_tensor(BELOW), sky, above)
    for box in SOFTBOXES:
        center = torch.nn.functional.normalize(directions.new_tensor(box.center), dim=0)
        sharpness = 1 / (1 / box.sharpness + spread)
        lobe = sharpness / box.sharpness * torch.exp(sharpness * ((directions @ center)[:, None] - 1))
        light = light + directions.new_tensor(box.color) * lobe
    return light


def _color(rays: Rays, hits: SurfaceHits, bounces: int = BOUNCES) -> Tensor:
    """Diffuse light and Fresnel's share (after Schlick) of what the mirrored direction shows, rgb [R,3] in [0, 1]."""
    finishes = [FINISHES[part.material] for part in glossy_parts()]
    directions, normals = rays.directions.double(), hits.normals
    color = normals.new_tensor([finish.color for finish in finishes])[hits.parts]
    mirror = normals.new_tensor([finish.mirror for finish in finishes])[hits.parts]
    roughness = normals.new_tensor([finish.roughness for finish in finishes])[hits.parts]
    facing = (-(directions * normals).sum(-1, keepdim=True)).clamp(0, 1)
    shiny = mirror.amax(-1, keepdim=True) > 0
    grazing = (1 - facing) ** 5 * (1 - roughness[:, None])
    share = torch.where(shiny, mirror + (1 - mirror) * grazing, 0.0)
    mirrored = directions + 2 * facing * normals
    seen = surroundings(mirrored, roughness)
    shows = shiny[:, 0] & (roughness <= SHARP) & (hits.parts >= 0)
    if bounces > 0 and shows.any():
        points = rays.origins[shows] + hits.t[shows, None] * directions[shows] + LIFT * normals[shows]
        onward = Rays(points, mirrored[shows])
        next_hits = nearest_hits(glossy_parts(), onward)
        other = _color(onward, next_hits, bounces - 1)
        seen[shows] = torch.where((next_hits.parts >= 0)[:, None], other, seen[shows])
    heights = torch.where(hits.parts >= 0, rays.origins[:, 2] + hits.t * directions[:, 2] - FLOOR, 0.0)
    matt = shade(color, torch.zeros_like(roughness), normals, directions, heights)
    return ((1 - share) * matt + share * seen).clamp(0, 1)
