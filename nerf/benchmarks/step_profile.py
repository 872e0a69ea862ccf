"""Profile of a training step: time of each stage relative to its roofline, and the GPU's idle time.

The step is taken near the end of a real run. Its total time is measured as in training, on a GPU as a CUDA graph.
Stages are attributed by profiling plain steps without a graph, which launch the same kernels: a kernel belongs to the
stage of the operation that launched it.

Legend: P pixels, R rays, M samples, V vertices of their cells, L active vertices, C channels of the grids.
"""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

import torch
from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

from nerf.benchmarks.figures import StepProfile
from nerf.benchmarks.gpu_idle import idle_fraction
from nerf.benchmarks.ops_cases import touched_vertices
from nerf.benchmarks.problems import FLOAT, LONG, SIZES
from nerf.benchmarks.timing import Stopwatch, matmul_rate, measure_ceilings
from nerf.fields.voxel_deferred import VoxelDeferred
from nerf.ops.backend import synchronize
from nerf.rendering.render import visible_samples
from nerf.runs.run import TrainingRun
from nerf.training.cuda_graph import WARM_UP_STEPS, StepRunner
from nerf.training.loop import step_runner
from nerf.training.state import make_sampler
from nerf.training.step import TrainStep
from nerf.training.total_variation import TV_SUBSETS, left_to_adam

LEAVE_AT = 0.9  # progress at which steps are measured: the schedule has made all its changes
STEPS = {"cuda": 200, "cpu": 5}  # timed
PROFILED_STEPS = {"cuda": 20, "cpu": 5}
OTHERS = "other kernels of PyTorch"
STAGES = {
    "pixels and rays": (
        "nerf::draw_pixels",
        "nerf::shift_pixels",
        "nerf::sample_images",
        "nerf::camera_rays",
    ),
    "march": ("nerf::march_visible",),
    "interpolate": ("nerf::interpolate_trilinear",),
    "basis": ("nerf::contract_basis",),
    "density": ("nerf::activate_density",),
    "composite": ("nerf::composite_rays",),
    "network's inputs": ("nerf::pixel_directions", "nerf::shading_inputs"),
    "pixel colors": ("nerf::pixel_colors",),
    "MLP": ("nerf::mlp", "Bf16Mlp", "aten::linear"),
    "distortion": ("nerf::distortion_loss", "nerf::distortion_loss_backward"),
    "pair SSIM": ("nerf::pair_ssim", "nerf::pair_ssim_backward"),
    "views beside": (
        "nerf::world_depth",
        "nerf::world_depth_backward",
        "nerf::compare_beside",
        "nerf::compare_beside_backward",
    ),
    "MLP backward": ("nerf::mlp_backward", "Bf16MlpBackward", "AddmmBackward0", "ReluBackward0"),
    "pixel colors backward": ("nerf::pixel_colors_backward",),
    "network's inputs backward": ("nerf::shading_inputs_backward",),
    "composite backward": ("nerf::composite_rays_backward",),
    "basis backward": ("nerf::contract_basis_backward",),
    "density backward": ("nerf::activate_density_backward",),
    "interpolate backward": ("nerf::interpolate_trilinear_grad", "nerf::interpolate_trilinear_backward"),
    "total variation": ("nerf::total_variation_grad",),
    "finite check": ("nerf::all_finite",),
    "adam": ("nerf::adam_step",),
}
STAGE_OF = {operation: stage for stage, operations in STAGES.items() for operation in operations}
OF_BACKWARD = "autograd::engine::evaluate_function: "


@dataclass(frozen=True)
class Work:
    """The minimum work of a stage."""

    num_bytes: int  # memory traffic, each byte once: inputs, touched vertices, outputs
    operations: int = 0  # additions and multiplications in matrix products
    reductions: int = 0  # floats that are added to shared memory locations


@dataclass(frozen=True)
class Batch:
    """The sizes of one step: P, R, M, V, L and C of the legend. `visited` are the active vertices."""

    pixels: int
    rays: int
    samples: int
    vertices: int
    visited: int
    channels: int


