"""camera_rays: the rays through the pixels of a batch or of an image."""

import torch
from torch import Tensor

from nerf.ops.registry import derivative, example, fake, numbers


def camera_rays(
    c2w: Tensor, intrinsics: Tensor, pixel_indices: Tensor, width: int, height: int, subpixels: Tensor
) -> tuple[Tensor, Tensor]:
    """Rays through pixels of I pinhole cameras whose images have one size.

    c2w [I,3,4]: right, up and backward axes and center of each camera. intrinsics [I,4]: fx, fy, cx, cy in pixels.
    pixel_indices [P] int64: (image * height + row) * width + column. subpixels [S,2]: where the rays pass,
    right and down from a pixel's center, in pixels.

    Returns origins [P*S,3] and unit directions [P*S,3], world units; the rays of a pixel stand beside each other.
    A pixel outside the images raises ValueError on the CPU and has rays of NaN on CUDA. Native, cameras have no
    derivative.
    """
    image, column, row = pixel_indices // (width * height), pixel_indices % width, pixel_indices // width % height
    lens, pose = intrinsics.index_select(0, image)[:, None], c2w.index_select(0, image)[:, None]
    centers = torch.stack([column, row], dim=-1)[:, None] + 0.5
    x, y = ((centers - lens[..., 2:] + subpixels) / lens[..., :2]).unsqueeze(-2).unbind(-1)  # each [P,S,1]
    right, up, back, center = pose.unbind(-1)
    directions = torch.nn.functional.normalize(right * x - up * y - back, dim=-1)
    return center.expand_as(directions).flatten(0, 1), directions.flatten(0, 1)


@fake("camera_rays")
def _(c2w, intrinsics, pixel_indices, width, height, subpixels):
    rays = pixel_indices.shape[0] * subpixels.shape[0]
    return c2w.new_empty(rays, 3), c2w.new_empty(rays, 3)


@derivative("camera_rays", of=(), save=None)
def _(ctx, *grads):
    raise RuntimeError("camera_rays has no derivative; use backend=torch for one, or poses=refine to learn cameras")


@example("camera_rays")
def _():
    c2w, intrinsics = numbers(3, 3, 4, low=-1), numbers(3, 4, low=4, high=9, seed=1)
    return c2w, intrinsics, (3 * 72 * numbers(100, seed=2)).long(), 9, 8, numbers(4, 2, low=-0.5, high=0.5, seed=3)
