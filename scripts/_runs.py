"""Opening a trained run: what render.py and evaluate.py share."""

from dataclasses import dataclass
from pathlib import Path

from nerf import checkpoint
from nerf.cameras import Cameras
from nerf.config import Config, setting
from nerf.errors import UserError
from nerf.fields.field import Field
from nerf.ops.backend import select
from nerf.sampler import RaySampler

OUTPUTS = Path("outputs")


@dataclass
class RunConfig:
    run: str | None = setting(None, "folder of the trained run; none = the newest in outputs")
    backend: str = setting("auto", "which code computes", choices=("auto", "native", "torch"))
    device: str = setting("auto", "where", choices=("auto", "cuda", "cpu"))


@dataclass(frozen=True)
class OpenRun:
    folder: Path
    config: Config
    field: Field
    sampler: RaySampler
    cameras: Cameras  # of training, on the CPU


def open_run(config: RunConfig) -> OpenRun:
    """Loads the run that the config names. Raises UserError where there is none or it is damaged."""
    folder = Path(config.run) if config.run else newest_run()
    content = checkpoint.load(folder)
    settings = checkpoint.restore_config(content)
    backend = select(config.backend, config.device)
    field, occupancy = checkpoint.restore_field(content, settings, backend)
    step_size = settings.sampler.step_size_voxels * field.voxel_size
    sampler = RaySampler(backend, field.grid_map, occupancy, step_size, settings.sampler)
    return OpenRun(folder, settings, field, sampler, checkpoint.restore_cameras(content))


def newest_run() -> Path:
    """The run in outputs/ whose model was written last."""
    found = sorted(OUTPUTS.glob(f"**/{checkpoint.MODEL_FILE}"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise UserError(
            f"there is no trained run in {OUTPUTS.resolve()}; train one with python scripts/train.py, or give run=DIR."
        )
    return found[-1].parent
