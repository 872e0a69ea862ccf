"""Reads damaged and forged scenes until an answer is neither a sentence nor a scene: make fuzz, or

    python tests/fuzz/readers.py [CASES]          10 000 cases in all unless given

Prints one line for each kind of failure, with the file that shows it, and exits with status 1 where there is one.
"""

import sys
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

import hostile_scenes as scenes  # noqa: E402
from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402
from mutations import TooSlow  # noqa: E402

CASES = 10_000


def main() -> int:
    cases = int(sys.argv[1]) if len(sys.argv) > 1 else CASES
    failures: Counter[str] = Counter()
    warnings.simplefilter("error", RuntimeWarning)  # of NumPy: a number that is none goes on
    read = sum(try_scene(name, cases // len(scenes.SCENES), failures) for name in scenes.SCENES)
    for place, count in failures.most_common():
        print(f"{count:6} {place}")
    print(f"{read} files read, {sum(failures.values())} failures in {len(failures)} places")
    return 1 if failures else 0


def try_scene(name: str, cases: int, failures: Counter[str]) -> int:
    """Reads so many damaged versions of a scene, counts failures by where they come from; returns the files read."""
    read = 0

    @settings(
        max_examples=cases, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=HealthCheck
    )
    @given(scenes.hostile_file(name))
    def case(changed: tuple[str, bytes]) -> None:
        nonlocal read
        read += 1
        path, data = changed
        with tempfile.TemporaryDirectory() as folder:
            scenes.write_with(Path(folder), name, {path: data})
            try:
                scenes.answer(Path(folder), name, begin=name != "camera path")
            except (Exception, TooSlow) as error:  # noqa: BLE001 - any of them is a failure
                frames = [f for f in traceback.extract_tb(error.__traceback__) if str(ROOT) in f.filename]
                last = frames[-1]
                where = f"{Path(last.filename).name}:{last.lineno}"
                place = f"{name}: {type(error).__name__} at {where} {str(error)[:60]!r}"
                if place not in failures and (kept := sys.argv[2:]):
                    (Path(kept[0]) / f"{len(failures)}-{name}-{Path(path).name}").write_bytes(data)
                    print(len(failures), place, flush=True)
                failures[place] += 1

    case()
    return read


if __name__ == "__main__":
    sys.exit(main())
