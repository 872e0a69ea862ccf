"""The result files in docs/results/data are of the types that nerf/benchmarks/figures.py states."""

import json
import types
from pathlib import Path
from typing import NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from nerf.benchmarks.figures import (
    AblationRow,
    Baselines,
    BusyUnits,
    Curve,
    EqualTraining,
    OpsBenchmark,
    Speedup,
    StepProfile,
)

DATA = Path(__file__).resolve().parents[3] / "docs" / "results" / "data"
TYPES = {
    "ablation_*": {
        "rows": list[AblationRow],
        "trainings": list[EqualTraining],
        "speedups": dict[str, dict[str, Speedup]],
    },
    "baselines_*": {None: Baselines},
    "benchmark_*": {None: OpsBenchmark},
    "curve_*": {None: Curve},
    "step_*": {None: StepProfile},
    "busy_*": {None: BusyUnits},
}
FILES = [(path, types_) for pattern, types_ in TYPES.items() for path in sorted(DATA.glob(f"{pattern}.json"))]
PROVENANCE = {
    "backend",
    "budget",
    "command",
    "commit",
    "date",
    "device",
    "every",
    "image_size",
    "scene",
    "seconds",
    "settings",
    "split",
    "torch",
}


def mismatches(value: object, expected: object, where: str, extra: set[str] = frozenset()) -> list[str]:
    """Where a value is not of a type. extra: keys that the outermost dictionary may have besides."""
    if get_origin(expected) in (Union, types.UnionType):
        found = [mismatches(value, option, where) for option in get_args(expected)]
        return min(found, key=len)
    if get_origin(expected) is list:
        (of,) = get_args(expected)
        ok = isinstance(value, list)
        return [m for i, v in enumerate(value) for m in mismatches(v, of, f"{where}[{i}]")] if ok else [where]
    if get_origin(expected) is dict:
        _, of = get_args(expected)
        ok = isinstance(value, dict)
        return [m for name, v in value.items() for m in mismatches(v, of, f"{where}.{name}")] if ok else [where]
    if is_typeddict(expected):
        return _of_typed_dict(value, expected, where, extra)
    if expected is float:
        return [] if isinstance(value, (int, float)) and not isinstance(value, bool) else [f"{where}: {value!r}"]
    return [] if type(value) is (expected or type(None)) else [f"{where}: {value!r}, expected {expected}"]


def _of_typed_dict(value: object, expected: type, where: str, extra: set[str]) -> list[str]:
    if not isinstance(value, dict):
        return [where]
    hints = get_type_hints(expected, include_extras=True)
    optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired}
    found = [f"{where} lacks {name}" for name in hints.keys() - value.keys() - optional]
    found += [f"{where}.{name} is unknown" for name in value.keys() - hints.keys() - extra]
    for name, hint in get_type_hints(expected).items():
        if name in value:
            found += mismatches(value[name], hint, f"{where}.{name}")
    return found


@pytest.mark.parametrize(("path", "types_"), FILES, ids=[path.name for path, _ in FILES])
def test_a_result_file_has_its_type(path: Path, types_: dict[str | None, object]) -> None:
    content = json.loads(path.read_text())
    for name, expected in types_.items():
        value = content if name is None else content[name]
        assert mismatches(value, expected, name or path.stem, PROVENANCE) == []


def test_every_kind_of_file_is_there() -> None:
    assert all(any(path.match(f"{pattern}.json") for path, _ in FILES) for pattern in TYPES)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"ratio": 2, "best_torch": "gather"}, []),
        ({"ratio": "2", "best_torch": "gather"}, ["x.ratio: '2'"]),
        ({"ratio": 2.0}, ["x lacks best_torch"]),
        ({"ratio": 2.0, "best_torch": "gather", "worst": 1}, ["x.worst is unknown"]),
    ],
)
def test_a_mismatch_is_found(value: dict[str, object], found: list[str]) -> None:
    assert mismatches(value, Speedup, "x") == found
