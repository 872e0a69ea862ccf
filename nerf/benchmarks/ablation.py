"""Ablation: one training step, native against PyTorch, stage by stage; correctness and speed-ups of the rows.

All rows start from the same state and use the same rays, jitter, samples and Adam. Before a row is timed, loss and
gradients of its first step are compared with those of the native row on its device.
"""

import gc
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from nerf.benchmarks.ablation_row import Batch, FirstStep, GraphRow, Row, Start, measure
from nerf.benchmarks.figures import AblationRow, EqualTraining, Log, Speedup
from nerf.benchmarks.torch_variants import COMPILE_ERRORS, EAGER, GATHER_ONCE, Variant, compiled
from nerf.benchmarks.unfused import unfused
from nerf.config.recipes import choose, followed, resolve_config
from nerf.config.schema import Config, ExposureConfig, PosesConfig
from nerf.config.settings import setting
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.evaluation.scores import evaluate
from nerf.fields.voxel_deferred import VoxelDeferredConfig
from nerf.images.metrics import summarize
from nerf.ops.backend import Backend
from nerf.runs.resolve import with_background
from nerf.scene.bounds import describe
from nerf.scene.registry import space_state
from nerf.training.initial_state import init_state
from nerf.training.loop import train
from nerf.training.state import make_sampler

LOSS_TOLERANCE, GRADIENT_TOLERANCE = 1e-4, 1e-3  # relative, float32
ROUNDED_TOLERANCE = 1e-2  # of gradients that are added up in bfloat16
NATIVE, NATIVE_GRAPH = "native", "native + CUDA graph"
NATIVE_AGAIN = "native, again"  # the last row repeats the first, to show how the machine's speed has changed


@dataclass
class AblationConfig:
    warm_steps: int | None = setting(None, "training steps before all rows; none = 3000 on a GPU, 300 on a CPU", low=1)
    timed_steps: int = setting(200, "timed steps of a row", low=1)
    cpu_row_seconds: float = setting(5.0, "a row on the CPU ends after this time, with fewer steps", low=0)
    num_batches: int = setting(8, "batches of rays that the timed steps go round", low=1)
    compile: bool = setting(True, "rows with torch.compile too; they take longest to start")
    equal_steps: int | None = setting(
        None, "steps from scratch for the PSNR; 0 = skip it, none = 3000 on a GPU, 200 on a CPU", low=0
    )


