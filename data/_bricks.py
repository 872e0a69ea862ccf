"""The bundled scene "bricks": a toy landscape with studs, thin rods, see-through holes and a glossy material.

It is our own and analytic: pictures, coverage and depth are exact at any size, and a fresh checkout has
something to train on without a download. World space has z up; the scene lies within [-1.2, 1.2]^3. Colors
are sRGB values throughout: shading and anti-aliasing average displayed values, as the compositing of a
radiance field does.
"""

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from _solids import Box, Cylinder, Part, Point, SurfaceHits, nearest_hits
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from nerf.cameras.cameras import Cameras, focal_from_fov
from nerf.cameras.rays import Rays

# Toy measures in world units. A brick is three plates high.
PITCH, PLATE = 0.21, 0.084
STUD_RADIUS, STUD_HEIGHT = 0.064, 0.042
ROD = 0.03  # width of the thin parts
GRID_SIZE = 8  # studs along an edge of the base plate
GROUND = -0.53  # z of the top of the base plate

CAMERA_ANGLE_X = 0.6911112070083618  # radians, as in the Blender synthetic scenes
CAMERA_DISTANCE = 4.0
DEPTH_SCALE = 1 / 8192  # world units per step of a 16-bit depth image, which so reaches to t = 8
CHUNK = 1 << 15  # rays in flight: bounds memory


@dataclass(frozen=True)
class Material:
    """Surface color in sRGB values, and how strongly it mirrors the key light (0 is matt)."""

    color: tuple[float, float, float]
    gloss: float = 0.0


MATERIALS = {
    "grass": Material((0.30, 0.66, 0.25)),
    "red": Material((0.90, 0.13, 0.12)),
    "yellow": Material((1.00, 0.80, 0.08)),
    "orange": Material((1.00, 0.48, 0.06)),
    "teal": Material((0.05, 0.66, 0.66)),
    "purple": Material((0.56, 0.20, 0.66)),
    "lime": Material((0.62, 0.85, 0.12)),
    "brown": Material((0.45, 0.26, 0.14)),
    "white": Material((0.95, 0.95, 0.92)),
    "dark": Material((0.20, 0.22, 0.28)),
    "glossy blue": Material((0.06, 0.26, 0.80), gloss=0.7),
    "glossy red": Material((0.80, 0.06, 0.10), gloss=0.7),
}

KEY_LIGHT = (0.4, -0.6, 0.6928)  # towards the light, unit
FILL_LIGHT = (-0.8, 0.4, 0.4472)
AMBIENT, KEY, FILL = 0.50, 0.58, 0.20
GLOSS_EXPONENT = 4  # cos^4 about the mirrored light: wide enough for spherical harmonics of degree 3
GROUND_SHADE, GROUND_SHADE_HEIGHT = 0.2, 0.3  # walls darken towards the ground, where they see less sky


def _at(column: float, row: float, level: float) -> Point:
    """World position on the toy grid: columns along x, rows along y, plates up from the top of the base."""
    return PITCH * (column - GRID_SIZE / 2), PITCH * (row - GRID_SIZE / 2), GROUND + PLATE * level


def _block(corner: Point, size: Point) -> Box:
    """A box whose corner and size are in columns, rows and plates."""
    column, row, level = (start + extent for start, extent in zip(corner, size, strict=True))
    return Box(_at(*corner), _at(column, row, level))


def _post(foot: Point, radius: float, plates: float) -> Cylinder:
    """An upright cylinder: foot in columns, rows and plates, radius in world units."""
    x, y, z = _at(*foot)
    return Cylinder((x, y, z + 0.5 * PLATE * plates), radius, 0.5 * PLATE * plates)


