"""Quality against training time: one run per budget and seed, scored at its end and at intermediate times.

Runs are independent: each starts from the images. The final state is scored, not the best one. The training clock is
stopped while intermediate scores are computed.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from nerf.benchmarks.baselines import psnr_of_baseline_views
from nerf.benchmarks.figures import Budget, CurveRun, Look, Spread
from nerf.config.recipes import BUDGETS
from nerf.config.schema import Config
from nerf.config.settings import setting
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.evaluation.scores import Scores, evaluate
from nerf.images.metrics import summarize
from nerf.ops.backend import Backend
from nerf.rendering.render import Rendering
from nerf.runs import checkpoint
from nerf.runs.notes import run_notes
from nerf.runs.run import TrainingRun, start
from nerf.training.loop import TrainMetrics
from nerf.training.state import make_sampler

OnView = Callable[[int, Rendering, Tensor], None]


@dataclass
class CurveConfig:
    budgets: list[float] = field(
        default_factory=lambda: list(BUDGETS), metadata={"doc": "mode=curve: training seconds of the runs"}
    )
    seeds: list[int] = field(
        default_factory=lambda: [0, 1, 2], metadata={"doc": "mode=curve: one run for each budget and seed"}
    )
    looks: int = setting(3, "mode=curve: scores on the way, after 1/2, 1/4, 1/8 ... of the time", low=0, high=8)
    look_every: int = setting(8, "mode=curve: on the way every k-th view is scored", low=1)


def check(settings: CurveConfig, config: Config) -> None:
    """Raises UserError for settings that a curve cannot use."""
    budgets, seeds = settings.budgets, settings.seeds
    if not budgets or not all(isinstance(b, int | float) and b >= 0.1 for b in budgets):
        raise UserError(f"curve.budgets={budgets} is no list of training seconds, expected for example [2,5,15,60].")
    if not seeds or not all(isinstance(seed, int) and seed >= 0 for seed in seeds):
        raise UserError(f"curve.seeds={seeds} is no list of seeds, expected for example [0,1,2].")
    if config.train.steps is not None or config.train.max_seconds is not None:
        raise UserError(
            "train.steps and train.max_seconds are one run's; give curve.budgets=[SECONDS,...] with mode=curve."
        )
    if config.seed != 0:
        raise UserError(f"seed={config.seed} is one run's; give curve.seeds=[{config.seed}] with mode=curve.")


def measure_run(
    config: Config,
    settings: CurveConfig,
    train: PosedImages,
    test: PosedImages,
    backend: Backend,
    folder: Path,
    on_view: OnView = lambda index, rendering, target: None,
) -> CurveRun:
    """One run of the config, which holds budget and seed: its entry for the JSON. Saves the model in folder.

    on_view: called with each view of the final scores, like that of evaluate().
    """
    run = start(config, train, backend)
    fractions = [0.5**k for k in range(settings.looks, 0, -1)]
    memory, intermediate, log = PeakMemory(backend.device), [], []
    for entry in run.train():
        log.append(entry)
        memory.add()
        if fractions and fractions[0] <= entry.progress < 1:
            fractions = [fraction for fraction in fractions if fraction > entry.progress]
            scores = _score(run, test, settings.look_every)
            intermediate.append(_intermediate_score(entry, scores))
            memory.restart()
    scores = _score(run, test, run.config.evaluation.every, with_lpips=True, on_view=on_view)
    state, frames = run.state, {"lpips": summarize(scores.lpips)} if scores.lpips else {}
    folder.mkdir(parents=True, exist_ok=True)
    model = checkpoint.save_model(folder, run.config, state, train.cameras)
    return frames | {
        "seed": run.config.seed,
        "field": run.config.field.name,
        "resolution": list(state.field.resolution),
        "rays_per_step": run.config.train.rays_per_step,
        "train_seconds": state.clock.elapsed,
        "steps": state.clock.step,
        "psnr": summarize(scores.psnr),
        "ssim": summarize(scores.ssim),
        "render_seconds_per_view": scores.seconds_per_view,
        "peak_memory_bytes": memory.bytes,
        "model_bytes": model.stat().st_size,
        "looks": intermediate,
        "notes": run_notes(run.config, state, log, scores),
    }


def _score(
    run: TrainingRun,
    test: PosedImages,
    every: int,
    with_lpips: bool = False,
    on_view: OnView = lambda index, rendering, target: None,
) -> Scores:
    color = run.state.background.eval(run.state.field.backend.device)
    views = run.open().align_views(test, run.config.evaluation.split, every)
    sampler = make_sampler(run.config, run.state)
    return evaluate(run.state.field, sampler, views, color, every, on_view, with_lpips=with_lpips)


def _intermediate_score(entry: TrainMetrics, scores: Scores) -> Look:
    return {
        "seconds": entry.seconds,
        "step": entry.step,
        "psnr": statistics.fmean(scores.psnr),
        "ssim": statistics.fmean(scores.ssim),
        "views": len(scores.psnr),
    }


class PeakMemory:
    """Peak GPU memory that PyTorch reserved for training, without intermediate scoring; None on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.bytes: int | None = None

    def add(self) -> None:
        """Includes the peak since the last restart()."""
        if self._device.type == "cuda":
            self.bytes = max(self.bytes or 0, torch.cuda.max_memory_reserved(self._device))

    def restart(self) -> None:
        """Excludes what was reserved since add()."""
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self._device)


def with_budget(config: Config, seconds: float, seed: int) -> Config:
    """The settings of one run of a curve."""
    return replace(config, seed=seed, train=replace(config.train, max_seconds=float(seconds)))


def budget_figures(seconds: float, runs: list[CurveRun]) -> Budget:
    """A budget's runs with the median and the range of each figure over the seeds.

    psnr_every_4th, over the baselines' views, is there where all official test views were scored.
    """
    per_view = [run["psnr"]["per_view"] for run in runs]
    summary: Budget = {"seconds": seconds, "field": runs[0]["field"], "views": len(per_view[0])}
    summary["psnr"] = spread([run["psnr"]["mean"] for run in runs])
    every_4th = [psnr_of_baseline_views(views) for views in per_view]
    if None not in every_4th:
        summary["psnr_every_4th"] = spread(every_4th)
    summary["ssim"] = spread([run["ssim"]["mean"] for run in runs])
    if all("lpips" in run for run in runs):
        summary["lpips"] = spread([run["lpips"]["mean"] for run in runs])
    for name in ("train_seconds", "steps", "render_seconds_per_view", "peak_memory_bytes", "model_bytes"):
        values = [run[name] for run in runs]
        summary[name] = None if None in values else spread(values)
    return summary | {"runs": runs}


def spread(values: list[float]) -> Spread:
    """Median, lowest and highest."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}
