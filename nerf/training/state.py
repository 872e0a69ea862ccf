"""The training state: everything that changes while a field trains. `assemble` builds it for a fresh run, a resumed run
and a row of the ablation alike.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nerf.calibration.exposure import Exposure
from nerf.calibration.pose_refinement import PoseRefinement, scene_radius
from nerf.calibration.vignetting import Vignetting
from nerf.cameras.cameras import Cameras
from nerf.config.schema import Config
from nerf.datasets.posed_images import PosedImages
from nerf.distributed.grids import Parts
from nerf.distributed.world import World
from nerf.errors import UserError
from nerf.fields.field import Field
from nerf.images.pixel_runs import PixelRuns
from nerf.ops.backend import Backend, synchronize
from nerf.optim.adam import MaskedAdam
from nerf.optim.clock import RunClock
from nerf.rendering.background import Background
from nerf.rendering.gradient_scaling import full_gradient_distance
from nerf.rendering.sampler import RaySampler
from nerf.scene.occupancy import OccupancyGrid
from nerf.training.batches import RayBatches

# Counters of a training state: name in a checkpoint -> attribute.
COUNTERS = {
    "num_upsamplings": "num_upsamplings",
    "num_refreshes": "num_occupancy_updates",
    "capacity": "capacity",
    "rays_per_pixel": "rays_per_pixel",
    "most_voxels": "most_voxels",
    "num_averages": "num_averages",
    "dropped_rays": "dropped_rays",
}


@dataclass
class TrainState:
    """Everything that changes while training. Together with the config it determines the rest of the run."""

    field: Field
    occupancy: OccupancyGrid
    optimizer: MaskedAdam
    batches: RayBatches
    clock: RunClock
    background: Background
    finest_voxel: float  # world units
    num_upsamplings: int = 0
    num_occupancy_updates: int = 0
    num_averages: int = 0  # times at which parameters were to be averaged
    capacity: int = 0  # maximum number of visible samples of a step on a GPU; 0: no maximum, sized in every step
    dropped_rays: int = 0  # for which a step had no room, since that was last made larger
    rays_per_pixel: int = 1  # of a training batch
    most_voxels: int = 0  # of the finest grid, if the scene fills little of its box; 0: as finest_voxel says
    tv_active: bool = True  # progress is below loss.tv_until
    poses: PoseRefinement | None = None  # None: poses are fixed
    exposure: Exposure | None = None  # None: exposures are not learned
    vignetting: Vignetting | None = None  # None: it is not learned
    parts: Parts | None = None  # None: this process alone trains the scene

    def __repr__(self) -> str:
        """One line, without the tensors."""
        grid = "x".join(map(str, self.field.resolution))
        return f"TrainState(step {self.clock.step}, grid {grid}, {len(self.batches.cameras)} training views)"

    @property
    def device(self) -> torch.device:
        return self.field.backend.device

    @property
    def cameras(self) -> Cameras:
        """The training cameras with their current poses, on the device."""
        return self.batches.cameras if self.poses is None else self.poses.refined()

    def auxiliary_modules(self) -> dict[str, PoseRefinement | Exposure | Vignetting]:
        """Modules that are trained beside the field, by name; each has its own optimizer."""
        modules = {"poses": self.poses, "exposure": self.exposure, "vignetting": self.vignetting}
        return {name: module for name, module in modules.items() if module is not None}

    def optimizers(self) -> list[MaskedAdam]:
        """That of the field, and those of the auxiliary modules."""
        return [self.optimizer, *(module.optimizer for module in self.auxiliary_modules().values())]

    def read_clock(self) -> float:
        """Training seconds so far. Waits until the device has finished all queued steps."""
        synchronize(self.device)
        return self.clock.read()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stops the training clock for work between two steps that is not training: rendering, scoring, saving.

        The field may be read here, by the training thread only. Do not change parameters: a captured CUDA graph stays
        valid only while they keep their memory. A rank may pause alone: the others wait at their next step.
        """
        if self.clock.running:
            synchronize(self.device)
            self.clock.stop()
            try:
                yield
            finally:
                self.clock.start()
        else:
            yield

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """Parameters that are being averaged are their means meanwhile, as a model of an unfinished run has them.

        Within paused(). On several ranks, each of which has its own means alone, they stay as they are.
        """
        with contextlib.ExitStack() as stack:
            for optimizer in self.optimizers() if self.parts is None else ():
                stack.enter_context(optimizer.averaged())
            yield

    def state_dict(self) -> dict[str, Any]:
        """The state without field and occupancy, for load_state_dict of a newly assembled state."""
        return {
            "optimizer": self._optimizer_state(),
            "generator": self.batches.generator_state,
            "noise": self.field.noise_generator.get_state(),
            "pool": self.batches.valid_pixels.bounds,
            "clock": self.clock.state_dict(),
            "learners": {
                name: {"values": module.state_dict(), "optimizer": module.optimizer.state_dict()}
                for name, module in self.auxiliary_modules().items()
            },
            **{name: getattr(self, attribute) for name, attribute in COUNTERS.items()},
        }

    def _optimizer_state(self) -> dict[str, torch.Tensor]:
        """Of all parts; on several ranks that which collect() has brought."""
        if self.parts is None:
            return self.optimizer.state_dict()
        if self.parts.whole_optimizer is None:
            raise RuntimeError("a state on several ranks is saved after collect()")
        return self.parts.whole_optimizer

    def divide(self, world: World) -> None:
        """From now on trains one part of the scene; called on every rank of world, with the same whole state.

        Raises UserError where there are fewer cells than ranks.
        """
        self.parts = Parts.of(world, self.occupancy, self.field)
        self.field.store_at(self.parts.division.stored(world.rank))
        self.optimizer.set_active(self.parts.rows)
        self.most_voxels = -int(world.all_reduce_max(-self.most_voxels)[0])  # what fits on all
        self.capacity = 0  # parts differ in their samples
        self.clock.shared = world.broadcast_number
        self.read_clock()

    def collect(self, with_moments: bool = True) -> None:
        """Brings all parts to rank 0, for rendering and saving; to be called on every rank."""
        if self.parts is not None:
            self.parts.collect_values(self.field)
            if with_moments and self.parts.whole_optimizer is None:
                self.parts.collect_moments(self.optimizer)

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restores the content of state_dict. Counters that an older file lacks keep their value."""
        self.optimizer.load_state_dict(saved["optimizer"])
        self.batches.generator_state = saved["generator"]
        self.field.noise_generator.set_state(saved["noise"])
        self.batches.valid_pixels = PixelRuns.of_bounds(saved["pool"])
        self.clock.load_state_dict(saved["clock"])
        for name, values in saved.get("learners", {}).items():
            module = self.auxiliary_modules()[name]
            module.load_state_dict(values["values"])
            module.optimizer.load_state_dict(values["optimizer"])
        for module in self.auxiliary_modules().values():
            module.set_progress(self.clock)
        for name, attribute in COUNTERS.items():
            setattr(self, attribute, saved.get(name, getattr(self, attribute)))


def make_optimizer(config: Config, field: Field, active_vertices: Tensor | None) -> MaskedAdam:
    """The field's optimizer, which keeps moments for these vertices [L] int64."""
    train = config.train
    moments = torch.bfloat16 if train.moments == "bfloat16" else torch.float32
    return MaskedAdam(field, train.beta1, train.beta2, field.backend, active_vertices, moments)


