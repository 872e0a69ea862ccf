"""From posed images to batches of rays with their colors. Batches are drawn where the images are: device or host."""

import math
import zlib
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

import torch
from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.cameras.rays import Rays
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.images.metrics import SSIM_SIGMA
from nerf.images.pixel_runs import PixelRuns
from nerf.ops import reference
from nerf.ops.backend import Backend
from nerf.rendering.background import Background
from nerf.rendering.sampler import RaySampler
from nerf.training.multi_view import ViewsBeside, black_out_
from nerf.training.prefetch import PrefetchedBatch, Prefetcher

# Rays that are marched to find the valid pixels: of an image; of all images, fewer where the scene has no end, since
# nearly every ray meets it; and at a time, because before the first pruning such a ray has hundreds of samples.
RAYS_THAT_MEET = 4096  # of meet_scene
MAX_PROBED_RAYS = 1 << 20
PROBED_AT_A_TIME = {"cuda": 1 << 17, "cpu": 1 << 15}
MAX_PROBED_RAYS_OF_ALL = {"cuda": 1 << 26, "cpu": 1 << 22}
MAX_PROBED_RAYS_UNBOUNDED = 1 << 22
# Deviation of the offset between the pixels of a pair, pixels per axis: as between two draws from SSIM's window.
PAIR_SIGMA = SSIM_SIGMA * math.sqrt(2)
MAX_CHECKED = 1 << 22  # pixels that a checksum of the images reads: some hundredths of a second
DEVICE_FRACTION = 0.25  # of a GPU's free memory that images may take; grids, moments and samples need the rest


@dataclass(frozen=True)
class RayBatch:
    """P pixels: their rays and their colors in the images."""

    rays: Rays
    rgba: Tensor  # [P,4] straight alpha
    jitter: Tensor  # [P] in [-0.5, 0.5)
    pixels: Tensor  # [P] int64, as Cameras.rays_through counts them


class RaySource(Protocol):
    """A source of rays: fixed cameras or learned ones."""

    def rays_through(self, pixel_indices: Tensor, per_pixel: int = 1, ops: ModuleType = reference) -> Rays: ...

    def refined(self) -> Cameras: ...


