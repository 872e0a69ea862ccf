"""Box and visual hull of images, as training finds them from their alpha."""

import torch

from nerf.datasets.posed_images import PosedImages
from nerf.scene import visual_hull
from nerf.scene.box import Resolution, SceneBox
from nerf.scene.occupancy import OccupancyGrid
from nerf.scene.silhouettes import Silhouettes

CPU = torch.device("cpu")


def find_box(images: PosedImages) -> SceneBox:
    return visual_hull.find_box(images.cameras, silhouettes_of(images), CPU)


def carve(images: PosedImages, box: SceneBox, resolution: Resolution) -> OccupancyGrid:
    return visual_hull.carve(silhouettes_of(images), box, resolution)


def silhouettes_of(images: PosedImages) -> Silhouettes | None:
    return Silhouettes(images.cameras, images.pixels[:, 3], images.valid_pixels, CPU) if images.has_alpha else None
