"""Update the tables of README.md and docs/ from docs/results/data, and what the shells complete from the settings.

    python scripts/tables.py             every page that has a table, and nerf/cli/completion.json
    python scripts/tables.py FILE ...    these alone
    python scripts/tables.py --check     changes nothing; the exit status is 1 if a table is out of date

A table stands between <!-- table:NAME --> and <!-- end:NAME -->; NAME is headline, summary, settings, training,
frames, captures, capture_baselines, poses, ensemble, ablation, benchmark, step, busy, scenes, viewer, exports,
ranks, features, curve_elsewhere or curve, which also draws curve.png beside its page.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

from nerf.benchmarks.baselines import by_device, same_test
from nerf.benchmarks.capture_table import capture_baselines_table, captures_table, poses_table
from nerf.benchmarks.curve_plot import plot_curve
from nerf.benchmarks.curve_table import curve_tables, elsewhere_tables
from nerf.benchmarks.delivery_tables import exports_table, viewer_table
from nerf.benchmarks.ranks_table import features_table, ranks_table
from nerf.benchmarks.scenes_table import scenes_table
from nerf.benchmarks.settings_table import settings_table
from nerf.benchmarks.step_table import busy_table, step_table
from nerf.benchmarks.summary_table import headline_table, summary_table
from nerf.benchmarks.tables import ablation_table, benchmark_table, ensemble_table, frames_table, training_table
from nerf.cli.completion import TABLE as COMPLETION
from nerf.files import write_text

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(<!-- table:(\w+) -->\n)(.*?)(<!-- end:\2 -->)", re.DOTALL)
MARK = re.compile(r"<!-- (?:table|end):\w+ -->")
TABLES: dict[str, Callable[[list[dict]], str]] = {
    "ablation": lambda results: "\n\n".join(ablation_table(result) for result in results),
    "training": training_table,
    "frames": frames_table,
    "captures": captures_table,
    "capture_baselines": capture_baselines_table,
    "poses": poses_table,
    "ensemble": ensemble_table,
    "benchmark": lambda results: "\n\n".join(benchmark_table(result) for result in results),
    "step": lambda results: "\n\n".join(step_table(result) for result in results),
    "busy": lambda results: "\n\n".join(busy_table(result) for result in results),
    "curve": lambda results: curve_tables(*curves_and_baselines(results)[::2]),
    "curve_elsewhere": lambda results: elsewhere_tables(curves_and_baselines(results)[1]),
    "viewer": viewer_table,
    "exports": exports_table,
    "headline": headline_table,
    "summary": summary_table,
    "scenes": scenes_table,
    "ranks": ranks_table,
    "features": features_table,
    "settings": settings_table,
}
# The kinds of result files of a table; by default those with its name.
FILES = {
    "curve": ("baselines", "curve"),
    "curve_elsewhere": ("baselines", "curve"),
    "captures": ("capture",),
    "capture_baselines": ("baseline_captures",),
    "headline": ("baselines", "curve", "training_bricks"),
    "summary": ("baselines", "curve", "baseline_captures", "training_bricks", "capture"),
    "scenes": ("published", "scenes"),
    "settings": (),  # made of nerf/config alone
}


def curves_and_baselines(results: list[dict]) -> tuple[list[dict], list[dict], dict | None]:
    """Splits results into the curves of the baselines' device, those of others, and the baselines."""
    baselines = next((result for result in results if "systems" in result), None)
    return *by_device([result for result in results if "budgets" in result], baselines), baselines


def pages() -> list[Path]:
    """README.md and the pages of docs/ that contain a generated table."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in found if MARK.search(path.read_text())]


def with_tables(page: str, results: Path) -> str:
    """The text with every marked table made anew from the files results/NAME_*.json.

    Raises ValueError for a mark without its partner, an unknown NAME, no such file or one without a key.
    """

    def block(match: re.Match[str]) -> str:
        opening, name, _, closing = match.groups()
        if name not in TABLES:
            raise ValueError(f"{opening.strip()} names no table; choose one of {', '.join(TABLES)}.")
        kinds = FILES.get(name, (name,))
        paths = [path for kind in kinds for path in sorted(results.glob(f"{kind}_*.json"))]
        if kinds and not paths:
            raise ValueError(f"{results}/{kinds[0]}_*.json: no such file, expected one at least for {opening.strip()}.")
        try:
            table = TABLES[name]([json.loads(path.read_text()) for path in paths])
        except (KeyError, json.JSONDecodeError) as error:
            names = ", ".join(path.name for path in paths)
            raise ValueError(f"one of {names} is no {name} result ({type(error).__name__} {error}).") from error
        return f"{opening}\n{table}\n\n{closing}"

    if len(MARK.findall(page)) != 2 * len(BLOCK.findall(page)):
        raise ValueError("a table's mark has no partner; expected <!-- table:NAME --> and <!-- end:NAME -->.")
    return BLOCK.sub(block, page)


def draw_curve(results: Path, picture: Path) -> None:
    """Draws curve.png from the curves that are comparable with the baselines."""
    paths = [path for kind in FILES["curve"] for path in sorted(results.glob(f"{kind}_*.json"))]
    curves, _, baselines = curves_and_baselines([json.loads(path.read_text()) for path in paths])
    if baselines is not None:
        curves = [curve for curve in curves if same_test(curve, baselines)]
    if curves:
        plot_curve(curves, baselines, picture)


def _completion() -> str:
    from nerf.cli.completion_table import completion_table  # with every command: seconds

    return completion_table()


def command() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, say whether the tables are up to date")
    parser.add_argument("files", type=Path, nargs="*", help="the pages with tables; default: all")
    parser.add_argument(
        "--results", type=Path, default=ROOT / "docs" / "results" / "data", help="the folder with the results"
    )
    given = parser.parse_intermixed_args()
    outdated = []
    for page in given.files or [*pages(), COMPLETION]:
        try:
            before = page.read_text()
            after = _completion() if page.resolve() == COMPLETION else with_tables(before, given.results)
        except (OSError, ValueError) as error:
            print(f"error: {page}: {error}", file=sys.stderr)
            sys.exit(2)
        if given.check:
            outdated += [page] if before != after else []
            continue
        write_text(page, after)
        if "<!-- table:curve -->" in after:
            draw_curve(given.results, page.parent / "curve.png")
    for page in outdated:
        print(f"{page} is out of date; run python scripts/tables.py", file=sys.stderr)
    sys.exit(1 if outdated else 0)
