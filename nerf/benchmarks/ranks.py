"""Training steps on several ranks: what is exchanged, how even the parts are, and how long a step takes.

On a CPU the time is that of the process, not of the wall: other programs may run, and a rank that waits for another
sleeps. On a GPU it is the wall's, after waiting for the device.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nerf.benchmarks.step_profile import LEAVE_AT
from nerf.distributed.world import World
from nerf.ops.backend import synchronize
from nerf.runs.run import TrainingRun
from nerf.system import peak_memory
from nerf.training.loop import StopWhen, step_runner, train
from nerf.training.state import TrainState
from nerf.training.step import TrainStep

STEPS = 20
# The others work on grids or samples.
PIXEL_OPERATIONS = (
    "draw_pixels",
    "shift_pixels",
    "camera_rays",
    "sample_images",
    "shading_inputs",
    "shading_inputs_backward",
    "pixel_directions",
    "pixel_colors",
    "pixel_colors_backward",
    "pair_ssim",
    "pair_ssim_backward",
    "compare_beside",
    "compare_beside_backward",
    "mlp",
    "mlp_backward",
)


@dataclass(frozen=True)
class RankFigures:
    """One rank's steps."""

    seconds_per_step: float
    grid_seconds_per_step: float | None  # of it in the operations on grids and samples, which divide; None on a GPU
    samples_per_step: float  # of this rank's part
    vertices: int  # that it trains
    scene_bytes: dict[str, int]  # held between two steps, by kind
    peak_memory_bytes: int
    bytes_per_step: dict[str, float]  # given to collectives, by purpose
    steps: int  # trained before the measurement


def measure_rank(run: TrainingRun, world: World | None) -> dict[str, Any]:
    """Trains to LEAVE_AT and times further steps of the same batch size; a rank's figures.

    Raises nerf.training.TrainingStopped like training.
    """
    config, state, exchanged = run.config, run.state, {}
    for _ in train(config, state, [StopWhen(lambda: state.clock.progress >= LEAVE_AT)]):
        pass
    step = TrainStep(config, state)
    runner = step_runner(config, state, step)
    if world is not None:
        world.bytes.clear()
    for number in range(4):  # kernels, and the capture of a graph, whose replays are not counted
        step.advance()
        runner.step()
        if number == 0 and world is not None:
            exchanged = dict(world.bytes)
    synchronize(state.device)
    step._sums.zero_()
    if world is not None:
        world.all_reduce_max(0)
    on_cpu = state.device.type == "cpu"
    clock = time.process_time if on_cpu else time.perf_counter
    began = clock()
    for _ in range(STEPS):
        step.advance()
        runner.step()
    synchronize(state.device)
    seconds, samples = (clock() - began) / STEPS, step._sums[-1].item() / STEPS
    in_grids = None
    if on_cpu:
        with GridClock(clock) as grids:
            for _ in range(STEPS):
                step.advance()
                runner.step()
        in_grids = grids.seconds / STEPS
    vertices = state.optimizer.active_vertices
    memory = peak_memory() if on_cpu else torch.cuda.max_memory_reserved(state.device)
    figures = RankFigures(
        seconds, in_grids, samples, len(vertices), scene_bytes(state), memory, exchanged, state.clock.step
    )
    return vars(figures)


class GridClock(TorchDispatchMode):
    """Adds up the seconds that the operations on grids and samples take, forward and backward, while it is entered."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self.seconds, self._clock = 0.0, clock

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace != "nerf" or func._opname in PIXEL_OPERATIONS:
            return func(*args, **(kwargs or {}))
        began = self._clock()
        result = func(*args, **(kwargs or {}))
        self.seconds += self._clock() - began
        return result


def scene_bytes(state: TrainState) -> dict[str, int]:
    """The memory of the scene on this rank's device between two steps: parameters, gradients, moments, means, and where
    they are. Of features in host memory it counts what a step brings, and apart what is there."""
    groups, host = state.optimizer.groups, state.field.host_rows
    kept = [group for group in groups if group.host is None]
    away = [group for group in groups if group.host is not None]
    parameters = [group.parameter for group in kept]
    rows, lists = state.field.rows, [state.occupancy.occupied]
    lists += [] if state.optimizer.active_vertices is None else [state.optimizer.active_vertices]
    lists += [] if state.optimizer.active_rows is None else [state.optimizer.active_rows]
    lists += [] if rows is None else [rows.vertices, rows.table]
    if state.parts is not None:
        lists += state.parts.lists()
    return {
        "values": sum(x.nbytes for x in parameters),
        "gradients": sum(x.grad.nbytes for x in parameters if x.grad is not None),
        "moments": sum(x.nbytes for group in kept for x in state.optimizer.moments[group.name]),
        "averages": sum(x.nbytes for x in state.optimizer.averages.values.values()),
        "lists": sum({x.data_ptr(): x.nbytes for x in lists}.values()),
        "brought": 0 if host is None else host.most_bytes,
        "in host memory": sum(x.nbytes for g in away for x in (g.parameter, *state.optimizer.moments[g.name])),
    }
