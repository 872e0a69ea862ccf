"""docs/configuration.md: every setting, and what those that are left open become, by device, scene and budget.

Both are asked of the code that a run asks (nerf/config): the dataclasses for meaning, range and default, the recipes
for the rest. So the page cannot say anything else than what a run does.
"""

import dataclasses
from collections.abc import Iterable

from nerf.benchmarks.tables import markdown_table
from nerf.config import recipe_words, renamed
from nerf.config.fields import field_settings, known_fields, settings_of
from nerf.config.recipe_words import defaults_in_words, shown
from nerf.config.recipes import (
    BARE_SURROUNDINGS,
    BUDGET,
    BUDGETS,
    DEFAULT_SECONDS_CPU,
    DEFAULT_STEPS_CUDA,
    KINDS,
    choose,
    flat,
    resolve_config,
)
from nerf.config.schema import Config, DatasetConfig, PosesConfig, TrainConfig
from nerf.runs.resolve import MANY_PASSES, MANY_PIXELS, MOST_THREADS, PIXELS_PER_SECOND

OPEN = "*by recipe*"
DEVICES = {device: label for label, device in recipe_words.DEVICES.items()}
Values = dict[str, object]  # of settings, by their names on the command line


def settings_table(_: list[dict]) -> str:
    """The sections of the page: a table for each group of settings, then one for each device and kind of scene."""
    recipes = {(device, kind): _columns(device, kind) for device in DEVICES for kind in KINDS}
    chosen = {name for columns in recipes.values() for values in columns.values() for name in values}
    words = {name: text for name, text in defaults_in_words().items() if name not in chosen}
    groups = [f for f in dataclasses.fields(Config) if f.default is dataclasses.MISSING]
    plain = [f for f in dataclasses.fields(Config) if f.default is not dataclasses.MISSING]
    parts = ["## The run", _group_table(plain, "", chosen, words)]
    for f in groups:
        parts += [f"## {f.name}", _group_table(dataclasses.fields(f.default_factory), f"{f.name}.", chosen, words)]
        if f.name == "field":
            parts += _own_settings_of_fields(chosen)
    return "\n\n".join([*parts, *_recipes(recipes), *_renamed()])


def _group_table(rows: Iterable[dataclasses.Field], prefix: str, chosen: set[str], words: dict[str, str]) -> str:
    """words: what settings become where no table below tells it."""
    lines = []
    for f in rows:
        default = _default(f)
        meaning = f.metadata["doc"]
        if prefix + f.name in words:
            meaning += f"; {shown(f.name, default)} = {words[prefix + f.name]}"
        value = OPEN if default is None and prefix + f.name in chosen else shown(f.name, default)
        allowed = ", ".join(field_settings()) if prefix + f.name == "field.name" else _range(f)
        lines.append([f"`{prefix}{f.name}`", value, allowed, meaning.replace("|", "\\|")])
    return markdown_table(["setting", "default", "range", "meaning"], lines)


def _own_settings_of_fields(chosen: set[str]) -> list[str]:
    """What each field has beside or other than what all have."""
    shared = {f.name: _default(f) for f in dataclasses.fields(settings_of("auto"))}
    parts = []
    for name, cls in field_settings().items():
        rows = [f for f in dataclasses.fields(cls) if f.name not in shared or shared[f.name] != _default(f)]
        own = [f for f in rows if f.name != "name"]
        if own:
            parts += [f"### field={name}", _group_table(own, "field.", chosen, {})]
    return parts


def _default(f: dataclasses.Field) -> object:
    return f.default if f.default is not dataclasses.MISSING else f.default_factory()


def _range(f: dataclasses.Field) -> str:
    low, high, choices = (f.metadata.get(key) for key in ("low", "high", "choices"))
    if choices:
        return ", ".join(map(str, choices))
    if low is None and high is None:
        return "-"
    return f"at least {low:g}" if high is None else f"{low:g} to {high:g}"


def _recipes(recipes: dict[tuple[str, str], dict[str, Values]]) -> list[str]:
    """What open settings become: a table for each device and kind of scene."""
    parts = [
        "## Defaults by device, scene and budget",
        f"A setting whose default is {OPEN} takes the value below unless one is given. Columns: the default field at "
        "several budgets (training seconds; a run of so many steps counts as 60 seconds), then the other fields. "
        f"Where neither `{BUDGET[0]}` nor `{BUDGET[1]}` is given, a run has {DEFAULT_STEPS_CUDA} steps on a GPU and "
        f"{DEFAULT_SECONDS_CPU:g} seconds on a CPU. What is 0 or false in a whole row is left out.",
        _photo_facts(),
    ]
    for (device, kind), columns in recipes.items():
        merged = _merged(columns)
        names = sorted({name for values in merged.values() for name, value in values.items() if value})
        lines = [[f"`{n}`", *(shown(n, v[n]) if n in v else "-" for v in merged.values())] for n in names]
        parts += [f"### {DEVICES[device]}, {kind}", markdown_table(["setting", *merged], lines)]
        parts += [said for said in [_with_poses(device, kind, columns)] if said]
    return parts


