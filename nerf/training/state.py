"""Everything that changes while a field trains, put together in one place: for a fresh run, a resumed one and a row of
the ablation.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from nerf.calibration.exposure import Exposure
from nerf.calibration.pose_refinement import PoseRefinement, scene_radius
from nerf.cameras.cameras import Cameras
from nerf.config.schema import Config
from nerf.datasets.posed_images import PosedImages
from nerf.fields.field import Field
from nerf.images.pixel_runs import PixelRuns
from nerf.ops.backend import Backend
from nerf.optim.adam import MaskedAdam
from nerf.optim.clock import RunClock
from nerf.rendering.background import Background
from nerf.rendering.gradient_scaling import full_gradient_distance
from nerf.rendering.sampler import RaySampler
from nerf.scene.occupancy import OccupancyGrid
from nerf.training.batches import RayBatches

# What a state counts, by its name in a file.
COUNTERS = {
    "num_upsamplings": "num_upsamplings",
    "num_refreshes": "num_occupancy_updates",
    "capacity": "capacity",
    "rays_per_pixel": "rays_per_pixel",
}


@dataclass
class TrainState:
    """Everything that changes while training. With the config it is the run."""

    field: Field
    occupancy: OccupancyGrid
    optimizer: MaskedAdam
    batches: RayBatches
    clock: RunClock
    background: Background
    finest_voxel: float  # world units
    num_upsamplings: int = 0
    num_occupancy_updates: int = 0
    capacity: int = 0  # visible samples of a step on a GPU; 0: as many as there are
    rays_per_pixel: int = 1  # of a step's batch
    tv_active: bool = True  # before loss.tv_until
    poses: PoseRefinement | None = None  # where poses are learned
    exposure: Exposure | None = None  # and where exposures are

    def __repr__(self) -> str:
        """One line: the tensors of a whole run are none to print."""
        grid = "x".join(map(str, self.field.resolution))
        return f"TrainState(step {self.clock.step}, grid {grid}, {len(self.batches.cameras)} training views)"

    @property
    def device(self) -> torch.device:
        return self.field.backend.device

    @property
    def cameras(self) -> Cameras:
        """The training cameras as they are now, on the device."""
        return self.batches.cameras if self.poses is None else self.poses.refined()

    def learners(self) -> dict[str, PoseRefinement | Exposure]:
        """What is learned besides the field, by name; each has an optimizer of its own."""
        both = {"poses": self.poses, "exposure": self.exposure}
        return {name: learner for name, learner in both.items() if learner is not None}

    def read_clock(self) -> float:
        """Training seconds so far, of finished steps: waits for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return self.clock.read()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stops the training clock for what is no part of training: a look at the field between two steps.

        Only read the field inside, from the thread that trains: a recorded step stays valid as long as no parameter is
        replaced.
        """
        if self.clock.running:
            self.read_clock()
            self.clock.stop()
            try:
                yield
            finally:
                self.clock.start()
        else:
            yield

    def state_dict(self) -> dict[str, Any]:
        """What load_state_dict of a freshly assembled state with the same field and occupancy needs to go on."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "generator": self.batches.generator.get_state(),
            "noise": self.field.noise_generator.get_state(),
            "pool": self.batches.pool.bounds,
            "clock": self.clock.state_dict(),
            "learners": {
                name: {"values": learner.state_dict(), "optimizer": learner.optimizer.state_dict()}
                for name, learner in self.learners().items()
            },
            **{name: getattr(self, attribute) for name, attribute in COUNTERS.items()},
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Puts back what state_dict told; a number that is not in it, of an older file, stays as it is."""
        self.optimizer.load_state_dict(saved["optimizer"])
        self.batches.generator.set_state(saved["generator"])
        self.field.noise_generator.set_state(saved["noise"])
        self.batches.pool = PixelRuns.of_bounds(saved["pool"])
        self.clock.load_state_dict(saved["clock"])
        for name, values in saved.get("learners", {}).items():
            learner = self.learners()[name]
            learner.load_state_dict(values["values"])
            learner.optimizer.load_state_dict(values["optimizer"])
        for learner in self.learners().values():
            learner.advance(self.clock)
        for name, attribute in COUNTERS.items():
            setattr(self, attribute, saved.get(name, getattr(self, attribute)))


def assemble(
    config: Config, field: Field, occupancy: OccupancyGrid, batches: RayBatches, clock: RunClock, finest_voxel: float
) -> TrainState:
    """The state of a field that is to be trained with resolved settings: optimizer, learners and random numbers.

    finest_voxel: voxel size of the grid after the last doubling, world units.
    """
    backend = field.backend
    # Random numbers for the field; batches have their own, which may be drawn ahead and elsewhere.
    field.noise_generator = torch.Generator(backend.device).manual_seed(config.seed)
    field.full_gradient_from = full_gradient_distance(config.loss, field.box)
    return TrainState(
        field,
        occupancy,
        MaskedAdam(field, config.train.beta1, config.train.beta2, backend, occupancy.vertex_rows()),
        batches,
        clock,
        Background.of(config.dataset, field.background),
        finest_voxel,
        poses=_refine_poses(config, batches, field),
        exposure=Exposure(len(batches.cameras), config.exposure, backend) if config.exposure.learn else None,
    )


def make_batches(config: Config, images: PosedImages, backend: Backend) -> RayBatches:
    """Batches of the training images as resolved settings ask for them."""
    return RayBatches(images, backend, config.seed, config.train.images == "host", config.loss.structure > 0)


def make_clock(config: Config) -> RunClock:
    """The clock of a run's budget, at its beginning."""
    return RunClock(config.train.steps, config.train.max_seconds)


def make_sampler(config: Config, state: TrainState) -> RaySampler:
    """The sampler for the field and the occupancy as they are now."""
    return RaySampler.of_field(state.field, state.occupancy, config.sampler)


def _refine_poses(config: Config, batches: RayBatches, field: Field) -> PoseRefinement | None:
    """Cameras to be learned, from which the batches then take their rays; None where poses are fixed."""
    if config.poses.mode == "fixed":
        return None
    poses = PoseRefinement(batches.cameras, scene_radius(field.box), config.poses, batches.backend)
    batches.ray_source, field.view_weight = poses, poses.view_weight
    return poses
