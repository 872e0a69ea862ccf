"""The training loop: one page, straight down. What a step does is training_step; what a run owns is TrainState."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

from nerf import losses, visual_hull
from nerf.cameras import Cameras
from nerf.config import FIELDS, Config
from nerf.cuda_graph import StepRunner
from nerf.datasets.posed_images import PosedImages
from nerf.datasets.ray_batches import RayBatches
from nerf.errors import UserError
from nerf.exposure import Exposure
from nerf.fields.field import Field
from nerf.fields.registry import build_field
from nerf.occupancy import OccupancyGrid
from nerf.ops.backend import Backend
from nerf.optimizers import MaskedAdam
from nerf.pose_alignment import perturbed
from nerf.pose_refinement import PoseRefinement, coarse_to_fine, scene_radius
from nerf.pruning import prune
from nerf.rendering import render_samples, visible_samples
from nerf.sampler import RaySampler
from nerf.scene_box import SceneBox
from nerf.schedule import RunClock

DEFAULT_STEPS_CUDA = 30_000
DEFAULT_SECONDS_CPU = 90.0
DEFAULT_VOXELS = {"cuda": 256**3, "cpu": 80**3}
DEFAULT_RAYS = {"cuda": 8192, "cpu": 4096}
DEFAULT_FIELDS = {"cuda": "voxel_mlp", "cpu": "voxel_sh"}
# On lego voxel_deferred is ahead by 0.4 dB after 30 seconds, voxel_mlp by 0.2 after 60 (docs/results/log.md).
DEFERRED_SECONDS_CUDA = 40.0
DEFERRED_RAYS_CUDA = 16384  # whose MLP costs next to nothing
DEFAULT_OPACITY_ENTROPY = {"voxel_deferred": 0.0, "voxel_mlp": 0.001, "voxel_sh": 0.005}
CAPACITY_MARGIN = 1.1  # over a probe batch; the sum over thousands of rays varies by a percent or two
CAPACITY_STEP = 8192
TOO_EARLY = 0.5  # share of the run before which a grid where nothing is dense may still become dense
TOO_FEW_STEPS = 20  # nor is a run of fewer steps judged


class TrainingStopped(RuntimeError):
    """Training cannot go on; the message says after which step and why."""

    remedy: str  # what to change


class NonFiniteLoss(TrainingStopped):
    """The loss became infinite or NaN; nothing trained since can be trusted."""

    remedy = "Lower field.lr_density, or look for broken images"


class EmptyGrid(TrainingStopped):
    """Pruning found no cell worth sampling; what is left of the run would train nothing."""

    remedy = (
        "Look whether the images show anything but background, lower occupancy.alpha_threshold or "
        "occupancy.min_weight, or train longer"
    )


@dataclass
class TrainState:
    """Everything that changes while training. With the config it is the run."""

    field: Field
    occupancy: OccupancyGrid
    optimizer: MaskedAdam
    batches: RayBatches
    clock: RunClock
    finest_voxel: float  # world units
    num_upsamplings: int = 0
    num_refreshes: int = 0
    capacity: int = 0  # samples of a step on a GPU; 0: as many as there are
    visible_capacity: int = 0  # those of them that weigh something
    poses: PoseRefinement | None = None  # where poses are learned
    exposure: Exposure | None = None  # and where exposures are

    @property
    def cameras(self) -> Cameras:
        """The training cameras as they are now, on the device."""
        return self.batches.cameras if self.poses is None else self.poses.refined()

    def learners(self) -> dict[str, PoseRefinement | Exposure]:
        """What is learned besides the field, by name; each has an optimizer of its own."""
        both = {"poses": self.poses, "exposure": self.exposure}
        return {name: learner for name, learner in both.items() if learner is not None}


@dataclass(frozen=True)
class Report:
    """What the loop tells at a look: means since the look before."""

    step: int
    total_steps: int
    progress: float
    psnr: float
    seconds: float
    rays_per_second: float
    dropped_rays: int
    samples_per_ray: float


def resolve(config: Config, backend: Backend) -> Config:
    """The config with the settings filled in that depend on the device."""
    device, train = backend.device.type, config.train
    steps, seconds = train.steps, train.max_seconds
    if steps is None and seconds is None:
        steps, seconds = (DEFAULT_STEPS_CUDA, None) if device == "cuda" else (None, DEFAULT_SECONDS_CPU)
    name = _default_field(device, seconds) if config.field.name == "auto" else config.field.name
    field = asdict(config.field) | {"name": name, "num_voxels": config.field.num_voxels or DEFAULT_VOXELS[device]}
    if config.poses.mode == "refine":
        field["upsample_at"] = coarse_to_fine(config.poses, field["num_voxels"])
    entropy = config.loss.opacity_entropy
    rays = DEFERRED_RAYS_CUDA if (device, name) == ("cuda", "voxel_deferred") else DEFAULT_RAYS[device]
    return replace(
        config,
        field=FIELDS[name](**field),
        loss=replace(config.loss, opacity_entropy=DEFAULT_OPACITY_ENTROPY[name] if entropy is None else entropy),
        train=replace(train, steps=steps, max_seconds=seconds, rays_per_step=train.rays_per_step or rays),
    )


def _default_field(device: str, seconds: float | None) -> str:
    """The field that gets farthest in the time that there is."""
    if device == "cuda" and seconds is not None and seconds <= DEFERRED_SECONDS_CUDA:
        return "voxel_deferred"
    return DEFAULT_FIELDS[device]


def prepare(config: Config, images: PosedImages, backend: Backend) -> TrainState:
    """Box, field, occupancy and batches for a fresh run of a resolved config. Belongs to the training time."""
    torch.manual_seed(config.seed)
    clock = RunClock(config.train.steps, config.train.max_seconds)
    clock.start()
    images = replace(images, cameras=perturbed(images.cameras, config.poses, config.seed))
    slack = math.radians(config.poses.slack) if config.poses.mode == "refine" else 0.0
    if config.dataset.aabb is not None:
        box = _given_box(config.dataset.aabb, backend.device)
    else:
        box = visual_hull.find_box(images, backend.device, slack)
    finest = box.resolution(_finest_voxels(config, images, box))
    first = box.resolution(_level_voxels(config, math.prod(finest), 0))
    field = build_field(config.field, box, first, box.voxel_size(finest), backend)
    occupancy = visual_hull.carve(images, box, first, slack)
    optimizer = MaskedAdam(field, config.train.beta1, config.train.beta2, backend, occupancy.vertex_rows())
    batches = RayBatches(images, backend, config.seed, config.train.images == "host")
    poses, exposure = refine_poses(config, batches, field), learn_exposure(config, batches)
    state = TrainState(
        field, occupancy, optimizer, batches, clock, box.voxel_size(finest), poses=poses, exposure=exposure
    )
    state.batches.find_pool(make_sampler(config, state))
    if len(state.batches.pool) == 0:
        raise UserError(
            f"no training ray meets the scene box {box.aabb.tolist()}; set dataset.aabb to what the cameras see."
        )
    plan_capacity(config, state)
    clock.read()
    clock.stop()
    return state


def refine_poses(config: Config, batches: RayBatches, field: Field) -> PoseRefinement | None:
    """Cameras to be learned, from which the batches then take their rays; None where poses are fixed."""
    if config.poses.mode == "fixed":
        return None
    poses = PoseRefinement(batches.cameras, scene_radius(field.box), config.poses, batches.backend)
    batches.ray_source, field.view_weight = poses, poses.view_weight
    return poses


def learn_exposure(config: Config, batches: RayBatches) -> Exposure | None:
    """The images' exposures to be learned; None where they are taken to be alike."""
    return Exposure(len(batches.cameras), config.exposure, batches.backend) if config.exposure.learn else None


