"""Other systems beside a curve: what they reach in the same time, and where they are ahead.

peers: a dictionary as docs/results/data/baselines_h200.json holds it, where the sources are stated. budgets: those of
curve.json, each with the figures of nerf.benchmarks.curve.budget_figures.
"""

import statistics

from nerf.benchmarks.figures import GIB, Figures

ALL_VIEWS, EVERY = 200, 4  # of the official test views; every so many of them were the peers'
SPEED_BUDGET = 60.0  # seconds; the model whose frames are timed against the peers'


def same_test(result: Figures, peers: Figures) -> bool:
    """Whether the peers were scored on the scene and the image size of a curve."""
    return result["scene"] == peers["scene"] and result["image_size"] == peers["image_size"]


def psnr_after(system: Figures, seconds: float) -> float | None:
    """What a peer reaches in so many training seconds: linear between its scores, its last one after its end.

    None before its first score. Seconds that the peer's clock holds and that are no training are taken off.
    """
    points = [(time - system["excluded_seconds"], psnr) for time, psnr in system["curve"]]
    if seconds < points[0][0]:
        return None
    for (start, low), (end, high) in zip(points, points[1:]):
        if seconds <= end:
            return low + (high - low) * (seconds - start) / (end - start)
    return points[-1][1]


def psnr_of_peers_views(per_view: list[float]) -> float | None:
    """Mean over the views of the peers, of the PSNR of all official test views; None where it is not all of them."""
    return statistics.fmean(per_view[::EVERY]) if len(per_view) == ALL_VIEWS else None


def comparable_psnr(budget: Figures) -> Figures:
    """The spread of a budget's PSNR over the views of the peers where it has them, else over its own."""
    return budget.get("psnr_every_4th", budget["psnr"])


def ahead(budgets: list[Figures], peers: Figures) -> list[str]:
    """A sentence for each point at which a peer is ahead; empty where none is."""
    found = []
    for budget in budgets:
        ours = comparable_psnr(budget)["median"]
        for system in peers["systems"]:
            theirs = psnr_after(system, budget["seconds"])
            if theirs is not None and theirs > ours:
                found.append(f"{system['name']} after {budget['seconds']:g} s: {theirs:.2f} against {ours:.2f} dB")
    return found + _faster_or_smaller(budgets, peers) + _published(budgets, peers)


def _faster_or_smaller(budgets: list[Figures], peers: Figures) -> list[str]:
    """Time of a frame, of the model nearest below SPEED_BUDGET, and memory in training, the largest of all budgets."""
    found = []
    timed = [budget for budget in budgets if budget["seconds"] <= SPEED_BUDGET][-1:]
    for system in peers["systems"]:
        for budget in timed:
            ours, theirs = 1e3 * budget["render_seconds_per_view"]["median"], system["ms_per_frame"]
            if theirs < ours:
                model = f"the {budget['seconds']:g} s model"
                found.append(f"{system['name']} in rendering: {theirs:.1f} against {ours:.1f} ms a frame of {model}")
        peaks = [budget["peak_memory_bytes"]["high"] / GIB for budget in budgets if budget["peak_memory_bytes"]]
        if peaks and system["peak_memory_gib"] < max(peaks):
            found.append(f"{system['name']} in memory: {system['peak_memory_gib']:.1f} against {max(peaks):.1f} GiB")
    return found


def _published(budgets: list[Figures], peers: Figures) -> list[str]:
    """Figures of papers, held against the best that the same time gives here; all 200 views."""
    found = []
    for paper in peers["published"]:
        within = [b for b in budgets if paper["seconds"] is None or b["seconds"] <= paper["seconds"]]
        best = max((budget["psnr"]["median"] for budget in within), default=None)
        if best is not None and paper["psnr"] > best:
            time = f" in {paper['seconds']:g} s" if paper["seconds"] else ""
            device = f" on {paper['device']}" if paper["device"] else ""
            device += " (black background)" if paper["background"] == "black" else ""
            found.append(f"{paper['name']}, published: {paper['psnr']:.2f} dB{time}{device} against {best:.2f} dB")
    return found


def merged(results: list[Figures]) -> list[Figures]:
    """The budgets of several curve.json, by their seconds. Raises ValueError where one is in two of them."""
    budgets = sorted((budget for result in results for budget in result["budgets"]), key=lambda b: b["seconds"])
    for one, other in zip(budgets, budgets[1:]):
        if one["seconds"] == other["seconds"]:
            raise ValueError(f"two curves hold the budget of {one['seconds']:g} seconds; remove one of them.")
    return budgets


def views_note(budgets: list[Figures]) -> str:
    """Which views stand against the peers'."""
    if all(budget["views"] == ALL_VIEWS for budget in budgets):
        return "over the 50 views of the baselines, every fourth"
    return "over the views that were scored here, which are not those of the baselines"
