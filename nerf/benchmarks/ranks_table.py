"""The table of steps on several ranks, from what benchmark.py mode=ranks writes."""

from nerf.benchmarks.tables import markdown_table


def ranks_table(results: list[dict]) -> str:
    """One line for each result: the slowest rank beside one process of the same device, and what a rank sends."""
    header = ["device", "ranks", "ms", "over the ideal", "fullest part", "vertices", "moments MB", "sent a step, kB"]
    alone = {_kind(result): result for result in results if len(result["ranks"]) == 1}
    lines, notes = [], []
    for result in sorted(results, key=lambda one: (one["device"], one["scene"], len(one["ranks"]))):
        ranks = result["ranks"]
        slowest = max(rank["seconds_per_step"] for rank in ranks)
        one = alone.get(_kind(result))
        ideal = "-" if one is None else f"{slowest * len(ranks) / one['ranks'][0]['seconds_per_step']:.2f} x"
        sent = ranks[0]["bytes_per_step"]
        lines.append(
            [
                result["device"],
                str(len(ranks)),
                f"{1e3 * slowest:.2f}",
                ideal,
                f"{result['imbalance']:.2f} x",
                str(max(rank["vertices"] for rank in ranks)),
                f"{max(rank['moments_bytes'] for rank in ranks) / 1e6:.1f}",
                ", ".join(f"{name} {count / 1e3:.0f}" for name, count in sent.items() if count >= 500) or "-",
            ]
        )
        resolution = " x ".join(map(str, result["resolution"]))
        size = f"{resolution} vertices, {result['rays_per_step']} rays"
        notes.append(
            f"{len(ranks)}: {result['scene']}, {result['field']}, {size}, "
            f"time of the {result['clock']}; torch {result['torch']}, commit {result['commit']}, "
            f"{result['date'][:10]}, `{result['command']}`."
        )
    return "\n\n".join([markdown_table(header, lines), *notes])


def _kind(result: dict) -> tuple[str, str, int]:
    return result["device"], result["scene"], result["rays_per_step"]
