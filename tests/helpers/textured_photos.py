"""Photos that structure from motion can solve: boxes with patches of random color, from a short walk."""

from pathlib import Path

import numpy as np
from fixtures import look_at_origin
from numpy.typing import NDArray
from PIL import Image

WIDTH, HEIGHT, FOCAL = 320, 240, 380.0  # pixels
# Lowest and highest corners; z is up.
BOXES = (
    ((-2.5, -2.5, -0.8), (2.5, 2.5, -0.6)),
    ((-0.6, -0.5, -0.6), (0.3, 0.4, 0.4)),
    ((0.5, -0.2, -0.6), (1.0, 0.9, 0)),
)
PATCHES = (0.21, 0.083, 0.041)  # world units: sizes of the patches that are added up
Array = NDArray[np.float64]


def write_textured_photos(folder: Path, count: int = 12) -> None:
    """JPEGs of a walk around a quarter of the scene, each averaged of two by two rays a pixel."""
    folder.mkdir(parents=True)
    for index, pose in enumerate(poses(count)):
        image = Image.fromarray((255 * photo(pose, 2)).astype(np.uint8))
        image.resize((WIDTH, HEIGHT), Image.Resampling.BOX).save(folder / f"{index:02d}.jpg", quality=95)


def poses(count: int) -> list[Array]:
    """Camera-to-world matrices [4,4], OpenGL axes."""
    return [look_at_origin(1.6 * index / count, 0.55 + 0.1 * (index % 2), 3.6) for index in range(count)]


def seen_points() -> Array:
    """Points [50,3] on the front of the larger box, which every photo shows."""
    dice = np.random.default_rng(1)
    (_, _, low), (x, y, high) = BOXES[1]
    return np.stack([np.full(50, x), dice.uniform(y - 0.9, y, 50), dice.uniform(low, high, 50)], axis=-1)


def photo(pose: Array, scale: int) -> Array:
    """The picture [HEIGHT*scale,WIDTH*scale,3] of a camera-to-world pose [4,4], OpenGL axes."""
    x, y = np.meshgrid(np.arange(WIDTH * scale) + 0.5, np.arange(HEIGHT * scale) + 0.5)
    local = np.stack([x / scale - WIDTH / 2, HEIGHT / 2 - y / scale, np.full_like(x, -FOCAL)], axis=-1)
    directions, origin = local @ pose[:3, :3].T, pose[:3, 3]
    nearest = np.full(x.shape, np.inf)
    for low, high in BOXES:
        ends = (np.stack([np.array(low), np.array(high)])[:, None, None] - origin) / directions
        enter, leave = ends.min(0).max(-1), ends.max(0).min(-1)
        nearest = np.where((enter < leave) & (enter > 0), np.minimum(nearest, enter), nearest)
    hit = np.isfinite(nearest)
    points = origin + np.where(hit, nearest, 0)[..., None] * directions
    return np.where(hit[..., None], _color(points), 0.5)


def _color(points: Array) -> Array:
    dice = np.random.default_rng(0)
    colors = [dice.random((64, 64, 64, 3)) for _ in PATCHES]
    found = [
        table[tuple(np.moveaxis(np.floor(points / size).astype(int) % 64, -1, 0))]
        for table, size in zip(colors, PATCHES)
    ]
    return np.mean(found, axis=0)
