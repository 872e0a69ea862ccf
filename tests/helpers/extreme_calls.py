"""Calls of every public function of some modules with float32 extremes, found by walking them.

A function is called with N rows that are as they should be but for one argument, which takes each extreme in all of its
numbers, or in its first row alone; and with one row and with none. What it takes is read off its signature: tensors by
the names in extreme_arguments.py, records of this package by the signatures of their constructors.
"""

import dataclasses
import functools
import importlib
import inspect
import itertools
import math
import pkgutil
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Any, NamedTuple

from extreme_arguments import ASKED, COUNTS, NAMES, NUMBERS, PLAIN, ROWS, SHAPES, VALUES, plain
from torch import Tensor

from nerf.errors import UserError
from nerf.scene.contraction import ContractedSpace
from nerf.scene.space import Space

NOT_FINITE = "not finite"


class Unknown(Exception):
    """A parameter that nothing here has a value for; in words that say where to add one."""


class Argument(NamedTuple):
    usual: Callable[[int], Any]  # of n rows
    extremes: list[tuple[str, float, Callable[[], Any]]]  # in words, the extreme itself, and what holds it


class Call(NamedTuple):
    words: str
    kind: str  # of extreme: "no rows", "one row", "zero", "huge", "not finite"
    make: Callable[[], Any]
    made: bool  # it makes a record


def public(names: Sequence[str]) -> Iterator[tuple[str, Callable, type | None]]:
    """The public functions, constructors, methods and properties of modules and of all modules of packages.

    Yields their names, themselves, and the class of what they take as `self`.
    """
    modules = [importlib.import_module(name) for name in names]
    for package in [module for module in modules if hasattr(module, "__path__")]:
        modules += [
            importlib.import_module(f"{package.__name__}.{m.name}") for m in pkgutil.iter_modules(package.__path__)
        ]
    for module in modules:
        for name, found in vars(module).items():
            if name.startswith("_") or getattr(found, "__module__", "") != module.__name__:
                continue
            if inspect.isfunction(found):
                yield name, found, None
            elif inspect.isclass(found) and not inspect.isabstract(found) and not issubclass(found, Exception):
                yield name, found, None
                for method, value in inspect.getmembers_static(found, lambda v: not inspect.isclass(v)):
                    plain = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
                    if not method.startswith("_") and inspect.isfunction(plain):
                        yield f"{name}.{method}", plain, None if isinstance(value, staticmethod) else found


def calls(name: str, function: Callable, owner: type | None) -> list[Call]:
    """All calls of a function; none where it takes no number. Raises Unknown."""
    arguments = _parameters(function, (name, name.rpartition(".")[2]), owner)
    if not any(argument.extremes for argument in arguments.values()):
        return []
    made = inspect.isclass(function)
    found = []
    for rows, kind in enumerate(("no rows", "one row")):

        def usual(rows: int = rows) -> Any:
            return function(**{key: a.usual(rows) for key, a in arguments.items()})

        found.append(Call(kind, kind, usual, made))
    for changed, argument in arguments.items():
        for words, extreme, make in argument.extremes:

            def call(changed: str = changed, make: Callable[[], Any] = make) -> Any:
                return function(**{key: make() if key == changed else a.usual(ROWS) for key, a in arguments.items()})

            kind = "not finite" if not math.isfinite(extreme) else "huge" if abs(extreme) > 1 else "zero"
            found.append(Call(words, kind, call, made))
    return found


def _parameters(function: Callable, owners: Sequence[str], owner: type | None) -> dict[str, Argument]:
    hints = typing.get_type_hints(function.__init__ if inspect.isclass(function) else function, localns=NAMES)
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = hints.get(name, parameter.annotation)
        if name == "self" and owner is not None:
            found[name] = _record(owner)
        elif parameter.default is inspect.Parameter.empty or kind in (int, float) or f"{owners[0]}.{name}" in ASKED:
            found[name] = _argument(name, kind, owners)
    return found


