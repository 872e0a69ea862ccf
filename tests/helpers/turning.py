"""Scenes whose world is turned."""

from dataclasses import replace

from torch import Tensor

from nerf.datasets.posed_images import PosedImages


def turned(images: PosedImages, rotation: Tensor) -> PosedImages:
    """The images of the same scene, its world turned by a rotation [3,3]."""
    return replace(images, cameras=replace(images.cameras, c2w=rotation @ images.cameras.c2w))
