"""Settings resolved for the images and the device of a run, and the warm-up of the device."""

from dataclasses import replace

from nerf.config.recipes import resolve_config
from nerf.config.schema import Config
from nerf.datasets.posed_images import PosedImages
from nerf.ops.backend import Backend
from nerf.training.batches import choose_image_storage
from nerf.training.warmup import warm_up


def resolve_for_run(config: Config, images: PosedImages, backend: Backend, kind: str | None = None) -> Config:
    """The settings resolved for images, device and kind of scene; warms up the device. kind: see resolve_config."""
    config = resolve_config(config, backend.device.type, kind)
    warm_up(config, backend)
    where = choose_image_storage(config.train.images, images, backend)
    return replace(config, train=replace(config.train, images=where))
