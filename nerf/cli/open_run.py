"""The settings that choose a trained run, for the commands that open one."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from nerf.config.settings import place, setting
from nerf.errors import UserError
from nerf.files import clear_left_overs
from nerf.runs.ensemble import check_one_scene
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
class EnsembleConfig(PicturesConfig):
    ensemble: str | None = setting(
        None, "folders of more runs, separated by commas: pictures are the mean of all", path=True
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


def listed(folders: str) -> list[str]:
    """The folders of a list with commas; one whose name has a comma is put in quotes. In each ~ is the home folder."""
    parts = (part.strip() for part in re.findall(r"\s*'[^']*'\s*|\s*\"[^\"]*\"\s*|[^,]+", folders))
    names = [
        part[1:-1] if len(part) > 1 and part[0] == part[-1] and part[0] in "'\"" else part for part in parts if part
    ]
    return [place("a folder of the list", name) for name in names]


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


def open_runs(config: EnsembleConfig) -> list[LoadedRun]:
    """The run of the config, and after it those of its ensemble.

    Raises UserError if one is none, is named twice, or is not of the same scene as the first.
    """
    runs = [open_run(config)]
    named = [] if config.ensemble is None else listed(config.ensemble)
    if config.ensemble is not None and not named:
        raise UserError("ensemble= names no run; expected folders, as ensemble=outputs/B,outputs/C.")
    seen = {_folder(runs[0].folder)}
    for name in named:
        if _folder(Path(name)) in seen:
            raise UserError(
                f"ensemble={config.ensemble}: with run={runs[0].folder}, {name} is named twice; each run counts once."
            )
        seen.add(_folder(Path(name)))
    runs += [open_run(replace(config, run=name)) for name in named]
    check_one_scene(runs)
    return runs


def _folder(run: Path) -> Path:
    """What tells runs apart: a run can be named by its folder or by the model file in it, by one way or another."""
    return (run.parent if run.is_file() else run).resolve()
