"""Reads damaged and forged scenes, camera paths and runs; counts answers that are neither a sentence nor their content.

    python tests/fuzz/readers.py [CASES [FOLDER [NAME]]]

CASES: in all, 10 000 unless given; FOLDER: for the files that failed; NAME: part of the names of what is read.

Prints one line for each kind of failure, with the file that shows it, and exits with status 1 where there is one.
"""

import functools
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

import hostile_runs as runs  # noqa: E402
import hostile_scenes as scenes  # noqa: E402
from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402
from hypothesis.strategies import SearchStrategy  # noqa: E402
from mutations import MOST_GROWN, TooSlow  # noqa: E402

CASES = 10_000


# What is read, by name: the strategy of one damaged file, and what answers it in a folder of its own.
Target = tuple[SearchStrategy[tuple[str, bytes]], Callable[[Path, str, bytes], object]]
TARGETS: dict[str, Target] = {
    **{name: (scenes.hostile_file(name), functools.partial(scenes.answer_to, name)) for name in scenes.SCENES},
    **{f"run {name}": (runs.hostile_run(name), functools.partial(runs.answer_to, name)) for name in runs.RUNS},
}


def main() -> int:
    cases = int(sys.argv[1]) if len(sys.argv) > 1 else CASES
    kept = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    chosen = {name: target for name, target in TARGETS.items() if len(sys.argv) < 4 or sys.argv[3] in name}
    warnings.simplefilter("error", RuntimeWarning)  # of NumPy: a number that is none goes on
    failures: Counter[str] = Counter()
    read = sum(read_damaged(name, *target, cases // len(chosen), failures, kept) for name, target in chosen.items())
    for place, count in failures.most_common():
        print(f"{count:6} {place}")
    most = max(MOST_GROWN) >> 20
    print(f"{read} files read, {sum(failures.values())} failures in {len(failures)} places; memory grew by {most} MiB")
    return 1 if failures else 0


def read_damaged(
    name: str,
    files: SearchStrategy[tuple[str, bytes]],
    answer: Callable[[Path, str, bytes], object],
    cases: int,
    failures: Counter[str],
    kept: Path | None,
) -> int:
    """Reads so many damaged files, counts failures by where they come from; returns how many were read.

    kept: folder for the first file of each kind of failure.
    """
    read = 0

    @settings(
        max_examples=cases, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=HealthCheck
    )
    @given(files)
    def case(changed: tuple[str, bytes]) -> None:
        nonlocal read
        read += 1
        with tempfile.TemporaryDirectory() as folder:
            try:
                answer(Path(folder), *changed)
            except (Exception, TooSlow) as error:  # noqa: BLE001 - any of them is a failure
                last = [f for f in traceback.extract_tb(error.__traceback__) if str(ROOT) in f.filename][-1]
                where = f"{Path(last.filename).name}:{last.lineno}"
                place = f"{name}: {type(error).__name__} at {where} {str(error)[:60]!r}"
                if place not in failures:
                    print(place, flush=True)
                    if kept is not None:
                        (kept / f"{len(failures)}-{name}-{Path(changed[0]).name}").write_bytes(changed[1])
                failures[place] += 1

    case()
    return read


if __name__ == "__main__":
    sys.exit(main())