def _argument(name: str, kind: Any, owners: Sequence[str]) -> Argument:
    """What a parameter takes, by its annotation and name."""
    if isinstance(kind, UnionType):
        options = [option for option in typing.get_args(kind) if option is not type(None)]
        kind = Tensor if Tensor in options else options[0]
    keys = [*(f"{owner}.{name}" for owner in owners), name, getattr(kind, "__name__", "")]
    if kind is Tensor:
        return _tensor(name, keys)
    known = next((key for key in keys if key in PLAIN), None)
    given = None if known is None else PLAIN[known]
    kind = float if kind is object else kind
    if kind in (int, float):
        usual = kind(1 if given is None else given)
        return Argument(
            lambda n: usual, [(f"{name} {v:g}", v, lambda v=v: v) for v in (VALUES if kind is float else COUNTS)]
        )
    if known is not None:
        return Argument(given if callable(given) else lambda n: given, [])
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (list, tuple, Sequence):
        one = _argument(name, inner[0], owners)
        many = [(words, v, lambda make=make: (make(), *[one.usual(1)] * 2)) for words, v, make in one.extremes]
        return Argument(lambda n: (one.usual(1),) * 3, many)
    if inspect.isclass(kind) and kind.__module__.startswith("nerf."):
        return _record(ContractedSpace if kind is Space else kind)
    raise Unknown(f"'{name}: {kind}' has no value: add one to PLAIN")


@functools.cache
def _record(kind: type) -> Argument:
    """An instance of a class of this package, with extremes in what its constructor takes."""
    arguments = _parameters(kind, (kind.__name__,), None)

    def with_extreme(changed: str, make: Callable[[], Any]) -> Any:
        return kind(**{key: make() if key == changed else a.usual(ROWS) for key, a in arguments.items()})

    return Argument(
        lambda n: kind(**{key: a.usual(n) for key, a in arguments.items()}),
        [
            (f"{kind.__name__}.{words}", value, functools.partial(with_extreme, changed, make))
            for changed, argument in arguments.items()
            for words, value, make in argument.extremes
        ],
    )


def _tensor(name: str, keys: Sequence[str]) -> Argument:
    known = next((SHAPES[key] for key in keys if key in SHAPES), None)
    if known is None:
        raise Unknown(f"tensor '{name}' has no shape: add one to SHAPES")

    def usual(n: int) -> Tensor:
        return NUMBERS[known](n) if known in NUMBERS else plain(known, n)

    def holding(value: float, everywhere: bool) -> Tensor:
        x = usual(ROWS).clone()
        x[... if everywhere or x.dim() == 0 else 0] = value
        return x

    if not usual(ROWS).is_floating_point():
        return Argument(usual, [])
    places = itertools.product(VALUES, (True, False))
    return Argument(
        usual,
        [(f"{name} {'=' if all_ else '[0] ='} {v:g}", v, functools.partial(holding, v, all_)) for v, all_ in places],
    )


def is_finite(value: Any) -> bool:
    """Whether all numbers of an answer are finite."""
    if isinstance(value, Tensor):
        return not value.is_floating_point() or bool(value.isfinite().all())
    if isinstance(value, float):
        return math.isfinite(value)
    if dataclasses.is_dataclass(value):
        return all(is_finite(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, Mapping):
        return all(map(is_finite, value.values()))
    return not isinstance(value, (tuple, list)) or all(map(is_finite, value))


def problem(call: Call) -> str | None:
    """What is wrong with the answer to a call; None for finite numbers and for an error that says what is expected.

    A record that was made holds what it was given, and is not looked into.
    """
    try:
        answer = call.make()
    except ValueError as error:
        return None if isinstance(error, UserError) or "expected" in str(error) else f"ValueError: {error}"
    except Exception as error:  # noqa: BLE001 - any other one is what is looked for
        return f"{type(error).__name__}: {str(error)[:70]}"
    return None if call.made or is_finite(answer) else NOT_FINITE
