"""What Gaussians are fitted to: the field's own pictures from the training cameras.

Legend: V views, H W image height and width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm import tqdm

from nerf.cameras.cameras import Cameras
from nerf.cameras.panoramas import FACES, cube_faces
from nerf.fields.field import Field
from nerf.rendering.render import render_image
from nerf.rendering.sampler import RaySampler

MAX_VIEWS, MAX_SIDE = 200, 1000  # number of pictures, and their longer side in pixels


@dataclass(frozen=True)
class Pictures:
    """V pictures on the field's device, with bytes for colors: a hundred of 800x800 pixels are 512 MB."""

    cameras: Cameras  # pinholes: a picture is rendered, so it needs no lens
    light: list[Tensor]  # [H,W,3] uint8 each: color times opacity
    opacity: list[Tensor]  # [H,W] uint8 each
    depth: list[Tensor]  # [H,W] float32 each: mean distance along the ray, 0 for empty pixels

    def __len__(self) -> int:
        return len(self.cameras)


def render_pictures(field: Field, sampler: RaySampler, cameras: Cameras) -> Pictures:
    """The field as its cameras see it, over black; a panorama is six of the pictures."""
    pictures_of_one = len(FACES) if cameras.has_panoramas else 1
    cameras = cameras[:: -(-len(cameras) * pictures_of_one // MAX_VIEWS)]
    cameras = cube_faces(cameras).within(MAX_SIDE).to(sampler.backend.device)
    cameras = Cameras.of_sizes(cameras.c2w, cameras.intrinsics, cameras.image_sizes)
    black = torch.zeros(3, device=sampler.backend.device)
    pictures = Pictures(cameras, [], [], [])
    for index in tqdm(range(len(cameras)), desc="pictures", unit="view", leave=False):
        rendering = render_image(field, sampler, cameras, index, black)
        pictures.light.append(_bytes(rendering.rgb))
        pictures.opacity.append(_bytes(rendering.opacity))
        pictures.depth.append(rendering.distance())
    return pictures


def _bytes(values: Tensor) -> Tensor:
    return (255 * values.clamp(0, 1) + 0.5).to(torch.uint8)
