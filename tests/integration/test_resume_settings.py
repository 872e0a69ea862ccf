"""Resume equals never-stopped, bit for bit, with each setting switched on that is off by default."""

from dataclasses import asdict, fields, is_dataclass, replace
from itertools import chain
from pathlib import Path

import pytest
from resumed_runs import MIDDLE, stop_and_restore
from state_facts import differing, facts
from tiny_runs import STEPS, few_rays_to_prune, run_to, tiny_config, tiny_state

from nerf.config.schema import FIELDS, Config

POSES = {"poses.mode": "refine", "poses.start": 0.1}
# The setting that is off by default, and what else it needs to have an effect.
SWITCHED_ON: dict[str, dict[str, object]] = {
    "loss.pair_ssim": {"loss.pair_ssim": 0.05},
    "loss.alpha": {"loss.alpha": 0.01},
    "loss.opacity_entropy": {"loss.opacity_entropy": 0.01},
    "loss.distortion": {"loss.distortion": 0.01},
    "loss.grad_scaling_distance": {"loss.grad_scaling_distance": 2.0},
    "loss.tv_density": {"loss.tv_density": 1e-5, "loss.tv_until": 1.0},
    "loss.tv_color": {"loss.tv_color": 1e-5, "loss.tv_until": 1.0},
    "loss.tv_until": {"loss.tv_until": 0.7},
    "loss.tv_global": {"loss.tv_global": 1e-3, "loss.tv_until": 0.2},
    "field.diffuse": {"field.diffuse": True},
    "field.feature_noise": {"field.feature_noise": 0.1},
    "field.feature_sines": {"field.feature_sines": True},
    "field.initial_num_voxels": {"field.initial_num_voxels": 900, "field.upsample_at": None},
    "field.upsample_at": {"field.initial_num_voxels": 900, "field.upsample_at": None},
    "field.sparse": {},  # needs a larger grid; tests/unit/fields/test_sparse_storage.py resumes one
    "loss.multi_view": {"loss.multi_view": 0.05},
    "loss.depth": {},  # needs depth files, and nothing that is saved
    "sampler.near": {"sampler.near": 0.2},
    "sampler.far": {"sampler.far": 6.0},
    "sampler.rays_per_pixel": {"sampler.rays_per_pixel": 4, "train.antialias_start": 0.5},
    "train.max_seconds": {},  # by the clock no two runs are alike; test_resume.py looks at its clock
    "train.save_every": {"train.save_every": 3},
    "train.moments": {"train.moments": "bfloat16"},
    "exposure.learn": {"exposure.learn": True},
    "exposure.vignetting": {"exposure.vignetting": True},
    "dataset.aabb": {"dataset.aabb": [-1.2, -1.1, -1.0, 1.0, 1.1, 1.2]},
    "poses.mode": POSES,
    "poses.start": {**POSES, "poses.start": 0.3},
    "poses.initial_num_voxels": {**POSES, "poses.initial_num_voxels": 200},
    "poses.coarse_to_fine_end": {**POSES, "poses.coarse_to_fine_end": 0.8},
    "poses.view_dependence_start": {**POSES, "poses.view_dependence_start": 0.4},
    "poses.intrinsics": {**POSES, "poses.intrinsics": True},
    "poses.perturb_degrees": {"poses.perturb_degrees": 2.0},
    "poses.perturb_translation": {"poses.perturb_translation": 0.02},
    "poses.perturb_sigma": {**POSES, "poses.perturb_sigma": 0.02},
    # A value of the recipe is none in the settings too: another one than the recipe's.
    "field.num_voxels": {"field.num_voxels": 14**3},
    "field.lr_density": {"field.lr_density": 0.3},
    "field.lr_features": {"field.lr_features": 0.07},
    "field.lr_mlp": {"field.lr_mlp": 2e-3},
    "field.lr_muon": {"field.lr_muon": 0.05},
    "field.feature_channels": {"field.feature_channels": 8},
    "field.hidden_width": {"field.hidden_width": 16},
    "field.hidden_layers": {"field.hidden_layers": 1},
    "field.view_frequencies": {"field.view_frequencies": 2},
    "field.view_annealing": {"field.view_annealing": 0.7},
    "occupancy.min_weight": {"occupancy.min_weight": 0.05},
    "occupancy.rays_per_surface_cell": {"occupancy.rays_per_surface_cell": 24},
    "occupancy.update_interval": {"occupancy.update_interval": 0.2},
    "train.lr_decay": {"train.lr_decay": 0.01},
    "train.average_from": {"train.average_from": 0.25},
    "train.average_lr": {"train.average_from": 0.25, "train.average_lr": 0.7},
    "train.rays_per_step": {"train.rays_per_step": 64},
    "train.steps": {},  # every tiny run has its number of steps
    "poses.lr": {**POSES, "poses.lr": 1e-3},
}
# Settings of which none hides what another does: one run has them all.
TOGETHER = (
    ("loss.pair_ssim", "loss.alpha", "loss.opacity_entropy", "loss.distortion", "loss.grad_scaling_distance"),
    ("loss.tv_density", "loss.tv_color", "train.lr_decay", "train.rays_per_step", "train.save_every"),
    ("field.diffuse", "field.feature_noise", "field.feature_sines", "sampler.near", "sampler.far", "dataset.aabb"),
    ("field.lr_density", "field.lr_features", "field.lr_mlp", "field.lr_muon", "occupancy.min_weight"),
    ("field.num_voxels", "field.feature_channels", "field.hidden_width", "field.hidden_layers"),
    ("field.view_frequencies", "occupancy.rays_per_surface_cell", "exposure.learn", "exposure.vignetting"),
    ("field.initial_num_voxels", "field.upsample_at", "field.view_annealing", "occupancy.update_interval"),
    ("poses.perturb_degrees", "poses.perturb_translation", "loss.multi_view"),
    ("poses.perturb_sigma", "poses.lr", "poses.intrinsics"),
    ("train.average_from", "train.average_lr"),
    ("poses.start", "poses.initial_num_voxels", "poses.coarse_to_fine_end"),
)
GROUPS = (*TOGETHER, *((name,) for name in SWITCHED_ON if SWITCHED_ON[name] and name not in chain(*TOGETHER)))
# What decides nothing of a step: where images lie, what is done with a trained field, where a run begins.
NOT_OF_A_STEP = {
    "dataset.root",
    "dataset.images",
    "dataset.mask_folder",
    "dataset.skip_missing",
    "poses.from_run",
}


