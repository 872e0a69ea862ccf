"""Settings that were renamed: their old names and values go on working wherever a setting is given.

On a command line, in a config file, in Python and in the files of earlier runs. Whoever writes an old name is told the
new one, once.
"""

import functools
import re
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, TypeVar

from nerf.errors import UserError

NAMES: Mapping[str, str] = {  # old to new; a renamed setting stays in its group
    "dataset.hold_out": "dataset.test_every",
    "occupancy.every": "occupancy.update_interval",
    "loss.structure": "loss.pair_ssim",
    "loss.opacity": "loss.alpha",
    "loss.tv_everywhere": "loss.tv_global",
    "loss.near_fade": "loss.grad_scaling_distance",
    "train.supersample_from": "train.antialias_start",
    "poses.slack": "poses.mask_dilation_degrees",
    "poses.coarsest": "poses.initial_num_voxels",
    "poses.finest_at": "poses.coarse_to_fine_end",
    "poses.view_from": "poses.view_dependence_start",
}
VALUES: Mapping[str, Mapping[str, str]] = {  # by the new name of the setting: old to new
    "dataset.kind": {"box": "bounded", "forward": "forward_facing"},
}
GROUPS = {name.partition(".")[0] for name in NAMES}
Settings = TypeVar("Settings")
_told: set[str] = set()  # by this process


def tell(note: str) -> None:
    """One line on stderr, the first time."""
    if note not in _told:
        _told.add(note)
        print(f"note: {note}", file=sys.stderr)


def silent(note: str) -> None:
    """For files that nobody typed."""


def name_of(name: str, say: Callable[[str], None] = silent) -> str:
    """The present name of a setting."""
    if name in NAMES:
        say(f"{name} is now {NAMES[name]}")
    return NAMES.get(name, name)


def value_of(name: str, value: Any, say: Callable[[str], None] = silent) -> Any:
    """The present word for the value of a setting, given by its present name."""
    known = VALUES.get(name, {})
    if not isinstance(value, str) or value not in known:
        return value
    say(f"{name}={value} is now {name}={known[value]}")
    return known[value]


def flat(values: Mapping[str, Any], say: Callable[[str], None] = silent) -> dict[str, Any]:
    """Settings by their names on the command line, in present words. Raises UserError where one is given twice."""
    _refuse_both(list(values))
    found = {name_of(name, say): value for name, value in values.items()}
    return {name: value_of(name, value, say) for name, value in found.items()}


def nested(values: Mapping[str, Any], say: Callable[[str], None] = silent) -> dict[str, Any]:
    """Settings as nested groups, in present words. Raises UserError where one is given twice."""
    return {
        group: _without_group(group, leaves, say) if isinstance(leaves, Mapping) else leaves
        for group, leaves in values.items()
    }


def composed(
    values: Mapping[str, Any], defaults: object, typed: Container[str], say: Callable[[str], None]
) -> dict[str, Any]:
    """Settings as Hydra composes them, where an old name can only be from a config file, in present words.

    Beside an old name the new one stands with its default. typed: names on the command line, which goes before files.
    Raises UserError where files give both.
    """
    groups = {group: dict(leaves) if isinstance(leaves, Mapping) else leaves for group, leaves in values.items()}
    for group in GROUPS & groups.keys():
        for old, new in old_leaves(group).items():
            leaves = groups[group]
            if old in leaves and f"{group}.{new}" in typed:
                del leaves[old]
            elif old in leaves and leaves[new] == getattr(getattr(defaults, group), new):
                del leaves[new]
    return nested(groups, say)


def _without_group(group: str, leaves: Mapping[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    renewed = flat({f"{group}.{leaf}": value for leaf, value in leaves.items()}, say)
    return {name.removeprefix(f"{group}."): value for name, value in renewed.items()}


def arguments(typed: Sequence[str], say: Callable[[str], None] = silent) -> list[str]:
    """A command line's name=value in present words; a value may list several. Raises UserError as flat does."""
    _refuse_both([argument.partition("=")[0].lstrip("+~") for argument in typed])
    return [_argument(argument, say) for argument in typed]


def _argument(argument: str, say: Callable[[str], None]) -> str:
    written, equals, value = argument.partition("=")
    old = written.lstrip("+~")
    name = name_of(old, say)
    if name in VALUES:
        value = re.sub(r"[\w-]+", lambda word: value_of(name, word[0], say), value)
    return written.removesuffix(old) + name + equals + value


def _refuse_both(names: Sequence[str]) -> None:
    both = [name for name in names if NAMES.get(name) in names]
    if both:
        raise UserError(f"{both[0]} is the old name of {NAMES[both[0]]}, and both are given; drop {both[0]}.")


def old_leaves(group: str) -> dict[str, str]:
    """The old names of a group's settings, and the new ones, without the group's."""
    prefix = f"{group}."
    return {old.removeprefix(prefix): new.removeprefix(prefix) for old, new in NAMES.items() if old.startswith(prefix)}


def with_old_names(group: str) -> Callable[[type[Settings]], type[Settings]]:
    """Decorates the dataclass of a group: it takes its settings, and shows them, under their old names too.

    Without it config.dataset.hold_out = 4 would be an attribute that nobody reads.
    """

    def decorate(cls: type[Settings]) -> type[Settings]:
        begin: Callable[..., None] = cls.__init__

        @functools.wraps(begin)
        def init(self: Settings, *args: Any, **given: Any) -> None:
            begin(self, *args, **_without_group(group, given, tell))

        cls.__init__ = init
        for old, new in old_leaves(group).items():
            setattr(cls, old, _alias(f"{group}.{old}", new))
        return cls

    return decorate


def _alias(old: str, new: str) -> property:
    def read(self: object) -> Any:
        name_of(old, tell)
        return getattr(self, new)

    def write(self: object, value: Any) -> None:
        name_of(old, tell)
        setattr(self, new, value)

    return property(read, write, doc=f"The old name of {new}.")
