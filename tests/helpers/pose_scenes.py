"""Scenes that are hard for a dry run, rendered in a moment: shiny, repetitive relief; a thin pole; a long lens."""

import math

import torch
from fixtures import look_at_origin
from torch import Tensor
from torch.nn.functional import normalize

from nerf.cameras.cameras import Cameras, focal_from_fov
from nerf.cameras.rays import Rays
from nerf.datasets.posed_images import PosedImages

SIZE = 128  # pixels
LIGHT = (0.3, -0.4, 0.866)


def around(count: int, fov: float, distance: float, low: float = 0.3, high: float = 1.3) -> Cameras:
    """Cameras all around the origin, at elevations of so many radians, even by area and without any order."""
    plastic = 1.324717957244746  # the R2 sequence
    lowest, highest = math.sin(low), math.sin(high)
    poses = []
    for index in range(count):
        elevation = math.asin(lowest + (highest - lowest) * ((0.5 + index / plastic**2) % 1))
        poses.append(torch.tensor(look_at_origin(math.tau * index / plastic, elevation, distance)[:3]))
    focal = focal_from_fov(SIZE, fov)
    intrinsics = torch.tensor([[focal, focal, SIZE / 2, SIZE / 2]]).expand(count, 4)
    return Cameras(torch.stack(poses).float(), intrinsics, SIZE, SIZE)


def shiny_relief(count: int = 40, period: float = 0.2, slope: float = 0.5, exponent: float = 30) -> PosedImages:
    """A plate of dents in even rows, dark: what is seen of it is highlights, which move with the eye."""

    def shade(rays: Rays) -> tuple[Tensor, Tensor]:
        t = -rays.origins[:, 2] / rays.directions[:, 2]
        points = rays.origins + t[:, None] * rays.directions
        phase = math.tau / period * points[:, :2]
        normals = normalize(torch.cat([slope * phase.sin(), torch.ones_like(t)[:, None]], dim=-1), dim=-1)
        light = torch.tensor(LIGHT)
        mirrored = 2 * (normals @ light)[:, None] * normals - light
        gloss = -(mirrored * rays.directions).sum(-1)
        brightness = 0.1 + 0.1 * (normals @ light).clamp(min=0) + 0.8 * gloss.clamp(min=0) ** exponent
        return brightness[:, None] * torch.tensor([0.6, 0.8, 1.0]), (points[:, :2].abs() < 1).all(-1)

    return _rendered(around(count, 0.69, 4.0), shade)


def pole(count: int = 40, fov: float = 0.69, radius: float = 0.12) -> PosedImages:
    """A thin upright pole with a texture, seen from all sides; a smaller fov is a longer lens from farther away."""
    generator = torch.Generator().manual_seed(0)
    texture = torch.rand(24, 60, 3, generator=generator)

    def shade(rays: Rays) -> tuple[Tensor, Tensor]:
        (x, y, z), (dx, dy, dz) = rays.origins.unbind(-1), rays.directions.unbind(-1)
        a, b = dx * dx + dy * dy, x * dx + y * dy
        root = b * b - a * (x * x + y * y - radius**2)
        t = (-b - root.clamp(min=0).sqrt()) / a
        height = z + t * dz
        angle = torch.atan2(y + t * dy, x + t * dx) / math.tau % 1
        row, column = (angle * 24).long() % 24, ((height + 1) * 30).long().clamp(0, 59)
        return texture[row, column], (root > 0) & (height.abs() < 1)

    return _rendered(around(count, fov, 1.4 / math.tan(fov / 2)), shade)


def _rendered(cameras: Cameras, shade) -> PosedImages:
    """Four rays a pixel; alpha is the fraction of them that hits."""
    fine = Cameras(cameras.c2w, 2 * cameras.intrinsics, 2 * SIZE, 2 * SIZE)
    pixels = []
    for index in range(len(cameras)):
        color, hit = shade(fine.image_rays(index))
        rgba = torch.cat([color.clamp(0, 1) * hit[:, None], hit[:, None].float()], dim=-1)
        rgba = rgba.view(SIZE, 2, SIZE, 2, 4).mean((1, 3))
        rgba[..., :3] /= rgba[..., 3:].clamp(min=0.25)
        pixels.append((255 * rgba).round().byte().view(-1, 4))
    return PosedImages(torch.cat(pixels), cameras, [f"r_{index}" for index in range(len(cameras))])
