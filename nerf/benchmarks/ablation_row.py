"""One row of the ablation: a state on one backend, its step with a time mark after each stage, and its results.

The step is that of training (nerf/training/step.py), except that samples are marched and then selected in separate
operations, as PyTorch has to do it. Legend: R rays.
"""

import statistics
import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nerf.benchmarks.figures import STAGES, Average, RowTimes
from nerf.benchmarks.gpu_idle import idle_fraction
from nerf.benchmarks.stage_clock import GraphClock, StageClock, timed_ops
from nerf.cameras.rays import Rays
from nerf.config.schema import Config
from nerf.ops.backend import Backend
from nerf.optim.clock import RunClock
from nerf.rendering.render import select_visible
from nerf.rendering.samples import RaySamples
from nerf.runs.checkpoint import restore_field
from nerf.training.batches import RayBatch, RayBatches
from nerf.training.cuda_graph import StepRunner
from nerf.training.losses import Objective
from nerf.training.state import assemble, make_sampler
from nerf.training.step import add_regularization, forward, update

OPERATIONS = ("march", "interpolate", "composite", "backward")  # stages that the native library implements
UNTIMED_STEPS = {"cuda": 10, "cpu": 2}
IDLE_STEPS = 30


@dataclass(frozen=True)
class Batch:
    """A batch of rays with its background, drawn before any clock starts."""

    rays: RayBatch
    background: Tensor  # [R,3]

    def tensors(self) -> tuple[Tensor, ...]:
        return (
            self.rays.rays.origins,
            self.rays.rays.directions,
            self.rays.rgba,
            self.rays.jitter,
            self.rays.pixels,
            self.background,
        )

    def to(self, device: torch.device, num_rays: int) -> "Batch":
        """A copy of num_rays of its rays on a device: the first ones of both halves, which may be pairs."""
        second, pairs = len(self.rays.pixels) - len(self.rays.pixels) // 2, num_rays // 2
        origins, directions, rgba, jitter, pixels, background = (
            torch.cat([x[: num_rays - pairs], x[second : second + pairs]]).to(device) for x in self.tensors()
        )
        return Batch(RayBatch(Rays(origins, directions), rgba, jitter, pixels), background)


@dataclass(frozen=True)
class Start:
    """The common start of all rows: the state at the end of a training, tensors in host memory."""

    config: Config  # resolved on the device that trained
    field: dict[str, object]  # content for checkpoint.restore_field
    optimizer: dict[str, Tensor]
    clock: RunClock
    source: RayBatches  # from which the batches were drawn; its images stay on the device, as in training
    batches: list[Batch]
    marched_capacity: int  # on a GPU: capacity for all marched samples of a step
    visible_capacity: int  # on a GPU: capacity for the visible samples of a step


@dataclass(frozen=True)
class FirstStep:
    """Loss, gradients and sample counts of a row's first step, in host memory."""

    loss: float
    gradients: dict[str, Tensor]  # by parameter; empty for a captured step
    num_samples: int
    num_visible: int

    @property
    def rounded(self) -> bool:
        """Whether gradients were added up in bfloat16."""
        return any(gradient.dtype == torch.bfloat16 for gradient in self.gradients.values())

    def difference(self, other: "FirstStep") -> tuple[float, float | None]:
        """Relative differences: of the loss, and of the gradients by norm, for the parameter that differs most."""
        norms = [float((g - other.gradients[n]).norm() / other.gradients[n].norm()) for n, g in self.gradients.items()]
        return abs(self.loss - other.loss) / abs(other.loss), max(norms, default=None)


