"""The ablation as a picture: one bar a row, one color a stage, one panel a device."""

from pathlib import Path

from nerf.files import replacing

STAGE_COLORS = {
    "march": "#4c72b0",
    "look": "#64b5cd",
    "interpolate": "#55a868",
    "composite": "#8172b2",
    "backward": "#c44e52",
    "adam": "#dd8452",
    "rest": "#b0b0b0",
}


def plot_ablation(result: dict, path: Path) -> bool:
    """Draws what ablation.json holds. Returns False where matplotlib is missing. Raises UserError, naming path."""
    try:
        from matplotlib.figure import Figure  # optional
    except ImportError:
        return False
    devices = result["devices"]
    figure = Figure(figsize=(12, 1.2 + 3.6 * len(devices)), layout="constrained")
    panels = figure.subplots(len(devices), 1, squeeze=False)[:, 0]
    for panel, (device, name) in zip(panels, devices.items(), strict=True):
        rows = [row for row in result["rows"] if row["device"] == device and row["missing"] is None]
        left = [0.0] * len(rows)
        for stage, color in STAGE_COLORS.items():
            width = [row["stages_ms"][stage]["median"] if row["stages_ms"] else 0.0 for row in rows]
            panel.barh(range(len(rows)), width, left=left, color=color, label=stage)
            left = [a + b for a, b in zip(left, width, strict=True)]
        whole = [0.0 if row["stages_ms"] else row["step_ms"]["median"] for row in rows]
        if any(whole):
            panel.barh(range(len(rows)), whole, left=left, color="#505050", label="whole step as one CUDA graph")
        for y, row in enumerate(rows):
            panel.text(left[y] + whole[y], y, f" {row['step_ms']['median']:.2f}", va="center", fontsize=8)
        labels = [row["label"] + ("" if row["agrees"] else " WRONG") for row in rows]
        panel.set_yticks(range(len(rows)), labels, fontsize=8)
        panel.invert_yaxis()
        panel.set_xlim(right=1.08 * max((a + b for a, b in zip(left, whole, strict=True)), default=1.0))
        panel.set_xlabel("median milliseconds of a training step")
        panel.set_title(f"{name}, {rows[0]['rays_per_step']} rays a step" if rows else name, fontsize=10)
        panel.legend(fontsize=8, ncols=2, loc="lower right")
    resolution = " x ".join(str(n) for n in result["resolution"])
    figure.suptitle(
        f"{result['scene']}, {result['field']}, {resolution} vertices, torch {result['torch']}, "
        f"commit {result['commit']}",
        fontsize=10,
    )
    with replacing(path) as partial:
        figure.savefig(partial, dpi=120, format="png")
    return True
