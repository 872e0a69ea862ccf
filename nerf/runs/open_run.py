"""A trained run, loaded from its folder or just trained: renders and scores views."""

import math
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.config.commands import program
from nerf.config.schema import Config, DatasetConfig, build
from nerf.datasets.load import found_again, load_split, scene_poses
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.evaluation import held_out_poses as held_out
from nerf.evaluation.scores import Scores, evaluate
from nerf.fields.field import Field
from nerf.ops.backend import Backend, select
from nerf.rendering.background import Background
from nerf.rendering.ensemble import Member
from nerf.rendering.render import Rendering, render_image
from nerf.rendering.sampler import RaySampler
from nerf.runs import checkpoint
from nerf.training.state import TrainState, make_sampler

OUTPUTS = Path("outputs")
SAME_POSE = 1e-3  # entries of two matrices of one pose differ by less, positions in units of how far cameras are apart
ROUNDING = 2.0**-22  # and by so much of a coordinate, which is a float32


@dataclass(frozen=True)
class LoadedRun:
    """A trained run: everything that rendering and scoring need."""

    folder: Path | None  # None: never saved
    config: Config
    field: Field
    sampler: RaySampler
    cameras: Cameras  # training cameras on the CPU, with learned poses if poses were learned
    given_cameras: Cameras  # training cameras of the dataset
    vignetting: Tensor | None = None  # [I,3] coefficients of the training images, on the CPU; None: not learned

    def __repr__(self) -> str:
        """One line."""
        where = "never saved" if self.folder is None else self.folder
        return f"LoadedRun({where}: {in_words(self.config, self.field)}, {len(self.cameras)} training views)"

    @property
    def background(self) -> Tensor:
        """The background color [3] of its renderings, on the device."""
        return Background.of(self.config.dataset, self.field.background).eval(self.sampler.backend.device)

    def render(self, cameras: Cameras, index: int = 0) -> Rendering:
        """One camera's image, in host memory: rgb [H,W,3] over the run's background, opacity [H,W], depth [H,W]."""
        device = self.sampler.backend.device
        rendering = render_image(self.field, self.sampler, cameras.to(device), index, self.background)
        return Rendering(rendering.rgb.cpu(), rendering.opacity.cpu(), rendering.depth.cpu())

    def seen_from(self, cameras: Cameras, vignetting: Tensor | None = None) -> Member:
        """The run as one of an ensemble, or alone. cameras: in its own world; vignetting [I,3]: of these cameras."""
        return Member(self.field, self.sampler, cameras.to(self.sampler.backend.device), self.background, vignetting)

    def evaluate(self, split: str = "test", every: int = 1) -> Scores:
        """Scores of every k-th view of train, val or test: PSNR, SSIM; LPIPS and depth error where available."""
        views, color = self.views(split, every), self.background
        exposure = self.config.evaluation.exposure
        return evaluate(self.field, self.sampler, views, color, every, with_lpips=True, exposure=exposure)

    def views(self, split: str, every: int = 1) -> PosedImages:
        """The views of a split with cameras aligned to the learned scene (evaluation.view_poses)."""
        return self.align_views(self.given_views(split), split, every)

    def given_views(self, split: str) -> PosedImages:
        """The views of a split as in the dataset; of train those that the run was trained on, in the order of its
        cameras, also where photos were added or renamed since.

        Raises UserError if they are not found, or are another scene's.
        """
        dataset = found_again(self.config.dataset)
        check_scene(self.given_cameras, dataset)
        views = load_split(dataset, split)
        if split == "train":
            return self._trained_on(dataset, views)
        known = len(views) - lost_poses(views.cameras.c2w, self.given_cameras.c2w)
        if known:
            print(
                f"note: the run was trained on {known} of the {len(views)} {split} views, as photos were added or "
                "renamed since, or splits share some; their scores say nothing of new views.",
                file=sys.stderr,
            )
        return views

    def _trained_on(self, dataset: DatasetConfig, views: PosedImages) -> PosedImages:
        """Those of the training views that belong to the cameras of the run, found by their poses."""
        rows = places_of(self.given_cameras.c2w, views.cameras.c2w)
        if (rows < 0).any() and dataset.test_every:  # where photos were added, others are held out
            views = load_split(replace(dataset, test_every=0), "train")
            rows = places_of(self.given_cameras.c2w, views.cameras.c2w)
        lost = int((rows < 0).sum())
        if lost:
            raise UserError(
                f"{lost} of the {len(rows)} views that the run was trained on are no training views of the scene in "
                f"{dataset.root} any more; expected all of them. Put them back into its split train."
            )
        return views if rows.tolist() == [*range(len(views))] else views.chosen(rows.tolist())

    def align_views(self, views: PosedImages, split: str, every: int = 1) -> PosedImages:
        """Views in memory with cameras aligned to the learned scene, and with the vignetting of the training cameras.

        every: see align_eval_poses.
        """
        views = held_out.with_vignetting(views, self.given_cameras, self.vignetting)
        cameras = (self.cameras, self.given_cameras)
        return held_out.align_eval_poses(self.field, self.sampler, self.config, views, split, *cameras, every)


