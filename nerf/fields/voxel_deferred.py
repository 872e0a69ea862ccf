"""The deferred field: features are composited along the ray, and one small MLP turns each pixel's features and view
direction into colour (Hedman et al. 2021, "Baking Neural Radiance Fields", section 4), once a pixel."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nerf.config.fields import FieldSettings, Recipe
from nerf.config.settings import setting
from nerf.fields.voxel_mlp import VoxelMlp, VoxelMlpConfig

SMALLEST_OPACITY = 1e-3  # a ray that meets less has no colour of its own to speak of


@dataclass
class VoxelDeferredConfig(VoxelMlpConfig):
    name: str = setting("voxel_deferred", "which field")
    feature_channels: int | None = setting(
        None,
        "features per vertex, a multiple of 4 is fastest",
        low=3,
        high=64,
    )
    hidden_width: int | None = setting(None, "neurons per hidden layer of the colour MLP", low=1, high=1024)
    hidden_layers: int | None = setting(None, "hidden layers of the colour MLP", low=0, high=8)
    view_frequencies: int | None = setting(
        None,
        "frequencies of the view direction's sines and cosines",
        low=0,
        high=8,
    )
    diffuse: bool | None = setting(None, "the first three features are colour too, added to the MLP's")
    feature_noise: float | None = setting(None, "deviation of the noise on each pixel's features in training", low=0)
    lr_features: float | None = setting(
        None,
        "learning rate of the features",
        low=0,
    )
    lr_mlp: float | None = setting(None, "learning rate of the MLP", low=0)


_SETTINGS = {
    "loss.opacity_entropy": 0.0,
    "field.lr_features": 0.03,
    "field.view_frequencies": 4,
    "field.diffuse": False,
    "field.hidden_layers": 2,
}
# Of a wide network: at twice the rate it saturates in the fog of the first steps, where nothing pulls it back.
_CUDA = {
    **_SETTINGS,
    "train.rays_per_step": 16384,  # a ray costs next to nothing
    "field.feature_channels": 16,
    "field.hidden_width": 256,
    "field.lr_mlp": 5e-4,
    "field.feature_noise": 0.1,  # against overfitting in many passes over the pixels
}
_CPU = {
    **_SETTINGS,
    "field.num_voxels": 80**3,
    "train.rays_per_step": 4096,
    "field.feature_channels": 12,
    "field.hidden_width": 128,
    "field.lr_mlp": 1e-3,
    "field.feature_noise": 0.0,  # a CPU makes few passes
}
# An occupancy update costs as much as two dozen steps.
_UP_TO_8_SECONDS = {**_CUDA, "field.lr_features": 0.05, "occupancy.every": 0.1}
_FROM_8_SECONDS = {
    **_CUDA,
    "loss.distortion": 0.003,  # fewer samples in air, at no cost to the picture
    "loss.tv_until": 1.0,  # features that are smooth to the end overfit the training views less
    # A pixel is an area, and one ray through its middle meets the edge of a thing by chance. With four there is use for
    # voxels that are finer than two pixels.
    "sampler.rays_per_pixel": 4,
}
# Fewer, larger steps and a deeper network, which takes longer to start, generalise better between views.
_FROM_20_SECONDS = {
    **_FROM_8_SECONDS,
    "field.num_voxels": 304**3,
    "loss.tv_color": 1e-6,
    "train.rays_per_step": 32768,
    "field.hidden_layers": 3,
    "train.lr_decay": 0.02,
}
SETTINGS = FieldSettings(
    VoxelDeferredConfig,
    (
        Recipe(
            "cuda", "voxel_deferred", 3.0, {**_UP_TO_8_SECONDS, "field.num_voxels": 176**3, "field.lr_density": 0.3}
        ),
        Recipe("cuda", "voxel_deferred", 8.0, {**_UP_TO_8_SECONDS, "field.num_voxels": 224**3}),
        Recipe("cuda", "voxel_deferred", 20.0, {**_FROM_8_SECONDS, "field.num_voxels": 288**3, "loss.tv_color": 3e-7}),
        Recipe("cuda", "voxel_deferred", math.inf, _FROM_20_SECONDS),
        Recipe("cpu", "voxel_deferred", math.inf, _CPU),
    ),
)


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
        if self.config.feature_noise > 0 and self.noise_generator is not None and learning:
            # Nearby features shall mean nearby colours, or the MLP learns by heart what few views tell.
            numbers = torch.randn(mean.shape, generator=self.noise_generator, device=mean.device)
            seen = mean + self.config.feature_noise * numbers
        rgb = torch.sigmoid(self.network(self.joined(seen, view)))
        if self.config.diffuse:
            # What is composited as colour blends as colour where surfaces meet in a pixel; features do not.
            rgb = rgb + mean[:, :3]
        return rgb * opacity[:, None]
