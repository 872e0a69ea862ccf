"""What changes where a run on a CPU sees each training pixel often enough, and where only an object has texture."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny_runs import tiny_images

from nerf.cameras.cameras import Cameras
from nerf.config.fields import settings_of
from nerf.config.recipes import PhotoFacts, resolve_config, sources
from nerf.config.schema import Config, LossConfig, PosesConfig, SamplerConfig, TrainConfig
from nerf.datasets.posed_images import PosedImages
from nerf.ops.backend import select
from nerf.runs.resolve import makes_many_passes, resolve_for_run
from nerf.scene.description import SceneDescription

MANY = TrainConfig(steps=1500)  # 6.1 million pixels of a scene that has 3200


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)


def images_of(count: int, side: int) -> PosedImages:
    """As many training images of that size as far as their cameras tell."""
    pose, lens = torch.eye(4)[:3].expand(count, 3, 4), torch.tensor([50.0, 50.0, side / 2, side / 2]).expand(count, 4)
    return replace(tiny_images(), cameras=Cameras(pose, lens, side, side))


def resolved(**settings: Any) -> Config:
    described = SceneDescription(settings.pop("kind", "bounded"), bare=settings.pop("bare", False))
    return resolve_for_run(Config(**{"train": MANY} | settings), tiny_images(), select("native", "cpu"), described)


@pytest.mark.parametrize(
    ("train", "side", "many"),
    [
        ({"max_seconds": 60.0}, 100, True),  # lego at 100x100: 6.5 passes
        ({"max_seconds": 30.0}, 100, False),
        ({"max_seconds": 60.0}, 200, False),
        ({"max_seconds": 240.0}, 200, True),
        ({"max_seconds": 30.0}, 20, False),  # many passes, and few steps
        ({"steps": 1600}, 100, True),
        ({"steps": 1400}, 20, False),
        ({"steps": 100_000, "max_seconds": 30.0}, 100, False),  # what ends first
        ({"steps": 800, "max_seconds": 3000.0}, 100, False),
    ],
)
def test_passes_are_counted_by_steps_or_by_the_rate_of_two_threads(train: dict, side: int, many: bool) -> None:
    config = resolve_config(Config(train=TrainConfig(**train)), "cpu", "bounded")
    assert makes_many_passes(config, images_of(100, side), select("native", "cpu")) is many


def test_one_thread_draws_half_as_much_and_a_gpu_has_its_own_recipes(monkeypatch: pytest.MonkeyPatch) -> None:
    config = resolve_config(Config(train=TrainConfig(max_seconds=60.0)), "cpu", "bounded")
    backend = select("native", "cpu")
    assert not makes_many_passes(config, images_of(100, 100), replace(backend, device=torch.device("cuda")))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert not makes_many_passes(config, images_of(100, 100), backend)


def test_with_many_passes_a_pixel_has_four_rays_and_the_run_says_why() -> None:
    found = resolved()
    assert (found.sampler.rays_per_pixel, found.loss.distortion) == (4, 0.003)
    why = sources(Config(train=MANY), found, "cpu", PhotoFacts(many_passes=True))
    assert why["sampler.rays_per_pixel"] == why["loss.distortion"] == "many passes over the pixels"
    few = resolved(train=TrainConfig(steps=1400))
    assert (few.sampler.rays_per_pixel, few.loss.distortion) == (1, 0.0)


def test_with_many_passes_photos_all_around_are_compared_in_pairs() -> None:
    found = resolved(kind="unbounded")
    assert (found.loss.pair_ssim, found.sampler.rays_per_pixel) == (0.003, 1)
    assert (
        sources(Config(train=MANY), found, "cpu", PhotoFacts(many_passes=True))["loss.pair_ssim"]
        == "many passes over the pixels"
    )
    assert resolved(kind="unbounded", train=TrainConfig(steps=1400)).loss.pair_ssim == 0.0
    assert resolved(kind="unbounded", poses=PosesConfig(mode="refine")).loss.pair_ssim == 0.0
    assert resolved(kind="forward_facing").loss.pair_ssim == resolved().loss.pair_ssim == 0.0


@pytest.mark.parametrize(
    "settings",
    [
        {"sampler": SamplerConfig(rays_per_pixel=1), "loss": LossConfig(distortion=0.0)},
        {"poses": PosesConfig(mode="refine")},
        {"kind": "unbounded"},
        {"field": settings_of("voxel_sh")()},
        {"train": replace(MANY, recipe="cuda_2")},
    ],
    ids=["given", "learned poses", "unbounded", "another field", "a GPU's recipe"],
)
def test_nothing_changes_what_was_given_or_was_not_measured(settings: dict) -> None:
    kind = settings.get("kind", "bounded")
    given = Config(**{"train": MANY} | {name: value for name, value in settings.items() if name != "kind"})
    expected, found = resolve_config(given, "cpu", kind), resolved(**settings)
    assert (found.sampler, found.loss.distortion) == (expected.sampler, expected.loss.distortion)


FEW = TrainConfig(steps=100)


def test_bare_surroundings_scale_gradients_from_farther_on_and_the_run_says_why() -> None:
    usual, bare = (resolved(train=FEW, kind="unbounded", bare=bare) for bare in (False, True))
    assert (usual.loss.grad_scaling_distance, bare.loss.grad_scaling_distance) == (2.0, 5.0)
    assert replace(bare, loss=usual.loss) == usual and replace(bare.loss, grad_scaling_distance=2.0) == usual.loss
    why = sources(Config(train=FEW), bare, "cpu", PhotoFacts(bare=True))
    assert why["loss.grad_scaling_distance"] == "bare surroundings"
    assert resolved(train=FEW, kind="bounded", bare=True) == resolved(train=FEW, kind="bounded")
    given = LossConfig(grad_scaling_distance=3.0)
    assert resolved(train=FEW, kind="unbounded", bare=True, loss=given).loss.grad_scaling_distance == 3.0
