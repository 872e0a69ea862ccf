"""Where the time of a training step goes: each stage over what it cannot do without, and what the GPU waits for.

A real run is left near its end. The step is timed as it trains, on a GPU as one CUDA graph; its stages are told apart
in plain steps, whose kernels are the same ones: what an operation launches is its stage's. Legend: P pixels, R rays,
M samples, V vertices of their cells, L vertices visited, C channels of the grids.
"""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace

import torch
from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

from nerf.benchmark_cases import FLOAT, LONG, SIZES, touched_vertices
from nerf.benchmark_timing import Stopwatch, matmul_rate, measure_ceilings
from nerf.cuda_graph import StepRunner
from nerf.gpu_idle import idle_share
from nerf.runs import TrainingRun
from nerf.training import make_sampler, training_step, visible_samples

LEAVE_AT = 0.9  # of the run: all of its settings are what they will be, and nothing has ended yet
STEPS = {"cuda": 200, "cpu": 5}  # timed
PROFILED_STEPS = {"cuda": 20, "cpu": 5}
OTHERS = "other kernels of PyTorch"
STAGES = {
    "pixels and rays": ("nerf::sample_images", "nerf::camera_rays"),
    "march": ("nerf::march_visible",),
    "interpolate": ("nerf::interpolate_trilinear",),
    "basis": ("nerf::contract_basis",),
    "composite": ("nerf::composite_rays",),
    "MLP": ("HalfMlp", "aten::linear"),
    "distortion": ("nerf::distortion_loss", "nerf::distortion_loss_backward"),
    "MLP backward": ("HalfMlpBackward", "AddmmBackward0", "ReluBackward0"),
    "composite backward": ("nerf::composite_rays_backward",),
    "basis backward": ("nerf::contract_basis_backward",),
    "interpolate backward": ("nerf::interpolate_trilinear_grad", "nerf::interpolate_trilinear_backward"),
    "total variation": ("nerf::total_variation_grad",),
    "adam": ("nerf::adam_step",),
}
STAGE_OF = {operation: stage for stage, operations in STAGES.items() for operation in operations}
OF_BACKWARD = "autograd::engine::evaluate_function: "

Figures = dict[str, object]


@dataclass(frozen=True)
class Work:
    """What a stage cannot do without."""

    num_bytes: int  # that cross memory, each once: inputs, vertices that are touched, outputs
    operations: int = 0  # additions and multiplications of matrices
    reductions: int = 0  # floats added to memory that others may add to as well


def measure_step(run: TrainingRun) -> Figures:
    """Trains the run to LEAVE_AT of its schedule, then times its steps and takes them apart.

    Returns what the step is of (field, resolution, pixels, rays, samples, vertices, visited), step_ms, idle_share (on
    a GPU), ceilings and stages: stage, launches, ms, work, floor_ms (None for other kernels of PyTorch).
    Raises nerf.training.TrainingStopped as training does.
    """
    for look in run.train():
        if look.progress >= LEAVE_AT:
            break
    config, state, device = run.config, run.state, run.state.field.backend.device
    sizes, work = work_of_step(run)
    monitor = torch.zeros(4, device=device)
    runner = StepRunner(config, state, monitor, training_step)
    plain = StepRunner(
        replace(config, train=replace(config.train, cuda_graph=False)), state, monitor, training_step
    )

    def steps(count: int, runner: StepRunner = runner) -> None:
        for _ in range(count):
            state.batches.advance(config.train.rays_per_step, config.dataset.background)
            runner.step()

    steps(10 if device.type == "cuda" else 2)
    count = STEPS[device.type]
    step_ms = _wall_ms(lambda: steps(count), device) / count
    idle = idle_share(lambda: steps(count), device) if device.type == "cuda" else None
    watch = Stopwatch(device, repeats=10, seconds=0.5)
    ceilings = measure_ceilings(watch, SIZES["full" if device.type == "cuda" else "small"].ceiling_bytes)
    copy_bytes, operations = ceilings.copy_bytes["median"], matmul_rate(watch)["median"]
    spent = time_by_stage(lambda count: steps(count, plain), device)
    stages = []
    for stage in (*STAGES, OTHERS):
        if stage not in spent:
            continue
        launches, ms = spent[stage]
        needs = work.get(stage)
        floor = None
        if needs is not None:
            floor = 1e3 * max(needs.num_bytes / copy_bytes, needs.operations / operations)
        stages.append(
            {"stage": stage, "launches": launches, "ms": ms, "work": needs and asdict(needs), "floor_ms": floor}
        )
    state.batches.rest()
    return {
        "field": config.field.name,
        "resolution": list(state.field.resolution),
        **sizes,
        "step_ms": step_ms,
        "idle_share": idle,
        "ceilings": {"copy_bytes": copy_bytes, "matmul_operations": operations},
        "stages": stages,
    }