def assemble(
    config: Config,
    field: Field,
    occupancy: OccupancyGrid,
    batches: RayBatches,
    clock: RunClock,
    finest_voxel: float,
    sparse: bool = True,
) -> TrainState:
    """The training state of a field: optimizer, auxiliary modules and random generators.

    config: resolved. finest_voxel: voxel size of the grid after the last doubling, world units.
    sparse: False keeps the grids as they are.
    """
    backend = field.backend
    if config.train.features == "host":
        field.keep_features_in_host_memory()
    elif config.train.moments == "bfloat16" and backend.adds_bfloat16:
        field.store_features_as(torch.float16)
    if sparse:
        field.store_at(occupancy.stored_vertices())
    # The field has its own generator; that of the batches may run steps ahead, in host memory.
    field.noise_generator = torch.Generator(backend.device).manual_seed(config.seed)
    field.full_gradient_from = full_gradient_distance(config.loss, field.box)
    return TrainState(
        field,
        occupancy,
        make_optimizer(config, field, occupancy.active_vertices()),
        batches,
        clock,
        Background.of(config.dataset, field.background),
        finest_voxel,
        poses=_refine_poses(config, batches, field),
        exposure=Exposure(len(batches.cameras), config.exposure, backend) if config.exposure.learn else None,
        vignetting=Vignetting(batches.cameras, config.exposure, backend) if config.exposure.vignetting else None,
    )


def make_batches(config: Config, images: PosedImages, backend: Backend) -> RayBatches:
    """Batches of the training images. config: resolved."""
    if config.loss.depth > 0 and images.depths is None:
        raise UserError(
            f"loss.depth={config.loss.depth:g}, but the scene has no depth files; set loss.depth=0, or name one for "
            "each frame: depth_file_path in transforms.json."
        )
    compared, on_host = config.loss.multi_view > 0, config.train.images == "host"
    if compared and (config.poses.mode == "refine" or (on_host and backend.device.type != "cpu")):
        reason = "poses that are learned" if config.poses.mode == "refine" else "photos in host memory"
        raise UserError(
            f"loss.multi_view={config.loss.multi_view:g} cannot be had with {reason}: it looks photos up on the "
            "device, by poses that stay; set loss.multi_view=0, or train.images=device and poses=fixed."
        )
    options = on_host, config.loss.pair_ssim > 0, config.loss.depth > 0, compared
    return RayBatches(images, backend, config.seed, *options)


def make_clock(config: Config) -> RunClock:
    """The clock for a run's budget, at zero."""
    return RunClock(config.train.steps, config.train.max_seconds)


def make_sampler(config: Config, state: TrainState) -> RaySampler:
    """The sampler for the current field and occupancy grid."""
    return RaySampler.of_field(state.field, state.occupancy, config.sampler)


def _refine_poses(config: Config, batches: RayBatches, field: Field) -> PoseRefinement | None:
    """The learned cameras, which become the batches' source of rays; None if poses are fixed."""
    if config.poses.mode == "fixed":
        return None
    poses = PoseRefinement(batches.cameras, scene_radius(field.box), config.poses, batches.backend)
    batches.ray_source, field.view_weight = poses, poses.view_weight
    return poses
