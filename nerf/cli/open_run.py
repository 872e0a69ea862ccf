"""The settings that choose a trained run, for the commands that open one."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from nerf.config.settings import setting
from nerf.errors import UserError
from nerf.files import clear_left_overs
from nerf.runs.open_run import LoadedRun, load
from nerf.scene.bounds import given_box


@dataclass
class RunConfig:
    run: str | None = setting(None, "folder of the trained run; none = the newest in outputs", path=True)
    backend: str = setting("auto", "implementation of the operations", choices=("auto", "native", "torch"))
    device: str = setting("auto", "device to run on", choices=("auto", "cuda", "cpu"))


@dataclass
class PicturesConfig(RunConfig):
    rays_per_pixel: int | None = setting(
        None, "rays whose mean a pixel shows; none = as the run had it, fewer are faster", choices=(1, 2, 4)
    )
    root: str | None = setting(
        None, "folder of the scene, if it has moved since training; dataset.root is the same", path=True
    )


@dataclass
class CropConfig:
    crop: list[float] | None = setting(
        None,
        "meshes and points: only what is inside the box x0,y0,z0,x1,y1,z1 in world units; an unbounded scene needs one",
    )

    def crop_box(self) -> Tensor | None:
        """The box [2,3]. Raises UserError if its numbers are none."""
        return None if self.crop is None else given_box("crop", self.crop)


def open_run(config: RunConfig) -> LoadedRun:
    """Loads the run of the config. Raises UserError if there is none or it is damaged."""
    loaded = load(config.run, config.backend, config.device, getattr(config, "rays_per_pixel", None))
    clear_left_overs(loaded.folder)
    root = getattr(config, "root", None)
    if root is not None:
        if not Path(root).expanduser().exists():
            raise UserError(f"dataset.root={root} is not there; expected the folder of the scene.")
        loaded.config.dataset.root = root
    return loaded
