"""Runs side by side: their scores, the settings in which they differ, and their differences per view.

It goes by what a run wrote at its end (metrics.json); nothing is rendered anew.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nerf.errors import UserError
from nerf.files import METRICS
from nerf.images.metrics import mean_of_known

PER_VIEW = ("psnr", "ssim", "lpips")
COLUMNS = ("run", "PSNR dB", "SSIM", "LPIPS", "seconds", "steps", "model MB")
NOT_A_DIFFERENCE = ("dataset.root",)  # where a scene lies says nothing about a run


@dataclass(frozen=True)
class RunResult:
    """A run as its folder shows it."""

    folder: Path
    metrics: Mapping[str, Any] = field(default_factory=dict)  # of metrics.json
    settings: Mapping[str, Any] = field(default_factory=dict)  # by name; empty where config.yaml is missing
    model_bytes: int | None = None  # None: there is no model
    problem: str | None = None  # why it has no scores

    @property
    def scored_views(self) -> set[str]:
        """The views that have a PSNR: all but those whose masks leave nothing."""
        by_view = zip(self.metrics["views"], self.metrics["psnr"]["per_view"], strict=True)
        return {view for view, psnr in by_view if psnr is not None}

    def scores(self, name: str, views: Sequence[str]) -> list[float]:
        """A score of these views, NaN of one that has none; empty where the run has it not."""
        if name not in self.metrics:
            return []
        by_view = dict(zip(self.metrics["views"], self.metrics[name]["per_view"], strict=True))
        return [math.nan if by_view[view] is None else by_view[view] for view in views]


@dataclass(frozen=True)
class Comparison:
    """Runs of one scene and split, over the views that all of them scored."""

    runs: list[RunResult]
    names: list[str]  # what tells the runs apart
    views: list[str]
    notes: list[str]

    @property
    def scored(self) -> list[tuple[str, RunResult]]:
        return [(name, run) for name, run in zip(self.names, self.runs, strict=True) if run.problem is None]


def read_metrics(folder: Path) -> tuple[Mapping[str, Any], str | None]:
    """The content of a run's metrics.json, and why it cannot be compared, None if it can."""
    path = folder / METRICS
    if not path.is_file():
        return {}, f"it has no {METRICS}"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        views = found["views"]
        if not views or any(len(found[name]["per_view"]) != len(views) for name in PER_VIEW if name in found):
            raise ValueError("scores and views differ in number")
        if found["psnr"]["mean"] is None or found["ssim"]["mean"] is None:
            return {}, "none of its views could be scored"
        float(found["psnr"]["mean"]), float(found["ssim"]["mean"])
    except (OSError, ValueError) as error:
        return {}, f"{METRICS} is damaged ({error})"
    except (LookupError, TypeError):
        return {}, f"{METRICS} has no scores per view, as an older version wrote it"
    return found, None


def compare(runs: Sequence[RunResult]) -> Comparison:
    """Puts runs side by side. Raises UserError unless two have scores, of one scene and split and with common views."""
    scored = [run for run in runs if run.problem is None]
    if len(scored) < 2:
        why = "; ".join(f"{run.folder}: {run.problem}" for run in runs if run.problem is not None)
        raise UserError(f"a comparison needs two runs with scores, found {len(scored)} ({why}).")
    for what, remedy in (
        ("scene", "compare runs of one scene"),
        ("split", "score them on one split with split=NAME, and compare the folders that this writes"),
    ):
        found = {run.metrics.get(what): run.folder for run in reversed(scored)}
        if len(found) > 1:
            words = ", ".join(f"{folder} has {what} {value}" for value, folder in found.items())
            raise UserError(f"the runs are of different {what}s: {words}; {remedy}.")
    common = set.intersection(*(run.scored_views for run in scored))
    views = [view for view in scored[0].metrics["views"] if view in common]
    if not views:
        raise UserError("the runs have scored no view in common; score them on the same views with split= and every=.")
    notes = [f"{run.folder}: {run.problem}" for run in runs if run.problem is not None]
    most = max(len(run.metrics["views"]) for run in scored)
    if len(views) < most:
        notes.append(f"not all runs scored the same views: these are the {len(views)} of {most} that all of them have")
    if len({tuple(run.metrics.get("image_size", ())) for run in scored}) > 1:
        notes.append("the runs scored images of different sizes: their scores are not of the same pictures")
    notes += [
        f"{run.folder}: its model is missing"
        for run in scored
        if run.model_bytes is None and "ensemble" not in run.metrics
    ]
    return Comparison(list(runs), short_names([run.folder for run in runs]), views, notes)