def _bricks() -> list[Part]:
    """The blocks that carry studs."""
    blocks = [
        ((0, 0, -1), (8, 8, 1), "grass"),
        ((6, 1, 0), (2, 1, 2), "teal"),  # a staircase up to the lighthouse
        ((6, 2, 0), (2, 1, 4), "orange"),
        ((6, 3, 0), (2, 1, 6), "teal"),
        ((5, 5, 0), (2, 2, 3), "red"),  # the lighthouse
        ((5, 5, 3), (2, 2, 3), "white"),
        ((5, 5, 6), (2, 2, 3), "red"),
        ((5, 5, 9), (2, 2, 3), "white"),
        ((0, 1, 0), (1, 1, 6), "orange"),  # the pillars of the bridge
        ((0, 5, 0), (1, 1, 6), "orange"),
        ((2, 4, 0), (2, 2, 3), "glossy red"),
        ((3, 1, 6), (1, 1, 3), "glossy blue"),
    ]
    arch_holes = (_block((2.5, 0, -1), (2, 3, 3.5)), Cylinder(_at(3.5, 1.5, 2.5), PITCH, PITCH, axis=1))
    bridge_holes = tuple(Cylinder(_at(0.5, 1.5 + i, 7.5), 0.09, PITCH, axis=0) for i in range(5))
    window_hole = _block((0.5, 6, 2), (3, 3, 6))
    return [Part(_block(corner, size), material) for corner, size, material in blocks] + [
        Part(_block((2, 1, 0), (3, 1, 6)), "yellow", arch_holes),
        Part(_block((0, 1, 6), (1, 5, 3)), "glossy blue", bridge_holes),
        Part(_block((0, 7, 0), (4, 1, 9)), "purple", (window_hole,)),
    ]


def _studs(bricks: list[Part], details: list[Part]) -> list[Part]:
    """A stud on every grid cell of the bricks' tops, except where something stands on it."""
    studs = []
    for brick in bricks:
        (x0, y0, _), (x1, y1, top) = brick.body.bounds()
        for i in range(round((x1 - x0) / PITCH)):
            for j in range(round((y1 - y0) / PITCH)):
                center = (x0 + PITCH * (i + 0.5), y0 + PITCH * (j + 0.5), top + 0.5 * STUD_HEIGHT)
                if not any(_contains(other.body.bounds(), center) for other in bricks + details):
                    studs.append(Part(Cylinder(center, STUD_RADIUS, 0.5 * STUD_HEIGHT), brick.material))
    return studs


def _contains(bounds: tuple[Point, Point], point: Point) -> bool:
    return all(low < x < high for low, x, high in zip(bounds[0], point, bounds[1], strict=True))


def _railing(start: Point, end: Point, rods: int) -> list[Part]:
    """Upright rods under a hand rail from one foot (columns, rows, plates) to another along a grid axis."""
    half, height = 0.5 * ROD / PITCH, 2.2
    steps = [i / (rods - 1) for i in range(rods)]
    feet = [tuple(a + s * (b - a) for a, b in zip(start, end, strict=True)) for s in steps]
    rail = _block(
        (start[0] - half, start[1] - half, start[2] + height),
        (end[0] - start[0] + 2 * half, end[1] - start[1] + 2 * half, ROD / PLATE),
    )
    return [Part(body, "white") for body in [*(_post(foot, 0.5 * ROD, height) for foot in feet), rail]]


def _details() -> list[Part]:
    """What carries no studs: round parts, thin plates, bars and railings."""
    width, bar = ROD / PITCH, ROD / PLATE
    bodies = [
        (_block((4.5, 4.5, 12), (3, 3, 1)), "dark"),  # the gallery of the lighthouse, its lantern and roof
        (_post((6, 6, 13), 0.18, 3), "yellow"),
        (_post((6, 6, 16), 0.26, 0.8), "red"),
        (_post((6, 6, 16.8), 0.10, 0.8), "red"),
        (_post((3, 5, 3), 0.19, 3.5), "glossy blue"),  # a tank
        (_post((4.5, 3.5, 0), 0.06, 4), "brown"),  # a tree
        (_post((4.5, 3.5, 3), 0.25, 1), "lime"),
        (_post((4.5, 3.5, 4), 0.20, 1), "lime"),
        (_post((4.5, 3.5, 5), 0.13, 1), "lime"),
        (_block((2 - 0.5 * width, 7.5 - 0.5 * width, 2), (width, width, 6)), "white"),  # window bars
        (_block((0.5, 7.5 - 0.5 * width, 5), (3, width, bar)), "white"),
        (_post((2.5, 1.5, 6), 0.5 * ROD, 10), "dark"),  # a flag
        (_block((2.5, 1.5 - 0.5 * width, 12.5), (2.2, width, 3.5)), "orange"),
    ]
    railings = [
        _railing((4.6, 4.6, 13), (7.4, 4.6, 13), 6),  # around the gallery
        _railing((4.6, 7.4, 13), (7.4, 7.4, 13), 6),
        _railing((4.6, 4.6, 13), (4.6, 7.4, 13), 6),
        _railing((7.4, 4.6, 13), (7.4, 7.4, 13), 6),
        _railing((5, 7.8, 0), (7.8, 7.8, 0), 8),  # a fence behind the lighthouse
    ]
    return [Part(body, material) for body, material in bodies] + list(chain.from_iterable(railings))


