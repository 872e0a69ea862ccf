"""Arguments of a command line, name=value, converted to Hydra's override grammar.

In that grammar, brackets, commas, quotes and = have a meaning, and letters beyond ASCII are not allowed. So paths are
quoted before Hydra parses them.
"""

import itertools
from collections.abc import Container
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, Quote, QuotedString
from hydra.errors import HydraException

from nerf.config.settings import place
from nerf.reading import is_there

HYDRA_PATHS = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir")
SWEEP_FLAGS = ("--multirun", "-m")


def is_sweep(arguments: list[str]) -> bool:
    """Whether a command line asks for a sweep: one run for each combination of the listed values."""
    return any(argument in SWEEP_FLAGS for argument in arguments)


def with_quoted_path(argument: str, paths: Container[str], sweep: bool) -> str:
    """The argument with a quoted value if it sets one of the paths; other arguments are returned unchanged.

    A value that Hydra already parses as the intended path is not changed, but that ~ is the home folder in Hydra's own
    paths. In a sweep, commas separate paths, unless there is a file or folder of the whole name.
    """
    name, equals, value = argument.partition("=")
    if not value or name.lstrip("+~") not in paths or value in ("null", "none"):
        return argument
    if name.lstrip("+~") in HYDRA_PATHS:  # of the others nerf/config/settings.py makes it
        sweep, value = False, place(name, value)
        argument = name + equals + value
    if not _is_there(value):
        parsed = _parsed(argument)
        read = None if parsed is None else parsed.value()
        if isinstance(read, str) and (read == value or value[0] in "'\"" or "\\" in value):
            return argument
        if sweep and isinstance(read, ChoiceSweep) and all(isinstance(x, str | QuotedString) for x in read.list):
            return argument
        if sweep and "," in value:
            return name + equals + ",".join(quoted(part.strip()) for part in value.split(","))
    return name + equals + quoted(value)


def _is_there(value: str) -> bool:
    try:
        return is_there(Path(value).expanduser())
    except RuntimeError:  # ~NAME of nobody here
        return False


def quoted(text: str) -> str:
    """The text as a string of Hydra's grammar."""
    return QuotedString(text, Quote.single).with_quotes()


def lists_values(argument: str) -> bool:
    """Whether the argument stands for several runs: a,b or choice(a,b) or range(1,4)."""
    parsed = _parsed(argument)
    return parsed is not None and parsed.is_sweep_override()


def listed_values(argument: str) -> list[str]:
    """The values that a sweep over the argument tries; a single value if it lists none."""
    parsed = _parsed(argument)
    read = None if parsed is None else parsed.value()
    if not isinstance(read, ChoiceSweep):
        return [argument.partition("=")[2]]
    return [value.text if isinstance(value, QuotedString) else str(value) for value in read.list]


def runs_of_sweep(arguments: list[str]) -> list[list[str]]:
    """The overrides of each run of a sweep; empty if only Hydra's sweeper can expand them. Raises HydraException."""
    parsed = OverridesParser.create().parse_overrides(arguments)
    choices = []
    for override in parsed:
        if not override.is_sweep_override():
            choices.append([override.input_line])
        elif override.is_range_sweep() or isinstance(override.value(), ChoiceSweep):
            choices.append([f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()])
        else:  # all files of a group, or an interval
            return []
    return [list(run) for run in itertools.product(*choices)]


def _parsed(argument: str) -> Override | None:
    try:
        return OverridesParser.create().parse_override(argument)
    except HydraException:
        return None
