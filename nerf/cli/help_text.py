"""The text of --help, and the list of settings.

The values of settings that are not given come from the recipes (nerf/config/recipe_words.py).
"""

import dataclasses
import textwrap

from nerf.config import schema as settings
from nerf.config.recipe_words import defaults_in_words
from nerf.config.recipes import SECONDS_OF_STEPS
from nerf.files import CONFIGS

GROUPS = {
    "dataset": settings.DatasetConfig,
    "field": settings.FieldConfig,
    "poses": settings.PosesConfig,
    "experiment": None,
}

OPEN_SETTINGS = (
    "A setting that is none or auto and not given becomes what stands behind it: the value whose conditions, in "
    "brackets, all hold, else the last one. They name the device, the kind of scene (dataset.kind), whether and from "
    "where poses are learned, the field, and the training seconds (a run of train.steps alone counts as "
    f"{SECONDS_OF_STEPS:g} s)."
)


def leaves(cls: type, field_name: str, prefix: str = "") -> list[tuple[str, dataclasses.Field]]:
    """Every setting: its name on the command line and its dataclass field."""
    result = []
    for f in dataclasses.fields(cls):
        node = f.default_factory if f.default is dataclasses.MISSING else None
        if isinstance(node, type) and issubclass(node, settings.FieldConfig):
            node = settings.FIELDS.get(field_name, node)
        if dataclasses.is_dataclass(node):
            result += leaves(node, field_name, f"{prefix}{f.name}.")
        else:
            result.append((prefix + f.name, f))
    return result


def setting_names(cls: type, field_name: str) -> list[str]:
    """The names of all settings of a command. field_name: whose field settings are included; "" for the default."""
    return [name for name, _ in leaves(cls, field_name)]


def path_names(cls: type, field_name: str) -> list[str]:
    """The settings that name files or folders."""
    return [name for name, f in leaves(cls, field_name) if f.metadata.get("path")]


def help_text(cls: type, doc: str) -> str:
    """The text of --help: the command's docstring, then every setting with default and meaning."""
    lines = [doc.strip(), "", "Settings, given as name=value:"]
    becomes = defaults_in_words() if "dataset.kind" in setting_names(cls, "") else {}
    rows = dict.fromkeys(
        (name, _default(f), _meaning(f, becomes.get(name)))
        for field_name in settings.FIELDS
        for name, f in leaves(cls, field_name)
        if name != "field.name"
    )
    lines += [f"  {name + '=' + default:<44} {meaning}" for name, default, meaning in rows]
    lines.append(f"  {'hydra.run.dir=DIR':<44} where the files of this run go")
    for group in GROUPS if any(name == "dataset.scene" for name, _, _ in rows) else ():
        options = sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))
        preferred = f"; auto = {becomes['field.name']}" if group == "field" and becomes else ""
        lines.append(f"  {group + '=' + '|'.join(options):<44} a file of configs/{group}{preferred}")
    if becomes:
        lines += ["", *textwrap.wrap(OPEN_SETTINGS, 120)]
    return "\n".join(lines)


def _meaning(f: dataclasses.Field, becomes: str | None) -> str:
    """The meaning of a setting, with its choices. becomes: its value if it is left open."""
    choices = ", ".join(map(str, f.metadata.get("choices", ())))
    meaning = f"{f.metadata['doc']}: {choices}" if choices else f.metadata["doc"]
    left_open = _default(f)
    return f"{meaning}; {left_open} = {becomes}" if becomes and left_open in ("none", "auto") else meaning


def _default(f: dataclasses.Field) -> str:
    value = f.default if f.default is not dataclasses.MISSING else f.default_factory()
    if isinstance(value, list):  # as it is typed
        return f"[{','.join(map(str, value))}]"
    return "none" if value is None else str(value)
