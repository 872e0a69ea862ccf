"""Where training images show the scene: the pixels that are not wholly transparent, on the device that trains.

Legend: I images, P pixels of all images, H W height and width of one.
"""

import torch
from torch import Tensor
from torch.nn import functional

from nerf.cameras import Cameras
from nerf.datasets.pixel_runs import PixelRuns
from nerf.datasets.posed_images import PosedImages


class Silhouettes:
    """The scene's outline in every image. Pixels that do not count belong to it: they say nothing of what is empty."""

    def __init__(self, images: PosedImages, pixels: Tensor, device: torch.device, slack: float = 0.0) -> None:
        """pixels: those of the images, [P,4] uint8 on whatever device they are kept.

        slack: an angle in radians by which poses may be wrong; all that is widened is widened by it too.
        """
        self.slack = (
            (slack * images.cameras.intrinsics[:, :2].amax(-1)).ceil().long().tolist()
        )  # pixels of each view
        self.cameras: Cameras = images.cameras.to(device)
        self.opaque = (pixels[:, 3] > 0).to(device)  # [P]
        self.counted = None if images.counted is None else images.counted.to(device).mask(0, len(pixels))
        if self.counted is not None:
            self.opaque |= ~self.counted

    def __len__(self) -> int:
        return len(self.cameras)

    def widened(self, view: int, radius: int) -> Tensor:
        """One silhouette [H,W] bool, widened by radius pixels in each direction, and by the slack."""
        radius += self.slack[view]
        width, height = self.cameras.size(view)
        first = self.cameras.first_pixel(view)
        mask = self.opaque[first : first + width * height].view(height, width)
        return _widened_along(_widened_along(mask, radius, 0), radius, 1)

    def pixels_near(self, radius: int) -> PixelRuns:
        """The pixels that count and lie within radius of a silhouette, and the slack."""
        near = torch.cat([self.widened(view, radius).flatten() for view in range(len(self))])
        return PixelRuns.of_mask(near if self.counted is None else near & self.counted)


def _widened_along(mask: Tensor, radius: int, axis: int) -> Tensor:
    """Whether a window of 2 * radius + 1 pixels along the axis has any of the mask [H,W], at one cost for all radii."""
    size = mask.shape[axis]
    before = functional.pad(mask.cumsum(axis, dtype=torch.int32), (0, 0, 1, 0) if axis == 0 else (1, 0))
    pixels = torch.arange(size, device=mask.device)
    upper, lower = (pixels + radius + 1).clamp(max=size), (pixels - radius).clamp(min=0)
    return before.index_select(axis, upper) > before.index_select(axis, lower)
