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
from nerf.datasets.capture import Capture
from nerf.datasets.photos import load_photos, split_frames
from nerf.datasets.posed_images import PosedImages
from nerf.datasets.ray_batches import place_images
from nerf.datasets.readers import read_capture
from nerf.datasets.scene_description import SceneDescription
from nerf.errors import UserError
from nerf.evaluation import Scores, evaluate
from nerf.fields.field import Field
from nerf.interrupts import StopOnInterrupt
from nerf.learned_poses import cameras_to_begin_with
from nerf.memory_plan import MemoryPlan, TooLittleMemory, plan_memory
from nerf.ops.backend import Backend, select
from nerf.rendering import Rendering, background, render_image
from nerf.sampler import RaySampler
from nerf.scene_kinds import describe
from nerf.training import Report, TrainState, make_sampler, prepare, resolve, train
from nerf.warm_up import warm_up

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
        seen = render_image(self.field, self.sampler, cameras.to(device), index, background(self.config, self.field))
        return Rendering(seen.rgb.cpu(), seen.opacity.cpu(), seen.depth.cpu())

    def evaluate(self, split: str = "test", every: int = 1) -> Scores:
        """PSNR, SSIM, and LPIPS and geometry where they can be had, of every k-th view of train, val or test."""
        views, color = self.views(split, every), background(self.config, self.field)
        exposure = self.config.evaluation.exposure
        return evaluate(self.field, self.sampler, views, color, every, with_lpips=True, exposure=exposure)

    def views(self, split: str, every: int = 1) -> PosedImages:
        """The views of a split, seen from where the scene was learned (evaluation.view_poses)."""
        return self.placed(load_split(self.config.dataset, split), split, every)

    def placed(self, views: PosedImages, split: str, every: int = 1) -> PosedImages:
        """Views that are in memory, seen from there too."""
        cameras = (self.cameras, self.given_cameras)
        return held_out.place(self.field, self.sampler, self.config, views, split, *cameras, every)


@dataclass(frozen=True)
class TrainingRun:
    """A run that trains: its settings, resolved for the device, its images, and what changes while it trains."""

    config: Config
    images: PosedImages
    state: TrainState
    reasons: tuple[str, ...] = ("as it was begun",)  # for the kind of scene

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

    def memory_plan(self) -> MemoryPlan:
        """What the run needs of a GPU's memory at its finest grids, as it was reckoned before training."""
        box = self.state.field.box
        finest = box.resolution(box.size.double().prod().item() / self.state.finest_voxel**3)
        return plan_memory(self.config, finest, self.images)

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
    config = build(Config, asdict(config))  # attributes may have been set to anything
    return start_on(config, load_split(config.dataset, "train"), select(config.backend, config.device))


def start_on(config: Config, images: PosedImages, backend: Backend) -> TrainingRun:
    """A fresh run on training images that are in memory, for many runs in one process. Raises as start does.

    Where a GPU's memory is too small for a recipe's grids and field.num_voxels is none, the largest that fit are taken.
    """
    resolved, described = make_ready(config, images, backend)
    try:
        begin = cameras_to_begin_with(resolved.poses, images.cameras)
        state = prepare(resolved, images, backend, described, begin)
        return TrainingRun(resolved, images, state, described.reasons)
    except TooLittleMemory as error:
        if config.field.num_voxels is not None or error.num_voxels is None:
            raise
        run = start_on(replace(config, field=replace(config.field, num_voxels=error.num_voxels)), images, backend)
        note = f"field.num_voxels={error.num_voxels}, not {resolved.field.num_voxels}: what fits this GPU's memory"
        return replace(run, reasons=(*run.reasons, note))


def make_ready(config: Config, images: PosedImages, backend: Backend) -> tuple[Config, SceneDescription]:
    """What a fresh run begins with: its settings, resolved for these images and this device, and where the scene is."""
    described = describe(config.dataset, images)
    return _ready(config, images, backend, described.kind), described


def resume(folder: str | Path, change: Callable[[Config], Config] = lambda saved: saved) -> TrainingRun:
    """A saved run, to go on as if it had never stopped.

    change: gives the settings to go on with from the saved ones; what decides the result has to stay as it is.
    Raises UserError where there is no such run, it is damaged, or its images have changed.
    """
    content = checkpoint.load_resume(Path(folder))
    config = change(checkpoint.restore_config(content))
    backend, images = select(config.backend, config.device), load_split(config.dataset, "train")
    config = _ready(config, images, backend)
    return TrainingRun(config, images, checkpoint.restore_run(content, config, images, backend))


def _ready(config: Config, images: PosedImages, backend: Backend, kind: str | None = None) -> Config:
    """The settings for these images, a scene of this kind, on this device, which is warm afterwards."""
    config = resolve(config, backend, kind)
    warm_up(config, backend)
    where = place_images(config.train.images, images, backend)
    return replace(config, train=replace(config.train, images=where))


def load(
    folder: str | Path | None = None, backend: str = "auto", device: str = "auto", rays_per_pixel: int | None = None
) -> OpenRun:
    """A saved run, to render; without a folder the newest one in outputs/.

    rays_per_pixel: sampler.rays_per_pixel; None: as the run had it.
    Raises UserError where there is none, it is damaged, or backend or device cannot run here.
    """
    folder = newest_run() if folder is None else Path(folder)
    content = checkpoint.load(folder)
    config = checkpoint.restore_config(content)
    if rays_per_pixel is not None:
        config = build(Config, asdict(replace(config, sampler=replace(config.sampler, rays_per_pixel=rays_per_pixel))))
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
    if _is_blender(dataset):
        return load_blender(find_scene(dataset.root, dataset.scene, DATA), split, dataset.downscale)
    return load_photos(_capture(dataset), split, dataset.downscale, dataset.hold_out, dataset.skip_missing)


def check_split(dataset: DatasetConfig, split: str) -> None:
    """Raises UserError where a capture has no view in a split: better said before training than after it."""
    if not _is_blender(dataset):
        split_frames(_capture(dataset), split, dataset.hold_out)


def sparse_points(dataset: DatasetConfig) -> Tensor | None:
    """World points [P,3] float32 that the poses came with, None where the format has none."""
    points = None if _is_blender(dataset) else _capture(dataset).points
    return None if points is None else torch.from_numpy(points).float()


def _is_blender(dataset: DatasetConfig) -> bool:
    """Whether the scene is looked for by its name and loaded as Synthetic-NeRF's are, with depth where it has some."""
    if dataset.format != "auto" or dataset.root is None:
        return dataset.format in ("auto", "blender")
    return (Path(dataset.root).expanduser() / "transforms_train.json").is_file()


def _capture(dataset: DatasetConfig) -> Capture:
    if dataset.root is None:
        raise UserError(f"dataset.format={dataset.format} needs the folder of the capture; give dataset.root=FOLDER.")
    return read_capture(Path(dataset.root).expanduser(), dataset.format, dataset.images)


def depth_range(sampler: RaySampler, cameras: Cameras) -> tuple[float, float]:
    """Nearest and farthest distance from a camera at which the scene can be, for depth pictures."""
    lower = sampler.grid_map.lower
    size = torch.tensor(sampler.occupancy.occupied.shape, device=lower.device) / sampler.grid_map.scale
    return sampler.grid_map.space.depth_range(cameras.centers.to(lower.device), lower, size)
