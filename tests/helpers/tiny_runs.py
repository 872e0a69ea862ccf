"""Training runs of a second or two on a CPU, in which all happens that happens in a long one; shared by the tests."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from fixtures import write_sphere_scene

from nerf.calibration.pose_alignment import Similarity
from nerf.cameras.se3 import exponential
from nerf.config.fields import FieldConfig
from nerf.config.recipes import resolve_config
from nerf.config.schema import (
    FIELDS,
    Config,
    DatasetConfig,
    LossConfig,
    OccupancyConfig,
    PosesConfig,
    TrainConfig,
)
from nerf.datasets.blender import load_blender
from nerf.datasets.posed_images import PosedImages
from nerf.ops.backend import Backend, select
from nerf.training import pruning
from nerf.training.initial_state import init_state
from nerf.training.loop import StopWhen, TrainMetrics, train
from nerf.training.state import TrainState

STEPS = 40
UPSAMPLE_STEPS = (8, 24)
# Eighths of the run, so that no rounding moves them; and at doublings from then on.
PRUNE_STEPS = (10, 15, 20, 25, 30, 35)


def write_tiny_scene(folder: Path) -> None:
    """The scene of the tiny runs: the unit sphere in its own colors."""
    write_sphere_scene(folder, views=8, size=20, with_depth=True)


@cache
def tiny_images(split: str = "train") -> PosedImages:
    """The views of the tiny scene."""
    with tempfile.TemporaryDirectory() as folder:
        write_tiny_scene(Path(folder))
        return load_blender(Path(folder), split)


# Of poses that are found from far off, which begin at once and on a coarse grid.
FAR_OFF = PosesConfig(
    mode="refine",
    lr=3e-3,
    start=0.0,
    initial_num_voxels=1000,
    coarse_to_fine_end=0.25,
    view_dependence_start=0.25,
)


def tiny_config(field: str = "voxel_sh", **train_settings: object) -> Config:
    """A run of STEPS steps: two doublings, several prunings, total variation, random backgrounds."""
    shares = [step / STEPS for step in UPSAMPLE_STEPS]
    first, second = PRUNE_STEPS[:2]
    return Config(
        dataset=DatasetConfig(scene="sphere", background="random"),
        field=FIELDS[field](
            num_voxels=12**3, min_level_steps=4, upsample_at=shares, initial_alpha=0.01, lr_density=0.5
        ),
        occupancy=OccupancyConfig(start=first / STEPS, min_steps=first, update_interval=(second - first) / STEPS),
        loss=LossConfig(tv_density=1e-6, tv_color=1e-6),
        train=TrainConfig(**{"steps": STEPS, "rays_per_step": 128, "log_every": 10, **train_settings}),
    )


def supersampled(config: Config, start: float, rays_per_pixel: int = 4) -> Config:
    """The config with several rays of each pixel from that share of the run on."""
    sampler = replace(config.sampler, rays_per_pixel=rays_per_pixel)
    return replace(config, sampler=sampler, train=replace(config.train, antialias_start=start))


def field_config(name: str, device: str = "cpu") -> FieldConfig:
    """A field's settings as a run in a box on that device has them."""
    return resolve_config(Config(field=FIELDS[name]()), device, "bounded").field


def poses_config(**settings: object) -> PosesConfig:
    """The settings of poses that are learned, as a run in a box on a CPU has them."""
    return resolve_config(Config(poses=PosesConfig(mode="refine", **settings)), "cpu", "bounded").poses


def tiny_state(config: Config, backend: Backend | None = None) -> tuple[Config, TrainState]:
    """The resolved config and a state before the first step."""
    backend = backend or select("native", "cpu")
    config = resolve_config(config, backend.device.type)
    return config, init_state(config, tiny_images(), backend)


def run_to(config: Config, state: TrainState, step: int) -> list[TrainMetrics]:
    """Trains until so many steps are done."""
    return list(train(config, state, [StopWhen(lambda: state.clock.step >= step)]))


def few_rays_to_prune(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as the tiny grids ask for, not a whole chunk of a CPU: that would be most of the work."""
    monkeypatch.setitem(pruning.RAYS_PER_CHUNK, "cpu", 1 << 11)


def watch(state: TrainState, config: Config, look: Callable[[TrainState], object]) -> list[object]:
    """Trains to the end; what look says before the first step and after each one."""
    seen = [look(state)]
    seen += [look(state) for _ in train(replace(config, train=replace(config.train, log_every=1)), state)]
    return seen


def some_similarity() -> Similarity:
    rotation, _ = exponential(torch.tensor([[0.4, -1.0, 0.3, 0, 0, 0]], dtype=torch.float64))
    return Similarity(1.7, rotation[0], torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64))
