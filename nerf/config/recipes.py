"""What settings become that nobody gives: by device, field, budget and kind of scene.

A setting whose best value depends on these has the default None. Its value comes from the field's own file
(config.fields.Recipe), and from here where the kind of scene decides for all fields; what a user gives is left alone.
`auto` takes the first recipe of its device that reaches the budget, so the order of the fields says which one wins. The
measurements behind a value stand in docs/log.md and the logs beside it.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from nerf.config.fields import Recipe, known_fields, settings_of
from nerf.config.schema import Config
from nerf.errors import UserError

DEFAULT_STEPS_CUDA = 30_000
DEFAULT_SECONDS_CPU = 38.0
BUDGET = ("train.steps", "train.max_seconds")  # of which one may be none
MOST_SECONDS = 1e9  # that a recipe can be asked for
UPSAMPLE_AT = (0.04, 0.08, 0.13, 0.18)  # field.upsample_at where no first grid is asked for
SECONDS_OF_STEPS = 60.0  # what a run of so many steps, not seconds, is taken to last
BUDGETS = (2.0, 5.0, 15.0, 60.0, 300.0)  # seconds: those of the curve, and of configs/experiment/seconds_*.yaml


# Of scenes that are not bounded: opaque photos, and few of each place.
_PHOTOS = {
    "loss.tv_density": 1e-5,
    "loss.tv_color": 1e-5,
    "loss.opacity_entropy": 0.0,
    "field.diffuse": True,
    "sampler.rays_per_pixel": 1,  # edges in photos are soft
}
# Few views that differ little overfit: color and one more feature, with total variation to the end.
_FORWARD_FACING = {
    "loss.tv_until": 1.0,
    "loss.tv_color": 3e-4,
    "field.feature_channels": 4,
    "field.view_frequencies": 1,
}
# Poses from structure from motion or from another run are nearly correct, as are all that no experiment has perturbed.
# Optimized before the scene has formed, they drift with it.
_NEARLY_CORRECT = {
    "poses.lr": 3e-4,
    "poses.start": 0.3,
    "poses.coarse_to_fine_end": 0.18,
    "poses.view_dependence_start": 0.0,
}
NEARLY_CORRECT_POSES = {
    "cuda": {**_NEARLY_CORRECT, "poses.initial_num_voxels": 2_000_000},
    "cpu": {**_NEARLY_CORRECT, "poses.initial_num_voxels": 100_000},
}
# Every ray hits something, and some of it is in few photos: total variation over all vertices outweighs its noise, and
# features with a lower learning rate overfit less.
_UNBOUNDED = {
    "loss.distortion": 0.01,
    "loss.grad_scaling_distance": 2.0,
    "loss.tv_until": 0.5,
    "loss.tv_global": 1e-4,
    "loss.alpha": 4e-4,
    "field.lr_features": 0.015,
}
# Larger batches and a deeper network help only with views all around one object.
_FORWARD_FACING_CUDA = {"train.rays_per_step": 16384, "field.hidden_layers": 2}
# A low learning rate at the end removes noise in empty space, which costs SSIM; the squared error alone neglects faint
# textures. On a CPU there are too few passes over the pixels for the first.
_UNBOUNDED_CUDA = {
    "train.rays_per_step": 32768,
    "field.hidden_layers": 2,
    "train.lr_decay": 0.01,
    "loss.pair_ssim": 0.004,
}
# More rays for pruning, where updates are few.
_CPU = {"occupancy.rays_per_surface_cell": 12}
CHOSEN_GROUPS = ("field", "loss", "occupancy", "poses", "sampler", "train")  # of settings
DEFAULTS = {
    "loss.tv_density": 0.0,
    "loss.tv_color": 0.0,
    "loss.tv_until": 0.5,
    "loss.tv_global": 0.0,
    "loss.pair_ssim": 0.0,
    "loss.alpha": 0.0,
    "loss.distortion": 0.0,
    "loss.multi_view": 0.0,
    "loss.grad_scaling_distance": 0.0,
    "field.initial_num_voxels": 0,
    "field.lr_density": 0.2,
    "field.sparse": False,
    "occupancy.min_weight": 0.002,
    "occupancy.rays_per_surface_cell": 8,
    "occupancy.update_interval": 0.06,
    "train.lr_decay": 0.1,
    "train.average_from": 1.0,
    "train.average_lr": 0.5,
    "train.moments": "float32",
    "sampler.rays_per_pixel": 1,
    "poses.lr": 3e-3,
    "poses.start": 0.0,
    "poses.initial_num_voxels": 1000,
    "poses.coarse_to_fine_end": 0.25,
    "poses.view_dependence_start": 0.25,
}

# What each kind of scene needs beside the recipe.
KINDS: Mapping[str, Mapping[str, Mapping[str, int | float | str]]] = {
    "bounded": {"cuda": {}, "cpu": _CPU},
    "forward_facing": {
        "cuda": {
            **_PHOTOS,
            **_FORWARD_FACING,
            **_FORWARD_FACING_CUDA,
            **NEARLY_CORRECT_POSES["cuda"],
            "field.num_voxels": 640**3,
            # On a CPU there are too few steps for these.
            "field.lr_features": 0.01,
            "train.lr_decay": 0.03,
            "loss.tv_density": 1.5e-5,
            "loss.tv_color": 1e-3,
            "loss.pair_ssim": 0.006,
        },
        "cpu": {
            **_CPU,
            **_PHOTOS,
            **_FORWARD_FACING,
            **NEARLY_CORRECT_POSES["cpu"],
            "field.num_voxels": 128**3,
        },
    },
    "unbounded": {
        "cuda": {
            **_PHOTOS,
            **_UNBOUNDED_CUDA,
            **_UNBOUNDED,
            **NEARLY_CORRECT_POSES["cuda"],
            "field.num_voxels": 320**3,
        },
        "cpu": {
            **_CPU,
            **_PHOTOS,
            **_UNBOUNDED,
            **NEARLY_CORRECT_POSES["cpu"],
            "field.num_voxels": 112**3,
        },
    },
}

# Poses optimized in a bounded scene need the whole run, and a scene that follows them: where learning rates fall to a
# fiftieth, a decibel is lost. Beside nearly correct ones the scene has the settings of given poses but for these, by
# which it gains a decibel; photos have some of them.
PHOTOS_BESIDE_NEARLY_CORRECT = ("field.lr_mlp", "field.lr_muon", "train.average_from", "train.average_lr")
LEARNED_POSES: Mapping[str, float] = {"train.lr_decay": 0.1, "loss.tv_color": 0.0, "sampler.rays_per_pixel": 1}
MOST_VOXELS_WITH_POSES = 256**3

# Features in host memory: rows of sparse grids, and neither smoothing nor averages that visit all of them.
FEATURES_IN_HOST_MEMORY: Mapping[str, float] = {
    "field.sparse": True,
    "loss.tv_until": 1.0,
    "train.average_from": 1.0,
}

# Around an object on a bare table nothing has texture that tells depth. Smoothing alone holds floaters back there, and
# weighs more where gradients are scaled down.
BARE_SURROUNDINGS: Mapping[str, float] = {"loss.grad_scaling_distance": 5.0}

# Which are looked up on the device.
PHOTOS_IN_HOST_MEMORY: Mapping[str, float] = {"loss.multi_view": 0.0}

# By kind of scene. Behind opaque photos a random color leaves no ray half transparent.
BACKGROUNDS = {"bounded": "white", "forward_facing": "random", "unbounded": "learned"}


@dataclass(frozen=True)
class PhotoFacts:
    """What the photos of a run tell, beside the kind of scene, that settings depend on."""

    many_passes: bool = False  # over their pixels (runs.resolve)
    bare: bool = False  # what lies around the object has hardly any texture (SceneDescription)


NO_FACTS = PhotoFacts()


def followed(config: Config, device: str, seconds: float | None) -> tuple[str, float | None]:
    """Device and budget whose recipe the config follows: those of the run, or those that train.recipe names.

    device: cuda or cpu. seconds: the run's own, None for a run of so many steps. Raises UserError for a train.recipe
    of another form.
    """
    named = config.train.recipe
    if named == "auto":
        return device, seconds
    match = re.fullmatch(r"(cuda|cpu)_(\d+(?:\.\d+)?)", named)
    if match is None or not 0 < float(match[2]) <= MOST_SECONDS:
        raise UserError(
            f"train.recipe={named}, expected auto, or cuda or cpu and a number of seconds such as cuda_15 or cpu_60."
        )
    return match[1], float(match[2])


def choose(device: str, field: str, seconds: float | None) -> Recipe:
    """The recipe for cuda or cpu, a field or auto, and a budget; None is a run of so many steps.

    A field that is asked for beyond the budgets for which it is best keeps the settings of its longest one. Raises
    UserError where a field has no recipe for the device.
    """
    known = known_fields()
    named = known.values() if field == "auto" else [known[field]]
    rows = [recipe for settings in named for recipe in settings.recipes if recipe.device == device]
    if not rows:
        raise UserError(
            f"field={field} has no recipe for {device}; expected one in the FieldSettings of its file: "
            f'Recipe("{device}", "{field}", math.inf, {{"field.num_voxels": 80**3, "train.rays_per_step": 4096}}).'
        )
    return next((recipe for recipe in rows if (seconds or SECONDS_OF_STEPS) <= recipe.up_to), rows[-1])


def layers(
    config: Config, recipe: Recipe, device: str, kind: str, facts: PhotoFacts = NO_FACTS
) -> list[tuple[str, Mapping[str, int | float | str]]]:
    """What gives open settings their values, each with its name; a later layer goes before an earlier one."""
    limit = f" up to {recipe.up_to:g} s" if math.isfinite(recipe.up_to) else ""
    found = [
        (f"recipe of {recipe.field} on {device}{limit}", recipe.settings),
        (f"{kind} scenes on {device}", KINDS[kind][device]),
        (f"{recipe.field} in {kind} scenes", known_fields()[recipe.field].of_kind.get(kind, {})),
    ]
    nearly_correct = config.poses.mode == "refine" and not config.poses.perturbed
    of_kind = recipe.of_kind.get(kind, {})
    if nearly_correct and kind != "bounded":
        of_kind = {name: of_kind[name] for name in PHOTOS_BESIDE_NEARLY_CORRECT if name in of_kind}
    if config.poses.mode == "fixed" or nearly_correct:
        found.append((f"{recipe.field} in {kind} scenes on {device}{limit}", of_kind))
    if facts.many_passes and device == "cpu" and config.poses.mode == "fixed":
        found.append(("many passes over the pixels", known_fields()[recipe.field].many_passes.get(kind, {})))
    if facts.bare and kind == "unbounded":
        found.append(("bare surroundings", BARE_SURROUNDINGS))
    if kind == "bounded" and config.poses.mode == "refine":
        own = recipe.settings.get("field.num_voxels", MOST_VOXELS_WITH_POSES)
        found.append(("learned poses", {**LEARNED_POSES, "field.num_voxels": min(own, MOST_VOXELS_WITH_POSES)}))
        if nearly_correct:
            found.append(("poses that are nearly correct", NEARLY_CORRECT_POSES[device]))
    if config.train.features == "host":
        found.append(("features in host memory", FEATURES_IN_HOST_MEMORY))
    if config.train.images == "host":
        found.append(("photos in host memory", PHOTOS_IN_HOST_MEMORY))
    return found


def sources(given: Config, resolved: Config, device: str, facts: PhotoFacts = NO_FACTS) -> dict[str, str]:
    """Where each value of a resolved config comes from, by the setting's name on the command line."""
    kind = resolved.dataset.kind
    of_device, seconds = followed(given, device, given.train.max_seconds)
    recipe = choose(of_device, given.field.name, seconds)
    own, defaults = flat(asdict(given)), flat(asdict(type(given)(field=type(resolved.field)())))
    found = {}
    for name, value in flat(asdict(resolved)).items():
        before = own.get(name)
        if before not in (None, "auto") and before == value:
            found[name] = "default" if before == defaults[name] else "given"
        elif value == defaults[name]:
            found[name] = "default"
        else:
            with_storage = replace(given, train=replace(given.train, images=resolved.train.images))
            found_in = layers(with_storage, recipe, of_device, kind, facts)
            named = [label for label, settings in found_in if name in settings]
            found[name] = named[-1] if named else _other_source(name, kind, device)
    return found


