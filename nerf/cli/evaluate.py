"""Score a trained run on any split.

python scripts/evaluate.py                      the newest run, its test views
python scripts/evaluate.py run=outputs/RUN split=train every=10
python scripts/evaluate.py runs=outputs/A,outputs/B          compares runs: a table, and a page with sliders
python scripts/evaluate.py view_poses=refined exposure=fit   each view by its own photo's pose and exposure
"""

import datetime
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from nerf.cli.compare_runs import compare_runs
from nerf.cli.hydra_app import run
from nerf.cli.open_run import PicturesConfig, open_run
from nerf.cli.report import commit, print_table
from nerf.cli.scored_views import score_views
from nerf.config.commands import as_typed
from nerf.config.settings import setting
from nerf.evaluation.held_out_poses import pose_facts
from nerf.evaluation.scores import SCORES
from nerf.files import write_text
from nerf.ops.backend import device_name


@dataclass
class EvaluateConfig(PicturesConfig):
    runs: str | None = setting(None, "folders of runs to compare, separated by commas, in place of run", path=True)
    split: str = setting("test", "which views are scored", choices=("train", "val", "test"))
    every: int = setting(1, "score every k-th view", low=1)
    view_poses: str | None = setting(
        None, "evaluation.view_poses; none = as the run had it", choices=("given", "aligned", "refined")
    )
    exposure: str | None = setting(None, "evaluation.exposure; none = as the run had it", choices=("none", "fit"))


def main(config: EvaluateConfig, folder: Path, overrides: list[str]) -> None:
    if config.runs is not None:
        compare_runs(config.runs, config.root, folder, overrides)
        return
    loaded = open_run(config)
    settings = loaded.config
    settings.evaluation.split, settings.evaluation.every = config.split, config.every
    settings.evaluation.view_poses = config.view_poses or settings.evaluation.view_poses
    settings.evaluation.exposure = config.exposure or settings.evaluation.exposure
    views = loaded.views(config.split, config.every)
    scores, sheet = score_views(loaded.field, loaded.sampler, views, settings, folder)
    facts = pose_facts(settings, loaded.cameras, loaded.given_cameras)
    metrics = (
        _training_facts(loaded.folder)
        | scores.summary()
        | facts
        | {
            "scene": settings.dataset.scene,
            "field": settings.field.name,
            "image_size": [views.cameras.width, views.cameras.height],
            "split": config.split,
            "rays_per_pixel": loaded.sampler.rays_per_pixel,
            "scored_by": {
                "command": as_typed(sys.argv),
                "commit": commit(),
                "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                "backend": loaded.sampler.backend.name,
                "device": device_name(loaded.sampler.backend.device),
            },
        }
    )
    path = folder / "metrics.json"
    write_text(path, json.dumps(metrics, indent=2) + "\n")
    print_table(metrics, scores, loaded.field.voxel_size)
    print(path)
    print(sheet)


def _training_facts(run_folder: Path) -> dict:
    """The entries of the run's metrics.json on its training; empty if the run was stopped before its end."""
    path = run_folder / "metrics.json"
    facts = json.loads(path.read_text()) if path.is_file() else {}
    return {name: fact for name, fact in facts.items() if name not in SCORES}  # scores may be of another split


def command() -> None:
    run("evaluate", EvaluateConfig, main, __doc__)
