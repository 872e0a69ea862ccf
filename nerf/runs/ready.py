"""What a run is begun with: settings that are resolved for its images and its device."""

from dataclasses import replace

from nerf.config.schema import Config
from nerf.datasets.posed_images import PosedImages
from nerf.ops.backend import Backend
from nerf.scene.bounds import describe
from nerf.scene.description import SceneDescription
from nerf.training.batches import place_images
from nerf.training.loop import resolve
from nerf.training.warmup import warm_up


def make_ready(config: Config, images: PosedImages, backend: Backend) -> tuple[Config, SceneDescription]:
    """What a fresh run begins with: its settings, resolved for these images and this device, and where the scene is."""
    described = describe(config.dataset, images.scene, images.has_alpha)
    return ready(config, images, backend, described.kind), described


def ready(config: Config, images: PosedImages, backend: Backend, kind: str | None = None) -> Config:
    """The settings for these images, a scene of this kind, on this device, which is warm afterwards."""
    config = resolve(config, backend, kind)
    warm_up(config, backend)
    where = place_images(config.train.images, images, backend)
    return replace(config, train=replace(config.train, images=where))
