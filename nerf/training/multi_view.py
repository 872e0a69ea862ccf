"""Multi-view consistency: at the depth that is rendered for a pixel, a photo taken beside its own shows the same.

The patch around a pixel is put at that depth and compared with what the photo beside it shows there
(nerf/ops/compare_beside.py). So depth learns from photos directly, and not only from the colors that are composited
there (as a loss of radiance fields: Chen et al. 2024, "PGSR"; Li et al. 2025, "GeoSVR"). All pixels of a patch get the
distance of its middle, which is so for views that differ by a few degrees.

Legend: I images, K views beside each, P pixels.
"""

from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import functional

from nerf.cameras.cameras import Cameras
from nerf.cameras.rays import Rays
from nerf.datasets.plane_sweep import NEIGHBORS, neighbors
from nerf.images.pixel_runs import PixelRuns

# A patch's pixels are as far apart as makes so many along the longer side of a photo: however fine photos are, a patch
# shows some voxels.
STRIDES = 300


def stride_of(width: int, height: int) -> int:
    """Pixels from one of a patch to the next, of photos of that size."""
    return max(1, round(max(width, height) / STRIDES))


def black_out_(images: Tensor, cameras: Cameras, kept: PixelRuns) -> None:
    """Makes the pixels of photos [pixels,C] uint8 that are not kept black, and transparent where they have alpha.

    So what a mask leaves out, as it moves through a photo, is not compared with what another one shows: patches that
    are black all over correlate with nothing.
    """
    for index in range(len(cameras)):
        span = cameras.first_pixel(index), cameras.first_pixel(index + 1)
        images[slice(*span)] *= kept.mask(*span).to(images)[:, None]


@dataclass(frozen=True)
class ViewsBeside:
    """The training images, and of each those taken beside it."""

    images: Tensor  # [pixels,C] uint8, as RayBatches has them
    cameras: Cameras
    beside: Tensor  # [I,K] int64; -1: there is none
    sizes: Tensor  # [I,2] int64, width and height
    first_pixels: Tensor  # [I+1] int64
    stride: int  # pixels from one of a patch to the next

    @staticmethod
    def of(images: Tensor, cameras: Cameras) -> "ViewsBeside":
        """images [pixels,C] uint8 and their cameras, on one device."""
        on_host, rows = cameras.to("cpu"), []
        for index in range(len(cameras)):
            found = neighbors(on_host, index)
            found = found if len(found) else torch.tensor([-1])
            rows.append(found[torch.arange(NEIGHBORS) % len(found)])
        sizes = cameras.image_sizes.contiguous()
        first_pixels = functional.pad(sizes.prod(1).cumsum(0), (1, 0))
        stride, rows = stride_of(cameras.width, cameras.height), torch.stack(rows).to(images.device)
        return ViewsBeside(images, cameras, rows, sizes, first_pixels, stride)

    def disagreement(self, pixels: Tensor, rays: Rays, depth: Tensor, opacity: Tensor, ops: ModuleType) -> Tensor:
        """The mean over pixels [P] of how unlike their patches are to what is shown beside; where that cannot be told,
        0 counts.

        pixels: counted over all cameras. rays: theirs. depth, opacity [P]: as Rendering has them; differentiable in
        both. ops: a backend's operations.
        """
        cameras, lenses = self.cameras, self.cameras.lenses
        origins, directions = rays.origins[:: rays.per_pixel], rays.directions
        if rays.per_pixel > 1:
            directions = ops.pixel_directions(directions, rays.per_pixel)
        photos = self.images, self.sizes, self.first_pixels, self.beside
        own = (None, None, None)
        if lenses is not None:
            own = lenses.numbers, lenses.coefficients.to(depth), lenses.reach.to(depth)
        known = *photos, cameras.c2w, cameras.intrinsics, *own, self.stride
        return ops.compare_beside(depth, opacity, origins, directions, pixels, *known).sum() / max(1, len(pixels))
