"""The tables of a training step: its stages, as benchmark.py mode=step writes them, and what its kernels keep busy."""

from nerf.benchmarks.tables import markdown_table

UNITS = {"issue": "instructions", "l1": "first cache", "l2": "second cache", "dram": "memory"}
BUSY_FROM = 50  # microseconds; shorter kernels have no line


def step_table(result: dict) -> str:
    """One line for each stage, and what the step is of."""
    header = ["stage", "launches", "ms", "of step", "MB", "G operations", "G reductions/s", "roofline ms", "x roofline"]
    whole = sum(stage["ms"] for stage in result["stages"])
    lines = []
    for stage in result["stages"]:
        work, ms = stage["work"], stage["ms"]
        needs = ["-"] * 5
        if work is not None:
            needs = [
                f"{work['num_bytes'] / 1e6:.1f}",
                f"{work['operations'] / 1e9:.1f}" if work["operations"] else "-",
                f"{work['reductions'] / ms / 1e6:.0f}" if work["reductions"] else "-",
                f"{stage['floor_ms']:.3f}",
                f"{ms / stage['floor_ms']:.1f}",
            ]
        fraction = f"{100 * ms / whole:.0f}%"
        lines.append([stage["stage"], f"{stage['launches']:.0f}", f"{ms:.3f}", fraction, *needs])
    total = sum(stage["floor_ms"] or 0.0 for stage in result["stages"])
    lines.append(["all", "-", f"{whole:.3f}", "100%", "-", "-", "-", f"{total:.3f}", f"{whole / total:.1f}"])
    resolution = " x ".join(str(n) for n in result["resolution"])
    budget, idle = result["budget"], result["idle_share"]
    trained = f"{budget['seconds']:g} s" if budget["seconds"] else f"{budget['steps']} steps"
    waits = "" if idle is None else f"; the GPU waits for {100 * idle:.1f}% of it"
    ceilings = result["ceilings"]
    step = (
        f"{result['pixels']} pixels, {result['rays']} rays and {result['samples']} samples in a step of "
        f"{result['step_ms']:.2f} ms{waits}"
    )
    copy, products = ceilings["copy_bytes"] / 1e9, ceilings["matmul_operations"] / 1e12
    notes = [
        f"{result['scene']}, {result['field']}, {resolution} vertices, near the end of {trained}: {step}. "
        f"{result['device']}, torch {result['torch']}, commit {result['commit']}, {result['date'][:10]}.",
        "Milliseconds of a stage in steps that are queued one by one; the step as it trains. The roofline is what its "
        f"bytes, each moved once at {copy:.0f} GB/s, or its products, at {products:.1f} T operations/s, take at least, "
        "both measured beside it.",
    ]
    return "\n\n".join([markdown_table(header, lines), *notes])


def busy_table(result: dict) -> str:
    """One line for each kernel that takes long, with its busiest unit, and what all could take at least."""
    rows, notes = [], []
    for step in result["steps"]:
        for kernel in step["kernels"]:
            unit = max(UNITS, key=lambda name, of=kernel: of[name])
            if kernel["us"] >= BUSY_FROM:
                shares = [f"{kernel[name]}%" for name in UNITS]
                rows.append([step["scene"], kernel["kernel"], f"{kernel['us']:.0f}", *shares, UNITS[unit]])
        whole, least = step["kernels_us"], step["at_the_busiest_unit_us"]
        notes.append(f"{step['scene']} {least} of {whole} us, {100 * least / whole:.0f}%")
    header = ["scene", "kernel", "us", *UNITS.values(), "busiest"]
    note = (
        f"Were the busiest unit of each kernel busy all the time, all kernels would take: {'; '.join(notes)}. "
        f"{result['note']} {result['device']}, torch {result['torch']}, commit {result['commit']}, "
        f"{result['date'][:10]}."
    )
    return f"{markdown_table(header, rows)}\n\n{note}"
