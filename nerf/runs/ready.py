"""Settings resolved for the images and the device of a run, and the warm-up of the device."""

from dataclasses import replace

from nerf.config.schema import Config
from nerf.datasets.posed_images import PosedImages
from nerf.ops.backend import Backend
from nerf.scene.bounds import describe
from nerf.scene.description import SceneDescription
from nerf.training.batches import choose_image_storage
from nerf.training.loop import resolve
from nerf.training.warmup import warm_up


def make_ready(config: Config, images: PosedImages, backend: Backend) -> tuple[Config, SceneDescription]:
    """The resolved settings of a fresh run and the description of its scene; warms up the device."""
    described = describe(config.dataset, images.scene, images.has_alpha)
    return ready(config, images, backend, described.kind), described


def ready(config: Config, images: PosedImages, backend: Backend, kind: str | None = None) -> Config:
    """The settings resolved for images, device and kind of scene; warms up the device. kind: see resolve."""
    config = resolve(config, backend, kind)
    warm_up(config, backend)
    where = choose_image_storage(config.train.images, images, backend)
    return replace(config, train=replace(config.train, images=where))
