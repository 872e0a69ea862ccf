"""Settings by the names that the command line has for them, for programs and notebooks."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from nerf.config import renamed
from nerf.config.schema import Config, build
from nerf.config.settings import unknown_setting
from nerf.errors import UserError

# What a group's own name means on a command line.
GROUP_NAMES = {"dataset": "dataset.scene", "field": "field.name", "poses": "poses.mode"}


def settings(values: Mapping[str, Any]) -> Config:
    """The settings of a run by the names of the command line: {"dataset": "lego", "train.max_seconds": 60}.

    Raises UserError for an unknown name (with the nearest right one), a wrong type or a value out of range.
    """
    groups = {name: vars(default) for name, default in vars(Config()).items() if is_dataclass(default)}
    nested: dict[str, Any] = {}
    for name, value in renamed.flat(values, renamed.tell).items():
        group, dot, leaf = GROUP_NAMES.get(name, name).partition(".")
        if dot != ("." if group in groups else ""):
            raise UserError(unknown_setting(name, [f"{known}.{leaf}" for known in groups for leaf in groups[known]]))
        if dot:
            nested.setdefault(group, {})[leaf] = value
        else:
            nested[group] = value
    dataset = nested.get("dataset", {})
    if dataset.get("root") and "scene" not in dataset:
        dataset["scene"] = Path(dataset["root"]).name
    return build(Config, nested)
