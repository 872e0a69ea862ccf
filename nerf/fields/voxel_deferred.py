"""The deferred field: features are composited along the ray, and one small MLP turns each pixel's features and view
direction into colour (Hedman et al. 2021, "Baking Neural Radiance Fields", section 4), once a pixel."""

import torch
from torch import Tensor

from nerf.fields.voxel_mlp import VoxelMlp

SMALLEST_OPACITY = 1e-3  # a ray that meets less has no colour of its own to speak of


class VoxelDeferred(VoxelMlp):
    """Voxel grids of density and features, colour of a pixel by an MLP."""

    def forward(self, positions: Tensor, ray_directions: Tensor, ray_indices: Tensor) -> tuple[Tensor, Tensor]:
        return self.density(positions), self.interpolate(self.feature_grid, positions)

    def shade(self, values: Tensor, opacity: Tensor, ray_directions: Tensor) -> Tensor:
        view = self.view_basis(ray_directions, self.config.view_degree)
        mean = values / opacity.clamp(min=SMALLEST_OPACITY)[:, None]
        return torch.sigmoid(self.mlp(torch.cat([mean, view], dim=-1))) * opacity[:, None]
