"""From posed images to batches of rays with their colours, drawn where the images are: on the device or the host."""

import math
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

import torch
from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.cameras.rays import Rays
from nerf.datasets.posed_images import PosedImages
from nerf.images.metrics import SSIM_SIGMA
from nerf.images.pixel_runs import PixelRuns
from nerf.ops import reference
from nerf.ops.backend import Backend
from nerf.rendering.background import Background
from nerf.rendering.sampler import RaySampler
from nerf.training.prefetch import PrefetchedBatch, Prefetcher

MAX_POOL_RAYS = 1 << 20  # of an image, marched at a time to find which of its pixels can meet the scene
ALL_POOL_RAYS = {"cuda": 1 << 26, "cpu": 1 << 22}  # of all images: a second or two, however many there are
# Of a pixel from the one that it is paired with, in each direction: as far as two draws from SSIM's window.
PAIR_SIGMA = SSIM_SIGMA * math.sqrt(2)
DEVICE_SHARE = 0.25  # of a GPU's free memory that images may take; grids, moments and samples need the rest


@dataclass(frozen=True)
class RayBatch:
    """P pixels: their rays, and what the images say they see."""

    rays: Rays
    rgba: Tensor  # [P,4] straight alpha
    jitter: Tensor  # [P] in [-0.5, 0.5)
    pixels: Tensor  # [P] int64, as Cameras.rays_through counts them


class RaySource(Protocol):
    """Where rays come from: cameras as they are, or as they are learned."""

    def rays_through(self, pixel_indices: Tensor, per_pixel: int = 1, ops: ModuleType = reference) -> Rays: ...


