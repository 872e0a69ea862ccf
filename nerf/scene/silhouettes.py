"""Where training images show the scene: the pixels that are not wholly transparent, on the device that trains.

Legend: V views that are looked at together, P pixels of all images, H W height and width of one.
"""

import math
from collections.abc import Iterator, Sequence
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import functional

from nerf.cameras.cameras import Cameras
from nerf.cameras.limits import LARGEST_SIDE
from nerf.cameras.rays import Rays
from nerf.images.pixel_runs import PixelRuns
from nerf.ops import reference
from nerf.ops.carve_points import seen_as_empty

MAX_VIEWS, MAX_PIXELS = 8, 1 << 23  # looked at together


class Silhouettes:
    """The scene's outline in every image. Pixels that do not count belong to it: they say nothing of what is empty."""

    def __init__(
        self,
        cameras: Cameras,
        alpha: Tensor,
        valid_pixels: PixelRuns | None,
        device: torch.device,
        dilation: float = 0.0,
        ops: ModuleType = reference,
    ) -> None:
        """alpha: of the images that the cameras took, [P] uint8 on whatever device it is kept.

        valid_pixels: the pixels that are trained on; None: all. dilation: an angle in radians by which poses may be
        wrong; whatever is dilated is dilated by it too. ops: Backend.ops, for its carve_points. Raises ValueError
        where the dilation is no angle.
        """
        if not 0 <= dilation <= math.pi:
            raise ValueError(f"dilation: found {dilation}, expected an angle from 0 to pi")
        self.dilation = whole_pixels((dilation * cameras.intrinsics[:, :2].amax(-1)).ceil())  # of each view
        self.ops = ops
        self.cameras: Cameras = cameras.to(device)
        self.opaque = (alpha > 0).to(device)  # [P]
        self.valid_pixels = None if valid_pixels is None else valid_pixels.to(device).mask(0, len(alpha))
        if self.valid_pixels is not None:
            self.opaque |= ~self.valid_pixels

    def __len__(self) -> int:
        return len(self.cameras)

    def groups(self) -> Iterator[range]:
        """All views, a few of one size at a time: what is asked of one is asked of all, in as many launches."""
        first = 0
        while first < len(self):
            width, height = self.cameras.size(first)
            end = first + 1
            most = min(len(self), first + min(MAX_VIEWS, MAX_PIXELS // (width * height)))
            while end < most and self.cameras.size(end) == (width, height):
                end += 1
            yield range(first, end)
            first = end

    def in_doubt(self, views: range, points: Tensor, radii: Sequence[int]) -> Tensor:
        """Whether none of a group of views sees points [N,3] as wholly transparent, [N] bool.

        radii: for each of all views, pixels around a point's own in each direction that have to be; the dilation comes
        on top of it.
        """
        counts, reach = self._counts(views), self._reach(views, radii)
        if self.cameras.lenses is not None:
            pixels, depth = self.cameras.project_into(views, points)
            return ~seen_as_empty(pixels, depth, counts, reach).any(0)
        rows = slice(views.start, views.stop)
        return self.ops.carve_points(points, self.cameras.c2w[rows], self.cameras.intrinsics[rows], counts, reach)

    def views_that_see(self, points: Tensor) -> Tensor:
        """How many views have points [N,3] in their picture, [N] int64."""
        seen = torch.zeros(len(points), dtype=torch.int64, device=points.device)
        for views in self.groups():
            pixels, depth = self.cameras.project_into(views, points)
            size = torch.tensor(self.cameras.size(views.start), device=points.device)
            seen += ((pixels >= 0).all(-1) & (pixels < size).all(-1) & (depth > 0)).sum(0)
        return seen

    def rays(self, most: int) -> tuple[Rays, Tensor]:
        """Rays through the pixels of the silhouettes that count, evenly spread, about so many at most, and their views.

        The views are [R] int64. Raises ValueError where the alpha is not that of the cameras' images.
        """
        expected = self.cameras.first_pixel(len(self))
        if len(self.opaque) != expected:
            raise ValueError(f"alpha: found {len(self.opaque)} pixels, expected {expected}, as the cameras have")
        shown = self.opaque if self.valid_pixels is None else self.opaque & self.valid_pixels
        pixels = shown.nonzero()[:, 0]
        pixels = pixels[:: max(1, -(-len(pixels) // max(1, most)))].contiguous()
        return self.cameras.rays_through(pixels), self.cameras.image_of(pixels)

    def pixels_near(self, radius: int) -> PixelRuns:
        """The pixels that count and lie within radius of a silhouette, and the dilation."""
        found = []
        for views in self.groups():
            counts, reach = self._counts(views), self._reach(views, [radius] * len(self))
            found.append(_in_window(_in_window(counts, reach, 1), reach, 2).gt(0).flatten())
        near = torch.cat(found)
        return PixelRuns.of_mask(near if self.valid_pixels is None else near & self.valid_pixels)

    def _counts(self, views: range) -> Tensor:
        """How many pixels of each silhouette lie above and to the left of a corner of a pixel, [V,H+1,W+1] int32."""
        width, height = self.cameras.size(views.start)
        first, end = self.cameras.first_pixel(views.start), self.cameras.first_pixel(views.stop)
        masks = self.opaque[first:end].view(len(views), height, width)
        return functional.pad(masks.cumsum(1, dtype=torch.int32).cumsum(2, dtype=torch.int32), (1, 0, 1, 0))

    def _reach(self, views: range, radii: Sequence[int]) -> Tensor:
        """Radius and dilation of each view, [V] pixels."""
        return torch.tensor([radii[view] + self.dilation[view] for view in views], device=self.opaque.device)


def whole_pixels(radii: Tensor) -> list[int]:
    """Radii [V] in pixels, rounded down; one that is not finite is as wide as an image: then nothing is empty."""
    return radii.nan_to_num(nan=LARGEST_SIDE).clamp(0, LARGEST_SIDE).long().tolist()


def _in_window(counts: Tensor, reach: Tensor, axis: int) -> Tensor:
    """Differences of counts [V,...] along the axis, over reach [V] pixels around each pixel: one fewer on the axis."""
    size = counts.shape[axis] - 1
    pixels, reach = torch.arange(size, device=counts.device), reach[:, None]
    shape = [len(counts), 1, 1]
    shape[axis] = size
    lower, upper = (pixels - reach).clamp_(min=0).view(shape), (pixels + reach + 1).clamp_(max=size).view(shape)
    return counts.take_along_dim(upper, axis) - counts.take_along_dim(lower, axis)
