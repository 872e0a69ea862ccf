"""The color along the edges of pictures that store no transparency: the background they were rendered before."""

import numpy as np

from nerf.datasets.mask_use import LOOKED_AT, rim
from nerf.datasets.posed_images import PosedImages

EVEN = 0.8  # of the pixels along the edges have the same color, where they show a background
SLACK = 12  # of 255, within which colors are the same: what JPEG makes of an even one


def background_of(images: PosedImages) -> str | None:
    """The dataset.background that the edges of the images show: white, black, learned (another even color) or None.

    None: they show no even color, or store alpha, which may be put over any. Pixels that are left out do not count.
    """
    if images.has_alpha:
        return None
    chosen = np.linspace(0, len(images) - 1, min(len(images), LOOKED_AT)).round().astype(int)
    edges = np.concatenate([_edges(images, int(index)) for index in chosen]).astype(np.int16)
    if len(edges) == 0:
        return None
    color = np.median(edges, axis=0)
    if (np.abs(edges - color).max(1) <= SLACK).mean() < EVEN:
        return None
    if color.min() >= 255 - SLACK:
        return "white"
    return "black" if color.max() <= SLACK else "learned"


def _edges(images: PosedImages, index: int) -> np.ndarray:
    """The pixels [N,3] uint8 along the edges of an image, of those that count."""
    edges = np.stack([rim(channel) for channel in images.image(index).permute(2, 0, 1).numpy()], axis=1)
    valid = images.valid_mask(index)
    return edges if valid is None else edges[rim(valid.numpy())]
