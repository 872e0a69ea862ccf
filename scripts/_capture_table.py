"""Tables of runs on captures and of runs that learn poses: dictionaries as train.py writes them."""

import shlex

from _tables import GIB, markdown_table

# What every run of a table has, or what its other columns say.
TOLD = (
    "device=", "dataset=", "dataset.root=", "dataset.skip_missing=", "evaluation.every=", "train.max_seconds=", "seed=",
    "hydra.",
)  # fmt: skip


def captures_table(runs: list[dict]) -> str:
    """One line for each metrics.json of a capture."""
    header = ["capture", "size", "settings", "device", "seed", "views", "PSNR dB", "SSIM", *COMMON_HEADER]
    lines = [
        [
            run["scene"],
            "x".join(map(str, run["image_size"])),
            settings(run),
            run["device"],
            str(run["seed"]),
            str(len(run["psnr"]["per_view"])),
            f"{run['psnr']['mean']:.2f}",
            f"{run['ssim']['mean']:.4f}",
            *common(run),
        ]
        for run in runs
    ]
    return markdown_table(header, lines)


def capture_peers_table(files: list[dict]) -> str:
    """One line for each look at another system's runs on the captures; what they are is in the file."""
    header = ["capture", "system", "recipe", "training s", "steps", "PSNR dB", "SSIM", "memory GiB"]
    lines = [
        [
            run["scene"],
            f"{file['system']} {file['commit']}",
            run["recipe"],
            f"{look['seconds']:.0f}",
            f"{look['steps']} of {run['of_steps']}",
            f"{look['psnr']['mean']:.2f}",
            f"{look['ssim']['mean']:.4f}",
            f"{run['peak_memory_gib']:.1f}",
        ]
        for file in files
        for run in file["runs"]
        for look in run["looks"]
    ]
    return markdown_table(header, lines) + "\n\n" + "\n\n".join(file["source"] for file in files)


def poses_table(runs: list[dict]) -> str:
    """One line for each metrics.json of a run whose poses were perturbed: errors before and after, once aligned.

    Poses that are taken from another run have none of their own: theirs stand in its line.
    """
    header = ["scene", "size", "settings", "device", "seed", "views", "PSNR dB", "SSIM"]
    header += ["degrees before", "after", "largest", "distance before", "after", *COMMON_HEADER]
    lines = []
    for run in runs:
        before, after = run.get("pose_error_before"), run.get("pose_error")
        line = [run["scene"], "x".join(map(str, run["image_size"])), settings(run), run["device"], str(run["seed"])]
        line += [str(len(run["psnr"]["per_view"]))]
        line += [f"{run['psnr']['mean']:.2f}", f"{run['ssim']['mean']:.4f}"]
        line += [f"{errors['rotation_degrees']:.3f}" if errors else "-" for errors in (before, after)]
        line += [f"{after['max_rotation_degrees']:.3f}" if after else "-"]
        line += [f"{errors['translation']:.4f}" if errors else "-" for errors in (before, after)]
        lines.append(line + common(run))
    return markdown_table(header, lines)


COMMON_HEADER = ("training s", "memory GiB", "ms/frame", "commit")


def common(run: dict) -> list[str]:
    """The cells of COMMON_HEADER."""
    memory, frame = run["peak_memory_bytes"] / GIB, 1e3 * run["render_seconds_per_view"]
    return [f"{run['train_seconds']:.0f}", f"{memory:.1f}", f"{frame:.1f}", run["commit"]]


def settings(run: dict) -> str:
    """The overrides of a run's command that no other column shows."""
    overrides = [word for word in shlex.split(run["command"])[2:] if not word.startswith(TOLD)]
    return " ".join(f"`{override}`" for override in overrides) or "-"
