"""Where the training images show the scene: the pixels that are not wholly transparent, on the device that trains.

Legend: I images, P pixels of all images, H W height and width of one.
"""

import torch
from torch import Tensor
from torch.nn import functional

from nerf.cameras import Cameras
from nerf.datasets.pixel_runs import PixelRuns
from nerf.datasets.posed_images import PosedImages

MAX_RADIUS = 1 << 10  # pixels; a silhouette that is widened by more says nothing


class Silhouettes:
    """The scene's outline in every image. Pixels that do not count belong to it: they say nothing about what is empty."""

    def __init__(self, images: PosedImages, pixels: Tensor, device: torch.device) -> None:
        """pixels: those of the images, [P,4] uint8 on whatever device they are kept."""
        self.cameras: Cameras = images.cameras.to(device)
        self.opaque = (pixels[:, 3] > 0).to(device)  # [P]
        self.counted = None if images.counted is None else images.counted.to(device).mask(0, len(pixels))
        if self.counted is not None:
            self.opaque |= ~self.counted

    def __len__(self) -> int:
        return len(self.cameras)

    def widened(self, view: int, radius: int) -> Tensor:
        """One silhouette [H,W] bool, widened by radius pixels in each direction: a square window is two runs of a line."""
        width, height = self.cameras.size(view)
        first, radius = self.cameras.first_pixel(view), min(radius, MAX_RADIUS)
        mask = self.opaque[first : first + width * height].view(1, height, width).float()
        rows = functional.max_pool2d(mask, (2 * radius + 1, 1), stride=1, padding=(radius, 0))
        return functional.max_pool2d(rows, (1, 2 * radius + 1), stride=1, padding=(0, radius))[0] > 0

    def pixels_near(self, radius: int) -> PixelRuns:
        """The pixels that count and lie within radius of a silhouette."""
        near = torch.cat([self.widened(view, radius).flatten() for view in range(len(self))])
        return PixelRuns.of_mask(near if self.counted is None else near & self.counted)