def _photo_facts() -> str:
    """What changes where a CPU sees each training pixel often, and where only an object has texture."""
    changed = [
        f"{name}, {kind}: " + ", ".join(f"`{setting}={value:g}`" for setting, value in values.items())
        for name, known in known_fields().items()
        for kind, values in known.many_passes.items()
    ]
    return (
        f"With fixed poses, a run on a CPU that draws each training pixel {MANY_PASSES} times or more, and "
        f"{MANY_PIXELS / 1e6:g} million in all, changes for {'; '.join(changed)}. A run of seconds is taken "
        f"to draw {PIXELS_PER_SECOND} a second with each of up to {MOST_THREADS} threads, so 100 images of 100x100 "
        "need about a minute on two cores. Where other programs take much of their time, it draws fewer and does "
        "better without. Photos whose sparse points are on the object alone, as of one on a bare table, change "
        + ", ".join(f"`{name}={value:g}`" for name, value in BARE_SURROUNDINGS.items())
        + " in unbounded scenes."
    )


def _renamed() -> list[str]:
    """The old names and values of settings."""
    lines = [[f"`{old}`", f"`{new}`"] for old, new in renamed.NAMES.items()]
    for name, known in renamed.VALUES.items():
        lines += [[f"`{name}={old}`", f"`{name}={new}`"] for old, new in known.items()]
    return [
        "## Renamed settings",
        "Old names go on working: on the command line, in config files, in Python and in the files of earlier runs.",
        markdown_table(["old", "now"], lines),
    ]


def _columns(device: str, kind: str) -> dict[str, Values]:
    default = choose(device, "auto", None).field
    found = {f"{seconds:g} s": _chosen(device, kind, default, seconds) for seconds in BUDGETS}
    able = [name for name, known in known_fields().items() if any(r.device == device for r in known.recipes)]
    return found | {name: _chosen(device, kind, name, None) for name in able if name != default}


def _merged(columns: dict[str, Values]) -> dict[str, Values]:
    """Columns that follow each other and say the same, as one."""
    found: list[tuple[list[str], Values]] = []
    for label, values in columns.items():
        if found and found[-1][1] == values:
            found[-1][0].append(label)
        else:
            found.append(([label], values))
    return {labels[0] if len(labels) == 1 else f"{labels[0]} to {labels[-1]}": values for labels, values in found}


def _with_poses(device: str, kind: str, columns: dict[str, Values]) -> str:
    """Which settings learned poses change, in any of the columns, beside those of poses."""
    default = choose(device, "auto", None).field
    learned = {f"{seconds:g} s": _chosen(device, kind, default, seconds, "refine") for seconds in BUDGETS}
    names = sorted({n for label, values in learned.items() for n in values if values[n] != columns[label].get(n)})
    named = ", ".join(f"`{name}`" for name in names if not name.startswith("poses."))
    said = f"With `poses=refine` the default field has other values of {named}; `dry_run=true` shows them."
    return said if named else ""


def _chosen(device: str, kind: str, field: str, seconds: float | None, poses: str = "fixed") -> Values:
    """What a config that gives nothing else becomes, of the settings that it leaves open.

    Settings of poses are those of a run that learns them: none other reads them.
    """
    if poses == "fixed":
        own = {n: v for n, v in _chosen(device, kind, field, seconds, "refine").items() if n.startswith("poses.")}
        return _of_config(device, kind, field, seconds, poses) | own
    return _of_config(device, kind, field, seconds, poses)


def _of_config(device: str, kind: str, field: str, seconds: float | None, poses: str) -> Values:
    train = TrainConfig(max_seconds=seconds)
    learned = PosesConfig(mode=poses)
    given = Config(dataset=DatasetConfig(kind=kind), field=settings_of(field)(), train=train, poses=learned)
    before, after = (flat(dataclasses.asdict(config)) for config in (given, resolve_config(given, device, kind)))
    left_open = {name: value for name, value in after.items() if before.get(name) is None and name not in BUDGET}
    return {name: value for name, value in left_open.items() if value is not None}
