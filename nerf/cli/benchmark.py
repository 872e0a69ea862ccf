"""Measure operations, a step by its stages, quality against the clock, the viewer's cost, or what exports lose.

    python scripts/benchmark.py                                      on the GPU if there is one, else on the CPU
    python scripts/benchmark.py benchmark.ops=[interpolate_trilinear,composite_rays]
    python scripts/benchmark.py benchmark.variants=mine.py           functions named like operations become rows
    python scripts/benchmark.py mode=step train.max_seconds=60       a step near the end of such a run, on lego
    python scripts/benchmark.py mode=curve                           lego in 2, 5, 15, 60 and 300 seconds, three seeds
    python scripts/benchmark.py mode=viewer train.max_seconds=15     what a viewer costs such a run, on lego
    python scripts/benchmark.py mode=exports exports.run=outputs/RUN  page, splats and mesh of a run
    python scripts/benchmark.py mode=curve curve.budgets=[5,15] curve.seeds=[0] evaluation.every=4
    python scripts/benchmark.py mode=scenes                          every scene of $NERF_DATA or data/ in 15 and 60 s
    python scripts/benchmark.py mode=scenes scenes=[lego,fern] budget_steps=[500] dataset.downscale=8

mode=ops: error, time with cold and warm caches, time over the roofline, and the same for PyTorch. The run folder gets
benchmark.json. The exit status is 1 if a row differs from float64; such rows are marked WRONG and not compared.
The operations are documented in their files in nerf/ops.

mode=step: trains to nine tenths of a run and profiles its steps: milliseconds of each stage, its roofline, and the
GPU's idle time. The run folder gets step.json.

mode=ranks: trains to nine tenths of a run, on one process or on several (torchrun --nproc-per-node=2
scripts/benchmark.py mode=ranks), and measures further steps: time, samples and memory of each rank, and what it sends.
The run folder gets ranks.json.

mode=curve: trains with the recipe of each budget (nerf/config/recipes.py); scores the test views at the end, and some
of them at intermediate times with the clock stopped. The run folder gets curve.json, curve.png and the models. Training
settings apply to every run. The default dataset is lego, as with mode=step and mode=viewer.

mode=viewer: trains with nobody there, with a page at rest and with one that moves, in turn. The run folder gets
viewer.json. mode=exports: the run folder gets the exports of a run and exports.json, with their PSNR beside photos and
the run's own pictures. Where there is Chromium it draws the page, and the splats with Spark (npm
install -g @sparkjsdev/spark three@0.180); a renderer in NumPy draws them too.

mode=scenes: trains each scene that is found in dataset.root=FOLDER, else in $NERF_DATA or data/, with each budget, and
compares it with published figures. The run folder gets scenes.json, a file for each run, the models, and a picture of
each scene's worst test view. The same command with the same hydra.run.dir goes on where it ended. mip-NeRF 360's
outdoor scenes are read from images_4, its indoor scenes from images_2, those of LLFF from images_4.
"""

import dataclasses
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from nerf.benchmarks.curve import CurveConfig
from nerf.benchmarks.exports import ExportsConfig
from nerf.benchmarks.ops import BenchmarkConfig, benchmark, wrong_rows
from nerf.benchmarks.tables import benchmark_rows_table, benchmark_table
from nerf.cli.benchmark_curve import compact, run_curve
from nerf.cli.benchmark_delivery import run_exports, run_viewer
from nerf.cli.benchmark_ranks import run_ranks
from nerf.cli.benchmark_scenes import run_scenes
from nerf.cli.benchmark_step import run_step
from nerf.cli.ranks import run
from nerf.cli.report import STARTED, log_stage, provenance
from nerf.config.schema import Config
from nerf.config.settings import setting
from nerf.distributed.world import World
from nerf.errors import UserError
from nerf.files import write_text
from nerf.ops.backend import device_name, select

MODES = ("ops", "step", "curve", "scenes", "viewer", "exports", "ranks")
OF_SCENES = ("scenes", "budgets", "budget_steps")
OF_ALL = ("mode", "device", "hydra.", "-")  # settings of every mode; mode=ops has no training settings