def _other_source(name: str, kind: str, device: str) -> str:
    """Of a value that no layer of recipes gives."""
    if name in DEFAULTS:
        return "default"
    known = {
        "train.steps": f"default budget on {device}",
        "train.max_seconds": f"default budget on {device}",
        "field.name": f"field=auto on {device}",
        "field.upsample_at": "field.num_voxels and the voxels of the first grid",
        "dataset.kind": "what the data say",
        "dataset.background": f"{kind} scenes",
        "train.images": f"room on the {device}",
        "train.features": f"room on the {device}",
    }
    return known.get(name, "what the data say")


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their names on the command line."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return found


def resolve_config(config: Config, device: str, kind: str | None = None, facts: PhotoFacts = NO_FACTS) -> Config:
    """The config with every open setting filled in.

    A budget that is not given is the device's, a setting that is None takes its recipe's value, and where poses are
    learned, or the first grid's number of voxels is known, field.upsample_at becomes the schedule of coarse_to_fine.

    device: cpu or cuda. kind: of the scene, bounded, forward_facing or unbounded, for which dataset.kind=auto stands;
    None: bounded. facts: what the photos tell beside it. Raises UserError if a setting is open that the recipe gives no
    value for.
    """
    if kind is None:
        kind = "bounded" if config.dataset.kind == "auto" else config.dataset.kind
    config = _filled_in(config, device, kind, facts)
    field, poses = config.field, config.poses
    if poses.mode != "fixed":
        doublings_at = coarse_to_fine(poses.initial_num_voxels, poses.coarse_to_fine_end, field.num_voxels)
    elif field.upsample_at is not None:
        return config
    elif field.initial_num_voxels:
        doublings_at = coarse_to_fine(field.initial_num_voxels, UPSAMPLE_AT[-1], field.num_voxels)
    else:
        doublings_at = list(UPSAMPLE_AT)
    return replace(config, field=replace(field, upsample_at=doublings_at))


