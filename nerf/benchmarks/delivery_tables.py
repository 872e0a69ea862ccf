"""The tables of what benchmark.py mode=viewer and mode=exports write."""

from nerf.benchmarks.tables import markdown_table


def viewer_table(results: list[dict]) -> str:
    """Two lines for each run: a page at rest, and one whose camera moves."""
    header = ["scene", "device", "page", "steps take longer by", "range", "pictures/s", "step ms", "commit"]
    lines = []
    for result in results:
        for kind in ("still", "moving"):
            page = result[kind]
            low, high = min(page["all"]), max(page["all"])
            lines.append(
                [
                    result["scene"], result["device"], {"still": "at rest", "moving": "moving"}[kind],
                    f"{100 * page['cost']:.1f}%", f"{100 * low:.1f}% to {100 * high:.1f}%",
                    f"{page['pictures_per_second']:.1f}", f"{result['step_ms']:.2f}", result["commit"][:7],
                ]
            )  # fmt: skip
    window = "x".join(map(str, results[0]["window"]))
    return f"{markdown_table(header, lines)}\n\nA window of {window}; medians and ranges of three parts of a run."


def exports_table(results: list[dict]) -> str:
    """A line for each format of each run, and for splats as Spark draws them."""
    header = ["scene", "format", "size", "MB", "beside photos dB", "beside ours dB", "ours beside photos dB"]
    header += ["views", "device", "commit"]
    lines = []
    for result in results:
        for name, found in _formats(result).items():
            if name.startswith("splats"):
                size = f"{found['count']} Gaussians"
            if name == "mesh":
                off, bare = found["voxels_off"], 100 * found["uncovered"]
                size = f"{found['triangles']} triangles, {off['median']:.2f} voxels off, {bare:.2f}% bare"
            if name == "web":
                size = f"{found['gpu_bytes'] / 1e6:.0f} MB on the GPU, distilled {found['distilled_psnr']:.1f} dB"
            beside = [f"{found[key]['mean']:.2f}" if key in found else "-" for key in ("photos", "ours")]
            lines.append(
                [
                    result["scene"], name, size, f"{found['bytes'] / 1e6:.1f}", *beside,
                    f"{result['run']['photos']['mean']:.2f}", str(len(result["views"])), result["device"],
                    result["commit"][:7],
                ]
            )  # fmt: skip
    return markdown_table(header, lines)


def _formats(result: dict) -> dict[str, dict]:
    """The formats of a run in their order; splats as Spark draws them are further ones."""
    found = {name: result[name] for name in ("web", "splats") if name in result}
    splats = result.get("splats", {})
    for name, key in (("splats in Spark", "spark"), ("splats in Spark, extSplats", "spark_full")):
        if "photos" in splats.get(key, {}):
            found[name] = splats | splats[key]
    return found | {name: result[name] for name in ("mesh",) if name in result}
