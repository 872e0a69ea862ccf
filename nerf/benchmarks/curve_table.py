"""Curves in Markdown: each budget beside the baselines, its own results, and where a baseline is ahead."""

from nerf.benchmarks.baselines import ahead, comparable_psnr, merged, psnr_after, same_test, views_note
from nerf.benchmarks.figures import GIB
from nerf.benchmarks.tables import markdown_table

CLOCK = (
    "The clock starts with decoded images and poses in host memory: upload, box, first occupancy and graph capture "
    "count. Before it the library is built, and a short training on a synthetic scene has made the CUDA context and "
    "loaded the kernels. It stops while views are scored and files written."
)
USUAL_BUDGETS = (2, 5, 15, 60, 300)


def curve_tables(results: list[dict], baselines: dict | None) -> str:
    """The tables of one scene's curve.json, one or several, and of the baselines; with baselines alone only theirs."""
    if baselines is not None:
        results = [result for result in results if same_test(result, baselines)]
    budgets = merged(results)
    parts = [_beside_baselines(budgets, baselines)] if baselines is not None else []
    if budgets:
        parts += [_own_figures(budgets), *(_source(result) for result in results), CLOCK]
        parts += [f"Note, {b['seconds']:g} s: {note}" for b in budgets for note in b["runs"][0]["notes"]]
    if baselines is not None:
        parts.append(_about_baselines(baselines))
        if budgets:
            found = ahead(budgets, baselines)
            verdict = "No baseline is ahead at any point."
            verdict = f"A baseline is ahead here: {'; '.join(found)}." if found else verdict
            parts.append(f"{verdict} PSNR is compared {views_note(budgets)}.")
    return "\n\n".join(parts)


def elsewhere_tables(results: list[dict]) -> str:
    """The figures of the curves of other devices than the baselines', whose seconds do not compare with theirs."""
    parts = [f"{_own_figures(merged([result]))}\n\n{_source(result)}" for result in results]
    return "\n\n".join(parts)


def _beside_baselines(budgets: list[dict], baselines: dict) -> str:
    ours = {budget["seconds"]: comparable_psnr(budget) for budget in budgets}
    lines = []
    for seconds in sorted({*USUAL_BUDGETS, *ours}):
        found = ours.get(seconds)
        theirs = [psnr_after(system, seconds) for system in baselines["systems"]]
        leader = max((psnr for psnr in theirs if psnr is not None), default=None)
        behind = "-" if found is None or leader is None else f"{found['median'] - leader:+.2f}"
        lines.append([f"{seconds:g}", _psnr(found), _range(found), behind, *(_number(psnr) for psnr in theirs)])
    frames = [1e3 * b["render_seconds_per_view"]["median"] for b in budgets]
    lines.append(_line("ms/frame", frames, baselines, "ms_per_frame"))
    peaks = [b["peak_memory_bytes"]["high"] / GIB for b in budgets if b["peak_memory_bytes"]]
    lines.append(_line("memory GiB", peaks, baselines, "peak_memory_gib"))
    header = ["training s", "here, dB", "range", "over the best baseline"]
    return markdown_table([*header, *(system["name"] for system in baselines["systems"])], lines)


def _line(name: str, ours: list[float], baselines: dict, key: str) -> list[str]:
    spread = f"{min(ours):.1f} to {max(ours):.1f}" if ours else "-"
    return [name, spread, "-", "-", *(f"{system[key]:.1f}" for system in baselines["systems"])]


def _own_figures(budgets: list[dict]) -> str:
    header = ["training s", "field", "seeds", "views", "PSNR dB", "range", "SSIM", "LPIPS", "steps", "GiB", "ms/frame"]
    header.append("model MB")
    lines = []
    for b in budgets:
        memory, model = b["peak_memory_bytes"], b["model_bytes"]
        lines.append(
            [
                f"{b['train_seconds']['median']:.1f}",
                b["field"],
                str(len(b["runs"])),
                str(b["views"]),
                _psnr(b["psnr"]),
                _range(b["psnr"]),
                f"{b['ssim']['median']:.4f}",
                f"{b['lpips']['median']:.4f}" if "lpips" in b else "-",
                f"{b['steps']['median']:.0f}",
                f"{memory['high'] / GIB:.2f}" if memory else "-",
                f"{1e3 * b['render_seconds_per_view']['median']:.2f}",
                f"{model['high'] / 1e6:.1f}" if model else "-",
            ]
        )
    return markdown_table(header, lines)


def _source(result: dict) -> str:
    size = "x".join(map(str, result["image_size"]))
    return (
        f"{result['scene']} {size}, {result['device']}, torch {result['torch']}, commit {result['commit']}, "
        f"{result['date'][:10]}: medians over the seeds, memory and model size the largest."
    )


def _about_baselines(baselines: dict) -> str:
    off = [
        f"{s['name']}'s first {s['excluded_seconds']:g} s, {s['excluded']}, are taken off"
        for s in baselines["systems"]
        if s["excluded_seconds"]
    ]
    memory = [f"{system['name']} {system['memory']}" for system in baselines["systems"]]
    return (
        f"Baselines, {baselines['device']}: {baselines['source']} {'; '.join(off)}. "
        "Between their scores lines are straight, "
        f"after their end the last one stands. Memory: {'; '.join(memory)}; here reserved by PyTorch.\n\n"
        f"{_published(baselines)}\n\n{baselines['published_source']}"
    )


def _published(baselines: dict) -> str:
    """A line for each figure that its authors published."""
    header = ["published", "PSNR dB", "background", "training s", "device", "frames/s"]
    lines = [
        [
            paper["name"],
            f"{paper['psnr']:.2f}",
            paper["background"],
            f"{paper['seconds']:g}" if paper["seconds"] else "-",
            paper["device"].removeprefix("an ").removeprefix("a ") if paper["device"] else "-",
            f"{paper['frames_per_second']:g}" if paper["frames_per_second"] else "-",
        ]
        for paper in baselines["published"]
    ]
    return markdown_table(header, lines)


def _psnr(spread: dict | None) -> str:
    return "-" if spread is None else f"{spread['median']:.2f}"


def _range(spread: dict | None) -> str:
    return "-" if spread is None else f"{spread['low']:.2f} to {spread['high']:.2f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
