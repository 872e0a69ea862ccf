"""What settings become that nobody gives, in words: asked of the recipes, so that --help says what a run does."""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from nerf.config.fields import known_fields, settings_of
from nerf.config.recipes import (
    BACKGROUNDS,
    BUDGET,
    DEFAULT_SECONDS_CPU,
    DEFAULT_STEPS_CUDA,
    KINDS,
    UPSAMPLE_AT,
    choose,
    flat,
    resolve_config,
)
from nerf.config.schema import Config, DatasetConfig, PosesConfig, TrainConfig

DEVICES = {"GPU": "cuda", "CPU": "cpu"}
# Poses that are learned change what a bounded scene needs, and those that an experiment makes wrong do once more.
POSES = {
    "poses=fixed": {},
    "poses=refine": {"mode": "refine"},
    "poses.perturb_degrees": {"mode": "refine", "perturb_degrees": 2.0},
}
# What follows from other settings (recipes.resolve_config).
DERIVED = {
    "field.upsample_at": f"{', '.join(f'{x:g}' for x in UPSAMPLE_AT)}; from an initial_num_voxels on, at even times up "
    f"to {UPSAMPLE_AT[-1]:g}, where poses are learned up to poses.coarse_to_fine_end"
}
Case = tuple[str, ...]  # a label on each axis: device, kind, poses, field, budget
Table = Mapping[Case, str]  # a setting's value in each case, as it is typed


def defaults_in_words() -> dict[str, str]:
    """For each setting whose default depends on device, kind of scene, poses, field or budget: how.

    "0.02 (GPU, over 20 s), 0.03 (GPU, forward_facing), else 0.1": in brackets stands what has to hold together.
    """
    words = {name: _in_words(table) for name, table in tables().items() if name not in DERIVED}
    preferred = {
        (label, budget): choose(device, "auto", seconds).field
        for (label, device), (budget, seconds) in itertools.product(DEVICES.items(), budgets().items())
    }
    return (
        words
        | DERIVED
        | {
            "train.steps": f"{DEFAULT_STEPS_CUDA} on a GPU, as many as {DEFAULT_SECONDS_CPU:g} s allow on a CPU",
            "dataset.background": _in_words({(kind,): background for kind, background in BACKGROUNDS.items()}),
            "field.name": _in_words(preferred),
        }
    )


def tables() -> dict[str, Table]:
    """For each setting that a recipe fills in: its value in every case."""
    found: dict[str, dict[Case, str]] = {}
    spans = budgets()
    for label, kind, poses, field in itertools.product(DEVICES, KINDS, POSES, known_fields()):
        device = DEVICES[label]
        if not any(recipe.device == device for recipe in known_fields()[field].recipes):
            continue
        for budget, seconds in spans.items():
            given = Config(
                dataset=DatasetConfig(kind=kind),
                field=settings_of(field)(),
                poses=PosesConfig(**POSES[poses]),
                train=TrainConfig(max_seconds=seconds),
            )
            before, after = (flat(asdict(config)) for config in (given, resolve_config(given, device, kind)))
            for name, value in after.items():
                if before[name] is None and value is not None and name not in BUDGET:
                    found.setdefault(name, {})[label, kind, poses, field, budget] = shown(name, value)
    return found


@functools.cache
def budgets() -> dict[str, float]:
    """The spans of training seconds between which recipes change, from short to long, each with its longest."""
    recipes = [recipe for known in known_fields().values() for recipe in known.recipes]
    ends = sorted({recipe.up_to for recipe in recipes if not math.isinf(recipe.up_to)})
    if not ends:
        return {"any": math.inf}
    labels = [f"{begin:g} to {end:g} s" if begin else f"up to {end:g} s" for begin, end in zip([0, *ends], ends)]
    return dict(zip([*labels, f"over {ends[-1]:g} s"], [*ends, math.inf]))


def shown(name: str, value: object) -> str:
    """A setting's value as it is typed; a cube of voxels by its edge."""
    if value is None:
        return "none"
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if name.endswith("voxels") and value and round(value ** (1 / 3)) ** 3 == value:
        return f"{round(value ** (1 / 3))}^3"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _in_words(table: Table) -> str:
    """The shortest of the ways to tell a table, with one value or another as what holds elsewhere."""
    axes = [axis for axis in range(len(next(iter(table)))) if _matters(table, axis)]
    return min((_told(table, order) for order in itertools.permutations(axes)), key=len)


def _matters(table: Table, axis: int) -> bool:
    """Whether two cases that differ on this axis alone have different values."""
    without: dict[Case, set[str]] = {}
    for case, value in table.items():
        without.setdefault(case[:axis] + case[axis + 1 :], set()).add(value)
    return any(len(values) > 1 for values in without.values())


def _told(table: Table, axes: Sequence[int]) -> str:
    rules = _rules(table, axes)
    if len(rules) == 1:
        return rules[0][1]
    lengths = Counter[str]()
    for conditions, value in rules:
        lengths[value] += len(", ".join(conditions)) + len(value)
    elsewhere = lengths.most_common(1)[0][0]
    told = [f"{value} ({', '.join(conditions)})" for conditions, value in rules if value != elsewhere]
    return ", ".join([*told, f"else {elsewhere}"])


def _rules(table: Table, axes: Sequence[int]) -> list[tuple[list[str], str]]:
    """Conditions that hold together, each one label or several of an axis, and the value; one rule for each case."""
    if not axes or len(set(table.values())) == 1:
        return [([], next(iter(table.values())))]
    parts: dict[str, dict[Case, str]] = {}
    for case, value in table.items():
        parts.setdefault(case[axes[0]], {})[case] = value
    alike: dict[str, tuple[list[str], list[tuple[list[str], str]]]] = {}  # labels under which the same rules hold
    for label, part in parts.items():
        rules = _rules(part, axes[1:])
        alike.setdefault(repr(rules), ([], rules))[0].append(label)
    if len(alike) == 1:
        return next(iter(alike.values()))[1]
    return [([_one_of(labels), *conditions], value) for labels, rules in alike.values() for conditions, value in rules]


def _one_of(labels: Sequence[str]) -> str:
    """Spans of a budget that follow each other are one."""
    spans = list(budgets())
    first, last = (spans.index(label) if label in spans else -1 for label in (labels[0], labels[-1]))
    if len(labels) == 1 or first < 0 or last - first + 1 != len(labels):
        return " or ".join(labels)
    begin, end = labels[0].partition(" to ")[0], labels[-1].split(" ")[-2]
    if first == 0:
        return f"up to {end} s"
    return f"over {begin} s" if last == len(spans) - 1 else f"{begin} to {end} s"