def resolved_for_steps(config: Config, steps: int, device: str, kind: str) -> Config:
    """The resolved config with a schedule of so many steps, all grid doublings and several occupancy updates."""
    config = resolve_config(replace(config, train=replace(config.train, steps=steps, max_seconds=None)), device, kind)
    doublings, field, occupancy = len(config.field.upsample_at), config.field, config.occupancy
    return replace(
        config,
        field=replace(field, min_level_steps=min(field.min_level_steps, steps // (5 * max(1, doublings)))),
        occupancy=replace(
            occupancy,
            min_steps=min(occupancy.min_steps, steps // 3),
            update_interval=max(occupancy.update_interval, min(1.0, 60 / steps)),
        ),
    )


def _resolved_for_images(config: Config, steps: int, images: PosedImages, backend: Backend) -> Config:
    """resolved_for_steps for the kind of scene and the background that the images show."""
    kind = describe(config.dataset, images.scene, images.has_alpha).kind
    return resolved_for_steps(with_background(config, images, kind), steps, backend.device.type, kind)


def make_start(config: Config, settings: AblationConfig, images: PosedImages, backend: Backend) -> Start:
    """Trains the common start of all rows and draws their batches.

    Raises UserError if the grid does not reach its final resolution in these steps.
    """
    steps = settings.warm_steps or {"cuda": 3000, "cpu": 300}[backend.device.type]
    config = _resolved_for_images(config, steps, images, backend)
    state = init_state(config, images, backend)
    for _ in train(config, state):
        pass
    done, levels = state.num_upsamplings, len(config.field.upsample_at)
    if done < levels:
        raise UserError(
            f"after {steps} steps the grid has doubled {done} times, expected {levels} times, its final resolution; "
            "raise ablation.warm_steps."
        )
    source, rays, host = state.batches, config.train.rays_per_step, torch.device("cpu")
    sampler, batches, marched = make_sampler(config, state), [], 0
    for _ in range(settings.num_batches):
        batch = source.draw(rays)
        marched = max(marched, len(sampler.sample(batch.rays, batch.jitter).t_starts))
        behind = state.background.draw(rays, source.generator, source.generator.device)
        batches.append(Batch(batch, behind).to(host, rays))
    values = dict(state.field.state_dict())
    if state.field.rows is not None:  # not every row reads sparse grids
        own = {id(grid) for grid in state.field.grids}
        dense = {n: state.field.dense(p.detach()) for n, p in state.field.named_parameters() if id(p) in own}
        values |= dense
    field = {
        "aabb": state.field.box.aabb.cpu(),
        "space": space_state(state.field.box.space),
        "resolution": state.field.resolution,
        "finest_voxel": state.finest_voxel,
        "field": {name: value.detach().cpu() for name, value in values.items()},
        "occupied": state.occupancy.occupied.cpu(),
    }
    moments = {name: value.cpu() for name, value in state.optimizer.state_dict().items()}
    # Rows must differ in the backend only: no noise, cameras and exposures fixed.
    config = replace(config, poses=PosesConfig(), exposure=ExposureConfig())
    if isinstance(config.field, VoxelDeferredConfig):
        config = replace(config, field=replace(config.field, feature_noise=0.0))
    return Start(config, field, moments, state.clock, source, batches, marched + 1, state.capacity)


def measure_rows(
    start: Start, settings: AblationConfig, native: Backend, rays_per_step: int | None, log: Log
) -> list[AblationRow]:
    """All rows on the device of `native`. rays_per_step: the user's setting, None for that of the recipe."""
    device = native.device
    of_device, seconds = followed(start.config, device.type, None)
    recipe = choose(of_device, start.config.field.name, seconds)
    rays = min(rays_per_step or recipe.settings["train.rays_per_step"], start.config.train.rays_per_step)
    expected: FirstStep | None = None

    def measured(label: str, backend: Backend, make_row: Callable[[], Row]) -> AblationRow:
        nonlocal expected
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
        log(f"{label} on {device.type}")
        row = make_row()
        first = row.first_step()
        if first.num_visible == 0:
            raise UserError("no sample is visible after the common training; raise ablation.warm_steps.")
        expected = expected or first
        loss, gradients = first.difference(expected)
        tolerance = ROUNDED_TOLERANCE if first.rounded or expected.rounded else GRADIENT_TOLERANCE
        return _head(label, backend, rays) | {
            "agrees": loss <= LOSS_TOLERANCE and (gradients is None or gradients <= tolerance),
            "loss": _finite(first.loss),
            "loss_difference": _finite(loss),
            "gradient_difference": _finite(gradients),
            "samples_per_step": first.num_samples,
            "visible_samples_per_step": first.num_visible,
            **measure(row, settings.timed_steps, settings.cpu_row_seconds),
        }

    def measured_variant(variant: Variant) -> AblationRow:
        backend = _backend(variant, native)
        return measured(f"torch: {variant.label}", backend, lambda: Row(start, backend, rays, variant.channels_first))

    rows = [measured(NATIVE, native, lambda: Row(start, native, rays))]
    if device.type == "cuda":
        rows.append(measured(NATIVE_GRAPH, native, lambda: GraphRow(start, native, rays)))
    apart = unfused(native.ops)
    backend = replace(native, reason=apart.label, ops=apart.ops)
    rows.append(measured(f"native, unfused: {apart.label}", backend, lambda: Row(start, backend, rays)))
    eager = {variant.label: measured_variant(variant) for variant in EAGER}
    rows += eager.values()
    if settings.compile:
        # The fastest eager variant, and the one with many small kernels that a compiler can fuse.
        best = min(EAGER, key=lambda variant: eager[variant.label]["operations_ms"]["median"])
        for variant in dict.fromkeys((best, GATHER_ONCE)):
            optimized = compiled(variant, device)
            try:
                rows.append(measured_variant(optimized))
            except COMPILE_ERRORS as error:
                reason = f"torch.compile fails here: {type(error).__name__}: {error}".splitlines()[0][:300]
                rows.append(_head(f"torch: {optimized.label}", _backend(optimized, native), rays) | {"missing": reason})
    return [*rows, measured(NATIVE_AGAIN, native, lambda: Row(start, native, rays))]


def _finite(number: float | None) -> float | None:
    """The number, or None for NaN and infinity, which JSON lacks."""
    return number if number is not None and math.isfinite(number) else None


def _head(label: str, backend: Backend, rays: int) -> AblationRow:
    return {
        "label": label,
        "backend": backend.name,
        "device": backend.device.type,
        "rays_per_step": rays,
        "missing": None,
    }


def _backend(variant: Variant, native: Backend) -> Backend:
    return replace(native, name="torch", reason=variant.label, ops=variant.ops)


def speedups(rows: list[AblationRow]) -> dict[str, dict[str, Speedup]]:
    """Speed-up of the native row over the best PyTorch row, by device and part of the step; ratios of medians.

    operations: march + interpolate + composite + backward. step: the whole step. with_graph: the native step replayed
    as a CUDA graph, as in training; without a graph, launching it takes longer than running it. PyTorch's rows read
    sizes from the device, so they cannot be captured. Rows with wrong results are excluded.
    """
    result: dict[str, dict[str, Speedup]] = {}
    for device in dict.fromkeys(row["device"] for row in rows):
        good = {
            row["label"]: row for row in rows if row["device"] == device and row["missing"] is None and row["agrees"]
        }
        rivals = [row for row in good.values() if row["backend"] == "torch"]
        if NATIVE not in good or not rivals:
            continue
        result[device] = {}
        for name, label, key in (
            ("operations", NATIVE, "operations_ms"),
            ("operations_with_graph", NATIVE_GRAPH, "operations_ms"),
            ("step", NATIVE, "step_ms"),
            ("step_with_graph", NATIVE_GRAPH, "step_ms"),
        ):
            if label in good:
                best = min(rivals, key=lambda row, key=key: row[key]["median"])
                ratio = best[key]["median"] / good[label][key]["median"]
                result[device][name] = {"ratio": ratio, "best_torch": best["label"]}
    return result


def equal_training(
    config: Config, steps: int, images: PosedImages, views: PosedImages, backend: Backend
) -> EqualTraining:
    """Trains from scratch for a number of steps and scores the result."""
    config = _resolved_for_images(config, steps, images, backend)
    state = init_state(config, images, backend)
    for _ in train(config, state):
        pass
    color = state.background.eval(state.field.backend.device)
    scores = evaluate(state.field, make_sampler(config, state), views, color, config.evaluation.every)
    return {
        "backend": backend.name,
        "operations": backend.reason,
        "device": backend.device.type,
        "steps": steps,
        "train_seconds": state.clock.elapsed,
        "psnr": summarize(scores.psnr),
    }


def equal_trainings(
    config: Config,
    steps: int,
    images: PosedImages,
    views: PosedImages,
    native: Backend,
    rows: list[AblationRow],
    log: Log,
) -> list[EqualTraining]:
    """The same training with native operations and with the fastest eager PyTorch variant on that device.

    Without torch.compile, which would recompile after each of the five grid doublings.
    """
    on_device = {row["label"]: row for row in rows if row["device"] == native.device.type}
    best = min(EAGER, key=lambda variant: on_device[f"torch: {variant.label}"]["step_ms"]["median"])
    result = []
    for backend in (native, _backend(best, native)):
        log(f"{steps} steps from scratch, {backend.name} on {native.device.type}")
        result.append(equal_training(config, steps, images, views, backend))
    return result
