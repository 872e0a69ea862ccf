"""The deferred field: features are composited along the ray, and one small MLP turns each pixel's features and view
direction into colour (Hedman et al. 2021, "Baking Neural Radiance Fields", section 4), once a pixel."""

import torch
from torch import Tensor

from nerf.fields.voxel_mlp import VoxelMlp

SMALLEST_OPACITY = 1e-3  # a ray that meets less has no colour of its own to speak of


class VoxelDeferred(VoxelMlp):
    """Voxel grids of density and features, colour of a pixel by an MLP."""

    def forward(self, coords: Tensor, ray_directions: Tensor, ray_indices: Tensor) -> tuple[Tensor, Tensor]:
        return self.density(coords), self.interpolate(self.feature_grid, coords)

    @property
    def composited_grid(self) -> Tensor:
        return self.feature_grid

    def shade(self, values: Tensor, opacity: Tensor, ray_directions: Tensor) -> Tensor:
        view = self.encode_view(ray_directions)
        seen = mean = values / opacity.clamp(min=SMALLEST_OPACITY)[:, None]
        learning = self.feature_grid.requires_grad and torch.is_grad_enabled()
        if self.config.feature_noise > 0 and self.noise is not None and learning:
            # Nearby features shall mean nearby colours, or the MLP learns by heart what few views tell.
            numbers = torch.randn(mean.shape, generator=self.noise, device=mean.device)
            seen = mean + self.config.feature_noise * numbers
        rgb = torch.sigmoid(self.network(self.joined(seen, view)))
        if self.config.diffuse:
            # What is composited as colour blends as colour where surfaces meet in a pixel; features do not.
            rgb = rgb + mean[:, :3]
        return rgb * opacity[:, None]
