"""Multi-view consistency: at the depth that is rendered for a pixel, a photo taken beside its own shows the same.

The patch of 3x3 pixels around a pixel is put at that depth and looked up in the photo beside it. Their normalized
cross-correlation (NCC) says how alike they are, whatever the exposures. So depth learns from photos directly, and not
only from the colors that are composited there (as a loss of radiance fields: Chen et al. 2024, "PGSR"; Li et al. 2025,
"GeoSVR"). All pixels of a patch get the distance of its middle, which is so for views that differ by a few degrees.
What disagrees by much is hidden in the other photo, and left out.

Legend: I images, K views beside each, P pixels, Q pixels of a patch.
"""

import math
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import functional

from nerf.cameras.cameras import Cameras
from nerf.datasets.plane_sweep import NEIGHBORS, neighbors

SHIFTS = [[float(x), float(y)] for y in (-1, 0, 1) for x in (-1, 0, 1)]  # of a patch's pixels from its middle
DISAGREE = 0.6  # 1 - NCC from which a patch is taken to be hidden, or to mirror something
FLAT = 0.02  # standard deviation of brightness in [0,1] below which a patch shows nothing
NOISE = 0.01  # standard deviation of brightness that a photo has by itself: fainter patches say less
LEAST_ENERGY = 1e-6  # added to the other photo's, by which a correlation is divided
LEAST_COSINE = math.cos(math.radians(10))  # of the angle between the directions in which both photos show a point
OPAQUE = 0.5  # opacity from which a pixel has a depth
SPREAD = 7919  # a prime: which view of those beside it a pixel is compared with changes from one to the next


@dataclass(frozen=True)
class ViewsBeside:
    """The training images, and of each those taken beside it."""

    images: Tensor  # [pixels,C] uint8, as RayBatches has them
    cameras: Cameras
    beside: Tensor  # [I,K] int64; an image that none is beside stands there itself, and agrees
    sizes: Tensor  # [I,2] int64, width and height
    first_pixels: Tensor  # [I] int64
    shifts: Tensor  # [Q,2], SHIFTS on the device: a captured step copies nothing there

    @staticmethod
    def of(images: Tensor, cameras: Cameras) -> "ViewsBeside":
        """images [pixels,C] uint8 and their cameras, on one device."""
        on_host, rows = cameras.to("cpu"), []
        for index in range(len(cameras)):
            found = neighbors(on_host, index)
            found = found if len(found) else torch.tensor([index])
            rows.append(found[torch.arange(NEIGHBORS) % len(found)])
        counts = cameras.image_sizes.prod(1)
        beside = torch.stack(rows).to(images.device)
        shifts = torch.tensor(SHIFTS, device=images.device)
        return ViewsBeside(images, cameras, beside, cameras.image_sizes, counts.cumsum(0) - counts, shifts)

    def disagreement(self, pixels: Tensor, distance: Tensor, opacity: Tensor, ops: ModuleType) -> Tensor:
        """The mean over pixels [P] of 1 - NCC, times the share of a patch's energy that is not noise; 0 where patches
        cannot be compared.

        pixels: counted over all cameras. distance [P] in world units: differentiable in it. opacity [P]. ops: a
        backend's operations.
        """
        image, count = self.cameras.image_of(pixels), len(SHIFTS)
        other = self.beside[image, pixels * SPREAD // 64 % self.beside.shape[1]]
        of_patches = len(pixels) * count
        other = other.repeat_interleave(count, output_size=of_patches)
        shifts = self.shifts.repeat(len(pixels), 1)
        middles = pixels.repeat_interleave(count, output_size=of_patches)
        patches = self.cameras.moved(middles, shifts, ops)
        rays = self.cameras.rays_through(patches, 1, ops)
        distance = distance.repeat_interleave(count, output_size=of_patches)
        points = rays.origins + distance[:, None] * rays.directions
        places, z = self.cameras.project_each(other, points)
        found, inside = self._brightness_at(other, places, ops)
        here = ops.sample_images(self.images[None, None], patches)[:, :3].mean(-1).view(-1, count)
        here, there = (values - values.mean(1, keepdim=True) for values in (here, found.view(-1, count)))
        energy, energy_there = here.square().mean(1), there.square().mean(1)
        error = 1 - (here * there).mean(1) / (energy.sqrt() * (energy_there + LEAST_ENERGY).sqrt()).clamp(
            min=LEAST_ENERGY
        )
        seen = (inside & (z > 0)).view(-1, count).all(1) & (opacity > OPAQUE)
        to_point = functional.normalize(points.detach() - self.cameras.centers.index_select(0, other), dim=-1)
        alike = (to_point * rays.directions).sum(-1).view(-1, count)[:, count // 2] > LEAST_COSINE
        counts = seen & alike & (energy > FLAT**2) & (error.detach() < DISAGREE)
        return torch.where(counts, error * energy / (energy + NOISE**2), 0.0).sum() / max(1, len(pixels))

    def _brightness_at(self, image: Tensor, places: Tensor, ops: ModuleType) -> tuple[Tensor, Tensor]:
        """Brightness [N] at places [N,2] (u, v) of images [N], between pixels' centers, and whether it lies there."""
        sizes, first = self.sizes.index_select(0, image), self.first_pixels.index_select(0, image)
        corner = places - 0.5
        inside = ((corner >= 0) & (corner <= sizes - 1)).all(-1)
        corner = torch.where(inside[:, None], corner, 0.0)
        low = torch.minimum(corner.detach().floor().long(), (sizes - 2).clamp(min=0))
        x, y = (corner - low).unbind(-1)
        width, start = sizes[:, 0], first + low[:, 1] * sizes[:, 0] + low[:, 0]
        total = torch.zeros_like(x)
        right, below = (sizes > 1).long().unbind(-1)  # an image of one pixel's width has no next one
        for dx, dy, weight in ((0, 0, (1 - x) * (1 - y)), (1, 0, x * (1 - y)), (0, 1, (1 - x) * y), (1, 1, x * y)):
            pixels = start + dx * right + dy * below * width
            total = total + weight * ops.sample_images(self.images[None, None], pixels)[:, :3].mean(-1)
        return total, inside
