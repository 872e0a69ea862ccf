"""Descriptions of nested plain values and tensors, and checking values by them before anything is made of these.

Sizes are named: the first tensor that has a size `I` says how large it is, and all others have to agree.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

Sizes = dict[str, int]


@dataclass(frozen=True)
class Array:
    """A tensor: dtype, sizes by number or name ("I 3 4", "*": any), and the range of its values, if it has one."""

    dtype: torch.dtype
    shape: str
    low: float = -math.inf
    high: float = math.inf

    def check(self, value: object, sizes: Sizes, where: str) -> None:
        if type(value) is not Tensor or value.layout != torch.strided or value.device.type != "cpu":
            raise ValueError(f"{where} is {_found(value)}, expected a tensor")
        wanted = self.shape.split()
        named = {name: n for name, n in zip(wanted, value.shape) if name.isalpha() and name not in sizes}
        known = sizes | named
        expected = [n if name == "*" else known.get(name, name) for name, n in zip(wanted, value.shape)]
        if value.dtype != self.dtype or len(wanted) != value.dim() or list(map(str, expected)) != _words(value.shape):
            raise ValueError(
                f"{where} is {value.dtype} of shape {list(value.shape)}, expected {self.dtype} of shape "
                f"[{', '.join(str(known.get(name, name)) for name in wanted)}]"
            )
        if value.nbytes > value.untyped_storage().nbytes():  # strides of 0 make any shape of a few bytes
            raise ValueError(f"{where} has fewer values than its shape {list(value.shape)} says")
        sizes |= named
        if value.numel() and (value.is_floating_point() or self.low > -math.inf):
            least, most = (x.item() for x in value.aminmax())  # NaN is both
            if not (self.low <= least and most <= self.high and math.isfinite(least) and math.isfinite(most)):
                limits = "finite numbers" if math.isinf(self.low) else f"{self.low:g} to {self.high:g}"
                raise ValueError(f"{where} holds {least:g} to {most:g}, expected {limits}")


@dataclass(frozen=True)
class Number:
    """A finite number between two others, both included; whole: an int."""

    low: float = -math.inf
    high: float = math.inf
    whole: bool = False

    def check(self, value: object, sizes: Sizes, where: str) -> None:
        kinds = (int,) if self.whole else (int, float)
        if type(value) not in kinds or not (self.low <= value <= self.high and math.isfinite(value)):
            kind = "a whole number" if self.whole else "a number"
            raise ValueError(f"{where} is {_found(value)}, expected {kind} from {self.low:g} to {self.high:g}")


@dataclass(frozen=True)
class Plain:
    """A value of a type of Python, checked further elsewhere."""

    kind: type

    def check(self, value: object, sizes: Sizes, where: str) -> None:
        if type(value) is not self.kind:
            raise ValueError(f"{where} is {_found(value)}, expected a {self.kind.__name__}")


@dataclass(frozen=True)
class Exactly:
    """One value alone."""

    value: object

    def check(self, value: object, sizes: Sizes, where: str) -> None:
        if type(value) is not type(self.value) or value != self.value:
            raise ValueError(f"{where} is {_found(value)}, expected {self.value}")


@dataclass(frozen=True)
class Listed:
    """A list of entries of one kind; count: a number or the name of a size, "*": any."""

    entry: "Entry"
    count: str

    def check(self, value: object, sizes: Sizes, where: str) -> None:
        count = sizes.get(self.count, self.count)
        if type(value) not in (list, tuple) or (self.count != "*" and str(len(value)) != str(count)):
            raise ValueError(f"{where} is {_found(value)}, expected a list of {count}")
        for index, one in enumerate(value):
            self.entry.check(one, sizes, f"{where}[{index}]")


@dataclass(frozen=True)
class Record:
    """A dict that has these entries and no others."""

    entries: Mapping[str, "Entry"]

    def check(self, value: object, sizes: Sizes, where: str) -> None:
        if not isinstance(value, dict):
            raise ValueError(f"{where} is {_found(value)}, expected a dict")
        unknown = [name for name in value if name not in self.entries]
        if unknown:
            raise ValueError(f"{where} has an entry {_found(unknown[0])}, which is unknown")
        for name, entry in self.entries.items():
            if name in value or not isinstance(entry, (Maybe, Older)):
                entry.check(value.get(name), sizes, f"{where}.{name}")


@dataclass(frozen=True)
class Maybe:
    """What may be None or, in a record, absent."""

    entry: "Entry"

    def check(self, value: object, sizes: Sizes, where: str) -> None:
        if value is not None:
            self.entry.check(value, sizes, where)


@dataclass(frozen=True)
class Older:
    """What older files lack: in a record it may be absent, but not None."""

    entry: "Entry"

    def check(self, value: object, sizes: Sizes, where: str) -> None:
        self.entry.check(value, sizes, where)


Entry = Array | Number | Plain | Exactly | Listed | Record | Maybe | Older


def _words(shape: torch.Size) -> list[str]:
    return [str(n) for n in shape]


def _found(value: object) -> str:
    """A value in an error message; what is nested is only named, since it may have no end."""
    if value is None:
        return "missing"
    if isinstance(value, (str, int, float)):
        return repr(value)[:60]
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, (list, tuple, dict)) else "")