def _given_box(aabb: list[float], device: torch.device) -> SceneBox:
    if len(aabb) != 6 or not all(-math.inf < low < high < math.inf for low, high in zip(aabb, aabb[3:])):
        raise UserError(f"dataset.aabb={aabb} is no box, expected x0,y0,z0,x1,y1,z1 with x0 < x1, y0 < y1, z0 < z1.")
    return SceneBox(torch.tensor(aabb, dtype=torch.float32, device=device).view(2, 3))


def _finest_voxels(config: Config, images: PosedImages, box: SceneBox) -> float:
    """Voxels of the finest grid: as many as allowed, but none much smaller than a pixel."""
    cameras = images.cameras
    center = box.aabb.mean(0).cpu()
    pixel = ((cameras.centers - center).norm(dim=-1) / cameras.intrinsics[:, 0]).median().item()
    limit = box.size.prod().item() / (config.field.min_voxel_pixels * pixel) ** 3
    return min(limit, config.field.num_voxels)


def _level_voxels(config: Config, finest: float, doublings: int) -> float:
    """Voxels of the grid after so many doublings; while poses are learned, none has fewer than poses.coarsest."""
    voxels = finest / 2 ** (len(config.field.upsample_at) - doublings)
    return voxels if config.poses.mode == "fixed" else max(voxels, min(finest, config.poses.coarsest))