def check_scene(given: Cameras, dataset: DatasetConfig) -> None:
    """Raises UserError where training cameras of a run are none of the scene's. given: as the dataset had them."""
    lost = lost_poses(given.c2w, scene_poses(dataset))
    if lost:
        raise UserError(
            f"the scene in {dataset.root} is not the one that the run was trained on: it lacks the poses of {lost} "
            f"of {len(given)} training views. Give root=FOLDER, the folder of the run's own scene."
        )


def lost_poses(given: Tensor, there: Tensor) -> int:
    """How many of the poses given [I,3,4] are none of those that are there [N,3,4]."""
    return int((places_of(given, there) < 0).sum())


def places_of(given: Tensor, there: Tensor) -> Tensor:
    """Which of the poses that are there [N,3,4] each of those given [I,3,4] is, [I] int64; -1: none of them.

    Of several that are alike each is taken once, in their order, as long as there are any.
    """
    given, there = given.double(), there.double()
    middle = given[:, :, 3].mean(0)
    apart = (given[:, :, 3] - middle).norm(dim=-1).max()
    apart = torch.where(apart > 0, apart, 1.0)

    def entries(poses: Tensor) -> Tensor:
        return torch.cat([poses[:, :, :3].flatten(1), (poses[:, :, 3] - middle) / apart], dim=1)

    # By differences: of squares of float32 too little is left of a distance this small.
    away = torch.cdist(entries(given), entries(there), compute_mode="donot_use_mm_for_euclid_dist")
    away = away.masked_fill(away > SAME_POSE + ROUNDING * given[:, :, 3].abs().max() / apart, math.inf)
    found, taken = [], torch.zeros(len(there), dtype=torch.bool)
    for row in away:
        free = row.masked_fill(taken, math.inf)
        row = free if free.isfinite().any() else row
        place = int(row.argmin())
        found.append(place if row[place].isfinite() else -1)
        if row[place].isfinite():
            taken[place] = True
    return torch.tensor(found)


def in_words(config: Config, field: Field) -> str:
    """Scene, field, grid size, backend and device in one line."""
    grid = "x".join(map(str, field.resolution))
    return f"{config.dataset.scene}, {config.field.name} {grid}, {field.backend.name} on {field.backend.device}"


def load(
    folder: str | Path | None = None, backend: str = "auto", device: str = "auto", rays_per_pixel: int | None = None
) -> LoadedRun:
    """Loads a saved run for rendering. folder: its own or the model file in it; None means the newest run in outputs/.

    rays_per_pixel: replaces sampler.rays_per_pixel; None: that of the run. Raises UserError if there is no run, it is
    damaged, or backend or device are not available.
    """
    folder = newest_run() if folder is None else Path(folder)
    content = checkpoint.load(folder)
    config = checkpoint.restore_config(content)
    if rays_per_pixel is not None:
        config = build(Config, asdict(replace(config, sampler=replace(config.sampler, rays_per_pixel=rays_per_pixel))))
    folder = folder.parent if folder.is_file() else folder
    return restored(folder, content, config, select(backend, device, config.deterministic))


def restored(folder: Path, content: dict[str, Any], config: Config, backend: Backend) -> LoadedRun:
    """A run for rendering, from the content of its model file or, to the last bit, of its resume file.

    config: as restore_config makes it of the content.
    """
    field, occupancy = checkpoint.restore_field(content, config, backend)
    sampler = RaySampler.of_field(field, occupancy, config.sampler)
    learned, given = (checkpoint.restore_cameras(content, name) for name in ("cameras", "given_cameras"))
    return LoadedRun(folder, config, field, sampler, learned, given, content.get("vignetting"))


def of_state(config: Config, state: TrainState, given_cameras: Cameras) -> LoadedRun:
    """The present state of a training run, for rendering. It shares the field's tensors, until the next grid doubling.

    given_cameras: training cameras of the dataset.
    """
    vignetting = None if state.vignetting is None else state.vignetting.coefficients()
    learned, sampler = state.cameras.to("cpu"), make_sampler(config, state)
    return LoadedRun(None, config, state.field, sampler, learned, given_cameras, vignetting)


def newest_run() -> Path:
    """The run in outputs/ whose model was written last. Raises UserError if there is none."""
    found = sorted(OUTPUTS.glob(f"**/{checkpoint.MODEL_FILE}"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise UserError(
            f"there is no trained run in {OUTPUTS.resolve()}; give run=DIR, or train one with: "
            f"{program('scripts/train.py')}"
        )
    return found[-1].parent
