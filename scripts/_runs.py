"""The settings that name a trained run: what render.py and evaluate.py share."""

from dataclasses import dataclass

from nerf.config import setting
from nerf.runs import OpenRun, load


@dataclass
class RunConfig:
    run: str | None = setting(None, "folder of the trained run; none = the newest in outputs")
    backend: str = setting("auto", "which code computes", choices=("auto", "native", "torch"))
    device: str = setting("auto", "where", choices=("auto", "cuda", "cpu"))


@dataclass
class PicturesConfig(RunConfig):
    rays_per_pixel: int | None = setting(
        None, "rays whose mean a pixel shows; none = as the run had it, fewer are faster", choices=(1, 2, 4)
    )


def open_run(config: RunConfig) -> OpenRun:
    """Loads the run that the config names. Raises UserError where there is none or it is damaged."""
    return load(config.run, config.backend, config.device, getattr(config, "rays_per_pixel", None))
