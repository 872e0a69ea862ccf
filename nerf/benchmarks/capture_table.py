"""Tables of runs on captures and of runs that learn poses: dictionaries as train.py writes them.

Runs that differ in their seed alone share a line: medians, and the range of PSNR over the seeds.
"""

import shlex
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from nerf.benchmarks.figures import GIB
from nerf.benchmarks.tables import markdown_table
from nerf.config import renamed

# What every run of a table has, or what its other columns say.
TOLD = (
    "device=", "dataset=", "dataset.root=", "dataset.skip_missing=", "evaluation.every=", "train.max_seconds=", "seed=",
    "hydra.",
)  # fmt: skip
CLOCK_TOLERANCE = 0.5  # seconds; a clock is looked at between steps, and a run ends after its last one
LONG = 60  # characters; settings that are longer stand below their table


def captures_table(runs: list[dict]) -> str:
    """One line for each capture and its settings."""
    header = ["capture", "size", "settings", "device", "seeds", "views", "PSNR dB", "range", "SSIM", *COMMON_HEADER]
    below = Below()
    lines = [
        [
            seeds[0]["scene"],
            "x".join(map(str, seeds[0]["image_size"])),
            below.cell(settings(seeds[0])),
            seeds[0]["device"],
            str(len(seeds)),
            str(len(seeds[0]["psnr"]["per_view"])),
            *scores(seeds),
            *common(seeds),
        ]
        for seeds in by_settings(runs)
    ]
    return "\n\n".join([markdown_table(header, lines), *below.notes()])


def capture_baselines_table(files: list[dict]) -> str:
    """One line for each intermediate score of another system's runs on the captures; what they are is in the file.

    A file whose key "here" holds runs of this project on the same card has them below those of their capture, and a
    note that names each score at which the other system is ahead.
    """
    header = ["capture", "system", "recipe", "device", "training s", "steps", "PSNR dB", "SSIM", "memory GiB"]
    lines = [
        [
            run["scene"],
            system,
            run["recipe"],
            file["device"].removeprefix("NVIDIA "),
            f"{look['seconds']:.0f}",
            f"{look['steps']} of {run['of_steps']}" if "of_steps" in run else str(look["steps"]),
            f"{look['psnr']['mean']:.2f}",
            f"{look['ssim']['mean']:.4f}",
            f"{run['peak_memory_gib']:.1f}",
        ]
        for file in files
        for system, run in _beside_each_other(file)
        for look in run["looks"]
    ]
    notes = [note for file in files for note in (file["source"], *_ahead(file))]
    return "\n\n".join([markdown_table(header, lines), *notes])


def _beside_each_other(file: dict) -> list[tuple[str, dict]]:
    """The runs of a file with the name of their system: of each capture the other system's, then this project's."""
    here = file.get("here", {"runs": []})
    runs = [(f"{file['system']} {file['commit']}", run) for run in file["runs"]]
    runs += [(f"nerf-voxel {run['commit'][:7]}", run) for run in here["runs"]]
    scenes = list(dict.fromkeys(run["scene"] for _, run in runs))
    return sorted(runs, key=lambda entry: scenes.index(entry[1]["scene"]))


def _ahead(file: dict) -> list[str]:
    """Where the other system of a file is ahead of the runs here, in words; nothing where there are none.

    Each of its scores stands against the best PSNR here on the same capture that was reached no later.
    """
    if "here" not in file:
        return []
    found, compared = [], 0
    for run in file["runs"]:
        looks = [look for ours in file["here"]["runs"] if ours["scene"] == run["scene"] for look in ours["looks"]]
        for theirs in run["looks"]:
            earlier = [look for look in looks if look["seconds"] <= theirs["seconds"] + CLOCK_TOLERANCE]
            if not earlier:
                continue
            compared += 1
            ours = max(earlier, key=lambda look: look["psnr"]["mean"])
            behind = [
                f"{ours[name]['mean']:.{digits}f} here against {theirs[name]['mean']:.{digits}f}{unit}"
                for name, digits, unit in (("psnr", 2, " dB"), ("ssim", 4, " in SSIM"))
                if theirs[name]["mean"] > ours[name]["mean"]
            ]
            if behind:
                found.append(f"{run['scene']}, {run['recipe']}, {theirs['seconds']:.0f} s: {' and '.join(behind)}")
    told = f"Of {compared} scores {file['system']} is ahead at {len(found) or 'none'}"
    return [f"{told}{': ' + '; '.join(found) if found else ''}."]