class Row:
    """The start state on one backend, for steps from there."""

    def __init__(self, start: Start, backend: Backend, num_rays: int, channels_first: bool = False) -> None:
        self.start, self.device = start, backend.device
        self.clock = self.make_clock()
        timed = replace(backend, ops=timed_ops(backend.ops, self.clock))
        field, occupancy = restore_field(start.field, start.config, timed, sparse=False)
        if channels_first:
            for grid in field.grids:
                grid.data = grid.data.permute(3, 0, 1, 2).contiguous().permute(1, 2, 3, 0)
        finest_voxel = float(start.field["finest_voxel"])
        self.state = assemble(start.config, field, occupancy, start.source, start.clock, finest_voxel, sparse=False)
        self.objective = Objective(start.config.loss, self.device)
        self.state.optimizer.decay.fill_(start.config.train.rate_factor(1.0))  # the start is at the end of a schedule
        self.capacities = (0, 0)
        if self.device.type == "cuda":
            self.capacities = start.marched_capacity, start.visible_capacity
        self.batches = [batch.to(self.device, num_rays) for batch in start.batches]
        self.reset()

    def make_clock(self) -> StageClock:
        return StageClock(self.device)

    def reset(self) -> None:
        """Restores the start state, in the same memory."""
        self.state.field.load_state_dict(self.start.field["field"])
        self.state.optimizer.load_state_dict(self.start.optimizer)
        self.state.optimizer.set_active(self.state.optimizer.active_vertices)

    def backward(self, batch: Batch) -> tuple[Tensor, RaySamples, RaySamples]:
        """The first part of a step, up to the gradients. Returns loss (detached), samples and visible samples."""
        config, state, clock = self.start.config, self.state, self.clock
        sampler = make_sampler(config, state)
        samples = sampler.sample(batch.rays.rays, batch.rays.jitter, self.capacities[0])
        clock.mark("rest")
        with clock.as_one("look"):
            visible = select_visible(state.field, sampler, samples, self.capacities[1])
        found = forward(config, state, sampler, batch.rays, batch.background, visible)
        loss = self.objective.terms(found).sum()
        clock.mark("rest")
        self.objective.backward(found)
        clock.mark("backward")
        return loss, samples, visible

    def update(self, loss: Tensor) -> None:
        """The second part of a step: total variation, and Adam unless a value is not finite."""
        variation = add_regularization(self.start.config, self.state)
        update(self.state, loss, before_adam=lambda _: self.clock.mark("rest"), variation=variation)
        self.clock.mark("adam")

    def step(self, index: int) -> None:
        """One step, with the batches in rotation."""
        self.clock.start()
        loss, _, _ = self.backward(self.batches[index % len(self.batches)])
        self.update(loss)

    def run(self, num_steps: int) -> None:
        """Runs num_steps steps from the current state."""
        for index in range(num_steps):
            self.step(index)

    def timed(self, num_steps: int, max_seconds: float) -> tuple[list[float], list[dict[str, float]]]:
        """Milliseconds of every step, in total and by stage. On a CPU it ends after max_seconds and three steps."""
        self.clock.running = True
        began = time.perf_counter()
        for index in range(num_steps):
            self.step(index)
            if self.device.type == "cpu" and index >= 2 and time.perf_counter() - began > max_seconds:
                break
        self.clock.running = False
        stages = self.clock.steps()
        return [sum(step.values()) for step in stages], stages

    def first_step(self) -> FirstStep:
        """Loss and gradients of the first step; the state is restored. Waits for the device."""
        loss, samples, visible = self.backward(self.batches[0])
        gradients = {name: p.grad.to("cpu", copy=True) for name, p in self.state.field.named_parameters()}
        self.reset()
        return FirstStep(loss.item(), gradients, int(samples.ray_offsets[-1]), int(visible.ray_offsets[-1]))


class GraphRow(Row):
    """A row whose step is captured once and replayed as a CUDA graph, as in training."""

    clock: GraphClock

    def __init__(self, start: Start, backend: Backend, num_rays: int) -> None:
        super().__init__(start, backend, num_rays)
        self._batch = self.batches[0].to(self.device, num_rays)  # the captured step reads this memory
        self._loss = torch.zeros((), device=self.device)
        drawn_from = [self.state.batches.generator, self.state.field.noise_generator]
        self._runner = StepRunner(self._recorded, drawn_from, graphed=True)
        self._whole = StageClock(self.device)

    def make_clock(self) -> StageClock:
        return GraphClock(self.device)

    def _recorded(self) -> None:
        self.clock.start()
        self._loss.copy_(self.backward(self._batch)[0])
        self.update(self._loss)

    def step(self, index: int) -> None:
        for target, source in zip(
            self._batch.tensors(), self.batches[index % len(self.batches)].tensors(), strict=True
        ):
            target.copy_(source)
        self._whole.start()
        self._runner.step()
        self._whole.mark("step")

    def timed(self, num_steps: int, max_seconds: float) -> tuple[list[float], list[dict[str, float]]]:
        """See Row.timed. The stages are measured in a second pass, which waits after each step to read them."""
        self._whole.running = True
        self.run(num_steps)
        self._whole.running = False
        wholes, stages = [step["step"] for step in self._whole.steps()], []
        self.reset()
        for index in range(num_steps):
            self.step(index)
            stages += self.clock.steps()
        return wholes, stages

    def first_step(self) -> FirstStep:
        """The first step as the captured graph computes it, without gradients, which the graph has cleared."""
        plain = super().first_step()
        run_untimed(self)
        self.step(0)
        return replace(plain, loss=self._loss.item(), gradients={})


def run_untimed(row: Row) -> None:
    """Runs some untimed steps and restores the start state."""
    row.run(UNTIMED_STEPS[row.device.type])
    row.reset()


def measure(row: Row, num_steps: int, max_seconds: float) -> RowTimes:
    """Times num_steps steps from the start; on a CPU it ends after max_seconds and three steps.

    On a GPU peak_memory_bytes and idle_share (nerf/benchmarks/gpu_idle.py) are measured in additional steps.
    """
    run_untimed(row)
    on_gpu = row.device.type == "cuda"
    if on_gpu:
        torch.cuda.synchronize(row.device)
        torch.cuda.reset_peak_memory_stats(row.device)
    wholes, steps = row.timed(num_steps, max_seconds)
    by_stage = {stage: _summary([step[stage] for step in steps]) for stage in STAGES if stage in steps[0]}
    whole = set(OPERATIONS) <= by_stage.keys()
    peak = torch.cuda.max_memory_allocated(row.device) if on_gpu else None
    return {
        "steps": len(wholes),
        "stages_ms": by_stage,
        "operations_ms": _summary([sum(step[s] for s in OPERATIONS) for step in steps]) if whole else None,
        "step_ms": _summary(wholes),
        "peak_memory_bytes": peak,
        "idle_share": idle_fraction(lambda: row.run(IDLE_STEPS), row.device) if on_gpu else None,
    }


def _summary(values: list[float]) -> Average:
    return {"mean": statistics.fmean(values), "median": statistics.median(values)}
