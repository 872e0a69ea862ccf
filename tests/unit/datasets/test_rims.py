"""The background of pictures without alpha is the color along their edges, and a run says so."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from fixtures import write_sphere_scene
from PIL import Image

import nerf
from nerf.datasets.blender import load_blender
from nerf.datasets.rims import background_of
from nerf.images.pixel_runs import PixelRuns


def before(folder: Path, color: tuple[int, int, int], noise: int = 0) -> Path:
    """The sphere scene rendered before a color, without alpha; noise: of this size on each pixel."""
    write_sphere_scene(folder, views=6, size=20)
    random = np.random.default_rng(0)
    for path in folder.glob("*/*.png"):
        rgba = np.asarray(Image.open(path)).astype(float)
        alpha = rgba[..., 3:] / 255
        over = alpha * rgba[..., :3] + (1 - alpha) * np.array(color) + random.uniform(-noise, noise, (20, 20, 3))
        Image.fromarray(over.round().clip(0, 255).astype(np.uint8)).save(path)
    return folder


@pytest.mark.parametrize(
    ("color", "noise", "expected"),
    [
        ((0, 0, 0), 0, "black"),
        ((4, 3, 5), 4, "black"),
        ((255, 255, 255), 8, "white"),
        ((90, 120, 200), 5, "learned"),
        ((90, 120, 200), 120, None),
    ],
)
def test_the_color_along_the_edges(color: tuple, noise: int, expected: str | None, tmp_path: Path) -> None:
    assert background_of(load_blender(before(tmp_path, color, noise), "train")) == expected


def test_pixels_that_are_left_out_do_not_count(tmp_path: Path) -> None:
    """The black behind a transparent border is no background."""
    images = load_blender(before(tmp_path, (255, 255, 255)), "train")
    inside = torch.zeros(20, 20, dtype=torch.bool)
    inside[:, 2:18] = True
    images.pixels.view(6, 20, 20, 3)[:, ~inside] = 0
    assert background_of(images) is None
    seen = PixelRuns.of_mask(inside.reshape(-1).repeat(6))
    assert background_of(replace(images, valid_pixels=seen)) == "white"
    nothing = PixelRuns.of_mask(torch.zeros(6 * 400, dtype=torch.bool))
    assert background_of(replace(images, valid_pixels=nothing)) is None


def test_a_run_takes_the_background_that_its_images_show(tmp_path: Path) -> None:
    settings = {"dataset.root": str(before(tmp_path, (0, 0, 0))), "train.steps": 1, "device": "cpu"}
    run = nerf.start(nerf.settings(settings))
    assert run.config.dataset.background == "black" and run.sources["dataset.background"] == "the edges of the images"
    assert run.reasons[-1] == "the background is black: so are the edges of the images (dataset.background)"
    given = nerf.start(nerf.settings({**settings, "dataset.background": "random"}))
    assert given.config.dataset.background == "random" and "background" not in " ".join(given.reasons)


def test_images_with_alpha_keep_the_background_of_their_kind(tmp_path: Path) -> None:
    write_sphere_scene(tmp_path, views=4, size=16)
    assert background_of(load_blender(tmp_path, "train")) is None
    run = nerf.start(nerf.settings({"dataset.root": str(tmp_path), "train.steps": 1, "device": "cpu"}))
    assert run.config.dataset.background == "white"
