"""The settings of a command line: Hydra composes them of configs/ and overrides, nerf/config/schema.py checks them."""

import dataclasses
import difflib
import itertools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.callbacks import Callbacks
from hydra.core import utils
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import HydraContext, RunMode
from omegaconf import MISSING, DictConfig, OmegaConf, open_dict, read_write

from nerf.cli.help_text import GROUPS, leaves, setting_names
from nerf.cli.job import FOUND, build
from nerf.cli.overrides import listed_values, lists_values
from nerf.config import renamed
from nerf.config import schema as settings
from nerf.config.settings import unknown_setting
from nerf.errors import UserError, is_of_memory
from nerf.files import CONFIGS


@dataclass(frozen=True)
class Composed:
    """The settings of a command line."""

    checked: Any
    own: DictConfig  # as Hydra composes them
    of_hydra: DictConfig  # Hydra's own, such as the folder of the run
    loader: ConfigLoader


def compose(config_name: str, cls: type, overrides: list[str]) -> Any:
    """The settings of a command line, a checked instance of cls; nothing runs. Raises UserError."""
    return composed(config_name, cls, renamed.arguments(overrides)).checked


def composed(config_name: str, cls: type, overrides: list[str]) -> Composed:
    """Composes and checks settings; nothing runs. overrides: in Hydra's grammar. Raises UserError."""
    check_overrides(cls, overrides)
    register(config_name, cls)
    with hydra.initialize_config_dir(str(CONFIGS), job_name=config_name, version_base="1.3"):
        try:
            found = hydra.compose(config_name, overrides, return_hydra_config=True)
        except HydraException as error:
            if is_of_memory(error):
                raise
            raise UserError(of_hydra(error)) from error
        loader = GlobalHydra.instance().config_loader()
    with open_dict(found):
        own = found.pop("hydra")
    return Composed(build(cls, found, overrides), found, own, loader)


def run_job(task: Callable[[Any], None], settings: Composed, folder: str | None) -> None:
    """Runs a task as Hydra's launchers do; hydra.main would compose its settings twice more.

    folder: of the run, in place of the composed one.
    """
    config, own = settings.own, settings.of_hydra
    with read_write(own), open_dict(own):
        own.mode = RunMode.RUN
        own.run.dir = folder or own.run.dir
    if folder is None and Path(own.run.dir).is_dir():
        FOUND.add(Path(own.run.dir).absolute())
    with open_dict(config):
        config["hydra"] = own
    context = HydraContext(settings.loader, Callbacks(config))
    launched = utils.run_job(task, config, "hydra.run.dir", None, context)
    _ = launched.return_value  # raises what the task has raised


def register(config_name: str, cls: type) -> None:
    store, node = ConfigStore.instance(), cls()
    if hasattr(node, "dataset"):  # configs/dataset and configs/field fill these in
        node.dataset.scene = MISSING  # dataset=blender alone names none
        node.field = settings.FieldConfig()
    store.store(name=f"{config_name}_settings", node=_open_to_old_names(OmegaConf.structured(node)))
    groups = OmegaConf.create({"dataset": settings.DatasetConfig(scene=MISSING), "poses": settings.PosesConfig()})
    _open_to_old_names(groups)
    store.store(group="dataset", name="blender_settings", node=groups.dataset)
    store.store(group="poses", name="poses_settings", node=groups.poses)
    for name, field in settings.FIELDS.items():
        store.store(group="field", name=f"{name}_settings", node=field)


def check_overrides(cls: type, overrides: list[str], sweep: bool = False) -> None:
    """Answers a mistyped name or choice before Hydra does, with the nearest right one."""
    groups = {g for g in GROUPS if any(f.name == g for f in dataclasses.fields(cls))} | {"experiment"}
    chosen = dict(o.split("=", 1) for o in overrides if "=" in o)
    fields = listed_values(f"field={chosen['field']}") if chosen.get("field") else [""]
    types = {name: str(leaf.type) for field in fields for name, leaf in leaves(cls, field)}
    known = [*(name for field in fields for name in setting_names(cls, field)), *sorted(groups)]
    for override in overrides:
        name, equals, value = override.partition("=")
        name = name.lstrip("+~")
        if not equals:
            raise UserError(f"'{override}' is not name=value; for example dataset=lego or train.steps=1000.")
        if not sweep and name in known and lists_values(override):
            lists = {n for field in fields for n, f in leaves(cls, field) if "list" in str(f.type)}
            as_list = f", or write {name}=[{value}], which is one list" if name in lists else ""
            raise UserError(f"{override} gives several values; give -m too for one run with each of them{as_list}.")
        if name in groups:
            options = sorted(path.stem for path in (CONFIGS / name).glob("*.yaml"))
            values = () if lists_values(override) and listed_values(override) == [value] else listed_values(override)
            for one in values:
                if one not in options:
                    near = difflib.get_close_matches(one, options, n=1)
                    hint = f" Did you mean {name}={near[0]}?" if near else ""
                    raise UserError(f"{name}={one}: there is no such {name}; choose one of {', '.join(options)}.{hint}")
        elif not name.startswith(("hydra.", "hydra/")) and name not in known:
            of_fields = {field: setting_names(cls, field) for field in settings.FIELDS}
            owners = " or ".join(f"field={field}" for field, names in of_fields.items() if name in names)
            if owners:
                raise UserError(f"{name} is a setting of {owners}; give {owners} too.")
            raise UserError(unknown_setting(name, [*known, *itertools.chain(*of_fields.values())]))
        elif not sweep and name in types:
            expected = what_is_expected(value, types[name])
            if expected is not None:
                raise UserError(f"{override}: expected {expected}.")


def what_is_expected(value: str, kind: str) -> str | None:
    """What a value on the command line should be for a setting of a type, in words; None where it may be that.

    kind: as it is annotated, such as int | None. What is quoted or interpolated is left to Hydra.
    """
    names = set(kind.removeprefix("<class '").removesuffix("'>").replace("|", " ").split())
    if value.lower() in ("", "null", "none") or any(sign in value for sign in "$'\""):
        return None
    if "list" in kind:
        return None if value.startswith("[") else f"a list, such as [{value}]"
    if "bool" in names:
        known = ("true", "false", "yes", "no", "on", "off", "y", "n", "1", "0")
        return None if value.lower() in known else "true or false"
    power = re.fullmatch(r"(\d{1,6})(?:\^|\*\*)(\d)", value)
    number = float(power[1]) ** int(power[2]) if power else _number(value)
    if "int" in names and "float" not in names:
        is_whole = re.fullmatch(r"[+-]?\d+(_\d+)*", value)
        example = f", such as {number:.0f}" if number is not None and math.isfinite(number) else ""
        return None if is_whole else f"a whole number{example}"
    if "float" in names and (power or number is None):
        return f"a number, such as {number:.0f}" if power else "a number"
    return None


def _number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _open_to_old_names(node: DictConfig) -> DictConfig:
    """Groups with settings that were renamed take any name from a config file; settings.build answers for them."""
    for group in renamed.GROUPS & node.keys():
        OmegaConf.set_struct(node[group], False)
    return node


def of_hydra(error: HydraException) -> str:
    reasons = dict.fromkeys(str(e).splitlines()[0] for e in (error, error.__cause__) if e)
    return f"{': '.join(reasons)}; see --help for what each setting takes."