@cache
def scene_parts() -> tuple[Part, ...]:
    """All parts of the scene."""
    bricks, details = _bricks(), _details()
    return (*bricks, *details, *_studs(bricks, details))


# Exact color and depth along R rays whose origins lie outside every part of a scene: rgb [R,3] (sRGB values in
# [0, 1], times opacity), opacity [R] in [0, 1] or, of solids, hit [R] bool, and depth [R] (world distance t along the
# ray).
Renderer = Callable[[Rays], tuple[Tensor, Tensor, Tensor]]


def render_bricks(rays: Rays) -> tuple[Tensor, Tensor, Tensor]:
    """Exact color and depth along rays whose origins lie outside every part.

    Returns rgb [R,3] (sRGB values in [0, 1]), hit [R] bool and depth [R] (world distance t along the ray).
    rgb and depth have the dtype of the rays and are 0 where nothing is hit; the arithmetic is float64.
    """
    return render_parts(scene_parts(), _bricks_color, rays)


def render_parts(
    parts: tuple[Part, ...], color_of: Callable[[Rays, SurfaceHits], Tensor], rays: Rays
) -> tuple[Tensor, Tensor, Tensor]:
    """As render_bricks for any parts; color_of tells the colors [R,3], float64, of rays and the hits they made (what
    it says of rays without a hit is not used)."""
    chunks = [
        _render_chunk(parts, color_of, rays[start : start + CHUNK]) for start in range(0, max(len(rays), 1), CHUNK)
    ]
    rgb, hit, depth = (torch.cat(column) for column in zip(*chunks, strict=True))
    return rgb, hit, depth


def _render_chunk(
    parts: tuple[Part, ...], color_of: Callable[[Rays, SurfaceHits], Tensor], rays: Rays
) -> tuple[Tensor, Tensor, Tensor]:
    hits = nearest_hits(parts, rays)
    hit = hits.parts >= 0
    rgb = torch.where(hit[:, None], color_of(rays, hits), 0.0)
    return rgb.to(rays.origins), hit, torch.where(hit, hits.t, 0.0).to(rays.origins)


def _bricks_color(rays: Rays, hits: SurfaceHits) -> Tensor:
    depth = torch.where(hits.parts >= 0, hits.t, 0.0)
    heights = rays.origins[:, 2] + depth * rays.directions[:, 2] - GROUND
    materials = [MATERIALS[part.material] for part in scene_parts()]
    color = depth.new_tensor([material.color for material in materials])[hits.parts]
    gloss = depth.new_tensor([material.gloss for material in materials])[hits.parts]
    return shade(color, gloss, hits.normals, rays.directions.double(), heights)


def shade(color: Tensor, gloss: Tensor, normals: Tensor, directions: Tensor, heights: Tensor) -> Tensor:
    """Lambert under two lights plus ambient, and for glossy materials a lobe about the mirrored key light."""
    key, fill = normals.new_tensor(KEY_LIGHT), normals.new_tensor(FILL_LIGHT)
    facing_key = (normals @ key).clamp(min=0)
    light = AMBIENT + KEY * facing_key + FILL * (normals @ fill).clamp(min=0)
    near_ground = (1 - heights / GROUND_SHADE_HEIGHT).clamp(0, 1) * (1 - normals[:, 2].abs())
    light = light * (1 - GROUND_SHADE * near_ground.square())
    matt = (color * light[:, None]).clamp(max=1)
    mirrored = 2 * facing_key[:, None] * normals - key
    lobe = -(mirrored * directions).sum(-1)
    highlight = gloss * (facing_key > 0) * lobe.clamp(min=0) ** GLOSS_EXPONENT
    # White laid over the matt color: stays within [0, 1].
    return matt + (1 - matt) * highlight[:, None]


def bricks_cameras(split: str, views: int, size: int, seed: int) -> Cameras:
    """Square float32 cameras that look at the world origin from above; the seed turns them about z.

    "train": every leading part of the views covers elevations of 5 to 75 degrees evenly by area. "test": one
    orbit whose elevation swings between 15 and 65 degrees. Raises ValueError for another split and for counts
    below 1.
    """
    if min(views, size) < 1:
        raise ValueError(f"views and size must be at least 1, got {views} and {size}")
    index = torch.arange(views, dtype=torch.float64)
    turn = random.Random(f"{split} {seed}").random()
    if split == "train":
        # The golden ratio's two-dimensional relative: its powers give the most even pair of sequences (R2).
        plastic = 1.324717957244746
        azimuth = 2 * math.pi * (turn + index / plastic)
        lowest, highest = math.sin(math.radians(5)), math.sin(math.radians(75))
        elevation = torch.asin(lowest + (highest - lowest) * ((0.5 + index / plastic**2) % 1))
    elif split == "test":
        azimuth = 2 * math.pi * (turn + index / views)
        elevation = torch.deg2rad(40 + 25 * torch.sin(3 * azimuth))
    else:
        raise ValueError(f'split must be "train" or "test", got {split!r}')
    focal = focal_from_fov(size, CAMERA_ANGLE_X)
    intrinsics = torch.tensor([focal, focal, size / 2, size / 2]).repeat(views, 1)
    return Cameras(_orbit_poses(azimuth, elevation).float(), intrinsics, size, size)


