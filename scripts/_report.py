"""What a training run shows and leaves behind: progress bar, events, metrics, pictures."""

import datetime
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
from omegaconf import OmegaConf
from torch import Tensor
from tqdm import tqdm

from nerf import held_out
from nerf import images as pictures
from nerf.camera_paths import orbit, spiral
from nerf.cameras import Cameras
from nerf.config import Config
from nerf.datasets.posed_images import PosedImages
from nerf.evaluation import Scores, evaluate
from nerf.fields.field import Field
from nerf.ops.backend import Backend, device_name
from nerf.rendering import Rendering, render_image
from nerf.runs import background, depth_range, load_split
from nerf.sampler import RaySampler
from nerf.schedule import RunClock
from nerf.training import Report, TrainState, make_sampler

ROOT = Path(__file__).resolve().parents[1]
SHEET_ROWS = 4
ORBIT_VIEWS = 60
# Longest sides in pixels: a sheet and a video are to be looked at, and a CPU would render for longer than it trained.
SHEET_SIDE = 1024
ORBIT_SIDE = {"cuda": 1920, "cpu": 400}


def save_config(folder: Path, config: Config) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(OmegaConf.create(asdict(config)), folder / "config.yaml")


def commit() -> str:
    """The commit of the code that runs: of the checkout, else from NERF_COMMIT, else 'unknown'."""
    elsewhere = os.environ.get("NERF_COMMIT", "unknown")
    if not (ROOT / ".git").exists():  # a repository around the unpacked sources is not theirs
        return elsewhere
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return elsewhere
    return result.stdout.strip() if result.returncode == 0 else elsewhere