def coarse_to_fine(first: int, end: float, num_voxels: int) -> list[float]:
    """The coarse-to-fine schedule: fractions of the run at which the number of voxels doubles, evenly spaced up to end.

    Coarse voxels come first because photos that do not surround a place say little about depths: fine voxels then
    explain them by fog before the cameras, where coarse ones cannot. And the gradient on a pose points the right way
    only if the photo is off by less than about a voxel (compare Lin et al. 2021, section 3.2).
    """
    doublings = max(0, round(math.log2(num_voxels / first)))
    return [round(end * (count + 1) / doublings, 4) for count in range(doublings)]


def _filled_in(config: Config, device: str, kind: str, facts: PhotoFacts) -> Config:
    """The config with the device's budget where none is given, and its recipe's value for each setting that is None."""
    steps, seconds = config.train.steps, config.train.max_seconds
    if steps is None and seconds is None:
        steps, seconds = (DEFAULT_STEPS_CUDA, None) if device == "cuda" else (None, DEFAULT_SECONDS_CPU)
    of_device, of_seconds = followed(config, device, seconds)
    recipe = choose(of_device, config.field.name, of_seconds)
    groups = {name: asdict(getattr(config, name)) for name in CHOSEN_GROUPS}
    groups["train"] |= {"steps": steps, "max_seconds": seconds}
    if config.field.name == "auto":  # which has what all fields share
        groups["field"] = asdict(settings_of(recipe.field)()) | groups["field"]
    groups["field"]["name"] = recipe.field
    background = config.dataset.background
    if background == "auto":
        background = BACKGROUNDS[kind]
    chosen = dict(DEFAULTS)
    for _, settings in layers(config, recipe, of_device, kind, facts):
        chosen |= settings
    for name, value in chosen.items():
        group, leaf = name.split(".")
        if leaf in groups[group] and groups[group][leaf] is None:  # what a kind needs is not in every field
            groups[group][leaf] = value
    missing = [f"{group}.{leaf}" for group, leaf in _left_open(groups)]
    if missing:
        raise UserError(
            f"{', '.join(missing)} of field={recipe.field} is none, and its recipe for {of_device} gives no value; "
            "expected one there (config.fields.Recipe), or a default."
        )
    return replace(
        config,
        dataset=replace(config.dataset, kind=kind, background=background),
        field=settings_of(recipe.field)(**groups["field"]),
        loss=replace(config.loss, **groups["loss"]),
        occupancy=replace(config.occupancy, **groups["occupancy"]),
        poses=replace(config.poses, **groups["poses"]),
        sampler=replace(config.sampler, **groups["sampler"]),
        train=replace(config.train, **groups["train"]),
    )


def _left_open(groups: Mapping[str, Mapping[str, object]]) -> list[tuple[str, str]]:
    """The settings of the field, of its losses and of its batches that are still none."""
    open_ones = [(group, leaf) for group in ("field", "loss", "train") for leaf in groups[group]]
    later = (*BUDGET, "field.upsample_at")
    return [(g, leaf) for g, leaf in open_ones if groups[g][leaf] is None and f"{g}.{leaf}" not in later]
