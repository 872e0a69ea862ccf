"""The settings of a run that goes on: its own, with those overrides that do not change its result."""

from pathlib import Path

from omegaconf import OmegaConf

from nerf.cli.hydra_app import own_root
from nerf.config import renamed
from nerf.config.schema import Config
from nerf.errors import UserError
from nerf.files import CONFIGS

BUDGET = ("steps", "max_seconds")  # a finished run may get a larger one
# Overrides that do not change the result of a resumed run.
RESUME_FREE = (
    "resume",
    "hydra.",
    "-",
    "evaluation.",
    "dataset.root",
    "device",  # auto may be another one here: that its random numbers go on is checked when they are read
    "train.features",  # numbers stay, but where features go to host memory the means so far are dropped, with a note
    "train.log_every",
    "train.save_",
    "log",
    "viewer",
    "host",
    "port",
)


def resumed_config(given: Config, saved: Config, overrides: list[str]) -> Config:
    """The saved config with the given overrides. Raises UserError, naming them, if some would change the result."""
    refused = []
    for override in overrides:
        if override.startswith("hydra.run.dir=") and not _same_folder(override.partition("=")[2], given.resume):
            refused.append(f"{override} (it goes on in {given.resume})")
        for name in _names(type(given), override):
            if name == override.lstrip("+").partition("=")[0] and name.removeprefix("train.") in BUDGET:
                continue  # checked by nerf.resume
            if not name.startswith(RESUME_FREE) and _lookup(given, name) != _lookup(saved, name):
                refused.append(f"{override} (of this run: {name}={_lookup(saved, name)})")
            elif name == "device" or name.startswith(("evaluation.", "dataset.", "train.")):
                _set(saved, name, _lookup(given, name))
    if refused:
        raise UserError(
            f"a resumed run keeps its settings, so that it ends as if never stopped; drop {', '.join(refused)}."
        )
    return saved


def _names(cls: type, override: str) -> list[str]:
    """The names of the settings that an override sets: one, or those of an experiment's file."""
    name, _, value = own_root(cls, override.lstrip("+")).partition("=")
    if name != "experiment":
        return [name]
    content = renamed.nested(OmegaConf.to_container(OmegaConf.load(CONFIGS / name / f"{value}.yaml")))
    groups = {group: leaves for group, leaves in content.items() if isinstance(leaves, dict)}
    return [f"{group}.{leaf}" for group in groups for leaf in groups[group]] + sorted(content.keys() - groups.keys())


def _lookup(config: Config, name: str) -> object:
    value: object = config
    for part in name.split("."):
        value = getattr(value, part, None)
    chosen = {"dataset": "scene", "field": "name", "poses": "mode"}  # the setting that a group's file is named after
    return getattr(value, chosen[name]) if name in chosen else value


def _set(config: Config, name: str, value: object) -> None:
    group, _, leaf = name.rpartition(".")
    setattr(getattr(config, group) if group else config, leaf, value)


def _same_folder(one: str, other: str) -> bool:
    """Whether two ways to write a folder mean the same one."""
    return Path(one.strip("'\"")).expanduser().resolve() == Path(other).expanduser().resolve()
