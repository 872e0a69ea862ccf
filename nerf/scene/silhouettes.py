"""Where training images show the scene: the pixels that are not wholly transparent, on the device that trains.

Legend: V views that are looked at together, P pixels of all images, H W height and width of one.
"""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from nerf.cameras.cameras import Cameras
from nerf.cameras.limits import LARGEST_SIDE
from nerf.images.pixel_runs import PixelRuns

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
    ) -> None:
        """alpha: of the images that the cameras took, [P] uint8 on whatever device it is kept.

        valid_pixels: the pixels that are trained on; None: all. dilation: an angle in radians by which poses may be
        wrong; whatever is dilated is dilated by it too. Raises ValueError where it is no angle.
        """
        if not 0 <= dilation <= math.pi:
            raise ValueError(f"dilation: found {dilation}, expected an angle from 0 to pi")
        self.dilation = whole_pixels((dilation * cameras.intrinsics[:, :2].amax(-1)).ceil())  # of each view
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

    def near(self, views: range, column: Tensor, row: Tensor, radii: Sequence[int]) -> Tensor:
        """Whether there is some of the silhouette around pixels column, row [V,N] int64 of a group of views, [V,N].

        radii: for each of all views, pixels in each direction; the dilation comes on top of it.
        """
        counts, reach = self._counts(views), self._reach(views, radii)[:, None]
        height, width = (size - 1 for size in counts.shape[1:])
        if height * width < column.shape[1]:  # each pixel is asked once, not for every point that it sees
            around = _in_window(_in_window(counts, reach[:, 0], 1), reach[:, 0], 2) > 0
            return around.flatten(1).gather(1, row * width + column)
        left, right = (column - reach).clamp_(min=0), (column + reach + 1).clamp_(max=width)
        upper, lower = (row - reach).clamp_(min=0), (row + reach + 1).clamp_(max=height)
        flat = counts.flatten(1)

        def above_and_left(row: Tensor, column: Tensor) -> Tensor:
            return flat.gather(1, row * (width + 1) + column)

        inside = above_and_left(lower, right) - above_and_left(upper, right)
        return inside > above_and_left(lower, left) - above_and_left(upper, left)

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
