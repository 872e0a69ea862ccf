"""The training loop: one page, straight down. What a step does is training_step; what a run owns is TrainState."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nerf import losses, scene_kinds, visual_hull
from nerf.cameras import Cameras
from nerf.config import Config
from nerf.cuda_graph import StepRunner
from nerf.datasets.posed_images import PosedImages
from nerf.datasets.ray_batches import RayBatches
from nerf.datasets.scene_description import SceneDescription
from nerf.errors import UserError
from nerf.exposure import Exposure
from nerf.fields.field import Field
from nerf.fields.registry import build_field
from nerf.finite_steps import LeftOutSteps, all_finite, parameters_finite
from nerf.memory_plan import check_memory, free_bytes
from nerf.near_fade import full_distance
from nerf.occupancy import OccupancyGrid
from nerf.ops.backend import Backend
from nerf.optimizers import MaskedAdam
from nerf.pose_alignment import perturbed
from nerf.pose_refinement import PoseRefinement, coarse_to_fine, scene_radius
from nerf.pruning import prune
from nerf.recipes import fill_in
from nerf.rendering import render_samples, visible_samples
from nerf.sampler import RaySampler
from nerf.scene_box import SceneBox
from nerf.schedule import RunClock
from nerf.silhouettes import Silhouettes

CAPACITY_MARGIN = 1.1  # over a probe batch; the sum over thousands of rays varies by a percent or two
CAPACITY_STEP = 8192
OVERFLOW_FACTOR = 1.25  # on a capacity that rays did not fit
TOO_EARLY = 0.5  # share of the run before which a grid where nothing is dense may still become dense
TOO_FEW_STEPS = 20  # nor is a run of fewer steps judged


class TrainingStopped(RuntimeError):
    """Training cannot go on; the message says after which step and why."""

    remedy: str  # what to change


class NonFiniteLoss(TrainingStopped):
    """Loss or gradient are infinite or NaN step after step, or a parameter is."""

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
    capacity: int = 0  # visible samples of a step on a GPU; 0: as many as there are
    rays_per_pixel: int = 1  # of a step's batch
    smoothing: bool = True  # before loss.tv_until
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
    left_out_steps: int  # whose loss or gradient was not finite


def resolve(config: Config, backend: Backend, kind: str | None = None) -> Config:
    """The config with the settings filled in that depend on device, kind of scene and budget (nerf/recipes.py).

    kind: what dataset.kind=auto comes to; None: a box. Where poses are learned, grids grow as coarse_to_fine says.
    """
    if kind is None:
        kind = "box" if config.dataset.kind == "auto" else config.dataset.kind
    config = fill_in(config, backend.device.type, kind)
    if config.poses.mode == "fixed":
        return config
    shares = coarse_to_fine(config.poses, config.field.num_voxels)
    return replace(config, field=replace(config.field, upsample_at=shares))


def prepare(
    config: Config,
    images: PosedImages,
    backend: Backend,
    described: SceneDescription | None = None,
    start: Cameras | None = None,
) -> TrainState:
    """Box, field, occupancy and batches for a fresh run of a resolved config. Belongs to the training time.

    described: where the scene is; None asks settings and images. start: the images' cameras to begin with; None: as
    given, with the errors that the config asks for. Raises UserError where no training ray can see the scene, the GPU
    has too little memory, or the time is over before the first step.
    """
    torch.manual_seed(config.seed)
    clock = RunClock(config.train.steps, config.train.max_seconds)
    clock.start()
    described = described or scene_kinds.describe(config.dataset, images)
    start = perturbed(images.cameras, config.poses, config.seed) if start is None else start
    images = replace(images, cameras=start)
    batches = RayBatches(images, backend, config.seed, config.train.images == "host", config.loss.structure > 0)
    silhouettes = find_silhouettes(config, images, batches.images, backend.device)
    box = scene_kinds.make_box(described, images.cameras, silhouettes, config.sampler.near, backend.device)
    finest = box.resolution(finest_voxels(config, images, box))
    if backend.device.type == "cuda":
        check_memory(config, finest, images, free_bytes(backend.device))
    first = box.resolution(_level_voxels(config, math.prod(finest), 0))
    field = build_field(config.field, box, first, box.voxel_size(finest), backend)
    if config.dataset.background == "learned":
        field.learn_background()
    field.noise, field.full_from = noise_source(config, backend), full_distance(config.loss, box)
    occupancy = visual_hull.carve(silhouettes, box, first)
    optimizer = MaskedAdam(field, config.train.beta1, config.train.beta2, backend, occupancy.vertex_rows())
    learned = {"poses": refine_poses(config, batches, field), "exposure": learn_exposure(config, batches)}
    state = TrainState(field, occupancy, optimizer, batches, clock, box.voxel_size(finest), **learned)
    if silhouettes is not None and box.space.kind == "box" and described.aabb is None:
        batches.pool = visual_hull.pixels_of_hull(silhouettes, box, first)
    else:
        batches.find_pool(make_sampler(config, state))
    if len(batches.pool) == 0:
        raise UserError(
            f"no training ray meets the scene box {box.aabb.tolist()}; set dataset.aabb to what the cameras see."
        )
    plan_capacity(config, state)
    spent = _read_clock(clock, backend.device)
    clock.stop()
    if clock.finished:
        raise UserError(
            f"train.max_seconds={config.train.max_seconds:g} is over before the first step: images, box and first "
            f"occupancy took {spent:.1f} s; give train.max_seconds={math.ceil(5 * spent)} or more."
        )
    return state


def noise_source(config: Config, backend: Backend) -> torch.Generator:
    """Random numbers for the field; batches have their own, which may be drawn ahead and elsewhere."""
    return torch.Generator(backend.device).manual_seed(config.seed)


def find_silhouettes(
    config: Config, images: PosedImages, pixels: Tensor, device: torch.device
) -> Silhouettes | None:
    """Where the images show the scene, with room for poses that are to be learned; None where nothing tells.

    pixels: those of the images, wherever they are kept.
    """
    slack = math.radians(config.poses.slack) if config.poses.mode == "refine" else 0.0
    return Silhouettes(images, pixels, device, slack) if images.has_alpha else None


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


def finest_voxels(config: Config, images: PosedImages, box: SceneBox) -> float:
    """Voxels of the finest grid: as many as allowed, but none much smaller than a pixel."""
    cameras = images.cameras
    center = box.aabb.mean(0).cpu()
    pixel = box.space.pixel_sizes((cameras.centers - center).norm(dim=-1), cameras.intrinsics[:, 0]).median().item()
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
    rays, jitter = state.batches.draw_rays(config.train.rays_per_step, state.rays_per_pixel)
    samples = visible_samples(state.field, make_sampler(config, state), rays, jitter)
    state.capacity = _roomy(len(samples.t_starts), state.capacity)


def _roomy(needed: int, capacity: int) -> int:
    """A capacity with room to spare; the given one where it still fits, so that recordings stay of one size.

    Never 0, even where nothing is needed: 0 would ask the device for the number in every step.
    """
    if 0.8 * capacity <= needed * CAPACITY_MARGIN <= capacity and capacity:
        return capacity
    return max(1, math.ceil(1.05 * CAPACITY_MARGIN * needed / CAPACITY_STEP)) * CAPACITY_STEP


def raise_capacity(state: TrainState, runner: StepRunner) -> None:
    """More room at once where rays were dropped; the next plan measures anew how much is needed."""
    state.capacity = math.ceil(OVERFLOW_FACTOR * state.capacity / CAPACITY_STEP) * CAPACITY_STEP
    runner.forget()


def training_step(config: Config, state: TrainState, monitor: Tensor) -> None:
    """One step, queued without waiting: batch, samples, rendering, loss, gradients, Adam.

    monitor [4]: sums of squared error, steps left out, dropped rays and samples, added to on the device. A step whose
    loss or gradient is not finite is left out.
    """
    drawn = config.train.rays_per_step, config.dataset.background, state.rays_per_pixel
    batch, background = state.batches.next(*drawn)
    background = state.field.background_behind(background)
    alpha = batch.rgba[:, 3:]
    truth = alpha * batch.rgba[:, :3] + (1 - alpha) * background.detach()
    sampler = make_sampler(config, state)
    samples = visible_samples(state.field, sampler, batch.rays, batch.jitter, state.capacity)
    rendering = render_samples(state.field, sampler, samples, background)
    rgb = rendering.rgb
    if state.exposure is not None:
        rgb = state.exposure(rgb, alpha, state.batches.cameras.image_of(batch.pixels))
    loss, error = losses.of_rendering(config.loss, rendering, samples, state.field, rgb, truth, alpha[:, 0])
    loss.backward()
    visited = state.optimizer.vertex_rows, state.optimizer.step_number
    state.field.add_total_variation(config.loss, state.clock.progress, config.train.rays_per_step, *visited)
    learners = state.learners().values()
    finite = all_finite(loss, state.optimizer, *(learner.optimizer for learner in learners))
    state.optimizer.step(finite)
    for learner in learners:
        learner.step(finite)
    with torch.no_grad():
        counts = torch.stack([(~finite).long(), samples.overflow[0], samples.ray_offsets[-1]]).to(error.dtype)
        monitor += torch.cat([torch.where(finite, error, 0.0)[None], counts])


def train(config: Config, state: TrainState, should_stop: Callable[[], bool] = lambda: False) -> Iterator[Report]:
    """Trains to the end of the schedule, yielding a Report at each look.

    Steps whose loss or gradient is not finite are left out. Raises NonFiniteLoss at the look where these persist
    (nerf/finite_steps.py) and at the first one after a parameter that is not finite, and EmptyGrid where pruning leaves
    nothing.
    """
    clock, device = state.clock, state.field.backend.device
    monitor = torch.zeros(4, device=device)
    last_step, last_seconds, rays, trouble = clock.step, clock.elapsed, 0, LeftOutSteps()
    runner = StepRunner(config, state, monitor, training_step)
    clock.start()
    stopping = should_stop()
    while not clock.finished and not stopping:
        advance_schedule(config, state, runner)
        state.optimizer.decay.fill_(config.train.lr_decay**clock.progress)
        for learner in state.learners().values():
            learner.advance(clock)
        state.batches.advance(config.train.rays_per_step, config.dataset.background)
        runner.step()
        clock.tick()
        rays += config.train.rays_per_step * state.rays_per_pixel
        stopping = should_stop()  # asked once a step: the last step of a run is always looked at
        looking = clock.step in (1, 10) or clock.step % config.train.log_every == 0 or stopping
        saving = config.train.save_every and clock.step % config.train.save_every == 0
        if looking or saving or clock.finished or device.type == "cpu":
            seconds = _read_clock(clock, device)
        if looking or saving or clock.finished:
            count = clock.step - last_step
            error, bad, dropped, samples = monitor.tolist()
            monitor.zero_()
            trouble.add(int(bad), count)
            if trouble.persist:
                found = f"in {trouble.left_out} of the {trouble.steps} steps up to step {clock.step}"
                raise NonFiniteLoss(f"loss or gradient were not finite {found}, which were left out")
            if dropped:
                raise_capacity(state, runner)
            # Density that is NaN weighs nothing and shows in no loss.
            if not parameters_finite([state.field, *state.learners().values()]):
                raise NonFiniteLoss(f"a parameter was not finite after step {clock.step}")
            psnr = -10 * math.log10(max(error / max(count - bad, 1), 1e-12)) if bad < count else math.nan
            rate = rays / max(seconds - last_seconds, 1e-9)
            clock.stop()
            yield Report(
                clock.step,
                clock.total_steps,
                clock.progress,
                psnr,
                seconds,
                rate,
                int(dropped),
                samples / rays,
                int(bad),
            )
            clock.start()
            last_step, last_seconds, rays = clock.step, seconds, 0
    clock.stop()


def _read_clock(clock: RunClock, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock.read()


def advance_schedule(config: Config, state: TrainState, runner: StepRunner) -> None:
    """Upsamples, prunes and takes more rays of each pixel when the run has come far enough."""
    progress, changed, step_number = state.clock.progress, False, None
    shares, done = config.field.upsample_at, state.num_upsamplings
    settled = state.clock.step >= (done + 1) * config.field.min_level_steps
    if done < len(shares) and progress >= shares[done] and settled:
        state.num_upsamplings = done + 1
        runner.release()
        box, step_number = state.field.box, state.optimizer.step_number
        del state.optimizer  # its moments go before finer grids come, or both would have to fit
        finest = box.size.prod().item() / state.finest_voxel**3
        state.field.upsample(box.resolution(_level_voxels(config, finest, done + 1)))
        state.occupancy.resample(state.field.resolution)
        if state.poses is not None:  # other rays meet the scene now
            state.batches.find_pool(make_sampler(config, state))
        changed = True
    occupancy, empty = config.occupancy, False
    started = progress >= occupancy.start and state.clock.step >= occupancy.min_steps
    looks = math.floor((progress - occupancy.start) / occupancy.every) + 1 if started else 0
    if looks > state.num_refreshes or (changed and looks):
        state.num_refreshes = looks
        sampler = make_sampler(config, state)
        kept = prune(state.field, sampler, state.batches, occupancy.alpha_threshold, occupancy.min_weight)
        if kept.any():  # else nothing has become dense, and an empty grid would stay empty
            state.occupancy.occupied = kept
        else:
            empty = progress >= TOO_EARLY and state.clock.step >= TOO_FEW_STEPS
        changed = True
    rows = state.occupancy.vertex_rows() if changed else None
    if step_number is not None:  # finer grids: only now are gradients and moments made, for what pruning has left
        torch.cuda.empty_cache()  # or blocks of the coarser grids would stay reserved beside them
        state.optimizer = MaskedAdam(state.field, config.train.beta1, config.train.beta2, state.field.backend, rows)
        state.optimizer.step_number.copy_(step_number)
    elif changed:
        state.optimizer.visit(rows)
    if empty:
        raise EmptyGrid(
            f"after step {state.clock.step} the grid is empty: no training ray sees a cell with the opacity "
            f"occupancy.alpha_threshold={occupancy.alpha_threshold:g} and the weight "
            f"occupancy.min_weight={occupancy.min_weight:g}"
        )
    per_pixel = make_sampler(config, state).rays_per_pixel if progress >= config.train.supersample_from else 1
    supersampled = per_pixel != state.rays_per_pixel
    state.rays_per_pixel = per_pixel
    if changed or supersampled:
        plan_capacity(config, state)
    smoothing = progress < config.loss.tv_until
    other = supersampled or smoothing != state.smoothing
    state.smoothing = smoothing
    if changed or other:
        runner.forget(new_kernels=other)
