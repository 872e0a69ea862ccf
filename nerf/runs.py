"""A run from its settings to its pictures: what scripts/ and notebooks share (`import nerf` brings these names).

TrainingRun trains and saves; OpenRun is a trained one that renders. Files go through nerf/checkpoint.py here alone.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nerf import checkpoint, held_out
from nerf.cameras import Cameras
from nerf.config import Config, DatasetConfig, build, unknown_setting
from nerf.datasets.blender import find_scene, load_blender
from nerf.datasets.posed_images import PosedImages
from nerf.datasets.ray_batches import place_images
from nerf.errors import UserError
from nerf.evaluation import Scores, evaluate
from nerf.fields.field import Field
from nerf.interrupts import StopOnInterrupt
from nerf.ops.backend import Backend, select
from nerf.rendering import Rendering, render_image
from nerf.sampler import RaySampler
from nerf.training import Report, TrainState, make_sampler, prepare, resolve, train

DATA = Path(__file__).resolve().parents[1] / "data"
OUTPUTS = Path("outputs")
# What a group's own name means on a command line.
GROUP_NAMES = {"dataset": "dataset.scene", "field": "field.name", "poses": "poses.mode"}


@dataclass(frozen=True)
class OpenRun:
    """A trained run: all that rendering needs."""

    folder: Path | None  # None: it was never saved
    config: Config
    field: Field
    sampler: RaySampler
    cameras: Cameras  # of training, on the CPU; where poses were learned, as they were learned
    given_cameras: Cameras  # the same as the data set has them

    def render(self, cameras: Cameras, index: int = 0) -> Rendering:
        """One camera's image, in host memory: rgb [H,W,3] over the run's background, opacity [H,W], depth [H,W]."""
        device = self.sampler.backend.device
        color = background(self.config, device)
        seen = render_image(self.field, self.sampler, cameras.to(device), index, color)
        return Rendering(seen.rgb.cpu(), seen.opacity.cpu(), seen.depth.cpu())

    def evaluate(self, split: str = "test", every: int = 1) -> Scores:
        """PSNR, SSIM, and LPIPS and geometry where they can be had, of every k-th view of train, val or test."""
        color = background(self.config, self.sampler.backend.device)
        views = self.views(split, every)
        exposure = self.config.evaluation.exposure
        return evaluate(self.field, self.sampler, views, color, every, with_lpips=True, exposure=exposure)

    def views(self, split: str, every: int = 1) -> PosedImages:
        """The views of a split, seen from where the scene was learned (evaluation.view_poses)."""
        views = load_split(self.config.dataset, split)
        cameras = (self.cameras, self.given_cameras)
        return held_out.place(self.field, self.sampler, self.config, views, split, *cameras, every)


@dataclass(frozen=True)
class TrainingRun:
    """A run that trains: its settings, resolved for the device, its images, and what changes while it trains."""

    config: Config
    images: PosedImages
    state: TrainState

    @property
    def finished(self) -> bool:
        """Whether the schedule is at its end."""
        return self.state.clock.finished

    def train(self) -> Iterator[Report]:
        """Trains to the end of the schedule, yielding a Report every train.log_every steps.

        It may be left at any time: by break, by an exception, or by an interrupt (Ctrl-C, a notebook's stop button),
        which arrives as KeyboardInterrupt between two steps. The next call goes on as if there had been no stop.

        Raises nerf.training.TrainingStopped where it cannot go on: a number that is not finite, an empty grid.
        """
        reports = train(self.config, self.state, lambda: interrupt.asked)
        while True:
            with StopOnInterrupt() as interrupt:
                look = next(reports, None)
            if interrupt.asked:
                raise KeyboardInterrupt(f"stopped after step {self.state.clock.step}; train() goes on")
            if look is None:
                return
            yield look

    def save(self, folder: str | Path) -> Path:
        """Writes what load() and resume() read; returns the folder. Raises UserError where it cannot be written."""
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{folder} cannot be made: {error.strerror}; save into another folder.") from error
        checkpoint.save(folder, self.config, self.state, self.images.cameras)
        return folder

    def open(self) -> OpenRun:
        """The run as it is now, to render; further training shows in it until the grids double."""
        sampler, learned = make_sampler(self.config, self.state), self.state.cameras.to("cpu")
        return OpenRun(None, self.config, self.state.field, sampler, learned, self.images.cameras)


def settings(values: Mapping[str, Any]) -> Config:
    """The settings of a run by the names of the command line: {"dataset": "lego", "train.max_seconds": 60}.

    Raises UserError for an unknown name (with the nearest right one), a wrong type or a value out of range.
    """
    groups = {name: vars(default) for name, default in vars(Config()).items() if is_dataclass(default)}
    nested: dict[str, Any] = {}
    for name, value in values.items():
        group, dot, leaf = GROUP_NAMES.get(name, name).partition(".")
        if dot != ("." if group in groups else ""):
            raise UserError(unknown_setting(name, [f"{known}.{leaf}" for known in groups for leaf in groups[known]]))
        if dot:
            nested.setdefault(group, {})[leaf] = value
        else:
            nested[group] = value
    dataset = nested.get("dataset", {})
    if dataset.get("root") and "scene" not in dataset:
        dataset["scene"] = Path(dataset["root"]).name
    return build(Config, nested)


def start(config: Config) -> TrainingRun:
    """A fresh run: chooses backend and device, reads the images, finds the scene's box. Nothing is written.

    Raises UserError for settings out of range, a scene that is not there or cannot be used.
    """
    config, images, backend = _opened(build(Config, asdict(config)))  # attributes may have been set to anything
    return TrainingRun(config, images, prepare(config, images, backend))


def resume(folder: str | Path, change: Callable[[Config], Config] = lambda saved: saved) -> TrainingRun:
    """A saved run, to go on as if it had never stopped.

    change: gives the settings to go on with from the saved ones; what decides the result has to stay as it is.
    Raises UserError where there is no such run, it is damaged, or its images have changed.
    """
    content = checkpoint.load_resume(Path(folder))
    config, images, backend = _opened(change(checkpoint.restore_config(content)))
    return TrainingRun(config, images, checkpoint.restore_run(content, config, images, backend))


def _opened(config: Config) -> tuple[Config, PosedImages, Backend]:
    backend = select(config.backend, config.device)
    config, images = resolve(config, backend), load_split(config.dataset, "train")
    where = place_images(config.train.images, images, backend)
    return replace(config, train=replace(config.train, images=where)), images, backend


def load(folder: str | Path | None = None, backend: str = "auto", device: str = "auto") -> OpenRun:
    """A saved run, to render; without a folder the newest one in outputs/.

    Raises UserError where there is none, it is damaged, or backend or device cannot run here.
    """
    folder = newest_run() if folder is None else Path(folder)
    content = checkpoint.load(folder)
    config = checkpoint.restore_config(content)
    chosen = select(backend, device)
    field, occupancy = checkpoint.restore_field(content, config, chosen)
    step_size = config.sampler.step_size_voxels * field.voxel_size
    sampler = RaySampler(chosen, field.grid_map, occupancy, step_size, config.sampler)
    learned, given = (checkpoint.restore_cameras(content, name) for name in ("cameras", "given_cameras"))
    return OpenRun(folder, config, field, sampler, learned, given)


def newest_run() -> Path:
    """The run in outputs/ whose model was written last. Raises UserError where there is none."""
    found = sorted(OUTPUTS.glob(f"**/{checkpoint.MODEL_FILE}"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise UserError(
            f"there is no trained run in {OUTPUTS.resolve()}; train one with python scripts/train.py, or give run=DIR."
        )
    return found[-1].parent


def load_split(dataset: DatasetConfig, split: str) -> PosedImages:
    """The images of one split, as the config names them."""
    return load_blender(find_scene(dataset.root, dataset.scene, DATA), split, dataset.downscale)


def background(config: Config, device: torch.device) -> Tensor:
    """The colour [3] behind the scene when it is shown: white unless black was chosen."""
    return torch.full((3,), 0.0 if config.dataset.background == "black" else 1.0, device=device)


def depth_range(sampler: RaySampler, cameras: Cameras) -> tuple[float, float]:
    """Nearest and farthest distance from a camera at which the scene box can be, for depth pictures."""
    lower = sampler.grid_map.lower.cpu()
    size = torch.tensor(sampler.occupancy.occupied.shape) / sampler.grid_map.scale.cpu()
    distance = (cameras.centers.cpu() - (lower + size / 2)).norm(dim=-1).median().item()
    radius = size.norm().item() / 2
    return max(distance - radius, 0.0), distance + radius
