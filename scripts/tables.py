"""Write the tables of README.md anew from docs/results.

    python scripts/tables.py
    python scripts/tables.py --check     changes nothing; the exit status is 1 if a table is out of date

A table stands between <!-- table:NAME --> and <!-- end:NAME -->; NAME is ablation, training, frames, captures,
capture_peers, poses, benchmark, step or curve, which also draws docs/results/curve.png.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

from _capture_table import capture_peers_table, captures_table, poses_table
from _step_table import step_table
from _tables import ablation_table, benchmark_table, frames_table, training_table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # a checkout runs without being installed
from _curve_plot import plot_curve  # noqa: E402
from _curve_table import curve_tables  # noqa: E402

from nerf.peers import same_test  # noqa: E402

BLOCK = re.compile(r"(<!-- table:(\w+) -->\n)(.*?)(<!-- end:\2 -->)", re.DOTALL)
MARK = re.compile(r"<!-- (?:table|end):\w+ -->")
TABLES: dict[str, Callable[[list[dict]], str]] = {
    "ablation": lambda results: "\n\n".join(ablation_table(result) for result in results),
    "training": training_table,
    "frames": frames_table,
    "captures": captures_table,
    "capture_peers": capture_peers_table,
    "poses": poses_table,
    "benchmark": lambda results: "\n\n".join(benchmark_table(result) for result in results),
    "step": lambda results: "\n\n".join(step_table(result) for result in results),
    "curve": lambda results: curve_tables(*curves_and_peers(results)),
}
# Whose results a table is made of; else those of its own name.
FILES = {"curve": ("peers", "curve"), "captures": ("capture",), "capture_peers": ("peer_captures",)}


def curves_and_peers(results: list[dict]) -> tuple[list[dict], dict | None]:
    """The curves among results and the peers, which come first in FILES."""
    curves = [result for result in results if "budgets" in result]
    return curves, next((result for result in results if "systems" in result), None)


def with_tables(readme: str, results: Path) -> str:
    """The text with every marked table made anew from the files results/NAME_*.json.

    Raises ValueError for a mark without its partner, an unknown NAME, no such file or one without a key.
    """

    def block(match: re.Match[str]) -> str:
        opening, name, _, closing = match.groups()
        if name not in TABLES:
            raise ValueError(f"{opening.strip()} names no table; choose one of {', '.join(TABLES)}.")
        kinds = FILES.get(name, (name,))
        paths = [path for kind in kinds for path in sorted(results.glob(f"{kind}_*.json"))]
        if not paths:
            raise ValueError(
                f"{results}/{kinds[0]}_*.json: no such file, expected one at least for {opening.strip()}."
            )
        try:
            table = TABLES[name]([json.loads(path.read_text()) for path in paths])
        except (KeyError, json.JSONDecodeError) as error:
            names = ", ".join(path.name for path in paths)
            raise ValueError(
                f"one of {names} is no {name} result ({type(error).__name__} {error})."
            ) from error
        return f"{opening}\n{table}\n\n{closing}"

    if len(MARK.findall(readme)) != 2 * len(BLOCK.findall(readme)):
        raise ValueError("a table's mark has no partner; expected <!-- table:NAME --> and <!-- end:NAME -->.")
    return BLOCK.sub(block, readme)


def draw_curve(results: Path) -> None:
    """Draws results/curve.png where a curve has been measured that the peers can stand beside."""
    paths = [path for kind in FILES["curve"] for path in sorted(results.glob(f"{kind}_*.json"))]
    curves, peers = curves_and_peers([json.loads(path.read_text()) for path in paths])
    if peers is not None:
        curves = [curve for curve in curves if same_test(curve, peers)]
    if curves:
        plot_curve(curves, peers, results / "curve.png")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="change nothing, say whether the tables are up to date"
    )
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md", help="the file with the tables")
    parser.add_argument(
        "--results", type=Path, default=ROOT / "docs" / "results", help="the folder with the results"
    )
    given = parser.parse_args()
    try:
        before = given.readme.read_text()
        after = with_tables(before, given.results)
    except (OSError, ValueError) as error:
        print(f"error: {given.readme}: {error}", file=sys.stderr)
        sys.exit(2)
    if given.check:
        if before != after:
            print(f"{given.readme} is out of date; run python scripts/tables.py", file=sys.stderr)
            sys.exit(1)
    else:
        given.readme.write_text(after)
        draw_curve(given.results)


if __name__ == "__main__":
    main()
