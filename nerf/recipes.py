"""Which field and which settings for which budget: one table, chosen from by device, field and training seconds.

A setting whose best value depends on the budget has the default None in nerf/config.py, and its values here; what a
user gives is left alone. `auto` takes the first row of its device that reaches the budget, so the order says which
field wins. The measurements behind a value stand in docs/results/log.md.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from nerf.config import FIELDS, Config

DEFAULT_STEPS_CUDA = 30_000
DEFAULT_SECONDS_CPU = 38.0
SECONDS_OF_STEPS = 60.0  # what a run of so many steps, not seconds, is taken to last
BUDGETS = (2.0, 5.0, 15.0, 60.0, 300.0)  # seconds: those of the curve, and of configs/experiment/seconds_*.yaml


@dataclass(frozen=True)
class Recipe:
    """The settings for budgets of up to so many seconds."""

    device: str
    field: str
    up_to: float  # training seconds
    settings: Mapping[str, int | float]  # by their names on the command line


_CUDA = {"field.num_voxels": 256**3, "train.rays_per_step": 8192}
_CPU = {"field.num_voxels": 80**3, "train.rays_per_step": 4096}
_DEFERRED = {
    "loss.opacity_entropy": 0.0,
    "field.lr_features": 0.03,
    "field.view_frequencies": 4,
    "field.diffuse": False,
}
_MLP = {"loss.opacity_entropy": 0.001, "field.lr_features": 0.1}
# Features and harmonics that are smooth to the end know less of training views by heart.
_SMOOTH = {"loss.tv_color": 1e-6, "loss.tv_until": 1.0}
_SH = {"loss.opacity_entropy": 0.0, "loss.distortion": 0.01, **_SMOOTH}
_SH_CUDA = {**_CUDA, **_SH, "train.rays_per_step": 16384}
# Twice the rate, and a wide network saturates in the fog of the first steps, where nothing pulls it back.
_WIDE = {
    "field.feature_channels": 16,
    "field.hidden_width": 256,
    "field.hidden_layers": 2,
    "field.lr_mlp": 5e-4,
    "field.feature_noise": 0.1,  # against what many passes over the pixels learn by heart
}
_NARROW = {
    "field.feature_channels": 12,
    "field.hidden_width": 128,
    "field.hidden_layers": 2,
    "field.lr_mlp": 1e-3,
    "field.feature_noise": 0.0,  # a CPU makes few passes
}
_DEFERRED_CUDA = {**_CUDA, **_DEFERRED, **_WIDE, "train.rays_per_step": 16384}  # a ray costs next to nothing
_THIN = {"loss.distortion": 0.003}  # fewer samples in air, at no cost to the picture
# A pixel is an area, and one ray through its middle meets the edge of a thing by chance. With four there is use for
# voxels that are finer than two pixels.
_FINE = {**_THIN, **_SMOOTH, "field.num_voxels": 288**3, "sampler.rays_per_pixel": 4}
# Fewer, larger steps and a deeper network, which takes longer to start, generalise better between views.
_CALM = {"train.rays_per_step": 32768, "field.hidden_layers": 3, "train.lr_decay": 0.02}
_PHOTOS = {
    "loss.tv_density": 1e-5,
    "loss.tv_color": 1e-5,
    "loss.opacity_entropy": 0.0,
    "field.diffuse": True,
    "sampler.rays_per_pixel": 1,  # edges in photos are soft
}
# A dozen or two that differ little: colour and one feature more, smooth to the end, or they are learnt by heart.
_FEW_VIEWS = {
    "loss.tv_until": 1.0,
    "loss.tv_color": 3e-4,
    "field.feature_channels": 4,
    "field.view_frequencies": 1,
}
# Poses of photos were found by matching them, another run's by learning: nearly right. Let go before the scene stands,
# they wander off with it.
_FOUND = {"poses.lr": 3e-4, "poses.start": 0.3, "poses.finest_at": 0.18, "poses.view_from": 0.0}
FOUND_POSES = {"cuda": {**_FOUND, "poses.coarsest": 2_000_000}, "cpu": {**_FOUND, "poses.coarsest": 100_000}}
# Cameras among what they see: something on every ray, and some of it in few photos, whose noise total variation that
# is everywhere outweighs. Features that learn slowly know less of it by heart.
_AMIDST = {
    "loss.distortion": 0.01,
    "loss.near_fade": 2.0,
    "loss.tv_until": 0.5,
    "loss.tv_everywhere": 1e-4,
    "loss.opacity": 4e-4,
    "field.lr_features": 0.015,
}
_QUICK = {"train.rays_per_step": 16384, "field.hidden_layers": 2}  # _CALM is for views all around one object
# What the last steps leave as noise in air and behind the scene costs structure (SSIM); to a crawl, it settles. And a
# squared error forgives faint textures. A CPU sees each pixel too seldom for these.
_SETTLING = {
    "train.rays_per_step": 32768,
    "field.hidden_layers": 2,
    "train.lr_decay": 0.01,
    "loss.structure": 0.004,
}
# A look at the density costs as much as two dozen steps.
_SHORT = {"field.lr_features": 0.05, "occupancy.every": 0.1}
_SHORTEST = {**_SHORT, "field.num_voxels": 176**3, "field.lr_density": 0.3}
CHOSEN_GROUPS = ("field", "loss", "occupancy", "poses", "sampler", "train")  # of settings
DEFAULTS = {
    "loss.tv_density": 0.0,
    "loss.tv_color": 0.0,
    "loss.tv_until": 0.5,
    "loss.tv_everywhere": 0.0,
    "loss.structure": 0.0,
    "loss.opacity": 0.0,
    "loss.distortion": 0.0,
    "loss.near_fade": 0.0,
    "field.lr_density": 0.2,
    "occupancy.every": 0.06,
    "train.lr_decay": 0.1,
    "sampler.rays_per_pixel": 1,
    "poses.lr": 3e-3,
    "poses.start": 0.0,
    "poses.coarsest": 1000,
    "poses.finest_at": 0.25,
    "poses.view_from": 0.25,
}

RECIPES = (
    Recipe("cuda", "voxel_deferred", 3.0, {**_DEFERRED_CUDA, **_SHORTEST}),
    Recipe("cuda", "voxel_deferred", 8.0, {**_DEFERRED_CUDA, **_SHORT, "field.num_voxels": 224**3}),
    Recipe("cuda", "voxel_deferred", 20.0, {**_DEFERRED_CUDA, **_FINE, "loss.tv_color": 3e-7}),
    Recipe("cuda", "voxel_deferred", math.inf, {**_DEFERRED_CUDA, **_FINE, **_CALM, "field.num_voxels": 304**3}),
    Recipe("cuda", "voxel_mlp", math.inf, {**_CUDA, **_MLP}),
    Recipe("cuda", "voxel_sh", 20.0, _SH_CUDA),
    Recipe("cuda", "voxel_sh", math.inf, {**_SH_CUDA, "train.lr_decay": 0.02}),
    Recipe("cpu", "voxel_deferred", math.inf, {**_CPU, **_DEFERRED, **_NARROW}),
    Recipe("cpu", "voxel_sh", math.inf, {**_CPU, **_SH}),
    Recipe("cpu", "voxel_mlp", math.inf, {**_CPU, **_MLP}),
)


# What other kinds of scene need beside the recipe. Photos see something at the end of every ray, and have few views of
# each place: smooth where nothing is known.
KINDS: Mapping[str, Mapping[str, Mapping[str, int | float]]] = {
    "box": {"cuda": {}, "cpu": {}},
    "forward": {
        "cuda": {
            **_PHOTOS,
            **_FEW_VIEWS,
            **_QUICK,
            **FOUND_POSES["cuda"],
            "field.num_voxels": 640**3,
            # On a CPU there are too few steps for these.
            "field.lr_features": 0.01,
            "train.lr_decay": 0.03,
            "loss.tv_density": 1.5e-5,
            "loss.tv_color": 1e-3,
            "loss.structure": 0.003,
        },
        "cpu": {**_PHOTOS, **_FEW_VIEWS, **FOUND_POSES["cpu"], "field.num_voxels": 128**3},
    },
    "unbounded": {
        "cuda": {**_PHOTOS, **_SETTLING, **_AMIDST, **FOUND_POSES["cuda"], "field.num_voxels": 320**3},
        "cpu": {**_PHOTOS, **_AMIDST, **FOUND_POSES["cpu"], "field.num_voxels": 112**3},
    },
}

# Poses in a box that are learned need the whole run, and a scene that follows them: with rates that fall to a fiftieth
# a decibel is lost.
LEARNED_POSES: Mapping[str, float] = {"train.lr_decay": 0.1, "loss.tv_color": 0.0, "sampler.rays_per_pixel": 1}
MOST_VOXELS_WITH_POSES = 256**3

# Where a field is another one than the kind's settings were found with: coefficients of harmonics are colour, and
# smoothed as features are they lose three decibels; features that are decoded sample by sample keep their rate.
OWN: Mapping[tuple[str, str], Mapping[str, float]] = {
    ("forward", "voxel_sh"): {"loss.tv_density": 1e-5, "loss.tv_color": 1e-5, "loss.distortion": 0.0},
    ("unbounded", "voxel_mlp"): {"field.lr_features": 0.1},
}

# Behind the scene of each kind: where photos are full to the edge, a random colour leaves no ray half transparent.
BACKGROUNDS = {"box": "white", "forward": "random", "unbounded": "learned"}


def choose(device: str, field: str, seconds: float | None) -> Recipe:
    """The recipe for cuda or cpu, a field or auto, and a budget; None is a run of so many steps.

    A field that is asked for beyond the budgets for which it is best keeps the settings of its longest one.
    """
    rows = [recipe for recipe in RECIPES if recipe.device == device and field in ("auto", recipe.field)]
    return next((recipe for recipe in rows if (seconds or SECONDS_OF_STEPS) <= recipe.up_to), rows[-1])


def fill_in(config: Config, device: str, kind: str) -> Config:
    """The config with the device's budget where none is given, and its recipe's value for each setting that is None.

    kind: of the scene, box, forward or unbounded.
    """
    steps, seconds = config.train.steps, config.train.max_seconds
    if steps is None and seconds is None:
        steps, seconds = (DEFAULT_STEPS_CUDA, None) if device == "cuda" else (None, DEFAULT_SECONDS_CPU)
    recipe = choose(device, config.field.name, seconds)
    groups = {name: asdict(getattr(config, name)) for name in CHOSEN_GROUPS}
    groups["train"] |= {"steps": steps, "max_seconds": seconds}
    if config.field.name == "auto":  # which has what all fields share
        groups["field"] = asdict(FIELDS[recipe.field]()) | groups["field"]
    groups["field"]["name"] = recipe.field
    background = config.dataset.background
    if background == "auto":
        background = BACKGROUNDS[kind]
    chosen = {**DEFAULTS, **recipe.settings, **KINDS[kind][device], **OWN.get((kind, recipe.field), {})}
    if kind == "box" and config.poses.mode == "refine":
        chosen |= LEARNED_POSES
        chosen["field.num_voxels"] = min(chosen["field.num_voxels"], MOST_VOXELS_WITH_POSES)
        if config.poses.from_run is not None:
            chosen |= FOUND_POSES[device]
    for name, value in chosen.items():
        group, leaf = name.split(".")
        if leaf in groups[group] and groups[group][leaf] is None:  # what a kind needs is not in every field
            groups[group][leaf] = value
    return replace(
        config,
        dataset=replace(config.dataset, kind=kind, background=background),
        field=FIELDS[recipe.field](**groups["field"]),
        loss=replace(config.loss, **groups["loss"]),
        occupancy=replace(config.occupancy, **groups["occupancy"]),
        poses=replace(config.poses, **groups["poses"]),
        sampler=replace(config.sampler, **groups["sampler"]),
        train=replace(config.train, **groups["train"]),
    )