def with_settings(config: Config, values: dict[str, object]) -> Config:
    """The config with settings by their names on the command line."""
    for name, value in values.items():
        group, leaf = name.split(".")
        config = replace(config, **{group: replace(getattr(config, group), **{leaf: value})})
    return config


@pytest.fixture(autouse=True)
def pruned_with_few_rays(monkeypatch: pytest.MonkeyPatch) -> None:
    few_rays_to_prune(monkeypatch)


@pytest.mark.parametrize("background", ["white", "black", "random", "learned"])
def test_a_resumed_run_goes_on_with_every_background(tmp_path: Path, background: str) -> None:
    never_stopped, resumed = both_ways(tmp_path, {"dataset.background": background})
    assert differing(never_stopped, resumed) == []


@pytest.mark.parametrize("names", GROUPS, ids=", ".join)
def test_a_resumed_run_goes_on_with_every_setting_that_is_off_by_default(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    needed = {name: value for together in names for name, value in SWITCHED_ON[together].items()}
    values = needed | {name: SWITCHED_ON[name][name] for name in names if name in SWITCHED_ON[name]}
    never_stopped, resumed = both_ways(tmp_path, values)
    assert differing(never_stopped, resumed) == []


def both_ways(folder: Path, values: dict[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """All that a run holds at its end: of one that never stopped, and of what was saved of it in the middle."""
    config, never_stopped = tiny_state(with_settings(tiny_config("voxel_deferred", steps=STEPS), values))
    run_to(config, never_stopped, MIDDLE)
    config, resumed = stop_and_restore(folder, config, never_stopped)
    for state in (never_stopped, resumed):
        run_to(config, state, STEPS)
    return facts(never_stopped), facts(resumed)


def test_no_setting_that_is_off_by_default_is_left_out() -> None:
    """A new setting of a step has to stand in SWITCHED_ON."""
    groups = {name: group for name, group in vars(Config()).items() if is_dataclass(group)}
    groups["field"] = FIELDS["voxel_deferred"]()
    off = {
        f"{name}.{field.name}"
        for name, group in groups.items()
        if name != "evaluation"
        for field in fields(group)
        if asdict(group)[field.name] in (None, False, 0)
    }
    assert off - NOT_OF_A_STEP - SWITCHED_ON.keys() == set()