@dataclass
class BenchmarkScriptConfig(Config):
    mode: str = setting(
        "ops",
        "operations, a step by its stages, training against the clock, every scene, the viewer's cost, exports, or a "
        "step on several ranks",
        choices=MODES,
    )
    scenes: list[str] = dataclasses.field(
        default_factory=list, metadata={"doc": "mode=scenes: these alone, as NAME or SET/NAME; [] = all that are found"}
    )
    budgets: list[float] = dataclasses.field(
        default_factory=lambda: [15.0, 60.0],
        metadata={"doc": "mode=scenes: training seconds of the runs of each scene"},
    )
    budget_steps: list[int] = dataclasses.field(
        default_factory=list, metadata={"doc": "mode=scenes: training steps in place of seconds; [] = budgets"}
    )
    benchmark: BenchmarkConfig = dataclasses.field(default_factory=BenchmarkConfig)
    curve: CurveConfig = dataclasses.field(default_factory=CurveConfig)
    exports: ExportsConfig = dataclasses.field(default_factory=ExportsConfig)


def main(config: BenchmarkScriptConfig, folder: Path, overrides: list[str], world: World | None = None) -> None:
    if world is not None and config.mode != "ranks":
        raise UserError(f"mode={config.mode} measures one process: start it without torchrun, or give mode=ranks.")
    modes = {given: mode_that_reads(given.lstrip("+~"), config.mode) for given in overrides}
    idle = [given for given, mode in modes.items() if mode != config.mode]
    if idle:
        given, other = ", ".join(idle), modes[idle[0]]
        raise UserError(f"{given} has no effect with mode={config.mode}; leave it out, or give mode={other}.")
    training = Config(**{f.name: getattr(config, f.name) for f in dataclasses.fields(Config)})
    if config.mode == "curve":
        run_curve(training, config.curve, folder, log_stage)
    elif config.mode == "scenes":
        _run_scenes(config, training, folder, overrides)
    elif config.mode == "step":
        run_step(training, folder, log_stage)
    elif config.mode == "viewer":
        run_viewer(training, folder, log_stage)
    elif config.mode == "exports":
        run_exports(training, config.exports, folder, log_stage)
    elif config.mode == "ranks":
        run_ranks(training, folder, log_stage, world)
    else:
        _measure_operations(config, folder)


def mode_that_reads(name: str, mode: str) -> str:
    """A mode that uses the setting: the given one if it does, else another."""
    if name.startswith(OF_ALL):
        return mode
    if name.startswith("benchmark."):
        return "ops"
    if name.partition("=")[0] in OF_SCENES:
        return "scenes"
    if name.startswith("exports.") or (mode == "exports" and name.startswith("backend")):
        return "exports"
    return "curve" if name.startswith("curve.") or mode in ("ops", "exports") else mode


def _run_scenes(config: BenchmarkScriptConfig, training: Config, folder: Path, overrides: list[str]) -> None:
    one = [given for given in overrides if given.partition("=")[0] in ("dataset", "dataset.scene", "dataset.format")]
    if one:
        raise UserError(f"{', '.join(one)} names one scene; give scenes=[NAME,...] with mode=scenes.")
    run_scenes(training, config.scenes, config.budgets, config.budget_steps, folder, log_stage)


def _measure_operations(config: BenchmarkScriptConfig, folder: Path) -> None:
    device = select("native", config.device).device
    result = benchmark(config.benchmark, device, log_stage) | {
        "device": device_name(device),
        "seconds": time.perf_counter() - STARTED,
        "settings": asdict(config.benchmark),
        **provenance(),
    }
    path = folder / "benchmark.json"
    write_text(path, compact(json.dumps(result, indent=1)) + "\n")
    print(f"\n{benchmark_rows_table(result)}\n\n{benchmark_table(result)}\n\n{path}")
    wrong = wrong_rows(result)
    if wrong:
        print(f"error: these differ from float64: {'; '.join(wrong)}.", file=sys.stderr)
        sys.exit(1)


def command() -> None:
    run("benchmark", BenchmarkScriptConfig, main, __doc__)
