"""The variant "smoke" of the bundled scene: balls of even smoke, from a breath to nearly opaque.

No part of it has a surface: along each ray lie many samples that weigh little, and some balls stand in front of others.
What a method loses here is what it takes for haze and gives up.
"""

import math
from dataclasses import dataclass

import torch
from _bricks import CHUNK
from _round_solids import Sphere
from torch import Tensor

from nerf.cameras.rays import Rays

HALF = math.log(2)  # the optical depth that stops half of the light


@dataclass(frozen=True)
class Ball:
    body: Sphere
    opacity: float  # of a ray through its middle
    color: tuple[float, float, float]  # sRGB


# Two rings, one over the other, and a large ball in the middle that shows those behind it.
BALLS = (
    Ball(Sphere((0.0, 0.0, 0.0), 0.36), 0.5, (0.93, 0.92, 0.90)),
    Ball(Sphere((0.62, 0.0, -0.3), 0.26), 0.95, (0.86, 0.14, 0.12)),
    Ball(Sphere((0.0, 0.62, -0.3), 0.26), 0.8, (0.98, 0.52, 0.08)),
    Ball(Sphere((-0.62, 0.0, -0.3), 0.26), 0.6, (0.05, 0.60, 0.62)),
    Ball(Sphere((0.0, -0.62, -0.3), 0.26), 0.4, (0.50, 0.24, 0.66)),
    Ball(Sphere((0.44, 0.44, 0.38), 0.24), 0.9, (0.10, 0.36, 0.80)),
    Ball(Sphere((-0.44, 0.44, 0.38), 0.24), 0.7, (0.40, 0.72, 0.24)),
    Ball(Sphere((-0.44, -0.44, 0.38), 0.24), 0.3, (0.36, 0.40, 0.46)),
    Ball(Sphere((0.44, -0.44, 0.38), 0.24), 0.97, (0.20, 0.20, 0.22)),
)


def render_smoke(rays: Rays) -> tuple[Tensor, Tensor, Tensor]:
    """Exact color and opacity along rays whose origins lie outside every ball, as a Renderer gives them.

    Depth is where half of the light is stopped; 0 where less than half is.
    """
    chunks = [_render_chunk(rays[start : start + CHUNK]) for start in range(0, max(len(rays), 1), CHUNK)]
    rgb, opacity, depth = (torch.cat(column).to(rays.origins) for column in zip(*chunks, strict=True))
    return rgb, opacity, depth


def _render_chunk(rays: Rays) -> tuple[Tensor, Tensor, Tensor]:
    rays = Rays(rays.origins.double(), rays.directions.double())
    spans = [ball.body.interval(rays) for ball in BALLS]
    enters = torch.stack([t_in for t_in, _ in spans])  # [B,R]
    lengths = torch.stack([(t_out - t_in).clamp(min=0) for t_in, t_out in spans])
    through = -torch.log1p(-enters.new_tensor([ball.opacity for ball in BALLS]))
    density = through / enters.new_tensor([2 * ball.body.radius for ball in BALLS])
    # No two balls meet, so that a ray leaves one before it enters the next.
    order = enters.argsort(dim=0)
    density, enters = density[order], enters.gather(0, order)
    optical = density * lengths.gather(0, order)
    before = optical.cumsum(0) - optical
    weights = torch.exp(-before) * -torch.expm1(-optical)
    rgb = (weights[..., None] * enters.new_tensor([ball.color for ball in BALLS])[order]).sum(0)
    stops = (before <= HALF) & (before + optical > HALF)  # the ball in which half is reached, if there is one
    depth = torch.where(stops, enters + (HALF - before) / density, 0.0).sum(0)
    return rgb, -torch.expm1(-optical.sum(0)), depth
