"""The color along the edges of pictures that store no transparency: the background of an object that is alone."""

import numpy as np

from nerf.datasets.mask_use import FILLED, LOOKED_AT, of_the_lens, rim
from nerf.datasets.posed_images import PosedImages

EVEN = 0.8  # of the pixels along the edges have the same color, where they show a background
SHOWN = 0.005  # at least so much of a picture is the object's
SLACK = 12  # of 255, within which colors are the same: what JPEG makes of an even one


def background_of(images: PosedImages) -> str | None:
    """The dataset.background that the edges of the images show: white, black, learned (another even color) or None.

    None: they show no even color, or store alpha, which may be put over any. Pixels that are left out do not count.
    """
    color = None if images.has_alpha else _even_color(_edges(images))
    if color is None:
        return None
    if color.min() >= 255 - SLACK:
        return "white"
    return "black" if color.max() <= SLACK else "learned"


def object_alone(images: PosedImages) -> bool | None:
    """Whether images without alpha show an object before one even color and nothing else.

    False: their edges have no even color, so there is something around. None: nothing of the edges counts, or they are
    even but little else of the pictures is, or all, or the same part of each, as before a lens whose picture is round.
    """
    edges = _edges(images)
    color = _even_color(edges)
    if color is None:
        return None if len(edges) == 0 else False
    chosen = _chosen(images)
    before = [np.abs(images.image(index).numpy().astype(np.int16) - color).max(-1) > SLACK for index in chosen]
    counted = [images.valid_mask(index) for index in chosen]
    filled = [mask.mean() if seen is None else mask[seen.numpy()].mean() for mask, seen in zip(before, counted)]
    return True if SHOWN <= np.median(filled) <= FILLED and not of_the_lens(before) else None


def _chosen(images: PosedImages) -> list[int]:
    """The images that are looked at, evenly spread."""
    return np.linspace(0, len(images) - 1, min(len(images), LOOKED_AT)).round().astype(int).tolist()


def _edges(images: PosedImages) -> np.ndarray:
    """The pixels [N,3] along the edges of the images that are looked at, of those that count."""
    found = []
    for index in _chosen(images):
        edges = np.stack([rim(channel) for channel in images.image(index).permute(2, 0, 1).numpy()], axis=1)
        valid = images.valid_mask(index)
        found.append(edges if valid is None else edges[rim(valid.numpy())])
    return np.concatenate(found).astype(np.int16)


def _even_color(edges: np.ndarray) -> np.ndarray | None:
    """The color [3] of 255 that most of the pixels [N,3] have; None where no one has it."""
    if len(edges) == 0:
        return None
    color = np.median(edges, axis=0)
    return color if (np.abs(edges - color).max(1) <= SLACK).mean() >= EVEN else None
