"""camera_rays: the rays through the pixels of a batch or of an image."""

import torch
from torch import Tensor

from nerf.ops.lens import FISHEYE, PANORAMA, PERSPECTIVE, undistort
from nerf.ops.registry import derivative, example, fake, numbers


def camera_rays(
    c2w: Tensor,
    intrinsics: Tensor,
    pixel_indices: Tensor,
    width: int,
    height: int,
    subpixels: Tensor,
    sizes: Tensor | None = None,
    first_pixels: Tensor | None = None,
    lens_models: Tensor | None = None,
    lens_coefficients: Tensor | None = None,
    lens_reach: Tensor | None = None,
    lens_rim: Tensor | None = None,
    iterations: int = 10,
) -> tuple[Tensor, Tensor]:
    """Rays through pixels of I cameras, which are counted image by image, row by row.

    c2w [I,3,4]: right, up and backward axes and center of each camera. intrinsics [I,4]: fx, fy, cx, cy in pixels.
    pixel_indices [P] int64: (image * height + row) * width + column. subpixels [S,2]: where the rays pass,
    right and down from a pixel's center, in pixels.

    width, height: of all images. Where sizes differ: sizes [I,2] int64, width and height of each image, and
    first_pixels [I+1] int64, the number of pixels before each image and of all; width and height are not read then, and
    no side is longer than 2^31 - 1. lens_models [I] int64, lens_coefficients [I,6], lens_reach, lens_rim [I]: as
    nerf.cameras.distortion.Lenses has them; None: pinholes. iterations: of Newton's method, which inverts a lens.

    Returns origins [P*S,3] and unit directions [P*S,3], world units; the rays of a pixel stand beside each other.
    A pixel outside the images raises ValueError on the CPU and has rays of NaN on CUDA. First pixels that are not those
    of sizes raise ValueError on the CPU, and on CUDA lead to some pixel. Native, cameras have no derivative.
    """
    if sizes is not None:
        image = torch.searchsorted(first_pixels, pixel_indices, right=True) - 1
        within = pixel_indices - first_pixels.index_select(0, image)
        width, height = sizes.index_select(0, image).unbind(-1)
    else:
        image, within = pixel_indices // (width * height), pixel_indices
    camera, pose = intrinsics.index_select(0, image)[:, None], c2w.index_select(0, image)[:, None]
    centers = torch.stack([within % width, within // width % height], dim=-1)[:, None] + 0.5
    points = (centers - camera[..., 2:] + subpixels) / camera[..., :2]
    ahead = torch.cat([points, torch.ones_like(points[..., :1])], dim=-1)
    if lens_models is not None:
        count, rays = len(subpixels), image.repeat_interleave(len(subpixels), output_size=len(image) * len(subpixels))
        lens = (x.index_select(0, rays) for x in (lens_reach, lens_rim, lens_models))
        k, known = lens_coefficients.index_select(0, rays).unbind(-1), (PERSPECTIVE, FISHEYE, PANORAMA)
        ahead = undistort(points.flatten(0, 1), k, *lens, known, iterations).view(-1, count, 3)
    x, y, z = ahead.unsqueeze(-2).unbind(-1)  # each [P,S,1]
    right, up, back, center = pose.unbind(-1)
    directions = torch.nn.functional.normalize(right * x - up * y - back * z, dim=-1)
    return center.expand_as(directions).flatten(0, 1), directions.flatten(0, 1)


@fake("camera_rays")
def _(c2w, intrinsics, pixel_indices, width, height, subpixels, *images, **lenses):
    rays = pixel_indices.shape[0] * subpixels.shape[0]
    return c2w.new_empty(rays, 3), c2w.new_empty(rays, 3)


@derivative("camera_rays", of=(), save=None)
def _(ctx, *grads):
    raise RuntimeError("camera_rays has no derivative; use backend=torch for one, or poses=refine to learn cameras")


@example("camera_rays")
def _():
    c2w, intrinsics = numbers(3, 3, 4, low=-1), numbers(3, 4, low=4, high=9, seed=1)
    sizes = torch.tensor([[9, 8], [5, 11], [7, 7]])
    first_pixels = torch.nn.functional.pad(sizes.prod(1).cumsum(0), (1, 0))
    pixels, shifts = (176 * numbers(100, seed=2)).long(), numbers(4, 2, low=-0.5, high=0.5, seed=3)
    lenses = torch.arange(3), 0.02 * numbers(3, 6, low=-1, seed=4), *torch.full((2, 3), 1.2), 4
    return c2w, intrinsics, pixels, 9, 11, shifts, sizes, first_pixels, *lenses