def provenance() -> dict[str, str]:
    """What a result has to say of where it comes from, beside its device."""
    return {
        "torch": torch.__version__,
        "commit": commit(),
        "command": " ".join(["python", *sys.argv]),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def image_size(cameras: Cameras) -> str:
    """The size of the cameras' images in words."""
    sizes = f"{cameras.width}x{cameras.height}"
    return sizes if cameras.sizes is None else f"of several sizes, up to {sizes}"


class progress_bar:  # noqa: N801 - used like a function
    """Step, PSNR, rays per second and time left of a run."""

    def __init__(self, clock: RunClock) -> None:
        self._bar = tqdm(total=100, bar_format="{percentage:3.0f}%|{bar}| {elapsed}<{remaining} {desc}")

    def __enter__(self) -> "progress_bar":
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def show(self, look: Report) -> None:
        self._bar.n = round(100 * look.progress)
        left = look.seconds * (1 - look.progress) / max(look.progress, 1e-6)
        dropped = f" dropped {look.dropped_rays} rays" if look.dropped_rays else ""
        left_out = f" left out {look.left_out_steps} steps" if look.left_out_steps else ""
        self._bar.set_description_str(
            f"step {look.step}/{look.total_steps} PSNR {look.psnr:.2f} dB "
            f"{look.rays_per_second / 1e3:.0f}k rays/s {look.samples_per_ray:.1f} samples/ray "
            f"{left:.0f} s left{dropped}{left_out}"
        )
        self._bar.refresh()


class RunReport:
    """Collects what a run did and writes it into its folder."""

    def __init__(self, folder: Path, config: Config, backend: Backend) -> None:
        self.folder, self.config, self.backend = folder, config, backend
        self._started = time.perf_counter()
        try:
            from torch.utils.tensorboard import SummaryWriter  # optional
        except ImportError:
            self._events = None
        else:
            self._events = SummaryWriter(str(folder))

    def add(self, look: Report) -> None:
        if self._events is not None:
            self._events.add_scalar("train/psnr", look.psnr, look.step)
            self._events.add_scalar("train/rays_per_second", look.rays_per_second, look.step)

    def peak_memory(self) -> int:
        """Bytes: what PyTorch reserved on the GPU, or the process' largest resident size on a CPU."""
        if self.backend.device.type == "cuda":
            return torch.cuda.max_memory_reserved(self.backend.device)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def finish(self, state: TrainState, cameras: Cameras, peak_memory: int) -> Scores:
        """Scores the run, writes metrics.json and the pictures, prints the table and the paths. Returns the scores.

        cameras: the training cameras as they were given.
        """
        config, clock = self.config, state.clock
        sampler, learned = make_sampler(config, state), state.cameras.to("cpu")
        split, every = config.evaluation.split, config.evaluation.every
        views = load_split(config.dataset, split)
        views = held_out.place(state.field, sampler, config, views, split, learned, cameras, every)
        scores, sheet = score_views(state.field, sampler, views, config, self.folder)
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
            "command": " ".join(["python", *sys.argv]),
            "torch": torch.__version__,
        }
        metrics |= held_out.pose_facts(config, learned, cameras)
        (self.folder / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
        if self._events is not None:
            self._events.add_scalar("test/psnr", metrics["psnr"]["mean"], clock.step)
            self._events.close()
        print_table(metrics, scores, state.field.voxel_size)
        print(self.folder / "metrics.json", sheet, sep="\n")
        try:
            print(write_orbit(state.field, sampler, learned, config, self.folder / "orbit.mp4"))
        except (OSError, RuntimeError, ValueError) as error:  # the result stands without its video
            print(f"no orbit video: {error}", file=sys.stderr)
        return scores


def score_views(
    field: Field, sampler: RaySampler, views: PosedImages, config: Config, folder: Path
) -> tuple[Scores, Path]:
    """Scores a split and writes its renders and a contact sheet (truth, render, depth, error) into the folder."""
    rows: list[list[Tensor]] = []
    count = len(range(0, len(views), config.evaluation.every))
    shown = {round(i * (count - 1) / max(1, SHEET_ROWS - 1)) * config.evaluation.every for i in range(SHEET_ROWS)}

    def keep(index: int, rendering: Rendering, truth: Tensor) -> None:
        pictures.save_png(folder / config.evaluation.split / f"{views.names[index]}.png", rendering.rgb)
        if index in shown:
            depth = pictures.color_depth(rendering.depth, rendering.opacity, *depth_range(sampler, views.cameras))
            row = [truth, rendering.rgb, depth, pictures.color_error(rendering.rgb, truth)]
            rows.append([pictures.shrunk(picture.cpu(), SHEET_SIDE) for picture in row])

    scores = evaluate(
        field,
        sampler,
        views,
        background(config, field),
        config.evaluation.every,
        keep,
        with_lpips=True,
        exposure=config.evaluation.exposure,
    )
    path = folder / "contact_sheet.png"
    height, width = (max(row[0].shape[axis] for row in rows) for axis in range(2))
    rows = [[pictures.framed(picture, width, height) for picture in row] for row in rows]
    pictures.save_png(path, pictures.contact_sheet(rows))
    return scores, path


def write_orbit(field: Field, sampler: RaySampler, cameras: Cameras, config: Config, path: Path) -> Path:
    """Renders an orbit around the scene as a video; in front of a scene that was seen from there alone, a spiral."""
    device = sampler.backend.device
    way = spiral if config.dataset.kind == "forward" else orbit
    path_cameras = way(cameras.to("cpu"), ORBIT_VIEWS).within(ORBIT_SIDE[device.type]).to(device)
    color = background(config, field)
    frames = (render_image(field, sampler, path_cameras, i, color).rgb.cpu() for i in range(ORBIT_VIEWS))
    pictures.write_video(path, frames)
    return path


def print_table(metrics: dict, scores: Scores, voxel_size: float) -> None:
    """The result in a few lines."""
    rows = [
        ("PSNR", f"{metrics['psnr']['mean']:.2f} dB over {len(scores.psnr)} {metrics['split']} views"),
        ("SSIM", f"{metrics['ssim']['mean']:.4f}"),
    ]
    if scores.lpips:
        rows.append(("LPIPS", f"{metrics['lpips']['mean']:.4f} (VGG, inputs in [-1,1])"))
    else:
        rows.append(("LPIPS", f"not computed: {scores.no_lpips}"))
    if scores.depth_error:
        error = metrics["median_depth_error"]["mean"]
        rows.append(("depth error", f"{error:.4f} world units, {error / voxel_size:.2f} voxels (median of hit pixels)"))
    for name, words in (("pose_change", "mean change of a pose"), ("pose_error", "mean error of a pose")):
        if name in metrics:
            angle, distance = metrics[name]["rotation_degrees"], metrics[name]["translation"]
            rows.append((name.replace("_", " "), f"{angle:.3f} degrees, {distance:.4f} world units ({words}, aligned)"))
    if "train_seconds" in metrics:
        rows.append(("training", f"{metrics['train_seconds']:.1f} s, {metrics['steps']} steps"))
        rows.append(("memory", f"{metrics['peak_memory_bytes'] / 2**30:.2f} GiB"))
    rows.append(("rendering", f"{1e3 * scores.seconds_per_view:.1f} ms per view"))
    if "device" in metrics:
        rows.append(("run by", f"backend {metrics['backend']} on {metrics['device']}"))
    print()
    for name, value in rows:
        print(f"{name:<12} {value}")
    print()