def measure_step(run: TrainingRun) -> StepProfile:
    """Trains the run to progress LEAVE_AT, then times and profiles its steps.

    Raises nerf.training.TrainingStopped like training.
    """
    for metrics in run.train():
        if metrics.progress >= LEAVE_AT:
            break
    config, state, device = run.config, run.state, run.state.field.backend.device
    on_gpu, count = device.type == "cuda", STEPS[device.type]
    batch = draw_batch(run)
    step = TrainStep(config, state)
    recorded, plain = step_runner(config, state, step), StepRunner(step)

    def steps(count: int, runner: StepRunner = recorded) -> None:
        for _ in range(count):
            step.advance()
            runner.step()

    steps(WARM_UP_STEPS + 2)
    step_ms = _wall_ms(lambda: steps(count), device) / count
    idle = idle_fraction(lambda: steps(count), device) if on_gpu else None
    watch = Stopwatch(device, repeats=10, seconds=0.5)
    copy_bytes = measure_ceilings(watch, SIZES["full" if on_gpu else "small"].ceiling_bytes).copy_bytes["median"]
    products = matmul_rate(watch)["median"]
    spent = time_by_stage(lambda count: steps(count, plain), device)
    state.batches.stop_prefetch()
    stages = []
    for stage, work in (work_of_step(run, batch) | {OTHERS: None}).items():
        if stage in spent:
            launches, ms = spent[stage]
            roofline = work and 1e3 * max(work.num_bytes / copy_bytes, work.operations / products)
            needs = {"work": work and asdict(work), "floor_ms": roofline}
            stages.append({"stage": stage, "launches": launches, "ms": ms, **needs})
    return {
        "field": config.field.name,
        "resolution": list(state.field.resolution),
        **asdict(batch),
        "step_ms": step_ms,
        "idle_share": idle,
        "ceilings": {"copy_bytes": copy_bytes, "matmul_operations": products},
        "stages": stages,
    }


def draw_batch(run: TrainingRun) -> Batch:
    """The sizes of a batch in the current state of the run. Waits for the device."""
    state, field, pixels = run.state, run.state.field, run.config.train.rays_per_step
    sampler = make_sampler(run.config, state)
    rays, jitter = state.batches.draw_rays(pixels, state.rays_per_pixel)
    samples = visible_samples(field, sampler, rays, jitter)
    visited = state.optimizer.active_vertices
    return Batch(
        pixels=pixels,
        rays=len(rays),
        samples=len(samples.t_starts),
        vertices=touched_vertices(samples.coords(sampler.grid_map), field.resolution),
        visited=math.prod(field.resolution) if visited is None else len(visited),
        channels=sum(grid.shape[-1] for grid in _grids(run)),
    )


