"""The tables of README.md: four figures, and the newest of each scene beside three other systems in the same time."""

import statistics

from nerf.benchmarks.baselines import by_device, comparable_psnr, merged, psnr_after
from nerf.benchmarks.capture_table import CLOCK_TOLERANCE, by_settings, median, settings
from nerf.benchmarks.figures import GIB
from nerf.benchmarks.tables import markdown_table

BESIDE = ("instant-ngp", "SVRaster", "gsplat")
HEADLINE_SECONDS = (2.0, 60.0)  # budgets of the curve that headline_table shows; a frame is that of the last


def headline_table(results: list[dict]) -> str:
    """PSNR after two budgets of the curve and the time of a frame then, and the PSNR of the bundled scene."""
    baselines = next(result for result in results if "systems" in result)
    curves, _ = by_device([result for result in results if "budgets" in result], baselines)
    newest = {budget["seconds"]: (curve, budget) for curve in curves for budget in curve["budgets"]}
    lines = []
    for seconds in HEADLINE_SECONDS:
        curve, budget = newest[seconds]
        views = f" (PSNR, {budget['views']} test views)" if not lines else ""
        psnr = f"**{comparable_psnr(budget)['median']:.1f} dB**"
        made = [curve["device"], curve["commit"][:7]]
        lines.append([f"{curve['scene']}, {seconds:g} seconds of training{views}", psnr, *made])
    size = "x".join(map(str, curve["image_size"]))
    frame = f"**{1e3 * budget['render_seconds_per_view']['median']:.1f} ms**"
    lines.append([f"one {size} frame, four rays per pixel", frame, *made])
    for run in (result for result in results if result.get("scene") == "bricks"):
        label = f"bundled scene, {run['train_seconds']:.0f} seconds of training"
        lines.append([label, f"**{run['psnr']['mean']:.1f} dB**", run["device"], run["commit"][:7]])
    return markdown_table(["", "", "device", "commit"], lines)


def summary_table(results: list[dict]) -> str:
    """A line for each budget of the curve, for each capture on a GPU, and for the bundled scene."""
    baselines = next(result for result in results if "systems" in result)
    curves, _ = by_device([result for result in results if "budgets" in result], baselines)
    others = [result for result in results if "system" in result]
    runs = [result for result in results if "psnr" in result]
    header = ["scene", "size", "training s", "PSNR dB", "SSIM", *BESIDE, "GiB", "ms/frame", "device", "commit"]
    lines = [_bundled(run) for run in runs if run["scene"] == "bricks"]
    commits = {budget["seconds"]: curve["commit"] for curve in curves for budget in curve["budgets"]}
    systems = {system["name"]: system for system in baselines["systems"]}
    for budget in merged(curves):
        beside = [psnr_after(systems[name], budget["seconds"]) if name in systems else None for name in BESIDE]
        lines.append(
            [
                curves[0]["scene"],
                "x".join(map(str, curves[0]["image_size"])),
                f"{budget['seconds']:g}",
                f"{comparable_psnr(budget)['median']:.2f}",
                f"{budget['ssim']['median']:.3f}",
                *("-" if psnr is None else f"{psnr:.2f}" for psnr in beside),
                f"{budget['peak_memory_bytes']['high'] / GIB:.1f}",
                f"{1e3 * budget['render_seconds_per_view']['median']:.1f}",
                curves[0]["device"],
                commits[budget["seconds"]][:7],
            ]
        )
    lines += [_capture(seeds, others) for seeds in _defaults(runs)]
    return markdown_table(header, lines)


def _bundled(run: dict) -> list[str]:
    return [*_ends([run], f"{run['train_seconds']:.0f}", ["-"] * len(BESIDE))]


def _defaults(runs: list[dict]) -> list[list[list[dict]]]:
    """Of each capture's runs on a GPU those with the fewest settings, of these the newest, and then the longest."""
    groups = [seeds for seeds in by_settings(runs) if seeds[0]["scene"] != "bricks" and "CPU" not in seeds[0]["device"]]
    first: dict[str, list[dict]] = {}
    groups.sort(key=lambda seeds: (seeds[0]["date"], seeds[0]["train_seconds"]), reverse=True)
    for seeds in sorted(groups, key=lambda seeds: len(settings(seeds[0]))):
        first.setdefault(seeds[0]["scene"], seeds)
    return [first[scene] for scene in sorted(first)]


def _capture(seeds: list[dict], others: list[dict]) -> list[str]:
    seconds = median(seeds, lambda run: run["train_seconds"])
    beside = []
    for name in BESIDE:
        found = [
            look["psnr"]["mean"]
            for file in others
            for run in file["runs"]
            for look in run["looks"]
            if file["system"] == name
            and (run["scene"], run["image_size"]) == (seeds[0]["scene"], seeds[0]["image_size"])
            and look["seconds"] <= seconds + CLOCK_TOLERANCE
        ]
        beside.append(f"{max(found):.2f}" if found else "-")
    return _ends(seeds, f"{seconds:.0f}", beside)


def _ends(seeds: list[dict], seconds: str, beside: list[str]) -> list[str]:
    run = seeds[0]
    return [
        run["scene"],
        "x".join(map(str, run["image_size"])),
        seconds,
        f"{statistics.median(one['psnr']['mean'] for one in seeds):.2f}",
        f"{median(seeds, lambda one: one['ssim']['mean']):.3f}",
        *beside,
        f"{max(one['peak_memory_bytes'] for one in seeds) / GIB:.1f}",
        f"{1e3 * median(seeds, lambda one: one['render_seconds_per_view']):.1f}",
        run["device"],
        run["commit"][:7],
    ]
