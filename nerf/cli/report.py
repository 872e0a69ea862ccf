"""The report of a training run: progress bar, events, metrics, images."""

import datetime
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from omegaconf import OmegaConf
from tqdm import tqdm

from nerf.cameras.cameras import Cameras
from nerf.cli.scored_views import score_views, write_orbit
from nerf.config import renamed
from nerf.config.commands import as_typed, program
from nerf.config.schema import Config
from nerf.datasets.load import load_split
from nerf.evaluation import held_out_poses as held_out
from nerf.evaluation.scores import Scores
from nerf.files import METRICS, write_json, write_text
from nerf.images.metrics import SSIM_WINDOW
from nerf.ops.backend import Backend, device_name
from nerf.runs.open_run import of_state
from nerf.system import peak_memory
from nerf.training.loop import Callback, TrainMetrics
from nerf.training.state import TrainState
from nerf.training.voxel_budget import SMALLEST_GAIN

ROOT = Path(__file__).resolve().parents[2]
STARTED = time.perf_counter()  # before a command does anything: it imports this file


def save_config(folder: Path, config: Config, sources: Mapping[str, str]) -> None:
    """Writes config.yaml: every setting, with the source of its value as a comment.

    sources: source by setting. For a resumed run it is empty; then the comments of unchanged lines are kept.
    """
    path = folder / "config.yaml"
    before = _commented(path.read_text()) if path.exists() and not sources else {}
    lines = []
    for name, line in _named_lines(OmegaConf.to_yaml(OmegaConf.create(asdict(config)))):
        comment = sources.get(name) or before.get(_assignment(name, line), "")
        lines.append(f"{line}  # {comment}" if comment and comment != "default" else line)
    write_text(path, "\n".join(lines) + "\n")


def _named_lines(text: str) -> list[tuple[str, str]]:
    """The lines of a YAML config, each with the name of the setting that starts there."""
    found, group = [], ""
    for line in text.splitlines():
        name, colon, value = line.strip().partition(":")
        if line and not line.startswith((" ", "-")) and colon:
            group = "" if value.strip() else f"{name}."
            found.append((name, line))
        else:
            found.append((f"{group}{name}" if colon else "", line))
    return found


def _assignment(name: str, line: str) -> str:
    """The setting as NAME=VALUE with its current name, from a line that may have its old name."""
    return renamed.arguments([f"{name}={line.partition(':')[2].strip()}"])[0]


def _commented(text: str) -> dict[str, str]:
    """The comments in a file of save_config, by setting and value."""
    lines = [line.partition("  # ") for line in text.splitlines()]
    named = _named_lines("\n".join(line for line, _, _ in lines))
    pairs = zip(named, lines, strict=True)
    return {_assignment(name, line): comment for (name, line), (_, _, comment) in pairs if comment}


def commit() -> str:
    """The commit of the running code: of the checkout, else the environment variable NERF_COMMIT, else 'unknown'."""
    elsewhere = os.environ.get("NERF_COMMIT", "unknown")
    if not (ROOT / ".git").exists():  # git would find any repository around the unpacked sources
        return elsewhere
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return elsewhere
    return result.stdout.strip() if result.returncode == 0 else elsewhere


