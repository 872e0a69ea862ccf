"""Vignetting: whose photos share it, what it does to colors, and a known one that comes back."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_runs import run_to, tiny_config, tiny_images, tiny_state
from torch.nn import functional

import nerf
from nerf.calibration import vignetting as v
from nerf.cameras.cameras import Cameras
from nerf.cameras.distortion import Lenses
from nerf.cameras.se3 import exponential
from nerf.config.schema import ExposureConfig
from nerf.datasets.blender import load_blender
from nerf.datasets.posed_images import PosedImages
from nerf.evaluation.held_out_poses import refine, with_vignetting
from nerf.evaluation.scores import evaluate
from nerf.ops.backend import select
from nerf.training.state import make_sampler

BRICKS = Path(__file__).resolve().parents[3] / "data" / "bricks"
KNOWN = torch.tensor([-0.5, 0.1, -0.1])


def cameras_of(*rows: tuple[float, ...], size: tuple[int, int] = (40, 30)) -> Cameras:
    pose = torch.eye(4)[:3].expand(len(rows), 3, 4)
    return Cameras.of_sizes(pose, torch.tensor(rows), [size] * len(rows))


def test_the_learned_functions_are_orthonormal_over_the_disc() -> None:
    u = (torch.arange(100000, dtype=torch.float64) + 0.5) / 100000
    functions = torch.tensor(v.BASIS, dtype=torch.float64) @ torch.stack([u, u**2, u**3])
    torch.testing.assert_close(functions @ functions.T / len(u), torch.eye(3, dtype=torch.float64), rtol=0, atol=1e-6)


def test_the_factor_is_the_polynomial_of_the_distance_to_the_principal_point() -> None:
    cameras = cameras_of((50, 50, 10, 20))
    rgb, alpha = torch.full((30, 40, 3), 0.5), torch.ones(30, 40, 1)
    found = v.vignetted_image(rgb, alpha, cameras, 0, KNOWN[None])
    row, column = 3, 37
    r2 = ((column + 0.5 - 10) ** 2 + (row + 0.5 - 20) ** 2) / (30**2 + 20**2)  # the farthest corner: right, above
    assert found[row, column, 1].item() == pytest.approx(0.5 * (1 - 0.5 * r2 + 0.1 * r2**2 - 0.1 * r2**3), abs=1e-6)
    assert torch.equal(v.vignetted_image(rgb, 0 * alpha, cameras, 0, KNOWN[None]), rgb)  # the background shows through


def test_photos_of_one_camera_share_it_and_others_do_not() -> None:
    same = [(50, 50, 20, 15), (50.4, 50.4, 20.1, 15)]
    others = [(60, 60, 20, 15), (50, 50, 24, 15)]
    assert v.shared_cameras(cameras_of(*same, *others, same[0])).tolist() == [0, 0, 1, 2, 0]
    small = cameras_of((25, 25, 10, 7.5), size=(20, 15))  # as same[0], at half the size
    known = torch.tensor([[0.1, 0, 0], [0.1, 0, 0], [0.2, 0, 0], [0.3, 0, 0]])
    assert torch.equal(v.vignetting_of(small, cameras_of(*same, *others), known), known[:1])
    portrait = cameras_of((50, 50, 15, 20), size=(30, 40))
    assert not v.vignetting_of(portrait, cameras_of(*same, *others), known).any()
    fisheye = replace(cameras_of(same[0]), lenses=Lenses.of(["fisheye"], [[0.0]]))
    assert not v.vignetting_of(fisheye, cameras_of(*same, *others), known).any()


@pytest.mark.parametrize("name", ["native", "torch"])
def test_each_camera_learns_from_its_own_photos(name: str) -> None:
    cameras = cameras_of((50, 50, 20, 15), (60, 60, 20, 15))
    module = v.Vignetting(cameras, ExposureConfig(vignetting=True), select(name, "cpu"))
    rgb, alpha = torch.full((2, 3), 0.5), torch.ones(2, 1)
    pixels = torch.tensor([1200, 2000])  # of the second image
    assert torch.equal(module(rgb, alpha, pixels), rgb)
    module(rgb, alpha, pixels).sum().backward()
    assert not module.values.grad[0].any() and module.values.grad[1].all()
    module.values.grad.zero_()
    with torch.no_grad():
        module.values[0, 0] = 0.5
    module.add_prior()
    assert module.values.grad[0, 0] > 0 and not module.values.grad[1].any()
    assert module.facts()[0]["corner"] == pytest.approx(1 + 0.5 * math.sqrt(3))


def test_held_out_photos_are_compared_with_darkened_renderings() -> None:
    given = tiny_config("voxel_sh")
    config, state = tiny_state(given)
    run_to(config, state, 40)
    views = tiny_images("test")
    known = torch.tensor([[-1.0, 0, 0]]).expand(len(tiny_images()), 3)
    sampler, white, seen = make_sampler(config, state), torch.ones(3), {}
    for name, coefficients in (("none", None), ("dark", known)):
        shown = with_vignetting(views, tiny_images().cameras, coefficients)
        seen[name] = []
        evaluate(state.field, sampler, shown, white, on_view=lambda i, r, t, kept=seen[name]: kept.append(r.rgb))
        assert len(seen[name]) == len(views)
    assert all(dark.mean() < plain.mean() - 0.01 for plain, dark in zip(seen["none"], seen["dark"], strict=True))
    assert torch.equal(shown.chosen([1]).vignetting, known[:1])
    config.evaluation.pose_steps = 3
    moved = [refine(state.field, sampler, config, each).c2w for each in (views, shown)]
    assert not torch.equal(*moved)  # poses are refined against what the photo shows


def test_held_out_poses_are_refined_as_those_of_a_run_that_was_loaded() -> None:
    """Gradients are scaled near cameras in training alone, and a field that has just been trained still has it."""
    config, state = tiny_state(tiny_config("voxel_sh"))
    run_to(config, state, 40)
    config.evaluation.pose_steps = 3
    moved = []
    for distance in (0.0, 6.0):
        state.field.full_gradient_from = distance
        moved.append(refine(state.field, make_sampler(config, state), config, tiny_images("test")).c2w)
        assert state.field.full_gradient_from == distance
    assert torch.equal(*moved)


@pytest.mark.slow
def test_a_known_vignetting_of_bricks_comes_back() -> None:
    """Narrow views that look past the middle, as photos do: else the scene can be darker at its edges instead."""
    train, test = (_turned(load_blender(BRICKS, split, downscale=2)) for split in ("train", "test"))
    psnr, learned = {}, torch.zeros(3)
    for vignetting in (False, True):
        settings = {
            "device": "cpu", "train.steps": 400, "train.rays_per_step": 512, "field": "voxel_sh", "field.sh_degree": 0,
            "field.num_voxels": 32**3, "dataset.aabb": [-0.95, -0.95, -0.7, 0.95, 0.95, 0.95],
            "exposure.vignetting": vignetting, "exposure.lr_vignetting": 0.05,
        }  # fmt: skip
        run = nerf.start(nerf.settings(settings), _darkened(train))
        for _ in run.train():
            pass
        opened = run.open()
        views = opened.align_views(_darkened(test), "test")
        scores = evaluate(opened.field, opened.sampler, views, opened.background)
        psnr[vignetting] = sum(scores.psnr) / len(scores.psnr)
        if vignetting:
            learned = opened.vignetting[0]
    u = torch.linspace(0, 0.6, 7)
    powers = torch.stack([u, u**2, u**3])
    assert (learned @ powers - KNOWN @ powers).abs().max() < 0.06
    assert psnr[True] > psnr[False] + 0.8


def _turned(images: PosedImages, size: int = 24, zoom: float = 2.4, degrees: float = 10) -> PosedImages:
    """What cameras in the same places see that look aside by random angles, from the pictures (a homography each)."""
    cameras, count = images.cameras, len(images)
    aside = torch.zeros(count, 6)
    aside[:, :2] = math.radians(degrees) * (2 * torch.rand(count, 2, generator=torch.Generator().manual_seed(1)) - 1)
    rotation, _ = exponential(aside)
    c2w = torch.cat([cameras.c2w[:, :, :3] @ rotation, cameras.c2w[:, :, 3:]], dim=-1)
    focal = cameras.intrinsics[0, 0].item() * size / cameras.width * zoom
    turned = Cameras(c2w, torch.tensor([focal, focal, size / 2, size / 2]).repeat(count, 1), size, size)
    pictures = []
    for index in range(count):
        rays = turned.image_rays(index)
        places, _ = cameras.project(index, rays.origins + rays.directions)
        picture = images.image(index).float().permute(2, 0, 1)[None] / 255
        picture[:, :3] *= picture[:, 3:]
        grid = (2 * places / cameras.width - 1).view(1, size, size, 2)
        picture = functional.grid_sample(picture, grid, align_corners=False)[0].permute(1, 2, 0)
        picture[..., :3] /= picture[..., 3:].clamp(min=1e-3)
        pictures.append((255 * picture).round().clamp(0, 255).byte().view(-1, 4))
    return PosedImages(torch.cat(pictures), turned, images.names)


def _darkened(images: PosedImages) -> PosedImages:
    cameras = images.cameras
    _, u = v.squared_radii(cameras, v.middles(cameras), torch.arange(len(images.pixels)))
    factor = 1 + u * (KNOWN[0] + u * (KNOWN[1] + u * KNOWN[2]))
    pixels = images.pixels.clone()
    pixels[:, :3] = (pixels[:, :3] * factor[:, None]).round().byte()
    return replace(images, pixels=pixels)
