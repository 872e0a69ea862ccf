"""mode=curve of benchmark.py: runs the trainings of a curve and writes curve.json and curve.png."""

import gc
import json
import re
from dataclasses import asdict
from pathlib import Path

from nerf.benchmarks.baselines import same_test
from nerf.benchmarks.curve import CurveConfig, budget_figures, check, measure_run, with_budget
from nerf.benchmarks.curve_plot import plot_curve
from nerf.benchmarks.curve_table import curve_tables
from nerf.benchmarks.figures import Log
from nerf.cli.report import ROOT, provenance
from nerf.config.schema import Config
from nerf.datasets.load import check_split, load_split
from nerf.errors import TrainingStopped, UserError
from nerf.files import write_text
from nerf.ops.backend import device_name, select

BASELINES = ROOT / "docs" / "results" / "data" / "baselines_h200.json"


def run_curve(config: Config, settings: CurveConfig, folder: Path, log: Log) -> None:
    """Runs all budgets, the shortest first, with all seeds; writes the results after each run."""
    check(settings, config)
    backend = select(config.backend, config.device, config.deterministic)
    check_split(config.dataset, config.evaluation.split)
    train, test = load_split(config.dataset, "train"), load_split(config.dataset, config.evaluation.split)
    size = [test.cameras.width, test.cameras.height]
    result = {
        "scene": config.dataset.scene,
        "image_size": size,
        "split": config.evaluation.split,
        "every": config.evaluation.every,
        "device": device_name(backend.device),
        "backend": backend.name,
        **provenance(),
        "settings": asdict(config) | {"curve": asdict(settings)},
        "budgets": [],
    }
    baselines = json.loads(BASELINES.read_text()) if BASELINES.is_file() else None
    baselines = baselines if baselines is not None and same_test(result, baselines) else None
    for seconds in sorted(set(settings.budgets)):
        runs = []
        for seed in dict.fromkeys(settings.seeds):
            place = folder / f"seconds_{seconds:g}_seed_{seed}"
            try:
                runs.append(measure_run(with_budget(config, seconds, seed), settings, train, test, backend, place))
            except TrainingStopped as error:
                message = f"the run of {seconds:g} s with seed {seed} stopped: {error}. {error.remedy}."
                raise UserError(message) from error
            gc.collect()  # frees the run's tensors before the next one plans its memory
            finished = [*result["budgets"], budget_figures(seconds, runs)]
            _write(folder, result | {"budgets": finished}, baselines)
            last = runs[-1]
            log(f"{seconds:g} s, seed {seed}: {last['psnr']['mean']:.2f} dB, {last['steps']} steps, {last['field']}")
        result["budgets"] = finished
    print(f"\n{curve_tables([result], baselines)}\n\n{folder / 'curve.json'}\n{folder / 'curve.png'}")


def _write(folder: Path, result: dict, baselines: dict | None) -> None:
    path = folder / "curve.json"
    write_text(path, compact(json.dumps(result, indent=1)) + "\n")
    plot_curve([result], baselines, folder / "curve.png")


def compact(text: str) -> str:
    """JSON with every list of numbers on one line."""
    return re.sub(r"\[[^][{}\"]*\]", lambda match: " ".join(match[0].split()), text)
