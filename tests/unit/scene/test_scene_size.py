"""The size of a scene's world does not matter: no length in the code is absolute.

A power of two changes the exponents of all lengths and no digit, so not a bit of the picture may change; with other
factors they are rounded otherwise.
"""

from dataclasses import replace
from functools import cache

import pytest
import torch
from fixtures import KIND_SCENES
from torch import Tensor

import nerf
from nerf.config.schema import Config, DatasetConfig
from nerf.datasets.load import load_split
from nerf.datasets.posed_images import PosedImages
from nerf.ops.backend import select
from nerf.rendering.render import render_image
from nerf.runs.run import start

STEPS = {"bounded": 45, "forward_facing": 45, "unbounded": 100}  # until something is solid
KINDS = tuple(STEPS)
EVERYTHING = {
    "train.steps": 20,
    "occupancy.min_steps": 10,
    "poses": "refine",
    "poses.start": 0.1,
    "poses.perturb_degrees": 0.5,
    "poses.perturb_translation": 0.01,
    "poses.intrinsics": True,
    "exposure.learn": True,
    "loss.distortion": 0.01,
    "loss.pair_ssim": 0.01,
    "loss.tv_density": 1e-5,
    "loss.tv_global": 1e-4,
    "sampler.rays_per_pixel": 4,
}


@cache
def images_of(kind: str, split: str) -> PosedImages:
    if kind == "bounded":
        images = load_split(DatasetConfig(scene="bricks", downscale=8), split)
        return images.chosen(range(min(20, len(images))))
    return KIND_SCENES[kind](split)


def resized(images: PosedImages, size: float) -> PosedImages:
    """The images of the same scene, its world so many times as large."""
    c2w, scene = images.cameras.c2w.clone(), images.scene
    c2w[:, :, 3] *= size
    if scene is not None:
        scene = replace(scene, near=size * scene.near)
    return replace(images, cameras=replace(images.cameras, c2w=c2w), scene=scene)


def config_of(**settings: object) -> Config:
    small = {"train.rays_per_step": 512, "field.num_voxels": 9000, "field.min_level_steps": 5}
    short = {"occupancy.min_steps": 20, "occupancy.update_interval": 0.3}
    return nerf.settings({"device": "cpu", **short, **small, **settings})


def picture(kind: str, size: float, settings: dict[str, object]) -> dict[str, Tensor]:
    """What a run of a scene of this size shows and has learned; lengths in its units."""
    config = config_of(**{"train.steps": STEPS[kind]} | settings)
    run = start(config, resized(images_of(kind, "train"), size), select("native", "cpu"))
    for _ in run.train():
        pass
    trained, view = run.open(), resized(images_of(kind, "test"), size).cameras
    seen = render_image(trained.field, trained.sampler, view, 0, torch.ones(3), True)
    rotations, centers = trained.cameras.c2w[:, :, :3], trained.cameras.c2w[:, :, 3] / size
    shown = {"rgb": seen.rgb, "opacity": seen.opacity, "depth": seen.depth / size, "normals": seen.normals}
    return {**shown, "rotations": rotations, "centers": centers}


@cache
def usual(kind: str) -> dict[str, Tensor]:
    return picture(kind, 1.0, {})


@pytest.mark.parametrize("size", [2.0**-13, 2.0**20])
@pytest.mark.parametrize("kind", KINDS)
def test_not_a_bit_changes_with_a_power_of_two(kind: str, size: float) -> None:
    """Far away nothing was seen: from 1e4 on, in whatever unit."""
    for name, found in picture(kind, size, {}).items():
        torch.testing.assert_close(found, usual(kind)[name], atol=0, rtol=0, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_nor_with_everything_learned_and_every_loss(kind: str) -> None:
    small, large = (picture(kind, size, EVERYTHING) for size in (1.0, 2.0**20))
    for name, found in large.items():
        torch.testing.assert_close(found, small[name], atol=0, rtol=0, msg=name)


@pytest.mark.parametrize("size", [1e-4, 1e6])
@pytest.mark.parametrize("kind", KINDS)
def test_other_factors_round_otherwise(kind: str, size: float) -> None:
    found = picture(kind, size, {})
    assert (found["rgb"] - usual(kind)["rgb"]).square().mean() < 1e-3  # a cell that is given up or kept, more or less


@pytest.mark.parametrize("kind", KINDS[1:])
def test_far_that_is_given_still_cuts(kind: str) -> None:
    cut, whole = picture(kind, 1.0, {"sampler.far": 1.8}), usual(kind)
    assert _farthest(cut) <= 1.8 < _farthest(whole)


def _farthest(shown: dict[str, Tensor]) -> float:
    """The largest mean distance of a pixel that sees something."""
    return (shown["depth"] / shown["opacity"])[shown["opacity"] > 0.01].max().item()
