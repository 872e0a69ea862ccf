"""Settings resolved for the images and the device of a run, and the warm-up of the device."""

from dataclasses import replace

from nerf.config.recipes import resolve_config
from nerf.config.schema import Config
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.ops.backend import Backend
from nerf.training.batches import choose_image_storage
from nerf.training.warmup import warm_up


def resolve_for_run(config: Config, images: PosedImages, backend: Backend, kind: str | None = None) -> Config:
    """The settings resolved for images, device and kind of scene; warms up the device. kind: see resolve_config."""
    config = resolve_config(config, backend.device.type, kind)
    if config.deterministic:
        check_repeatable(config.train.max_seconds)
    warm_up(config, backend)
    where = choose_image_storage(config.train.images, images, backend)
    return replace(config, train=replace(config.train, images=where))


def check_repeatable(max_seconds: float | None) -> None:
    """Raises UserError if a run that is to be repeated has a limit of seconds: its schedule would follow the clock."""
    if max_seconds is not None:
        raise UserError(
            f"deterministic=true with train.max_seconds={max_seconds:g}: a schedule in seconds follows the clock, so "
            "no run is like another; give train.steps and train.max_seconds=null. How many steps a run of so many "
            "seconds took is in its metrics."
        )
