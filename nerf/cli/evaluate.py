"""Score a trained run on any split.

python scripts/evaluate.py                      the newest run, its test views
python scripts/evaluate.py run=outputs/RUN split=train every=10
python scripts/evaluate.py runs=outputs/A,outputs/B          compares runs: a table, and a page with sliders
python scripts/evaluate.py view_poses=refined exposure=fit   each view by its own photo's pose and exposure
python scripts/evaluate.py run=outputs/A ensemble=outputs/B,outputs/C   the mean of the pictures of three runs
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nerf.cli.compare_runs import compare_runs
from nerf.cli.hydra_app import run
from nerf.cli.open_run import EnsembleConfig, open_runs
from nerf.cli.report import print_table, provenance
from nerf.cli.scored_views import score_views
from nerf.config.settings import setting
from nerf.evaluation.held_out_poses import NOT_REFINED, has_effect, pose_facts
from nerf.evaluation.scores import SCORES
from nerf.files import METRICS, write_json
from nerf.ops.backend import device_name
from nerf.runs.ensemble import views_of_others
from nerf.runs.open_run import LoadedRun


@dataclass
class EvaluateConfig(EnsembleConfig):
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
    runs = open_runs(config)
    if config.view_poses is not None and not has_effect(config.view_poses, config.split):
        print(f"note: view_poses=refined has no effect with split=train: {NOT_REFINED}.", file=sys.stderr)
    for chosen in (one.config.evaluation for one in runs):
        chosen.split, chosen.every = config.split, config.every
        chosen.view_poses = config.view_poses or chosen.view_poses
        chosen.exposure = config.exposure or chosen.exposure
    loaded, settings = runs[0], runs[0].config
    given = loaded.given_views(config.split)
    views = loaded.align_views(given, config.split, config.every)
    others = views_of_others(runs, given, config.split, config.every)
    scores, sheet = score_views(loaded.field, loaded.sampler, views, settings, folder, others)
    metrics = (
        _facts(runs)
        | scores.summary()
        | {
            "scene": settings.dataset.scene,
            "image_size": [views.cameras.width, views.cameras.height],
            "split": config.split,
            "scored_by": {
                "backend": loaded.sampler.backend.name,
                "device": device_name(loaded.sampler.backend.device),
                **provenance(),
            },
        }
    )
    path = folder / METRICS
    write_json(path, metrics)
    print_table(metrics, scores, loaded.field.voxel_size)
    print(path)
    print(sheet)


def _facts(runs: Sequence[LoadedRun]) -> dict[str, object]:
    """What metrics.json says of one run; of several, what it says of each, and the sum of their training seconds."""
    facts = [_facts_of_one(run) for run in runs]
    if len(facts) == 1:
        return facts[0]
    seconds = [fact.get("train_seconds") for fact in facts]
    members = [{"run": str(run.folder)} | fact for run, fact in zip(runs, facts, strict=True)]
    return {"ensemble": members, "ensemble_train_seconds": None if None in seconds else sum(seconds)}


def _facts_of_one(run: LoadedRun) -> dict[str, object]:
    """What is known of a run beside its scores; of its training only if it was not stopped before its end."""
    facts = _saved_facts(run.folder / METRICS)
    training = {name: fact for name, fact in facts.items() if name not in SCORES}  # scores may be of another split
    own = {"field": run.config.field.name, "rays_per_pixel": run.sampler.rays_per_pixel}
    return training | pose_facts(run.config, run.cameras, run.given_cameras) | own


def _saved_facts(path: Path) -> dict[str, object]:
    """What the run's own metrics say; of damaged ones nothing, with a note."""
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if not isinstance(found, dict):
            raise ValueError("it holds no scores by name")
    except (OSError, ValueError) as error:
        print(f"note: {path} is damaged ({error}); what it says of the training is left out.", file=sys.stderr)
        return {}
    return found


def command() -> None:
    run("evaluate", EvaluateConfig, main, __doc__)
