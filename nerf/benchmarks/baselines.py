"""Baselines: other systems compared with a curve at equal training time, and where they are ahead.

baselines: the content of docs/results/data/baselines_h200.json, which names the sources. budgets: those of curve.json,
each with the entries of nerf.benchmarks.curve.budget_figures.
"""

import statistics

from nerf.benchmarks.figures import GIB, Baselines, Budget, Curve, Spread, System

ALL_VIEWS, EVERY = 200, 4  # official test views; the baselines are scored on every 4th of them
SPEED_BUDGET = 60.0  # seconds; the rendering speed of this budget's model is compared


def same_test(result: Curve, baselines: Baselines) -> bool:
    """Whether the baselines were scored on the same scene and image size as a curve."""
    return result["scene"] == baselines["scene"] and result["image_size"] == baselines["image_size"]


def psnr_after(system: System, seconds: float) -> float | None:
    """PSNR in dB of a baseline after a number of training seconds: interpolated between its scores, constant after
    the last one, None before the first one.

    Seconds on the baseline's clock that are not training (excluded_seconds) are subtracted.
    """
    points = [(time - system["excluded_seconds"], psnr) for time, psnr in system["curve"]]
    if seconds < points[0][0]:
        return None
    for (start, low), (end, high) in zip(points, points[1:]):
        if seconds <= end:
            return low + (high - low) * (seconds - start) / (end - start)
    return points[-1][1]


def psnr_of_baseline_views(per_view: list[float]) -> float | None:
    """Mean PSNR over the test views of the baselines; None unless all official test views were scored."""
    return statistics.fmean(per_view[::EVERY]) if len(per_view) == ALL_VIEWS else None


def comparable_psnr(budget: Budget) -> Spread:
    """The PSNR of a budget over the test views of the baselines if available, else over its own views."""
    return budget.get("psnr_every_4th", budget["psnr"])


def ahead(budgets: list[Budget], baselines: Baselines) -> list[str]:
    """One sentence for each comparison in which a baseline is ahead."""
    found = []
    for budget in budgets:
        ours = comparable_psnr(budget)["median"]
        for system in baselines["systems"]:
            theirs = psnr_after(system, budget["seconds"])
            if theirs is not None and theirs > ours:
                found.append(f"{system['name']} after {budget['seconds']:g} s: {theirs:.2f} against {ours:.2f} dB")
    return found + _faster_or_smaller(budgets, baselines) + _published(budgets, baselines)


def _faster_or_smaller(budgets: list[Budget], baselines: Baselines) -> list[str]:
    """Comparisons of rendering time, for the largest budget up to SPEED_BUDGET, and of peak training memory."""
    found = []
    timed = [budget for budget in budgets if budget["seconds"] <= SPEED_BUDGET][-1:]
    for system in baselines["systems"]:
        for budget in timed:
            ours, theirs = 1e3 * budget["render_seconds_per_view"]["median"], system["ms_per_frame"]
            if theirs < ours:
                model = f"the {budget['seconds']:g} s model"
                found.append(f"{system['name']} in rendering: {theirs:.1f} against {ours:.1f} ms a frame of {model}")
        peaks = [budget["peak_memory_bytes"]["high"] / GIB for budget in budgets if budget["peak_memory_bytes"]]
        if peaks and system["peak_memory_gib"] < max(peaks):
            found.append(f"{system['name']} in memory: {system['peak_memory_gib']:.1f} against {max(peaks):.1f} GiB")
    return found


def _published(budgets: list[Budget], baselines: Baselines) -> list[str]:
    """Comparisons of published PSNR with the best result here in the same time, over all 200 views."""
    found = []
    for paper in baselines["published"]:
        within = [b for b in budgets if paper["seconds"] is None or b["seconds"] <= paper["seconds"]]
        best = max((budget["psnr"]["median"] for budget in within), default=None)
        if best is not None and paper["psnr"] > best:
            time = f" in {paper['seconds']:g} s" if paper["seconds"] else ""
            device = f" on {paper['device']}" if paper["device"] else ""
            device += " (black background)" if paper["background"] == "black" else ""
            found.append(f"{paper['name']}, published: {paper['psnr']:.2f} dB{time}{device} against {best:.2f} dB")
    return found


def merged(results: list[Curve]) -> list[Budget]:
    """The budgets of several curve.json, sorted by seconds. Raises ValueError if two files have the same budget."""
    budgets = sorted((budget for result in results for budget in result["budgets"]), key=lambda b: b["seconds"])
    for one, other in zip(budgets, budgets[1:]):
        if one["seconds"] == other["seconds"]:
            raise ValueError(f"two curves have the budget of {one['seconds']:g} seconds; remove one of them.")
    return budgets


def by_device(curves: list[Curve], baselines: Baselines | None) -> tuple[list[Curve], list[Curve]]:
    """The curves measured on the device of the baselines, and those measured on others. Without baselines all are
    among the first."""
    if baselines is None:
        return curves, []
    beside = [curve for curve in curves if curve["device"] == baselines["device"]]
    return beside, [curve for curve in curves if curve["device"] != baselines["device"]]


def views_note(budgets: list[Budget]) -> str:
    """A note on the views over which the scores are compared."""
    if all("psnr_every_4th" in budget for budget in budgets):
        return "over the 50 views of the baselines, every fourth"
    return "over the views that were scored here, which are not those of the baselines"