class RayBatches:
    """The training pixels as bytes, and batches of rays through the valid pixels.

    valid_pixels: the pixels that the mask allows and whose ray hits an occupied cell. Any other ray renders as
    background and has no gradient.

    Batches are stratified: one pixel from each of R equal parts of the valid pixels. So each image contributes in
    proportion to its valid pixels, and memory is read in rising order.

    paired: the second half of a training batch holds one neighbor for each pixel of the first half, in the same order,
    for losses that compare neighboring pixels (losses.pair_ssim).

    with_depths: depth maps are kept for depth_of(). compared: the photos are compared with those beside them, for which
    they have to be on the device.

    on_host: images, valid pixels and generator stay in host memory, and the batches of training steps are gathered
    ahead (prefetch). On a CPU it changes nothing.

    Whatever is drawn or gathered ahead, the batches are the same: stop_prefetch() takes back what was not used.
    """

    def __init__(
        self,
        images: PosedImages,
        backend: Backend,
        seed: int,
        on_host: bool = False,
        paired: bool = False,
        with_depths: bool = False,
        compared: bool = False,
    ) -> None:
        self.backend = backend
        home = torch.device("cpu") if on_host else backend.device
        self.images = images.pixels.to(home, non_blocking=True)
        if compared and images.valid_pixels is not None:  # whose other pixels are no batch's
            self.images = self.images.clone() if self.images is images.pixels else self.images
            black_out_(self.images, images.cameras, images.valid_pixels)
        # On the device always: 4 bytes a pixel, read by the captured step.
        self.depths = images.depths.to(backend.device) if with_depths and images.depths is not None else None
        self.cameras: Cameras = images.cameras.to(backend.device)
        self.beside = ViewsBeside.of(self.images, self.cameras) if compared else None
        self.ray_source: RaySource = self.cameras
        self.generator = torch.Generator(home).manual_seed(seed)
        self.paired = paired
        self._unmasked = None if images.valid_pixels is None else images.valid_pixels.to(home)
        self._sizes = images.cameras.to(home)  # image sizes, on the device where pixels are chosen
        self._device_valid_pixels: PixelRuns | None = None  # copy on the rays' device, made when needed
        self.valid_pixels = PixelRuns.of_bounds(torch.empty(0, 2, dtype=torch.int64))
        self._prefetches = home != backend.device
        self._feed: Prefetcher | None = None
        self._before_next: Tensor | None = None  # the generator's state before a batch that no step has used yet

    @property
    def generator_state(self) -> Tensor:
        """The generator's state before the first batch that no step has used, for a checkpoint."""
        return self.generator.get_state() if self._before_next is None else self._before_next

    @generator_state.setter
    def generator_state(self, state: Tensor) -> None:
        self.stop_prefetch()
        self.generator.set_state(state)

    @property
    def drawn_ahead(self) -> bool:
        """Whether the last next() was of a step that is still to come."""
        return self._before_next is not None

    @property
    def valid_pixels(self) -> PixelRuns:
        """The pixels to draw from, on the device of the images."""
        return self._pool

    @valid_pixels.setter
    def valid_pixels(self, pixels: PixelRuns) -> None:
        self._pool = pixels.to(self.images.device)
        self._device_valid_pixels = None

    @torch.no_grad()
    def find_valid_pixels(self, sampler: RaySampler) -> None:
        """Sets valid_pixels: the mask allows them and their rays have at least one sample."""
        self.stop_prefetch()
        found, cameras = [], self.ray_source.refined()
        for image in range(len(cameras)):
            hits = self._meet_scene(cameras, image, sampler).flatten()
            first = cameras.first_pixel(image)
            if self._unmasked is not None:
                hits &= self._unmasked.mask(first, first + len(hits)).to(hits.device)
            found.append(PixelRuns.of_mask(hits, first))
        self.valid_pixels = PixelRuns.join(found)

    @torch.no_grad()
    def meet_scene(self, sampler: RaySampler) -> bool:
        """Whether any of some rays through valid pixels, evenly spread, has a sample. Reads from the device."""
        count = min(RAYS_THAT_MEET, len(self.valid_pixels))
        pixels = self.valid_pixels.draw(torch.full((count,), 0.5, device=self.images.device)).to(self.backend.device)
        return bool(sampler.sample(self.ray_source.rays_through(pixels, 1, self.backend.ops)).ray_offsets[-1] > 0)

    def _meet_scene(self, cameras: Cameras, image: int, sampler: RaySampler) -> Tensor:
        """Which pixels of an image have a ray with a sample, [H,W] bool.

        In a large image, one ray per block of pixels is marched; a block is valid if its ray or that of a neighboring
        block has a sample. cameras: with the poses of now, since rays of learned ones take a hundred kernels.
        """
        width, height = cameras.size(image)
        device, ops = self.backend.device, self.backend.ops
        of_all = MAX_PROBED_RAYS_OF_ALL[device.type]
        if sampler.grid_map.space.kind == "unbounded":
            of_all = min(of_all, MAX_PROBED_RAYS_UNBOUNDED)
        most = min(MAX_PROBED_RAYS, of_all / len(cameras))
        step = math.ceil(math.sqrt(width * height / most))
        columns, rows = (
            (torch.arange(0, size, step, device=device) + step // 2).clamp(max=size - 1) for size in (width, height)
        )
        pixels = cameras.first_pixel(image) + rows[:, None] * width + columns
        try:
            chunks = pixels.flatten().split(PROBED_AT_A_TIME[device.type])
            samples = (sampler.sample(cameras.rays_through(chunk, 1, ops)) for chunk in chunks)
            hits = torch.cat([of_chunk.ray_offsets.diff() > 0 for of_chunk in samples])
        except ValueError as error:
            raise UserError(
                f"The rays of image {image + 1} of {len(cameras)} cannot be walked: {error}. The scene box does "
                "not fit its camera; check the focal lengths, the poses and their unit, or give dataset.aabb."
            ) from error
        hits = hits.view(pixels.shape)
        if step == 1:
            return hits
        near = torch.nn.functional.max_pool2d(hits[None].float(), 3, stride=1, padding=1)[0] > 0
        return near.repeat_interleave(step, 0)[:height].repeat_interleave(step, 1)[:, :width]

    def draw(self, count: int, per_pixel: int = 1) -> RayBatch:
        """A batch of count pixels with per_pixel rays each; every valid pixel is equally likely.

        If batches are paired: count // 2 neighbors of the first pixels are among them. Raises RuntimeError if there
        are no valid pixels.
        """
        self.stop_prefetch()
        return self._draw(count, per_pixel)

    def _draw(self, count: int, per_pixel: int) -> RayBatch:
        drawn, jitter = self._choose(count, self.generator, self._pairs(count))
        pixels, rgba, jitter = (x.to(self.backend.device) for x in (*self._gather(drawn), jitter))
        return RayBatch(self._rays_through(pixels, per_pixel), rgba, jitter, pixels)

    def draw_rays(self, count: int, per_pixel: int = 1) -> tuple[Rays, Tensor]:
        """The rays of count pixels and the jitter [count], drawn like draw() but without colors.

        Drawn on the device even if the images are on the host: an occupancy update needs half a million rays, for which
        the host would take longer than for the steps between two updates.
        """
        self.stop_prefetch()
        if self._device_valid_pixels is None:
            self._device_valid_pixels = self.valid_pixels.to(self.backend.device)
        generator = self.generator
        if generator.device.type != self.backend.device.type:
            seed = torch.randint(2**62, (), generator=generator).item()
            generator = torch.Generator(self.backend.device).manual_seed(seed)
        drawn, jitter = self._choose(count, generator)
        return self._rays_through(self._single_pixels(drawn, self._device_valid_pixels), per_pixel), jitter

    def depth_of(self, pixels: Tensor) -> Tensor | None:
        """World distance [R] along the rays of the pixels [R], 0 = not known; None if no depths are kept."""
        return None if self.depths is None else self.depths[pixels]

    def _rays_through(self, pixels: Tensor, per_pixel: int = 1) -> Rays:
        return self.ray_source.rays_through(pixels, per_pixel, self.backend.ops)

    def _pairs(self, count: int) -> int:
        return count // 2 if self.paired else 0

    def _choose(self, count: int, generator: torch.Generator, pairs: int = 0) -> tuple[Tensor, Tensor]:
        """The random part of a batch: drawn [R] int64 and jitter [R] in [-0.5, 0.5).

        drawn: the bits of float64 numbers in [0, 1), where in its part of the valid pixels each pixel lies. The last
        `pairs` entries are instead the offsets of neighbors from the first pixels, column and row as two float32 in
        one int64, not yet rounded. Raises RuntimeError without valid pixels.
        """
        device, singles = generator.device, count - pairs
        if len(self.valid_pixels) == 0:
            raise RuntimeError("no pixel to draw: no ray hits the scene")
        # float64, because there are billions of pixels
        drawn = torch.rand(singles, generator=generator, dtype=torch.float64, device=device).view(torch.int64)
        if pairs:
            shifts = PAIR_SIGMA * torch.randn(pairs, 2, generator=generator, dtype=torch.float32, device=device)
            drawn = torch.cat([drawn, shifts.view(torch.int64)[:, 0]])
        return drawn, torch.rand(count, generator=generator, device=device) - 0.5

    def _single_pixels(self, drawn: Tensor, valid_pixels: PixelRuns) -> Tensor:
        """The pixels [R] int64 that drawn [R] of _choose, of no pairs, stands for."""
        return valid_pixels.draw(drawn.view(torch.float64), self.backend.ops)

    def _pixels(self, drawn: Tensor) -> Tensor:
        """The pixels [R] int64 of a training batch, from drawn [R] of _choose."""
        pairs = self._pairs(len(drawn))
        if pairs == 0:
            return self._single_pixels(drawn, self.valid_pixels)
        singles = self._single_pixels(drawn[:-pairs], self.valid_pixels)
        chosen = singles[:pairs]
        near = self._sizes.moved(chosen, drawn[-pairs:, None].view(torch.float32), self.backend.ops)
        if self._unmasked is not None:  # a masked neighbor is replaced by the pixel itself
            near = torch.where(self._unmasked.contains(near), near, chosen)
        return torch.cat([singles, near])

    def _gather(self, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """Pixels [R] int64 and rgba [R,4] of a training batch, from drawn [R] of _choose."""
        pixels = self._pixels(drawn)
        rgba = self.backend.ops.sample_images(self.images[None, None], pixels)
        if rgba.shape[1] == 3:
            rgba = torch.cat([rgba, torch.ones_like(rgba[:, :1])], dim=-1)
        return pixels, rgba

    def prefetch(self) -> None:
        """From now on gathers the batches of training steps ahead, in threads. The batches stay the same."""
        self._prefetches = True

    def advance(self, count: int, background: Background, ahead: bool = False) -> None:
        """Call before each next(), outside of a CUDA graph: puts the prefetched batch on the device.

        ahead: that batch is of the step after this one.
        """
        if ahead:
            self._before_next = self.generator.get_state()
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
        """The batch of a training step and its background [P,3], after advance(). Can be captured in a CUDA graph."""
        if self._prefetches:
            batch = self._feed.current
            rays = self._rays_through(batch.pixels, per_pixel)
            return RayBatch(rays, batch.rgba, batch.jitter, batch.pixels), batch.background
        batch = self._draw(count, per_pixel)
        return batch, background.draw(count, self.generator, self.backend.device)

    def checksum(self) -> int:
        """A number that is another one for other images or masks; of many pixels every k-th counts."""
        step = max(1, len(self.images) // MAX_CHECKED)
        number = zlib.crc32(self.images[::step].cpu().contiguous().numpy())
        if self.depths is not None:
            number = zlib.crc32(self.depths[::step].cpu().contiguous().numpy(), number)
        return number if self._unmasked is None else zlib.crc32(self._unmasked.bounds.cpu().numpy(), number)

    def drop_images(self) -> None:
        """Frees the memory of images and depth maps. No batch can be drawn afterwards."""
        self.stop_prefetch()
        self._feed, self.images, self.beside = None, self.images.new_empty(0, self.images.shape[1]), None
        self.depths = None

    def stop_prefetch(self) -> None:
        """Takes back what was drawn or gathered ahead, until the next step, which draws the same batches again."""
        if self._feed is not None:
            self._feed.stop()
        if self._before_next is not None:
            self.generator.set_state(self._before_next)
            self._before_next = None


def choose_image_storage(where: str, images: PosedImages, backend: Backend) -> str:
    """Where the images of a run are kept: "device" or "host". "auto" means device if they take little of its memory.

    Of its free memory; of all of it in a run that is to be repeated, whose batches come from a generator of that place.
    """
    if where != "auto":
        return where
    if backend.device.type == "cpu":
        return "device"
    free, all_there_is = torch.cuda.mem_get_info(backend.device)
    memory = all_there_is if backend.deterministic else free
    return "device" if images.pixels.nbytes <= DEVICE_FRACTION * memory else "host"
