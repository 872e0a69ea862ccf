"""Measure every operation on its own, or the quality of training against the clock.

    python scripts/benchmark.py                                      on the GPU if there is one, else on the CPU
    python scripts/benchmark.py benchmark.ops=[interpolate_trilinear,composite_rays]
    python scripts/benchmark.py benchmark.variants=mine.py           functions named like operations become rows
    python scripts/benchmark.py mode=curve                           lego in 2, 5, 15, 60 and 300 seconds, three seeds
    python scripts/benchmark.py mode=curve curve.budgets=[5,15] curve.seeds=[0] evaluation.every=4

mode=ops: error, time from cold and warm caches, floor, and PyTorch beside it. The run folder gets benchmark.json. The
exit status is 1 if a row does not compute what float64 does; such rows are marked WRONG and count for nothing.
Meanings, shapes and names of the operations: nerf/ops/reference.py.

mode=curve: trains with the recipe of each budget (nerf/recipes.py), scores the test views at the end and some of them
on the way with the clock stopped. The run folder gets curve.json, curve.png and the models. Settings of training hold
for every run; without a dataset it is lego.
"""

import dataclasses
import datetime
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from _hydra import run  # before torch
from _curve import compact, run_curve
from _report import commit
from _tables import benchmark_rows_table, benchmark_table

from nerf.benchmark import BenchmarkConfig, benchmark, wrong_rows
from nerf.config import Config, setting
from nerf.curve import CurveConfig
from nerf.errors import UserError
from nerf.ops.backend import device_name, select

STARTED = time.perf_counter()
OF_OPS = ("mode", "device", "benchmark.", "hydra.", "-")  # settings that mode=ops has


@dataclass
class BenchmarkScriptConfig(Config):
    mode: str = setting("ops", "every operation on its own, or training against the clock", choices=("ops", "curve"))
    benchmark: BenchmarkConfig = dataclasses.field(default_factory=BenchmarkConfig)
    curve: CurveConfig = dataclasses.field(default_factory=CurveConfig)


def main(config: BenchmarkScriptConfig, folder: Path, overrides: list[str]) -> None:
    curve = config.mode == "curve"
    idle = [o for o in overrides if o.lstrip("+~").startswith("benchmark." if curve else OF_OPS) == curve]
    if idle:
        other = "mode=ops" if curve else "mode=curve"
        given = ", ".join(idle)
        raise UserError(f"{given} would change nothing with mode={config.mode}; leave it out, or give {other}.")
    if curve:
        training = Config(**{f.name: getattr(config, f.name) for f in dataclasses.fields(Config)})
        run_curve(training, config.curve, folder, _say)
    else:
        _measure_operations(config, folder)


def _measure_operations(config: BenchmarkScriptConfig, folder: Path) -> None:
    device = select("native", config.device).device
    result = benchmark(config.benchmark, device, _say) | {
        "device": device_name(device),
        "seconds": time.perf_counter() - STARTED,
        "settings": asdict(config.benchmark),
        "torch": torch.__version__,
        "commit": commit(),
        "command": " ".join(["python", *sys.argv]),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "benchmark.json"
    path.write_text(compact(json.dumps(result, indent=1)) + "\n")
    print(f"\n{benchmark_rows_table(result)}\n\n{benchmark_table(result)}\n\n{path}")
    wrong = wrong_rows(result)
    if wrong:
        print(f"error: these differ from float64: {'; '.join(wrong)}.", file=sys.stderr)
        sys.exit(1)


def _say(what: str) -> None:
    print(f"{time.perf_counter() - STARTED:4.0f} s  {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    run("benchmark", BenchmarkScriptConfig, main, __doc__)
