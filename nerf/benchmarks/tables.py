"""Tables in Markdown from measured results: dictionaries as ablate.py, benchmark.py and train.py write them."""

import re
import statistics

from nerf.benchmarks.figures import GIB, STAGES

HEADINGS = {"look": "query"}


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """A table with padded columns: numbers on the right, text on the left."""
    columns = [(max(map(len, column)), all(map(_is_number, column[1:]))) for column in zip(header, *rows, strict=True)]
    rule = ["-" * (width - 1) + ":" if right else "-" * width for width, right in columns]
    lines = []
    for line in (header, rule, *rows):
        cells = [c.rjust(w) if right else c.ljust(w) for c, (w, right) in zip(line, columns, strict=True)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def ablation_table(result: dict) -> str:
    """The rows of one ablation.json, the speed-ups and the PSNR after equal training."""
    native = {row["device"]: row for row in result["rows"] if row["label"] == "native"}
    header = ["device", "row", "steps", *(HEADINGS.get(stage, stage) for stage in STAGES)]
    header += ["operations", "step", "operations x", "step x", "GPU idle", "GiB"]
    lines = []
    for row in result["rows"]:
        if row["missing"] is not None:
            lines.append([row["device"], row["label"], *["-"] * (len(header) - 2)])
            continue
        base = native[row["device"]]
        stages = [_ms(row["stages_ms"].get(stage)) for stage in STAGES]
        lines.append(
            [
                row["device"],
                row["label"] + ("" if row["agrees"] else " WRONG"),
                str(row["steps"]),
                *stages,
                _ms(row["operations_ms"]),
                _ms(row["step_ms"]),
                _ratio(row["operations_ms"], base["operations_ms"]),
                _ratio(row["step_ms"], base["step_ms"]),
                f"{100 * idle:.0f}%" if (idle := row.get("idle_share")) is not None else "-",
                f"{row['peak_memory_bytes'] / GIB:.2f}" if row["peak_memory_bytes"] else "-",
            ]
        )
    resolution = " x ".join(str(n) for n in result["resolution"])
    rays = {row["device"]: row["rays_per_step"] for row in result["rows"]}
    machines = "; ".join(f"{d}: {name}, {rays[d]} rays a step" for d, name in result["devices"].items())
    notes = [
        f"{result['scene']}, {result['field']}, {resolution} vertices. {machines}. torch {result['torch']}, commit "
        f"{result['commit']}, {result['date'][:10]}.",
        "Milliseconds, the median of the steps. operations = march + interpolate + composite + backward; query = the "
        "density query that selects visible samples; x = times the native row; GPU idle = fraction of the time in "
        "which no kernel runs.",
    ]
    for device, found in result["speedups"].items():
        parts = [f"{n.replace('_', ' ')} {s['ratio']:.2f}x ({s['best_torch']})" for n, s in found.items()]
        notes.append(f"Native against the best PyTorch row on {device}: {', '.join(parts)}.")
    if result["trainings"]:
        parts = [
            f"{t['backend']} {t['psnr']['mean']:.2f} dB in {t['train_seconds']:.1f} s" for t in result["trainings"]
        ]
        first, second = (t["psnr"]["mean"] for t in result["trainings"])
        notes.append(
            f"{result['trainings'][0]['steps']} equal steps from scratch on {result['trainings'][0]['device']}: "
            f"{', '.join(parts)}, difference {first - second:+.3f} dB."
        )
    notes += [f"{row['label']} on {row['device']}: {row['missing']}." for row in result["rows"] if row["missing"]]
    return "\n\n".join([markdown_table(header, lines), *notes])


def training_table(runs: list[dict]) -> str:
    """One line for each metrics.json."""
    header = [
        "scene",
        "size",
        "field",
        "views",
        "seed",
        "device",
        "PSNR dB",
        "every 4th",
        "SSIM",
        "training s",
        "memory GiB",
        "ms/frame",
        "commit",
    ]
    lines = [
        [
            run["scene"],
            "x".join(map(str, run["image_size"])),
            run["field"],
            str(len(run["psnr"]["per_view"])),
            str(run["seed"]),
            run["device"],
            f"{run['psnr']['mean']:.2f}",
            _every_fourth(run["psnr"]["per_view"]),
            f"{run['ssim']['mean']:.4f}",
            f"{run['train_seconds']:.1f}",
            f"{run['peak_memory_bytes'] / GIB:.2f}",
            f"{1e3 * run['render_seconds_per_view']:.1f}",
            run["commit"],
        ]
        for run in runs
    ]
    return markdown_table(header, lines)


def ensemble_table(runs: list[dict]) -> str:
    """One line for all metrics.json of single runs, or of ensembles, that differ in their seeds alone."""
    alike: dict[tuple[str, ...], list[dict]] = {}
    for run in runs:
        commands = [member["command"] for member in run.get("ensemble", [run])]
        alike.setdefault(tuple(re.sub(r" (seed|hydra\.run\.dir)=\S+", "", one) for one in commands), []).append(run)

    def place(found: list[dict]) -> tuple:
        members = found[0].get("ensemble", found[:1])
        steps = sum(member["steps"] for member in members)
        return found[0]["scene"], found[0]["image_size"], _ran(found[0])["device"], steps, len(members)

    def line(found: list[dict]) -> list[str]:
        members = found[0].get("ensemble", found[:1])
        budgets = [_budget(member["command"]) for member in members]
        return [
            found[0]["scene"],
            "x".join(map(str, found[0]["image_size"])),
            budgets[0] if len(budgets) == 1 else f"{len(budgets)} x {' + '.join(dict.fromkeys(budgets))}",
            str(len(found[0]["psnr"]["per_view"])),
            _listed([run["psnr"]["mean"] for run in found], 2),
            _listed([run["ssim"]["mean"] for run in found], 4),
            f"{1e3 * statistics.fmean(run['render_seconds_per_view'] for run in found):.1f}",
            _ran(found[0])["device"],
            _ran(found[0])["commit"],
        ]

    header = ["scene", "size", "training", "views", "PSNR dB", "SSIM", "ms/frame", "device", "commit"]
    return markdown_table(header, [line(found) for found in sorted(alike.values(), key=place)])


def _listed(numbers: list[float], digits: int) -> str:
    """Each number, or of more than five their range."""
    if len(numbers) > 5:
        return f"{min(numbers):.{digits}f} to {max(numbers):.{digits}f} ({len(numbers)} seeds)"
    return ", ".join(f"{number:.{digits}f}" for number in numbers)


def _ran(run: dict) -> dict:
    """Who scored a run: whatever trained it, or evaluate.py."""
    return run.get("scored_by", run)


def _budget(command: str) -> str:
    """How long a training command trains, and whether it learns the poses too."""
    name, count = re.search(r"train\.(steps|max_seconds)=(\d+)", command).groups()
    refined = ", refined" if "poses=refine" in command.split() else ""
    return f"{count} {'steps' if name == 'steps' else 's'}{refined}"


def frames_table(runs: list[dict]) -> str:
    """One line for each metrics.json of evaluate.py: one model shown with more or fewer rays a pixel."""
    header = ["scene", "size", "rays a pixel", "views", "PSNR dB", "SSIM", "ms/frame", "device", "trained s", "commit"]
    lines = [
        [
            run["scene"],
            "x".join(map(str, run["image_size"])),
            str(run["rays_per_pixel"]),
            str(len(run["psnr"]["per_view"])),
            f"{run['psnr']['mean']:.2f}",
            f"{run['ssim']['mean']:.4f}",
            f"{1e3 * run['render_seconds_per_view']:.2f}",
            run["scored_by"]["device"],
            f"{run['train_seconds']:.1f}",
            run["scored_by"]["commit"],
        ]
        for run in runs
    ]
    return markdown_table(header, lines)


def benchmark_table(result: dict) -> str:
    """A line for each case of one benchmark.json, then naive against optimized kernels if these were measured."""
    directions = ("forward", "backward", "accumulate")
    header = ["operation", "case"]
    for direction in directions:
        header += [f"{direction} ms", "x roofline", "x torch"]
    header.append("both x torch")
    found = {(s["op"], s["case"], s["direction"]): s for s in result["summaries"]}
    lines = []
    for op, case in dict.fromkeys((op, case) for op, case, _ in found):
        line = [f"`{op}`", case]
        for direction in directions:
            s = found.get((op, case, direction))
            if s is None:
                line += ["-"] * 3
            else:
                line += [_milliseconds(s["cold_ms"]["fast"]), f"{s['times_floor']:.2f}", _times(s["cold_ms"]["ratio"])]
        both = found.get((op, case, "forward + backward"))
        lines.append([*line, _times(both and both["cold_ms"]["ratio"])])
    ceilings = result["ceilings"]
    best = [f"copy {ceilings['copy_bytes']['median'] / 1e9:.0f} GB/s"]
    if ceilings["gather_bytes"] is not None:
        best += [
            f"gather of random 128-byte lines {ceilings['gather_bytes']['median'] / 1e9:.0f} GB/s",
            f"{ceilings['lookups']['median'] / 1e9:.0f} G random numbers/s",
            f"random reductions {ceilings['scalar_reductions']['median'] / 1e9:.1f} G floats/s one at a time, "
            f"{ceilings['vector_reductions']['median'] / 1e9:.1f} G floats/s four at a time",
        ]
    launch, lookup = (1e3 * ceilings[name]["median"] for name in ("launch_ms", "lookup_ms"))
    smallest = f"the smallest call {launch:.1f} us, one that reads where another read says {lookup:.1f} us"
    notes = [
        f"{result['device']}, size {result['size']}. torch {result['torch']}, commit {result['commit']}, "
        f"{result['date'][:10]}. Measured ceilings: {', '.join(best)}; {smallest}.",
        "Milliseconds of our fast code, the median of runs from cold caches. x roofline = over the time of "
        "a copy of the bytes that the case has to move; x torch = the fastest correct PyTorch row over ours. "
        "backward fills the gradient with zeros first; accumulate adds to one that is there, PyTorch's being its "
        "backward less that fill.",
    ]
    if result["left_out"]:
        notes.append(f"There was no time left for {'; '.join(result['left_out'])}.")
    parts = [markdown_table(header, lines), *notes]
    if result["ladder"]:
        gains = [
            [
                f"`{gain['op']}`",
                gain["case"],
                gain["direction"],
                _milliseconds(gain["plain_ms"]),
                _milliseconds(gain["fast_ms"]),
                _times(gain["gain"]),
            ]
            for gain in result["ladder"]
        ]
        parts.append(markdown_table(["operation", "case", "direction", "naive ms", "optimized ms", "gain"], gains))
        ideas = {gain["op"]: f"`{gain['op']}`: {gain['plain']} -> {gain['fast']}" for gain in result["ladder"]}
        parts.append(f"Naive -> optimized. {'. '.join(ideas.values())}.")
    return "\n\n".join(parts)


def benchmark_rows_table(result: dict) -> str:
    """Every row of one benchmark.json in every direction."""
    header = ["operation", "case", "direction", "row", "cold ms", "warm ms", "max error", "RMS error"]
    header += ["% of copy", "G reductions/s", "x roofline"]
    lines, notes = [], []
    for case in result["cases"]:
        for row in case["rows"]:
            if row["missing"] is not None:
                notes.append(f"{row['label']} ({case['op']}: {case['case']}): {row['missing']}.")
                continue
            for direction, figures in row["directions"].items():
                less = " (less zero-fill)" if figures.get("less_zero_fill") else ""
                reductions = figures["reductions_per_second"]
                lines.append(
                    [
                        case["op"],
                        case["case"],
                        direction + less,
                        row["label"] + (" WRONG" if figures["agrees"] is False else ""),
                        _milliseconds(figures["cold_ms"]["median"]),
                        _milliseconds(figures["warm_ms"]["median"]),
                        _error(figures["error_max"]),
                        _error(figures["error_rms"]),
                        f"{100 * figures['share_of_copy']:.0f}",
                        f"{reductions / 1e9:.2f}" if reductions else "-",
                        f"{figures['times_floor']:.2f}",
                    ]
                )
    return "\n\n".join([markdown_table(header, lines), *notes])


def _every_fourth(per_view: list[float]) -> str:
    """Mean over the 50 of the official 200 views on which the baselines were scored."""
    return f"{statistics.fmean(per_view[::4]):.2f}" if len(per_view) == 200 else "-"


def _ms(summary: dict | None) -> str:
    if summary is None:
        return "-"
    return _milliseconds(summary["median"])


def _milliseconds(value: float) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"


def _ratio(summary: dict | None, base: dict) -> str:
    return "-" if summary is None else f"{summary['median'] / base['median']:.2f}"


def _is_number(cell: str) -> bool:
    return cell == "-" or cell.replace(".", "", 1).isdigit()
