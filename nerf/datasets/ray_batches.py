"""From posed images to batches of rays with their colours, drawn on the device that trains."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nerf.cameras import Cameras
from nerf.datasets.posed_images import PosedImages
from nerf.ops.backend import Backend
from nerf.rays import Rays
from nerf.sampler import RaySampler


@dataclass(frozen=True)
class RayBatch:
    """R rays and what the images say they see."""

    rays: Rays
    rgba: Tensor  # [R,4] straight alpha
    jitter: Tensor  # [R] in [-0.5, 0.5)


class RayBatches:
    """Training pixels as bytes on the device, and the pool of those whose rays meet the scene.

    A ray that meets no occupied cell renders as background whatever the field holds: it has no gradient, is left out.
    """

    def __init__(self, images: PosedImages, backend: Backend, seed: int) -> None:
        self.backend = backend
        self.images = images.images.to(backend.device, non_blocking=True)
        self.cameras: Cameras = images.cameras.to(backend.device)
        self.generator = torch.Generator(backend.device).manual_seed(seed)
        self.pool = torch.empty(0, dtype=torch.int32, device=backend.device)

    def find_pool(self, sampler: RaySampler) -> None:
        """Keeps the pixels whose rays have at least one sample."""
        found = []
        for image in range(len(self.cameras)):
            rays = self.cameras.image_rays(image)
            hits = sampler.sample(rays).ray_offsets.diff() > 0
            found.append((hits.nonzero()[:, 0] + image * len(rays)).int())
        self.pool = torch.cat(found)

    def draw(self, count: int) -> RayBatch:
        """count rays, each pixel of the pool equally likely."""
        device, generator = self.backend.device, self.generator
        chosen = torch.randint(len(self.pool), (count,), generator=generator, device=device)
        pixels = self.pool.index_select(0, chosen).long()
        jitter = torch.rand(count, generator=generator, device=device) - 0.5
        return RayBatch(self.cameras.rays_through(pixels), self.backend.ops.sample_images(self.images, pixels), jitter)
