"""mode=scenes of benchmark.py: trains whatever scenes are there and writes scenes.json, one entry a scene and budget.

What is done is kept in a file of its own, so that the same command in the same folder goes on where it ended.
"""

import gc
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from nerf.benchmarks.figures import Log, SceneRun
from nerf.benchmarks.scene_sets import Scene, find_scenes
from nerf.benchmarks.scenes import check, dataset_of, measure_scene, with_budget
from nerf.benchmarks.scenes_table import scenes_table
from nerf.cli.benchmark_curve import compact
from nerf.cli.report import ROOT, provenance
from nerf.config.schema import Config
from nerf.errors import TrainingStopped, UserError
from nerf.files import DATA, write_text
from nerf.ops.backend import device_name, select

PUBLISHED = ROOT / "docs" / "results" / "data" / "published_scenes.json"
RESULT = "scenes.json"


def run_scenes(
    config: Config, names: Sequence[str], budgets: Sequence[float], steps: Sequence[int], folder: Path, log: Log
) -> None:
    """Trains every scene with every budget, the shortest first; a scene that fails does not end the others.

    budgets: seconds; with steps, these are the budgets. Raises UserError for settings that cannot be used.
    """
    check(config, list(budgets), list(steps))
    scenes = find_scenes(_folders(config), list(names))
    log(f"{len(scenes)} scenes: {', '.join(f'{scene.set}/{scene.name}' for scene in scenes)}")
    backend = select(config.backend, config.device, config.deterministic)
    plan = [(None, count) for count in sorted(set(steps))] or [(float(s), None) for s in sorted(set(budgets))]
    runs: list[SceneRun] = []
    failed: list[str] = []
    head = {"device": device_name(backend.device), "backend": backend.name, **provenance(), "settings": asdict(config)}
    for seconds, count in plan:
        for scene in scenes:
            label = f"{scene.key}_{f'{count}_steps' if count else f'{seconds:g}_seconds'}"
            own = with_budget(config, seconds, count)
            own.dataset = dataset_of(scene, config.dataset)
            try:
                runs.append(_measured(own, scene, backend, folder, label, head, log))
            except (UserError, TrainingStopped) as error:
                failed.append(f"{label}: {error}")
                log(f"error: {failed[-1]}")
            write_text(folder / RESULT, compact(json.dumps(head | {"runs": runs}, indent=1)) + "\n")
            gc.collect()  # frees the run's tensors before the next one plans its memory
    published = [json.loads(PUBLISHED.read_text())] if PUBLISHED.is_file() else []
    print(f"\n{scenes_table([*published, head | {'runs': runs}])}\n\n{folder / RESULT}")
    if failed:
        print(f"error: {len(failed)} of {len(plan) * len(scenes)} runs failed:", *failed, sep="\n  ", file=sys.stderr)
        sys.exit(2)


def _measured(
    config: Config, scene: Scene, backend: object, folder: Path, label: str, head: dict, log: Log
) -> SceneRun:
    """The entry of one run: the one that is there already, else a new one. Raises UserError for other settings."""
    path, settings = folder / f"{label}.json", asdict(config)
    try:
        found = json.loads(path.read_text())
        if found["settings"] != settings or found["device"] != head["device"]:
            raise UserError(
                f"{path} was measured with other settings or on another device; give those, or set hydra.run.dir to "
                "another folder."
            )
        log(f"{label}: done already")
        return found["run"]
    except (FileNotFoundError, json.JSONDecodeError, KeyError):
        pass
    run = measure_scene(config, scene, backend, folder / label, folder / f"{label}.png")
    run |= {name: head[name] for name in ("device", "commit", "date")}
    write_text(path, compact(json.dumps({"device": head["device"], "settings": settings, "run": run}, indent=1)) + "\n")
    log(f"{label}: {run['psnr']['mean']:.2f} dB, {run['steps']} steps, {run['train_seconds']:.1f} s")
    return run


def _folders(config: Config) -> list[Path]:
    """Where scenes are looked for: in dataset.root, else in $NERF_DATA, else in data. Raises UserError."""
    if config.dataset.root is not None:
        folder = Path(config.dataset.root).expanduser()
        if not folder.is_dir():
            raise UserError(f"dataset.root={folder}: no such folder, expected one that holds scenes.")
        return [folder]
    return [Path(os.environ["NERF_DATA"]).expanduser()] if os.environ.get("NERF_DATA") else [DATA]