def make_sampler(config: Config, state: TrainState) -> RaySampler:
    field, sampler = state.field, config.sampler
    step_size = sampler.step_size_voxels * field.voxel_size
    return RaySampler(field.backend, field.grid_map, state.occupancy, step_size, sampler)


def plan_capacity(config: Config, state: TrainState) -> None:
    """Fixes the number of samples of a step from one probe batch, so that no later step asks the GPU for it."""
    if state.field.backend.device.type != "cuda":
        return
    sampler, batch = make_sampler(config, state), state.batches.draw(config.train.rays_per_step)
    samples = sampler.sample(batch.rays, batch.jitter)
    visible = visible_samples(state.field, sampler, samples)
    state.capacity = _roomy(len(samples.t_starts), state.capacity)
    state.visible_capacity = _roomy(len(visible.t_starts), state.visible_capacity)


def _roomy(needed: int, capacity: int) -> int:
    """A capacity with room to spare; the given one where it still fits, so that recordings stay of one size.

    Never 0, even where nothing is needed: 0 would ask the device for the number in every step.
    """
    if 0.8 * capacity <= needed * CAPACITY_MARGIN <= capacity and capacity:
        return capacity
    return max(1, math.ceil(1.05 * CAPACITY_MARGIN * needed / CAPACITY_STEP)) * CAPACITY_STEP


def training_step(config: Config, state: TrainState, monitor: Tensor) -> None:
    """One step, queued without waiting: batch, samples, rendering, loss, gradients, Adam.

    monitor [4]: sums of squared error, non-finite losses, dropped rays and samples, added to on the device.
    """
    backend = state.field.backend
    batch, background = state.batches.next(config.train.rays_per_step, config.dataset.background)
    alpha = batch.rgba[:, 3:]
    truth = alpha * batch.rgba[:, :3] + (1 - alpha) * background
    sampler = make_sampler(config, state)
    samples = sampler.sample(batch.rays, batch.jitter, state.capacity)
    samples = visible_samples(state.field, sampler, samples, state.visible_capacity)
    rendering = render_samples(state.field, sampler, samples, background)
    rgb = rendering.rgb
    if state.exposure is not None:
        rgb = state.exposure(rgb, alpha, state.batches.cameras.image_of(batch.pixels))
    error = losses.photometric(rgb, truth)
    loss = error
    if config.loss.opacity_entropy > 0:
        loss = loss + config.loss.opacity_entropy * losses.opacity_entropy(rendering.opacity)
    if config.loss.distortion > 0:
        spread = losses.distortion(rendering.weights, samples, state.field.box.size.norm(), backend)
        loss = loss + config.loss.distortion * spread
    loss.backward()
    if state.clock.progress < config.loss.tv_until:
        state.field.add_total_variation(config.loss)
    state.optimizer.step()
    for learner in state.learners().values():
        learner.step()
    with torch.no_grad():
        bad = (~torch.isfinite(loss)).to(error.dtype)
        counts = torch.stack([samples.overflow[0], samples.ray_offsets[-1]]).to(error.dtype)
        monitor += torch.cat([torch.stack([error.detach(), bad]), counts])