def provenance() -> dict[str, str]:
    """The origin of a result: PyTorch version, commit, command and date."""
    return {
        "torch": torch.__version__,
        "commit": commit(),
        "command": as_typed(sys.argv),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def log_stage(what: str) -> None:
    """Prints to stderr which stage of a command begins, after the seconds since STARTED."""
    print(f"{time.perf_counter() - STARTED:4.0f} s  {what}", file=sys.stderr, flush=True)


class progress_bar:  # noqa: N801 - used like a function
    """A progress bar with step, PSNR, rays per second and remaining time."""

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None  # seconds and progress at the first log
        self._bar = tqdm(total=100, bar_format="{percentage:3.0f}%|{bar}| {elapsed}<{remaining} {desc}")

    def __enter__(self) -> "progress_bar":
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def show(self, metrics: TrainMetrics) -> None:
        self._bar.n = round(100 * metrics.progress)
        self._first = self._first or (metrics.seconds, metrics.progress)
        seconds, done = metrics.seconds - self._first[0], metrics.progress - self._first[1]
        left = f" {seconds * (1 - metrics.progress) / done:.0f} s left" if done > 0 else ""
        dropped = f" dropped {metrics.dropped_rays} rays" if metrics.dropped_rays else ""
        skipped = f" skipped {metrics.skipped_steps} steps" if metrics.skipped_steps else ""
        self._bar.set_description_str(
            f"step {metrics.step}/{metrics.total_steps} PSNR {metrics.psnr:.2f} dB "
            f"{metrics.rays_per_second / 1e3:.0f}k rays/s {metrics.samples_per_ray:.1f} samples/ray"
            f"{left}{dropped}{skipped}",
            refresh=False,
        )
        self._bar.refresh()


class MoreVoxels(Callback):
    """Says once, after the last doubling, that a thin scene has more voxels than field.num_voxels."""

    def __init__(self, config: Config, note: Callable[[str], None]) -> None:
        self._note, self._levels = note, len(config.field.upsample_at)

    def on_grid_change(self, state: TrainState) -> None:
        if not self._levels or state.num_upsamplings < self._levels:
            return
        self._levels = 0
        usual = state.field.box.num_voxels(state.finest_voxel)
        cells = state.occupancy.occupied.numel()
        if cells >= SMALLEST_GAIN * usual:
            grid = "x".join(str(n - 1) for n in state.field.resolution)
            self._note(
                f"{grid} voxels, {cells / usual:.1f} times as many as field.num_voxels says: the scene occupies only "
                f"{state.occupancy.occupied_fraction:.1%} of them (field.sparse_gain=1 leaves them as they are)."
            )


class RunReport:
    """Writes the scores and images of a run into its folder."""

    def __init__(self, folder: Path, config: Config, backend: Backend) -> None:
        self.folder, self.config, self.backend = folder, config, backend
        self.scored = False  # whether metrics.json is that of this run

    def note(self, message: str) -> None:
        """Prints a message above the progress bar."""
        tqdm.write(f"note: {message}", file=sys.stderr)

    def peak_memory(self) -> int:
        """Peak bytes: of GPU memory that PyTorch reserved, or the process' resident memory on a CPU."""
        if self.backend.device.type == "cuda":
            return torch.cuda.max_memory_reserved(self.backend.device)
        return peak_memory()

    def finish(self, state: TrainState, cameras: Cameras, peak_memory: int) -> tuple[Scores, Path]:
        """Scores the run, writes metrics.json and the images, prints the table and the paths.

        cameras: the given training cameras. peak_memory: bytes, of training. Returns the scores and the contact sheet.
        """
        config, clock = self.config, state.clock
        trained = of_state(config, state, cameras)
        split = config.evaluation.split
        views = trained.align_views(load_split(config.dataset, split), split, config.evaluation.every)
        scores, sheet = score_views(trained.field, trained.sampler, views, config, self.folder)
        device = self.backend.device
        metrics = scores.summary() | {
            "train_seconds": clock.elapsed,
            "steps": clock.step,
            "pixels_per_second": clock.step * config.train.rays_per_step / clock.elapsed,
            "peak_memory_bytes": peak_memory,
            "backend": self.backend.name,
            "device": device_name(device),
            "commit": commit(),
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "seed": config.seed,
            "field": config.field.name,
            "resolution": list(state.field.resolution),
            "voxel_size": state.field.voxel_size,
            "scene": config.dataset.scene,
            "split": config.evaluation.split,
            "image_size": [views.cameras.width, views.cameras.height],
            "command": as_typed(sys.argv),
            "torch": torch.__version__,
        }
        metrics |= held_out.pose_facts(config, trained.cameras, cameras)
        if state.vignetting is not None:
            metrics["vignetting"] = state.vignetting.facts()
        write_json(self.folder / METRICS, metrics)
        self.scored = True
        print_table(metrics, scores, state.field.voxel_size)
        print(self.folder / "metrics.json", sheet, sep="\n")
        try:
            print(write_orbit(trained.field, trained.sampler, trained.cameras, config, self.folder / "orbit.mp4"))
        except (OSError, RuntimeError, ValueError) as error:  # the video is optional
            print(f"no orbit video: {error}", file=sys.stderr)
        print(f"look at it: {program('scripts/view.py', f'run={self.folder}')}")
        print(f"export it: {program('scripts/export.py', f'run={self.folder}', 'format=web')}")
        return scores, sheet


def _of_window(scores: Scores) -> str:
    if scores.ssim_window == SSIM_WINDOW:
        return ""
    return f" (a view is so small that the window has {scores.ssim_window} pixels, not {SSIM_WINDOW})"


def _of_some(values: Sequence[float]) -> str:
    """Of a score that some views have not."""
    known = sum(not math.isnan(value) for value in values)
    return "" if known == len(values) else f" (of {known} of {len(values)} views, the others have no value)"


def print_table(metrics: dict, scores: Scores, voxel_size: float) -> None:
    """Prints the scores as a table."""
    rows = [
        ("PSNR", f"{metrics['psnr']['mean']:.2f} dB over {len(scores.psnr)} {metrics['split']} views"),
        ("SSIM", f"{metrics['ssim']['mean']:.4f}{_of_window(scores)}{_of_some(scores.ssim)}"),
    ]
    if scores.lpips:
        rows.append(("LPIPS", f"{metrics['lpips']['mean']:.4f} (VGG, inputs in [-1,1])"))
    else:
        rows.append(("LPIPS", f"not computed: {scores.no_lpips}"))
    if scores.depth_error:
        error = metrics["median_depth_error"]["mean"]
        words = f"{error:.4f} world units, {error / voxel_size:.2f} voxels (median of hit pixels)"
        rows.append(("depth error", words + _of_some(scores.depth_error)))
    for name, words in (("pose_change", "mean change of a pose"), ("pose_error", "mean error of a pose")):
        if name in metrics:
            angle, distance = metrics[name]["rotation_degrees"], metrics[name]["translation"]
            rows.append((name.replace("_", " "), f"{angle:.3f} degrees, {distance:.4f} world units ({words}, aligned)"))
    if "train_seconds" in metrics:
        rows.append(("training", f"{metrics['train_seconds']:.1f} s, {metrics['steps']} steps"))
        rows.append(("memory", f"{metrics['peak_memory_bytes'] / 2**30:.2f} GiB"))
    if "ensemble" in metrics:
        seconds = metrics["ensemble_train_seconds"]
        took = "" if seconds is None else f", {seconds:.1f} s of training in all"
        rows.append(("ensemble", f"mean of the pictures of {len(metrics['ensemble'])} runs{took}"))
    rows.append(("rendering", f"{1e3 * scores.seconds_per_view:.1f} ms per view"))
    if "device" in metrics:
        rows.append(("run by", f"backend {metrics['backend']} on {metrics['device']}"))
    print()
    for name, value in rows:
        print(f"{name:<12} {value}")
    print()
