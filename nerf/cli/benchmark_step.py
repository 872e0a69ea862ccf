"""mode=step of benchmark.py: profiles a training step and writes step.json."""

import json
from collections.abc import Callable
from pathlib import Path

from nerf.benchmarks.step_profile import measure_step
from nerf.benchmarks.step_table import step_table
from nerf.cli.benchmark_curve import compact
from nerf.cli.report import provenance
from nerf.config.schema import Config
from nerf.datasets.load import load_split
from nerf.errors import TrainingStopped, UserError
from nerf.files import write_text
from nerf.ops.backend import device_name, select
from nerf.runs.run import start


def run_step(config: Config, folder: Path, log: Callable[[str], None]) -> None:
    """Trains to nine tenths of the config's run and profiles its steps."""
    backend = select(config.backend, config.device, config.deterministic)
    if backend.name != "native":
        raise UserError(f"backend={backend.name} cannot be profiled by operation; leave it out, or use ablate.py.")
    run = start(config, load_split(config.dataset, "train"), backend)
    train = run.config.train
    budget = f"{train.steps} steps" if train.steps else f"{train.max_seconds:g} s"
    log(f"training {run.config.field.name} for {budget}")
    try:
        figures = measure_step(run)
    except TrainingStopped as error:
        raise UserError(f"the run stopped: {error}. {error.remedy}.") from error
    result = {
        "scene": config.dataset.scene,
        "image_size": [run.images.cameras.width, run.images.cameras.height],
        "device": device_name(backend.device),
        "budget": {"steps": train.steps, "seconds": train.max_seconds},
        **provenance(),
        **figures,
    }
    path = folder / "step.json"
    write_text(path, compact(json.dumps(result, indent=1)) + "\n")
    print(f"\n{step_table(result)}\n\n{path}")
