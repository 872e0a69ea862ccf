"""Rays and the samples on them: the two records that every later stage reads.

Legend for the whole package: R rays, M samples, N points, C channels, X Y Z grid vertices, I images.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Rays:
    """R rays in world space. Directions have length one, so the ray parameter t is distance in world units."""

    origins: Tensor  # [R,3] world
    directions: Tensor  # [R,3] world, unit

    def __len__(self) -> int:
        return self.origins.shape[0]

    def __getitem__(self, chunk: slice) -> "Rays":
        return Rays(self.origins[chunk], self.directions[chunk])


@dataclass(frozen=True)
class RaySamples:
    """M intervals on R rays, packed: ray r owns the samples ray_offsets[r] to ray_offsets[r + 1].

    With a fixed capacity the rows from ray_offsets[R] on belong to no ray: index 0, length 0.
    """

    rays: Rays
    ray_offsets: Tensor  # [R+1] int64, rising
    ray_indices: Tensor  # [M] int64
    t_starts: Tensor  # [M] world distance along the ray
    t_ends: Tensor  # [M]
    overflow: Tensor  # [1] int64: rays dropped because they did not fit the capacity

    def positions(self) -> Tensor:
        """Midpoints of the intervals in world space, [M,3]."""
        t_mid = 0.5 * (self.t_starts + self.t_ends)
        origins = self.rays.origins.index_select(0, self.ray_indices)
        return origins + t_mid[:, None] * self.directions()

    def directions(self) -> Tensor:
        """Unit direction of the ray through each sample, [M,3]."""
        return self.rays.directions.index_select(0, self.ray_indices)