def poses_table(runs: list[dict]) -> str:
    """One line for each setting of runs whose poses were perturbed: errors before and after alignment.

    Poses that are taken from another run have no errors of their own: theirs stand in that run's line.
    """
    header = ["scene", "size", "settings", "device", "seeds", "views", "PSNR dB", "range", "SSIM"]
    header += ["degrees before", "after", "largest", "distance before", "after", *COMMON_HEADER]
    lines, below = [], Below()
    for seeds in by_settings(runs):
        run = seeds[0]
        line = [run["scene"], "x".join(map(str, run["image_size"])), below.cell(settings(run)), run["device"]]
        line += [str(len(seeds)), str(len(run["psnr"]["per_view"])), *scores(seeds)]
        for key, digits in (("rotation_degrees", 3), ("max_rotation_degrees", 3), ("translation", 4)):
            names = ("pose_error",) if key.startswith("max") else ("pose_error_before", "pose_error")
            for name in names:
                found = [run[name][key] for run in seeds if run.get(name)]
                line.append(f"{statistics.median(found):.{digits}f}" if found else "-")
        lines.append(line + common(seeds))
    return "\n\n".join([markdown_table(header, lines), *below.notes()])


@dataclass
class Below:
    """Settings too long for a cell, which has a letter instead."""

    letters: dict[str, str] = field(default_factory=dict)

    def cell(self, text: str) -> str:
        if len(text) <= LONG:
            return text
        return self.letters.setdefault(text, chr(ord("A") + len(self.letters)))

    def notes(self) -> list[str]:
        return [f"{letter}: {text}." for text, letter in self.letters.items()]


def by_settings(runs: list[dict]) -> list[list[dict]]:
    """Runs in groups that differ in their seed alone, in the order of their seeds."""
    groups: dict[tuple, list[dict]] = {}
    for run in runs:
        length = round(run["train_seconds"]) if "train.max_seconds=" in run["command"] else run["steps"]
        key = (run["scene"], *run["image_size"], settings(run), run["device"], run["commit"], length)
        groups.setdefault(key, []).append(run)
    return [sorted(group, key=lambda run: run["seed"]) for group in groups.values()]


def scores(seeds: list[dict]) -> list[str]:
    """PSNR, its range over the seeds, and SSIM."""
    psnrs = [run["psnr"]["mean"] for run in seeds]
    spread = f"{min(psnrs):.2f} to {max(psnrs):.2f}" if len(seeds) > 1 else "-"
    return [f"{statistics.median(psnrs):.2f}", spread, f"{median(seeds, lambda run: run['ssim']['mean']):.4f}"]


COMMON_HEADER = ("training s", "memory GiB", "ms/frame", "commit")


def common(seeds: list[dict]) -> list[str]:
    """The cells of COMMON_HEADER; of memory the largest."""
    return [
        f"{median(seeds, lambda run: run['train_seconds']):.0f}",
        f"{max(run['peak_memory_bytes'] for run in seeds) / GIB:.1f}",
        f"{1e3 * median(seeds, lambda run: run['render_seconds_per_view']):.1f}",
        seeds[0]["commit"],
    ]


def median(seeds: list[dict], figure: Callable[[dict], float]) -> float:
    return statistics.median(map(figure, seeds))


def settings(run: dict) -> str:
    """The overrides of a run's command that no other column shows, by the present names of the settings."""
    overrides = [word for word in renamed.arguments(shlex.split(run["command"])[2:]) if not word.startswith(TOLD)]
    return " ".join(f"`{override}`" for override in overrides) or "-"
