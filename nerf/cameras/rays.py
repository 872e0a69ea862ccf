"""Rays: the record that sampling and rendering take.

Legend for the whole package: R rays, P pixels, M samples, N points, C channels, X Y Z grid vertices, I images.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rays:
    """R rays in world space. Directions have length one, so the ray parameter t is distance in world units.

    A pixel is an area: it may be seen by several rays, and shows their mean. They stand beside each other; the first is
    as far from the pixel's center as the one in the middle of the list, on the other side (nerf.cameras.SUBPIXELS).
    """

    origins: Tensor  # [R,3] world
    directions: Tensor  # [R,3] world, unit
    per_pixel: int = 1  # R = P * per_pixel

    def __post_init__(self) -> None:
        if self.per_pixel < 1:
            raise ValueError(f"per_pixel: found {self.per_pixel}, expected at least 1")

    def __len__(self) -> int:
        return self.origins.shape[0]

    def __getitem__(self, chunk: slice) -> "Rays":
        """A slice of the rays; it must contain whole pixels."""
        return Rays(self.origins[chunk], self.directions[chunk], self.per_pixel)

    def pixel_means(self, values: Tensor) -> Tensor:
        """The mean over each pixel's rays of values [R] or [R,C]: [P] or [P,C]."""
        if self.per_pixel == 1:
            return values
        if values.is_cuda and values.dim() == 1 and len(values) and not values.requires_grad:  # four times as fast
            return torch.nn.functional.avg_pool1d(values[None, None], self.per_pixel, self.per_pixel)[0, 0]
        return values.unflatten(0, (len(values) // self.per_pixel, self.per_pixel)).mean(1)

    def pixel_directions(self) -> Tensor:
        """The mean ray direction of each pixel, [P,3] unit."""
        if self.per_pixel == 1:
            return self.directions
        opposite = self.directions[self.per_pixel // 2 :: self.per_pixel]
        return torch.nn.functional.normalize(self.directions[:: self.per_pixel] + opposite, dim=-1)