def _orbit_poses(azimuth: Tensor, elevation: Tensor) -> Tensor:
    """c2w [I,3,4] of cameras at the given angles (radians, [I]) that look at the world origin, upright."""
    zero = torch.zeros_like(azimuth)
    sin_a, cos_a, sin_e, cos_e = azimuth.sin(), azimuth.cos(), elevation.sin(), elevation.cos()
    right = torch.stack([-sin_a, cos_a, zero], dim=-1)
    up = torch.stack([-sin_e * cos_a, -sin_e * sin_a, cos_e], dim=-1)
    backward = torch.stack([cos_e * cos_a, cos_e * sin_a, sin_e], dim=-1)
    return torch.stack([right, up, backward, CAMERA_DISTANCE * backward], dim=-1)


def render_view(
    cameras: Cameras, index: int, supersample: int, render: Renderer = render_bricks
) -> tuple[np.ndarray, np.ndarray]:
    """One image from supersample^2 rays per pixel on a regular grid.

    Returns rgba uint8 [H,W,4] (straight alpha: the rays' mean color by their opacity, and their mean opacity) and
    depth float32 [H,W]: world distance along the ray through the pixel center, 0 where that ray misses.
    Raises ValueError for a supersample below 1.
    """
    if supersample < 1:
        raise ValueError(f"supersample must be at least 1, got {supersample}")
    height, width, n = cameras.height, cameras.width, supersample
    view = cameras[index]
    c2w, intrinsics = view.c2w.double(), view.intrinsics.double()
    _, _, depth = render(Cameras(c2w, intrinsics, width, height).image_rays(0))
    rgb, opacity, _ = render(Cameras(c2w, intrinsics * n, width * n, height * n).image_rays(0))
    opaque = opacity.double().view(height, n, width, n).sum((1, 3))[..., None]
    color = rgb.view(height, n, width, n, 3).sum((1, 3)) / torch.where(opaque > 0, opaque, 1.0)
    rgba = torch.cat([color, (opaque / n**2).float()], dim=-1)  # of single precision: the bundled images round so
    return (255 * rgba).round().byte().cpu().numpy(), depth.view(height, width).float().cpu().numpy()


def write_scene(
    folder: Path,
    size: int,
    train_views: int,
    test_views: int,
    supersample: int,
    seed: int,
    render: Renderer = render_bricks,
) -> None:
    """Render both splits into folder, laid out as a Blender synthetic scene; files there are overwritten.

    The test split has 16-bit depth images too: a pixel times depth_scale is world distance along its ray, and
    0 means a miss. Raises ValueError for counts below 1.
    """
    for split, views in (("train", train_views), ("test", test_views)):
        cameras = bricks_cameras(split, views, size, seed)
        (folder / split).mkdir(parents=True, exist_ok=True)
        frames = []
        for index in tqdm(range(views), desc=split, unit="view"):
            rgba, depth = render_view(cameras, index, supersample, render)
            Image.fromarray(rgba).save(folder / split / f"r_{index}.png", optimize=True)
            pose = [*cameras.c2w[index].tolist(), [0.0, 0.0, 0.0, 1.0]]
            frames.append({"file_path": f"./{split}/r_{index}", "transform_matrix": pose})
            if split == "test":
                steps = np.round(depth / DEPTH_SCALE).astype(np.uint16)
                Image.fromarray(steps).save(folder / split / f"r_{index}_depth.png", optimize=True)
                frames[-1]["depth_file_path"] = f"./{split}/r_{index}_depth.png"
        scene = {"camera_angle_x": CAMERA_ANGLE_X, "frames": frames}
        if split == "test":
            scene["depth_scale"] = DEPTH_SCALE
        (folder / f"transforms_{split}.json").write_text(json.dumps(scene, indent=1) + "\n")
