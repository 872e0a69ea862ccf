"""The table of steps on several ranks, from what benchmark.py mode=ranks writes."""

from nerf.benchmarks.tables import markdown_table


def ranks_table(results: list[dict]) -> str:
    """One line for each result: the slowest rank beside one process of the same device, and what a rank sends."""
    header = [
        "grids",
        "ranks",
        "ms",
        "over the ideal",
        "grid part",
        "fullest part",
        "vertices",
        "MB",
        "of one",
        "sent a step, kB",
    ]
    alone = {_kind(result): result for result in results if len(result["ranks"]) == 1}
    lines, notes = [], []
    for result in sorted(results, key=lambda one: (one["device"], one["scene"], one["sparse"], len(one["ranks"]))):
        ranks = result["ranks"]
        timed = len(ranks) <= result["cores"]  # else ranks take turns
        slowest = max(rank["seconds_per_step"] for rank in ranks)
        one = alone.get(_kind(result))
        held, held_alone = _held(ranks), None if one is None else _held(one["ranks"])
        whole, grids = (
            _over_the_ideal(ranks, one["ranks"][0], name) if one is not None and timed else "-"
            for name in ("seconds_per_step", "grid_seconds_per_step")
        )
        sent = ranks[0]["bytes_per_step"]
        lines.append(
            [
                "sparse" if result["sparse"] else "dense",
                str(len(ranks)),
                f"{1e3 * slowest:.2f}" if timed else "-",
                whole,
                grids,
                f"{result['imbalance']:.2f} x",
                str(max(rank["vertices"] for rank in ranks)),
                f"{held / 1e6:.1f}",
                "-" if held_alone is None else f"{held / held_alone:.2f} x",
                ", ".join(f"{name} {count / 1e3:.0f}" for name, count in sent.items() if count >= 500) or "-",
            ]
        )
        cores = f"{result['cores']} cores"
        time_of = f"time of the {result['clock']}, {cores}" if timed else f"{cores}, so no time"
        resolution = " x ".join(map(str, result["resolution"]))
        size = f"{resolution} vertices, {result['rays_per_step']} rays"
        notes.append(
            f"{lines[-1][0]}, {len(ranks)}: {result['scene']}, {result['field']}, {size}, {result['device']}, "
            f"{time_of}; torch {result['torch']}, commit {result['commit']}, "
            f"{result['date'][:10]}, `{result['command']}`."
        )
    return "\n\n".join([markdown_table(header, lines), *notes])


def features_table(results: list[dict]) -> str:
    """One line for each batch: steps of one process with its features on the device and in host memory.

    results: files that hold several results of benchmark.py mode=ranks as "runs", the same but for train.features.
    """
    header = ["device", "rays a step", "samples", "on the device, MB", "ms", "in host memory, MB", "window", "ms"]
    header += ["time", "memory", "commit"]
    lines, notes = [], []
    for file in results:
        pairs: dict[int, dict[bool, dict]] = {}
        for run in file["runs"]:
            pairs.setdefault(run["rays_per_step"], {})[bool(_bytes(run)["in host memory"])] = run
        for rays, pair in sorted(pairs.items()):
            device, host = pair[False], pair[True]
            times = [run["ranks"][0]["seconds_per_step"] for run in (device, host)]
            held = [sum(n for kind, n in _bytes(run).items() if kind != "in host memory") for run in (device, host)]
            lines.append(
                [
                    device["device"], str(rays), f"{host['ranks'][0]['samples_per_step']:.0f}", f"{held[0] / 1e6:.1f}",
                    f"{1e3 * times[0]:.2f}", f"{held[1] / 1e6:.1f}", f"{_bytes(host)['brought'] / 1e6:.1f}",
                    f"{1e3 * times[1]:.2f}", f"{times[1] / times[0]:.2f} x", f"{held[0] / held[1]:.1f} x less",
                    host["commit"][:7],
                ]
            )  # fmt: skip
        last = file["runs"][-1]
        resolution = " x ".join(map(str, last["resolution"]))
        notes.append(
            f"{last['scene']}, {last['field']}, {resolution} vertices, {last['device']}, torch {last['torch']}, "
            f"{last['date'][:10]}, one run each; the last one's command: `{last['command']}`."
        )
    return "\n\n".join([markdown_table(header, lines), *notes])


def _bytes(run: dict) -> dict[str, int]:
    return run["ranks"][0]["scene_bytes"]


def _over_the_ideal(ranks: list[dict], alone: dict, name: str) -> str:
    """The slowest rank's time over that of one process divided by the ranks."""
    if alone.get(name) is None or any(rank.get(name) is None for rank in ranks):
        return "-"
    return f"{max(rank[name] for rank in ranks) * len(ranks) / alone[name]:.2f} x"


def _held(ranks: list[dict]) -> int:
    """The bytes of the scene on the rank that holds most."""
    return max(sum(rank["scene_bytes"].values()) for rank in ranks)


def _kind(result: dict) -> tuple:
    return tuple(str(result[name]) for name in ("device", "scene", "sparse", "resolution", "rays_per_step"))
