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
    features = "device" if config.train.features == "auto" else config.train.features  # host: see run.start
    config = replace(config, train=replace(config.train, features=features))
    check_features(config)
    warm_up(config, backend)
    where = choose_image_storage(config.train.images, images, backend)
    return replace(config, train=replace(config.train, images=where))


def check_features(config: Config) -> None:
    """Raises UserError where settings do not go with features in host memory. config: resolved."""
    if config.train.features != "host":
        return
    if config.deterministic:
        raise UserError(
            "deterministic=true with train.features=host: features in host memory are rows of sparse grids, whose "
            "gradients are added in any order on a GPU; use train.features=device."
        )
    if not config.field.sparse:
        raise UserError(
            "field.sparse=false with train.features=host: features in host memory are rows of sparse grids; set "
            "field.sparse=true, or train.features=device."
        )
    if config.loss.tv_global > 0 and config.loss.tv_until < 1:
        raise UserError(
            f"loss.tv_global={config.loss.tv_global:g} with train.features=host: after loss.tv_until="
            f"{config.loss.tv_until:g} of the run it visits an eighth of all vertices in each step, and would bring "
            "them from host memory; set loss.tv_until=1, loss.tv_global=0 or train.features=device."
        )


def check_repeatable(max_seconds: float | None) -> None:
    """Raises UserError if a run that is to be repeated has a limit of seconds: its schedule would follow the clock."""
    if max_seconds is not None:
        raise UserError(
            f"deterministic=true with train.max_seconds={max_seconds:g}: a schedule in seconds follows the clock, so "
            "no run is like another; give train.steps and train.max_seconds=null. How many steps a run of so many "
            "seconds took is in its metrics."
        )
