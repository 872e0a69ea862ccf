"""The tables of mode=scenes: a line for each scene and budget beside published figures, one table for each set."""

import statistics

from nerf.benchmarks.figures import GIB, SceneRun
from nerf.benchmarks.scene_sets import OWN, SETS
from nerf.benchmarks.tables import markdown_table

EMPTY = "Nothing has been measured yet; `python scripts/benchmark.py mode=scenes` does it."


def scenes_table(results: list[dict]) -> str:
    """The tables of all files of mode=scenes. results: their content, and that of published_scenes.json if known."""
    published = {name: found for result in results for name, found in result.get("sets", {}).items()}
    runs = [run for result in results for run in result.get("runs", ())]
    if not runs:
        return EMPTY
    parts = []
    for name in (*SETS, OWN):
        of_set = [run for run in runs if run["set"] == name]
        if of_set:
            parts.append(_of_set(name, of_set, published.get(name, {})))
    devices = sorted({f"{run['device']}, commit {run['commit']}, {run['date'][:10]}" for run in runs})
    return "\n\n".join(
        [
            *parts,
            f"Measured on {'; '.join(devices)}. Bold: ahead of all "
            "published figures beside it; in brackets: of images of another size than theirs.",
        ]
    )


def _of_set(name: str, runs: list[SceneRun], published: dict) -> str:
    methods = published.get("methods", [])
    header = ["scene", "size", "views", "budget", "steps", "PSNR dB", "SSIM", "LPIPS", "worst view", "dB", "GiB"]
    header += [method["name"] for method in methods]
    runs = sorted(runs, key=lambda run: (run["device"], _budget(run), run["scene"]))
    lines = [_line(run, methods, _same_size(run, published)) for run in runs]
    for device, budget in dict.fromkeys((run["device"], _budget(run)) for run in runs):
        group = {run["scene"]: run for run in runs if (run["device"], _budget(run)) == (device, budget)}
        if name in SETS and set(group) == set(SETS[name].scenes):
            lines.append(
                _mean(list(group.values()), methods, all(_same_size(run, published) for run in group.values()))
            )
    title = SETS[name].title if name in SETS else "Other captures"
    notes = [f"{method['name']}: {method['trap']} ({method['source']})." for method in methods]
    return "\n\n".join([f"### {title}", markdown_table(header, lines), *([" ".join(notes)] if notes else [])])


def _budget(run: SceneRun) -> tuple[int, float]:
    """Orders steps before seconds, the smaller first."""
    if run["budget_steps"]:
        return 0, float(run["budget_steps"])
    return 1, float(run["budget_seconds"] or 0)


def _words(run: SceneRun) -> str:
    return f"{run['budget_steps']} steps" if run["budget_steps"] else f"{run['budget_seconds']:g} s"


def _line(run: SceneRun, methods: list[dict], comparable: bool) -> list[str]:
    others = [method["psnr"].get(run["scene"]) for method in methods]
    return [
        run["scene"],
        "x".join(map(str, run["image_size"])),
        str(len(run["psnr"]["per_view"])),
        _words(run),
        str(run["steps"]),
        _marked(run["psnr"]["mean"], others, comparable),
        f"{run['ssim']['mean']:.4f}",
        f"{run['lpips']['mean']:.4f}" if "lpips" in run else "-",
        run["worst_view"]["name"],
        f"{run['worst_view']['psnr']:.2f}",
        f"{run['peak_memory_bytes'] / GIB:.1f}" if run["peak_memory_bytes"] else "-",
        *map(_decibels, others),
    ]


def _mean(runs: list[SceneRun], methods: list[dict], comparable: bool) -> list[str]:
    """The line of a set of which every scene is there."""
    others = [method.get("mean") for method in methods]
    lpips = [run["lpips"]["mean"] for run in runs if "lpips" in run]
    worst = min(runs, key=lambda run: run["worst_view"]["psnr"])
    peaks = [run["peak_memory_bytes"] for run in runs]
    return [
        "mean",
        "-",
        str(sum(len(run["psnr"]["per_view"]) for run in runs)),
        _words(runs[0]),
        "-",
        _marked(statistics.fmean(run["psnr"]["mean"] for run in runs), others, comparable),
        f"{statistics.fmean(run['ssim']['mean'] for run in runs):.4f}",
        f"{statistics.fmean(lpips):.4f}" if len(lpips) == len(runs) else "-",
        worst["scene"],
        f"{worst['worst_view']['psnr']:.2f}",
        f"{max(peaks) / GIB:.1f}" if all(peaks) else "-",
        *map(_decibels, others),
    ]


def _same_size(run: SceneRun, published: dict) -> bool:
    """Whether the images are those of the published figures: by their size, or by their folder."""
    if "image_size" in published:
        return run["image_size"] == published["image_size"]
    return run["set"] in SETS and run["images"] is not None and run["images"] == SETS[run["set"]].images[run["scene"]]


def _marked(psnr: float, others: list[float | None], comparable: bool) -> str:
    """Bold where it is ahead of all others on the same images; in brackets where the images are others."""
    known = [other for other in others if other is not None]
    if known and not comparable:
        return f"({psnr:.2f})"
    return f"**{psnr:.2f}**" if known and psnr > max(known) else f"{psnr:.2f}"


def _decibels(psnr: float | None) -> str:
    return "-" if psnr is None else f"{psnr:.2f}"