def work_of_step(run: TrainingRun, batch: Batch) -> dict[str, Work]:
    """The minimum work of each stage for the batch, in the order of STAGES."""
    config, state = run.config, run.state
    p, r, m, v, c = batch.pixels, batch.rays, batch.samples, batch.vertices, batch.channels
    grids, composited = _grids(run), state.field.feature_grid if isinstance(state.field, VoxelDeferred) else None
    of_samples, of_rays, points = FLOAT * m, LONG * (r + 1), 3 * FLOAT * m
    shown = 3 if composited is None else composited.shape[-1]  # composited channels
    diffuse = composited is not None and state.field.config.diffuse  # three of them are read
    neighbors = p // 2 if state.batches.paired else 0  # shifted, not drawn: a number less of each
    functions = grids[1].shape[-1] // 3  # number of harmonics
    # The MLP's inputs are pixels with deferred shading, else samples.
    seen = m if composited is None else p
    matrices = [group.parameter for group in state.optimizer.groups if group.parameter.dim() == 2]
    layers = [matrix for matrix in matrices if not any(matrix is grid for grid in grids)]  # sparse grids are not
    weights = sum(layer.numel() for layer in layers)
    encoded = layers[0].shape[1] if layers else 0
    ends = seen * (layers[0].shape[1] + layers[-1].shape[0]) if layers else 0
    loss = config.loss
    smooth = state.clock.progress < loss.tv_until
    smoothed = sum(
        g.shape[-1] for g, weight in zip(grids, (loss.tv_density, loss.tv_color), strict=True) if smooth and weight > 0
    )
    if left_to_adam(state.field, state.parts):
        smoothed = 0  # nothing is read that Adam does not read anyway
    turn = 0 if smooth or loss.tv_global == 0 else batch.visited // TV_SUBSETS  # vertices
    # Gradients are read at all active vertices; values and moments only where a gradient is not zero.
    dense = sum(group.parameter.numel() for group in state.optimizer.groups if not group.on_vertices)
    whole = state.optimizer.active_vertices is None or state.field.rows is not None  # Adam needs no list of rows
    listed = 0 if whole else LONG * batch.visited * len(grids)
    short = 4 * 2 * (v + turn) * (c - 1) if config.train.moments == "bfloat16" else 0  # saved, in and out
    # Of values and of gradients: bytes saved of a row.
    thin = sum((FLOAT - g.element_size()) * g.shape[-1] for g in grids)
    narrow = sum((FLOAT - g.grad.element_size()) * g.shape[-1] for g in grids if g.grad is not None)
    lean = FLOAT // 2 * m * sum(g.shape[-1] for g in grids if g.dtype == torch.float16)  # saved of what is interpolated
    of_values = of_samples * shown - lean * (composited is not None)
    cells = math.prod(n - 1 for n in state.field.resolution)
    composite = of_samples * 3 + of_values + of_rays + FLOAT * (r * (shown + 2) + m)
    work = {
        "pixels and rays": Work(p * (6 * LONG + 4 + 4 * FLOAT) - neighbors * LONG + r * 6 * FLOAT),
        "march": Work(9 * FLOAT * r + cells + FLOAT * v + of_rays + m * (LONG + 5 * FLOAT)),
        "interpolate": Work(points * len(grids) + FLOAT * c * (v + m) - thin * v - lean),
        "basis": Work(LONG * m + FLOAT * (r * functions + m * (grids[1].shape[-1] + 3))),
        "density": Work(2 * of_samples),
        "composite": Work(composite),
        "network's inputs": Work(FLOAT * p * (2 * shown + 4 + encoded)),
        "pixel colors": Work(FLOAT * p * (10 + 3 * diffuse)),
        "MLP": Work(FLOAT * (weights + ends), 2 * seen * weights),
        "distortion": Work(2 * (3 * of_samples + FLOAT * r + of_rays) + of_samples),
        "pair SSIM": Work(FLOAT * (p * 18 + 2 * (p // 2))),
        # A patch's pixels and those around its places there, 4x4, three bytes each; both ways.
        "views beside": Work(FLOAT * (20 * r + 20 * p) + 2 * p * (LONG + 3 * (9 + 16))),
        "MLP backward": Work(FLOAT * (2 * weights + ends), 4 * seen * weights),
        "pixel colors backward": Work(FLOAT * p * (17 + shown * diffuse)),
        "network's inputs backward": Work(FLOAT * p * (3 * shown + 2)),
        "composite backward": Work(composite + 2 * of_samples + of_values),
        "density backward": Work(3 * of_samples),
        "interpolate backward": Work(
            points * len(grids) + FLOAT * c * (m + 2 * v) - 2 * narrow * v - lean, reductions=8 * m * c
        ),
        "total variation": Work(
            FLOAT * (smoothed * (batch.visited + 2 * v) + 3 * c * turn) + 2 * LONG * turn - (2 * narrow + thin) * turn
        ),
        "finite check": Work(FLOAT * (1 + m + dense)),
        "adam": Work(
            FLOAT * (batch.visited * c + 7 * (v + turn) * c + 8 * dense)
            + listed
            - short
            - narrow * (batch.visited + v + turn)
            - 2 * thin * (v + turn)
        ),
    }
    work["basis backward"] = work["basis"]
    return {stage: work[stage] for stage in STAGES}


def _grids(run: TrainingRun) -> list[torch.nn.Parameter]:
    return [group.parameter for group in run.state.optimizer.groups if group.on_vertices]


def time_by_stage(steps: Callable[[int], None], device: torch.device) -> dict[str, tuple[float, float]]:
    """Kernel launches (calls on a CPU) and milliseconds of each stage per step. steps(count) queues count steps."""
    on_gpu, count = device.type == "cuda", PROFILED_STEPS[device.type]
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_gpu
    steps(2)
    with profile(activities=activities) as recorded:
        steps(count)
        if on_gpu:
            torch.cuda.synchronize(device)
    spent: dict[str, list[float]] = {}
    for event in recorded.events():
        if event.device_type != DeviceType.CPU:
            continue
        taken = [kernel.duration for kernel in event.kernels] if on_gpu else [event.self_cpu_time_total]
        spent.setdefault(stage_of(names_up(event)), []).extend(taken)
    return {stage: (len(taken) / count, sum(taken) / 1e3 / count) for stage, taken in spent.items() if taken}


def stage_of(names: Iterable[str]) -> str:
    """The stage of an event, from its name and those of its parents, innermost first."""
    known = (STAGE_OF.get(name.removeprefix(OF_BACKWARD)) for name in names)
    return next((stage for stage in known if stage is not None), OTHERS)


def names_up(event: FunctionEvent | None) -> Iterable[str]:
    """The names of an event and of its parents, innermost first."""
    while event is not None:
        yield event.name
        event = event.cpu_parent


def _wall_ms(work: Callable[[], None], device: torch.device) -> float:
    began = time.perf_counter()
    work()
    synchronize(device)
    return 1e3 * (time.perf_counter() - began)