def work_of_step(run: TrainingRun) -> tuple[dict[str, int], dict[str, Work]]:
    """How much there is in one batch, and what each stage needs for it at least."""
    config, state = run.config, run.state
    field, sampler = state.field, make_sampler(config, state)
    pixels = config.train.rays_per_step
    rays, jitter = state.batches.draw_rays(pixels, state.rays_per_pixel)
    samples = visible_samples(field, sampler, rays, jitter)
    r, m = len(rays), len(samples.t_starts)
    v = touched_vertices(samples.coords(sampler.grid_map), field.resolution)
    visited = state.optimizer.vertex_rows
    listed = math.prod(field.resolution) if visited is None else len(visited)
    grids = [group.parameter for group in state.optimizer.groups if group.on_vertices]
    c = sum(grid.shape[-1] for grid in grids)
    shown = 3 if field.composited_grid is None else field.composited_grid.shape[-1]  # channels that are composited
    inputs, outputs = FLOAT * m * (3 + shown) + LONG * (r + 1), FLOAT * (r * (shown + 2) + m)
    points = 3 * FLOAT * m * len(grids)
    # Per pixel where what is composited is shaded, else per sample.
    rows = m if field.composited_grid is None else pixels
    layers = [group.parameter for group in state.optimizer.groups if group.parameter.dim() == 2]
    weights = FLOAT * sum(layer.numel() for layer in layers)
    ends = FLOAT * rows * (layers[0].shape[1] + layers[-1].shape[0]) if layers else 0
    products = 2 * rows * sum(layer.numel() for layer in layers)
    smoothed = sum(
        grid.shape[-1]
        for grid, weight in zip(grids, (config.loss.tv_density, config.loss.tv_color), strict=True)
        if weight > 0 and state.clock.progress < config.loss.tv_until
    )
    basis = LONG * m + FLOAT * (r * 9 + m * (grids[1].shape[-1] + 3))  # harmonics of degree 2
    # Gradients are looked at on all vertices that are visited; the rest is read and written where there is one.
    dense = sum(group.parameter.numel() for group in state.optimizer.groups if not group.on_vertices)
    work = {
        "pixels and rays": Work(pixels * (LONG + 4 + 4 * FLOAT + LONG) + r * 6 * FLOAT),
        "march": Work(9 * FLOAT * r + math.prod(n - 1 for n in field.resolution) + FLOAT * v + LONG * (r + 1)
                      + m * (LONG + 5 * FLOAT)),
        "interpolate": Work(points + FLOAT * c * (v + m)),
        "basis": Work(basis),
        "composite": Work(inputs + outputs),
        "MLP": Work(weights + ends, products),
        "distortion": Work(2 * (FLOAT * (3 * m + r) + LONG * (r + 1)) + FLOAT * m),
        "MLP backward": Work(2 * weights + ends, 2 * products),
        "composite backward": Work(inputs + FLOAT * m + outputs + FLOAT * m * (1 + shown)),
        "basis backward": Work(basis),
        "interpolate backward": Work(points + FLOAT * c * (m + 2 * v), reductions=8 * m * c),
        "total variation": Work(FLOAT * smoothed * (listed + 2 * v)),
        "adam": Work(FLOAT * (listed * c + 7 * v * c + 8 * dense) + LONG * listed * (visited is not None) * len(grids)),
    }
    sizes = {"pixels": pixels, "rays": r, "samples": m, "vertices": v, "visited": listed, "channels": c}
    return sizes, work


def time_by_stage(steps: Callable[[int], None], device: torch.device) -> dict[str, tuple[float, float]]:
    """Launches (calls on a CPU) and milliseconds of each stage, means over steps. steps(count) queues so many."""
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
        spent.setdefault(stage_of(_ways_up(event)), []).extend(taken)
    return {stage: (len(taken) / count, sum(taken) / 1e3 / count) for stage, taken in spent.items() if taken}


def stage_of(names: Iterable[str]) -> str:
    """The stage of an event by its name and those of what it is part of, the innermost first."""
    known = (STAGE_OF.get(name.removeprefix(OF_BACKWARD)) for name in names)
    return next((stage for stage in known if stage is not None), OTHERS)


def _ways_up(event: FunctionEvent | None) -> Iterable[str]:
    while event is not None:
        yield event.name
        event = event.cpu_parent


def _wall_ms(work: Callable[[], None], device: torch.device) -> float:
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return 1e3 * (time.perf_counter() - began)
