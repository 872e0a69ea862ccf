"""What a setting is: its meaning, its legal values, and the words for a value or a name that is none."""

import dataclasses
import difflib
import math
import types
import typing
from pathlib import Path
from typing import Any

from nerf.errors import UserError
from nerf.reading import is_path

# What is written for a choice by those who know it by another name.
SYNONYMS = {"gpu": ("cuda",), "nvidia": ("cuda",), "pytorch": ("torch",), "python": ("torch",)}


def setting(
    default: Any,
    doc: str,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    path: bool = False,
) -> Any:
    """A dataclass field with its meaning and its legal values.

    path: it names a file or a folder, in which any letter may stand.
    """
    metadata = {"doc": doc, "low": low, "high": high, "choices": choices, "path": path}
    return dataclasses.field(default=default, metadata=metadata)


def unknown_setting(name: str, known: list[str]) -> str:
    """The sentence that answers a mistyped setting."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"; did you mean '{near[0]}'?" if near else "; see --help for all of them."
    return f"there is no setting '{name}'{hint}"


def checked(name: str, value: Any, hint: Any, rules: Any) -> Any:
    """The value of a setting of that type and these rules (the field's metadata). Raises UserError if it is none."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and types.NoneType in options:
        return None
    kind = next(option for option in options if option is not types.NoneType)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    base = typing.get_origin(kind) or kind
    if not isinstance(value, base) or (base is int and isinstance(value, bool)):
        raise UserError(f"{name}={value!r} is a {type(value).__name__}, expected {getattr(kind, '__name__', kind)}.")
    if base is list:
        (entry,) = typing.get_args(kind) or (object,)
        value = [checked(f"{name}[{index}]", one, entry, {}) for index, one in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{name}={value} is no number to compute with, expected a finite one.")
    if rules.get("path"):
        value = place(name, value)
    low, high, choices = rules.get("low"), rules.get("high"), rules.get("choices")
    if choices and value not in choices:
        meant = [known for known in choices if known in SYNONYMS.get(str(value).lower(), ())]
        near = meant or difflib.get_close_matches(str(value), map(str, choices), n=1)
        hint_text = f" Did you mean '{near[0]}'?" if near else ""
        raise UserError(f"{name}={value} is unknown; choose one of {', '.join(map(str, choices))}.{hint_text}")
    if (low is not None and value < low) or (high is not None and value > high):
        limits = f"at least {low}" if high is None else f"{low} to {high}"
        raise UserError(f"{name}={value} is out of range, expected {limits}.")
    return value


def place(name: str, value: str) -> str:
    """What a path that is given stands for: ~ is the home folder, which no shell expands behind a dotted name.

    That there is such a file or folder is not asked. Raises UserError where the value can name none.
    """
    try:
        expanded = value if value[:1] != "~" else str(Path(value).expanduser())
    except RuntimeError:  # ~NAME of nobody here
        expanded = None
    if expanded is None or (expanded and not is_path(expanded)):
        raise UserError(f"{name}={value[:60]!r} names no file or folder that there could be; correct it.")
    return expanded