class RayBatches:
    """Training pixels as bytes, and the pool of those whose rays meet the scene.

    A ray that meets no occupied cell renders as background whatever the field holds: it has no gradient and is left
    out.

    Batches are stratified: one pixel of each of R equal parts of the pool, so that every image is in a batch by its
    share, and memory is read in rising order.

    Where paired, the second half of a training batch are neighbours of the first half, in its order: what differs
    between pixels that are near each other can then be compared (losses.structure).

    on_host keeps images, pool and generator in host memory; a training step's batches are then gathered ahead
    (prefetch). On a CPU it changes nothing.
    """

    def __init__(
        self, images: PosedImages, backend: Backend, seed: int, on_host: bool = False, paired: bool = False
    ) -> None:
        self.backend = backend
        home = torch.device("cpu") if on_host else backend.device
        self.images = images.pixels.to(home, non_blocking=True)
        self.cameras: Cameras = images.cameras.to(backend.device)
        self.ray_source: RaySource = self.cameras
        self.generator = torch.Generator(home).manual_seed(seed)
        self.paired = paired
        self._counted = None if images.counted is None else images.counted.to(home)
        self._sizes = images.cameras.to(home)  # of the images, where pixels are chosen
        self._device_pool: PixelRuns | None = None  # a copy of the pool where the rays are, once it is needed
        self.pool = PixelRuns.of_bounds(torch.empty(0, 2, dtype=torch.int64))
        self._prefetches = home != backend.device
        self._feed: Prefetcher | None = None

    @property
    def pool(self) -> PixelRuns:
        """The pixels to draw from, where the images are."""
        return self._pool

    @pool.setter
    def pool(self, pixels: PixelRuns) -> None:
        self._pool = pixels.to(self.images.device)
        self._device_pool = None

    @torch.no_grad()
    def find_pool(self, sampler: RaySampler) -> None:
        """Keeps the pixels that count and whose rays have at least one sample."""
        self.stop_prefetch()
        found = []
        for image in range(len(self.cameras)):
            hits = self._meet_scene(image, sampler).flatten()
            first = self.cameras.first_pixel(image)
            if self._counted is not None:
                hits &= self._counted.mask(first, first + len(hits)).to(hits.device)
            found.append(PixelRuns.of_mask(hits, first))
        self.pool = PixelRuns.join(found)

    def _meet_scene(self, image: int, sampler: RaySampler) -> Tensor:
        """Which pixels [H,W] of an image have a ray with a sample.

        Of a large image one ray in each block of pixels is marched; the block goes in with its neighbours' rays too.
        """
        width, height = self.cameras.size(image)
        device = self.backend.device
        most = min(MAX_POOL_RAYS, ALL_POOL_RAYS[device.type] / len(self.cameras))
        step = math.ceil(math.sqrt(width * height / most))
        columns, rows = (
            (torch.arange(0, size, step, device=device) + step // 2).clamp(max=size - 1) for size in (width, height)
        )
        pixels = self.cameras.first_pixel(image) + rows[:, None] * width + columns
        samples = sampler.sample(self._rays_through(pixels.flatten()))
        hits = (samples.ray_offsets.diff() > 0).view(pixels.shape)
        if step == 1:
            return hits
        near = torch.nn.functional.max_pool2d(hits[None].float(), 3, stride=1, padding=1)[0] > 0
        return near.repeat_interleave(step, 0)[:height].repeat_interleave(step, 1)[:, :width]

    def draw(self, count: int, per_pixel: int = 1) -> RayBatch:
        """count pixels, each of the pool equally likely, with so many rays of each.

        Where batches are paired, half as many and a neighbour of each.
        """
        self.stop_prefetch()
        drawn, jitter = self._choose(count, self.generator, self._pairs(count))
        pixels, rgba, jitter = (x.to(self.backend.device) for x in (*self._gather(drawn), jitter))
        return RayBatch(self._rays_through(pixels, per_pixel), rgba, jitter, pixels)

    def draw_rays(self, count: int, per_pixel: int = 1) -> tuple[Rays, Tensor]:
        """The rays of count pixels and the jitter [count], drawn as draw() does but without colours.

        Made on the device, wherever the images are: half a million at a look at the density would take the host longer
        than the steps between two looks.
        """
        self.stop_prefetch()
        if self._device_pool is None:
            self._device_pool = self.pool.to(self.backend.device)
        generator = self.generator
        if generator.device.type != self.backend.device.type:
            seed = torch.randint(2**62, (), generator=generator).item()
            generator = torch.Generator(self.backend.device).manual_seed(seed)
        ranks, jitter = self._choose(count, generator)
        return self._rays_through(self._device_pool.pixels(ranks), per_pixel), jitter

    def _rays_through(self, pixels: Tensor, per_pixel: int = 1) -> Rays:
        return self.ray_source.rays_through(pixels, per_pixel, self.backend.ops)

    def _pairs(self, count: int) -> int:
        return count // 2 if self.paired else 0

    def _choose(self, count: int, generator: torch.Generator, pairs: int = 0) -> tuple[Tensor, Tensor]:
        """All that is random, [R] int64 and jitter [R].

        Ranks in the pool in rising order, and for the last so many, where there are pairs, how far they are from the
        first ones: columns and rows as two int32.
        """
        device, singles = generator.device, count - pairs
        part = len(self.pool) / singles
        if part == 0:
            raise RuntimeError("no pixel to draw: no ray meets the scene")
        numbers = {"dtype": torch.float64, "device": device}  # there are billions of pixels
        within = torch.arange(singles, **numbers) + torch.rand(singles, generator=generator, **numbers)
        drawn = (within * part).long().clamp_(max=len(self.pool) - 1)
        if pairs:
            shifts = PAIR_SIGMA * torch.randn(pairs, 2, generator=generator, device=device)
            drawn = torch.cat([drawn, shifts.round().to(torch.int32).view(torch.int64)[:, 0]])
        return drawn, torch.rand(count, generator=generator, device=device) - 0.5

    def _pixels(self, drawn: Tensor) -> Tensor:
        """The pixels [R] of a training batch by what was drawn for it [R]."""
        pairs = self._pairs(len(drawn))
        if pairs == 0:
            return self.pool.pixels(drawn)
        singles = self.pool.pixels(drawn[:-pairs])
        chosen = singles[:pairs]
        near = self._sizes.moved(chosen, drawn[-pairs:, None].view(torch.int32).long())
        if self._counted is not None:  # one that does not count is left out for the pixel itself
            near = torch.where(self._counted.holds(near), near, chosen)
        return torch.cat([singles, near])

    def _gather(self, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """Pixels [R] and rgba [R,4] by what was drawn for them [R]."""
        pixels = self._pixels(drawn)
        rgba = self.backend.ops.sample_images(self.images[None, None], pixels)
        if rgba.shape[1] == 3:
            rgba = torch.cat([rgba, torch.ones_like(rgba[:, :1])], dim=-1)
        return pixels, rgba

    def prefetch(self) -> None:
        """Gathers the batches of steps ahead, by threads; they are the same batches."""
        self._prefetches = True

    def advance(self, count: int, background: Background) -> None:
        """Called before each training step, outside of a CUDA graph: its batch is on the device when the step runs."""
        if not self._prefetches:
            return
        if self._feed is None or self._feed.num_rays != count:
            self.stop_prefetch()

            def choose(generator: torch.Generator, batch: PrefetchedBatch) -> None:
                drawn, jitter = self._choose(count, generator, self._pairs(count))
                batch.pixels.copy_(drawn)
                batch.jitter.copy_(jitter)
                batch.background.copy_(background.draw(count, generator, self.images.device))

            def gather(batch: PrefetchedBatch) -> None:
                pixels, rgba = self._gather(batch.pixels)
                batch.pixels.copy_(pixels)
                batch.rgba.copy_(rgba)

            self._feed = Prefetcher(choose, gather, self.generator, count, self.backend.device)
        self._feed.advance()

    def next(self, count: int, background: Background, per_pixel: int = 1) -> tuple[RayBatch, Tensor]:
        """The batch of a training step, and its background [P,3]; the step may be recorded as a CUDA graph."""
        if self._prefetches:
            batch = self._feed.current
            rays = self._rays_through(batch.pixels, per_pixel)
            return RayBatch(rays, batch.rgba, batch.jitter, batch.pixels), batch.background
        batch = self.draw(count, per_pixel)
        return batch, background.draw(count, self.generator, self.backend.device)

    def drop_images(self) -> None:
        """Lets the pixels go, after which no batch can be drawn: beside large photos nothing else may fit."""
        self.stop_prefetch()
        self._feed, self.images = None, self.images.new_empty(0, self.images.shape[1])

    def stop_prefetch(self) -> None:
        """Ends gathering ahead until the next step. What was drawn ahead is drawn again, so nothing is left out."""
        if self._feed is not None:
            self._feed.stop()


def place_images(where: str, images: PosedImages, backend: Backend) -> str:
    """Where the images of a run are kept, device or host; auto puts them on the device where they leave it room."""
    if where != "auto":
        return where
    if backend.device.type == "cpu":
        return "device"
    free, _ = torch.cuda.mem_get_info(backend.device)
    return "device" if images.pixels.nbytes <= DEVICE_SHARE * free else "host"
