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
from nerf.datasets.photos import load_photos
from nerf.datasets.readers import read_capture
from nerf.datasets.rims import background_of, object_alone
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


@pytest.mark.parametrize(("noise", "kind"), [(4, "bounded"), (120, "unbounded")])
def test_photos_of_a_turntable_show_an_object_alone_or_what_is_around_it(noise: int, kind: str, tmp_path: Path) -> None:
    capture = read_capture(before(tmp_path, (90, 120, 200), noise), "blender")
    assert load_photos(capture, "train").scene.kind == kind


def test_an_object_alone_is_before_much_of_one_color_and_elsewhere_in_each_picture(tmp_path: Path) -> None:
    images = load_blender(before(tmp_path, (0, 0, 0)), "train")
    pictures = images.pixels.view(6, 20, 20, 3)
    assert object_alone(images) is True
    pictures[2, :, 4:] = 90  # one that is cut off at the edges
    assert object_alone(images) is True
    seen = torch.zeros(20, 20, dtype=torch.bool)
    seen[9:11, 9:11] = True
    valid = PixelRuns.of_mask(seen.reshape(-1).repeat(6))
    assert object_alone(replace(images, valid_pixels=valid)) is None  # no edge counts, nor what is around the object
    pictures[:] = 0
    assert object_alone(images) is None  # nothing at all
    pictures[:, 1:19, 1:19] = 90  # all but the edges
    assert object_alone(images) is None
    v, u = torch.meshgrid(torch.arange(20) - 9.5, torch.arange(20) - 9.5, indexing="ij")
    pictures[:] = 0
    pictures[:, (u / 9.6) ** 2 + (v / 7) ** 2 < 1] = 90  # the round picture of a lens
    assert object_alone(images) is None
    pictures[:] = torch.randint(255, pictures.shape, generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    assert object_alone(images) is False
