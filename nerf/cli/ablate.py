"""Compare the native operations with PyTorch: time per stage, memory and PSNR, on the GPU and on the CPU.

    python scripts/ablate.py dataset=lego                     on every device of this machine
    python scripts/ablate.py dataset=lego device=cpu ablation.equal_steps=0

All rows (a backend on a device) start from one state, made by a short training, with the same rays, samples and Adam.
The run folder gets ablation.json, and ablation.png if matplotlib is installed. The exit status is 1 if loss or
gradients of a row differ from the native ones. By default the field is voxel_sh with 160^3 voxels, and every fifth test
view is scored.
"""

import dataclasses
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from nerf.benchmarks.ablation import AblationConfig, equal_trainings, make_start, measure_rows, speedups
from nerf.benchmarks.ablation_plot import plot_ablation
from nerf.benchmarks.tables import ablation_table
from nerf.cli.hydra_app import run
from nerf.cli.report import log_stage, provenance
from nerf.config.fields import FieldConfig
from nerf.config.schema import Config
from nerf.datasets.load import check_split, load_split
from nerf.errors import UserError
from nerf.fields.voxel_sh import VoxelShConfig
from nerf.files import write_text
from nerf.ops.backend import device_name, select


@dataclass
class AblateScriptConfig(Config):
    field: FieldConfig = dataclasses.field(default_factory=VoxelShConfig)
    ablation: AblationConfig = dataclasses.field(default_factory=AblationConfig)


def main(given: AblateScriptConfig, folder: Path, overrides: list[str]) -> None:
    if given.backend != "auto":
        raise UserError(f"backend={given.backend} has no effect: an ablation measures all backends; leave it out.")
    exposures = given.exposure.learn or given.exposure.vignetting
    if given.poses.mode != "fixed" or given.poses.from_run is not None or exposures:
        raise UserError(
            "poses=refine, poses.from_run, exposure.learn=true and exposure.vignetting=true cannot be used here: the "
            "rows train a field only; leave them out."
        )
    config = Config(**{f.name: getattr(given, f.name) for f in dataclasses.fields(Config)})
    settings = given.ablation
    native = select("native", config.device)
    natives = [native]
    if native.device.type == "cuda" and config.device == "auto":
        natives.append(select("native", "cpu"))
    images = load_split(config.dataset, "train")
    log_stage(f"{len(images)} views {images.cameras.described_size}; training the start of all rows")
    start = make_start(config, settings, images, native)
    rows = []
    for backend in natives:
        rows += measure_rows(start, settings, backend, config.train.rays_per_step, log_stage)
    result = {
        "scene": config.dataset.scene,
        "field": start.config.field.name,
        "resolution": list(start.field["resolution"]),
        "devices": {backend.device.type: device_name(backend.device) for backend in natives},
        "rows": rows,
        "speedups": speedups(rows),
        "trainings": [],
        "settings": asdict(start.config) | {"ablation": asdict(settings)},
        **provenance(),
    }
    path = _write(folder, result)  # saved before the long trainings
    equal_steps = (
        {"cuda": 3000, "cpu": 200}[native.device.type] if settings.equal_steps is None else settings.equal_steps
    )
    if equal_steps:
        check_split(config.dataset, config.evaluation.split)
        views = load_split(config.dataset, config.evaluation.split)
        result["trainings"] = equal_trainings(config, equal_steps, images, views, native, rows, log_stage)
        _write(folder, result)
    print(f"\n{ablation_table(result)}\n\n{path}")
    picture = folder / "ablation.png"
    print(picture if plot_ablation(result, picture) else "no plot: matplotlib is missing; pip install matplotlib")
    wrong = [f"{row['label']} on {row['device']}" for row in rows if row["missing"] is None and not row["agrees"]]
    if wrong:
        print(f"error: loss or gradients differ from the native ones: {', '.join(wrong)}.", file=sys.stderr)
        sys.exit(1)


def _write(folder: Path, result: dict) -> Path:
    path = folder / "ablation.json"
    write_text(path, json.dumps(result, indent=2) + "\n")
    return path


def command() -> None:
    run("ablate", AblateScriptConfig, main, __doc__)