def short_names(folders: Sequence[Path]) -> list[str]:
    """The last parts of the folders, as few as tell them apart."""
    parts = [folder.parts for folder in folders]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def rows(compared: Comparison) -> list[tuple[str, ...]]:
    """The cells of the table under COLUMNS; '-' where a run has not the figure."""
    return [(name, *_figures(run, compared.views)) for name, run in zip(compared.names, compared.runs, strict=True)]


def table(names: Sequence[str], runs: Sequence[RunResult]) -> str:
    """The scores of runs that have no views in common, each over its own."""
    own = [(name, *_figures(run, run.metrics.get("views", ()))) for name, run in zip(names, runs, strict=True)]
    failed = [f"note: {name}: {run.problem}" for name, run in zip(names, runs, strict=True) if run.problem is not None]
    return "\n".join([aligned([COLUMNS, *own]), *failed])


def _figures(run: RunResult, views: Sequence[str]) -> tuple[str, ...]:
    if run.problem is not None:
        return ("-",) * (len(COLUMNS) - 1)
    psnr, ssim, lpips = (run.scores(name, views) for name in PER_VIEW)
    seconds = run.metrics.get("train_seconds", run.metrics.get("ensemble_train_seconds"))
    steps = run.metrics.get("steps")
    return (
        f"{mean_of_known(psnr):.2f}",
        f"{mean_of_known(ssim):.4f}",
        f"{mean_of_known(lpips):.4f}" if lpips else "-",
        "-" if seconds is None else f"{seconds:.1f}",
        "-" if steps is None else f"{steps:.0f}",
        "-" if run.model_bytes is None else f"{run.model_bytes / 1e6:.1f}",
    )


def setting_rows(compared: Comparison) -> list[tuple[str, ...]]:
    """The settings in which the runs differ, with each run's value; '-' where a run has not the setting."""
    names = dict.fromkeys(name for run in compared.runs for name in run.settings)
    known = [run for run in compared.runs if run.settings]
    found = []
    for name in names:
        values = [str(run.settings.get(name, "-")) for run in compared.runs]
        if name not in NOT_A_DIFFERENCE and len({str(run.settings.get(name, "-")) for run in known}) > 1:
            found.append((name, *values))
    return found


def view_lines(compared: Comparison) -> list[str]:
    """One sentence a run: its PSNR per view against the first run's."""
    (first, reference), *others = compared.scored
    before, lines = reference.scores("psnr", compared.views), []
    for name, run in others:
        after = run.scores("psnr", compared.views)
        change = [new - old for new, old in zip(after, before, strict=True)]
        low, high = (pick(range(len(change)), key=change.__getitem__) for pick in (min, max))
        lines.append(
            f"{name} against {first}: {mean_of_known(change):+.2f} dB, better in {sum(x > 0 for x in change)} of "
            f"{len(change)} views; from {change[low]:+.2f} ({compared.views[low]}) to {change[high]:+.2f} "
            f"({compared.views[high]})"
        )
    return lines


def text(compared: Comparison) -> str:
    """The whole comparison for a terminal."""
    parts = [aligned([COLUMNS, *rows(compared)])]
    different = setting_rows(compared)
    if different:
        parts.append(aligned([("setting", *compared.names), *different]))
    parts.append("\n".join(view_lines(compared)))
    if compared.notes:
        parts.append("\n".join(f"note: {note}" for note in compared.notes))
    return "\n\n".join(parts) + "\n"


def aligned(table: Sequence[Sequence[str]]) -> str:
    """The cells in columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "  ".join(cell.rjust(width) if column else cell.ljust(width) for column, (cell, width) in enumerate(pairs))
        for pairs in (zip(row, widths, strict=True) for row in table)
    ]
    return "\n".join(line.rstrip() for line in lines)
