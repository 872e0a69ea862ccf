"""mode=viewer and mode=exports of benchmark.py: what a viewer costs a run, and what is lost on the way out of it."""

import json
from collections.abc import Callable
from pathlib import Path

from nerf.benchmarks.delivery_tables import exports_table, viewer_table
from nerf.benchmarks.exports import ExportsConfig, check, measure_exports
from nerf.cli.benchmark_curve import compact
from nerf.cli.report import provenance
from nerf.config.schema import Config
from nerf.datasets.load import load_split
from nerf.errors import TrainingStopped, UserError
from nerf.files import write_text
from nerf.ops.backend import device_name, select
from nerf.runs.open_run import load
from nerf.runs.run import start
from nerf.viewer.cost import measure_cost


def run_viewer(config: Config, folder: Path, log: Callable[[str], None]) -> None:
    """Trains the config's run with and without a page in turn; writes viewer.json."""
    backend = select(config.backend, config.device, config.deterministic)
    run = start(config, load_split(config.dataset, "train"), backend)
    log(f"training {run.config.field.name}, with and without a page in turn")
    try:
        figures = measure_cost(run)
    except TrainingStopped as error:
        raise UserError(f"the run stopped: {error}. {error.remedy}.") from error
    train = run.config.train
    result = {
        "scene": config.dataset.scene,
        "image_size": [run.images.cameras.width, run.images.cameras.height],
        "device": device_name(backend.device),
        "budget": {"steps": train.steps, "seconds": train.max_seconds},
        **provenance(),
        **figures,
    }
    _write(folder / "viewer.json", result, viewer_table([result]))


def run_exports(config: Config, settings: ExportsConfig, folder: Path, log: Callable[[str], None]) -> None:
    """Writes a run's web page, splats and mesh into the folder, and exports.json with their figures."""
    check(settings)
    opened = load(settings.run, config.backend, config.device)
    result = {
        "scene": opened.config.dataset.scene,
        "image_size": [opened.cameras.width, opened.cameras.height],
        "device": device_name(opened.field.backend.device),
        **provenance(),
        **measure_exports(opened, settings, folder, log),
    }
    _write(folder / "exports.json", result, exports_table([result]))


def _write(path: Path, result: dict, table: str) -> None:
    write_text(path, compact(json.dumps(result, indent=1)) + "\n")
    print(f"\n{table}\n\n{path}")