def train(config: Config, state: TrainState, should_stop: Callable[[], bool] = lambda: False) -> Iterator[Report]:
    """Trains to the end of the schedule, yielding a Report at each look.

    Raises NonFiniteLoss at the first look after a loss or a parameter that is not finite, and EmptyGrid where pruning
    leaves nothing.
    """
    clock, device = state.clock, state.field.backend.device
    monitor = torch.zeros(4, device=device)
    last_step, last_seconds = clock.step, clock.elapsed
    runner = StepRunner(config, state, monitor, training_step)
    clock.start()
    stopping = should_stop()
    while not clock.finished and not stopping:
        advance_schedule(config, state, runner)
        state.optimizer.decay.fill_(config.train.lr_decay**clock.progress)
        for learner in state.learners().values():
            learner.advance(clock.progress)
        state.batches.advance(config.train.rays_per_step, config.dataset.background)
        runner.step()
        clock.tick()
        stopping = should_stop()  # asked once a step: the last step of a run is always looked at
        looking = clock.step in (1, 10) or clock.step % config.train.log_every == 0 or stopping
        saving = config.train.save_every and clock.step % config.train.save_every == 0
        if looking or saving or clock.finished or device.type == "cpu":
            seconds = _read_clock(clock, device)
        if looking or saving or clock.finished:
            count = clock.step - last_step
            error, bad, dropped, samples = monitor.tolist()
            monitor.zero_()
            if bad:
                found = f"in {int(bad)} of the {count} steps up to step {clock.step}"
                raise NonFiniteLoss(f"the loss was not finite {found}")
            # Density that is NaN weighs nothing and shows in no loss.
            if not _parameters_finite([state.field, *state.learners().values()]):
                raise NonFiniteLoss(f"a parameter was not finite after step {clock.step}")
            rays = count * config.train.rays_per_step
            psnr = -10 * math.log10(max(error / count, 1e-12))
            rate = rays / max(seconds - last_seconds, 1e-9)
            clock.stop()
            yield Report(
                clock.step, clock.total_steps, clock.progress, psnr, seconds, rate, int(dropped), samples / rays
            )
            clock.start()
            last_step, last_seconds = clock.step, seconds
    clock.stop()


def _parameters_finite(modules: Sequence[torch.nn.Module]) -> bool:
    """One pass without a copy: minimum and maximum are NaN where anything is."""
    extremes = [extreme for module in modules for p in module.parameters() for extreme in p.detach().aminmax()]
    return bool(torch.stack(extremes).isfinite().all())


def _read_clock(clock: RunClock, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock.read()


def advance_schedule(config: Config, state: TrainState, runner: StepRunner) -> None:
    """Upsamples and prunes when the run has come far enough."""
    progress, changed = state.clock.progress, False
    shares, done = config.field.upsample_at, state.num_upsamplings
    settled = state.clock.step >= (done + 1) * config.field.min_level_steps
    if done < len(shares) and progress >= shares[done] and settled:
        state.num_upsamplings = done + 1
        box = state.field.box
        finest = box.size.prod().item() / state.finest_voxel**3
        state.field.upsample(box.resolution(_level_voxels(config, finest, done + 1)))
        state.occupancy.resample(state.field.resolution)
        if state.poses is not None:  # other rays meet the scene now
            state.batches.find_pool(make_sampler(config, state))
        step_number = state.optimizer.step_number
        state.optimizer = MaskedAdam(state.field, config.train.beta1, config.train.beta2, state.field.backend)
        state.optimizer.step_number.copy_(step_number)
        changed = True
    occupancy = config.occupancy
    started = progress >= occupancy.start and state.clock.step >= occupancy.min_steps
    looks = math.floor((progress - occupancy.start) / occupancy.every) + 1 if started else 0
    if looks > state.num_refreshes or (changed and looks):
        state.num_refreshes = looks
        sampler = make_sampler(config, state)
        kept = prune(state.field, sampler, state.batches, occupancy.alpha_threshold, occupancy.min_weight)
        if kept.any():  # else nothing has become dense, and an empty grid would stay empty
            state.occupancy.occupied = kept
        elif progress >= TOO_EARLY and state.clock.step >= TOO_FEW_STEPS:
            raise EmptyGrid(
                f"after step {state.clock.step} the grid is empty: no training ray sees a cell with the opacity "
                f"occupancy.alpha_threshold={occupancy.alpha_threshold:g} and the weight "
                f"occupancy.min_weight={occupancy.min_weight:g}"
            )
        changed = True
    if changed:
        state.optimizer.visit(state.occupancy.vertex_rows())
        plan_capacity(config, state)
        runner.forget()
