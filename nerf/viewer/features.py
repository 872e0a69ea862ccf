"""Features as color: what a field knows of a point beside its density, in its three principal components.

Legend: P pixels, C channels.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from nerf.cameras.cameras import Cameras
from nerf.cameras.rays import Rays
from nerf.fields.field import Field
from nerf.fields.voxel_field import VoxelField
from nerf.images.metrics import MIN_OPACITY
from nerf.rendering.render import composited_grid
from nerf.rendering.sampler import RaySampler

PIXELS = 8192  # of training cameras, whose features span the colors
SEED = 0
SOLID = 0.5  # opacity from which a pixel counts
TAILS = 0.02  # share of the pixels that is darker than black in a component, and brighter than white


@dataclass(frozen=True)
class FeatureColors:
    """An affine map from composited features to colors, the same for all pictures of a scene."""

    mean: Tensor  # [C]
    axes: Tensor  # [C,3]
    middle: Tensor  # [3] of the colors, along the axes
    half: Tensor  # [3] half the range of the colors

    @classmethod
    def of(cls, features: Tensor) -> "FeatureColors":
        """The first three principal components of features [P,C], each stretched over the range of a color.

        An axis points to where its largest entry is positive, so that like features get like colors.
        """
        mean = features.mean(0) if len(features) else features.new_zeros(features.shape[1])
        centered = (features - mean).double()
        axes = torch.linalg.eigh(centered.T @ centered).eigenvectors.flip(-1)[:, :3]
        axes = axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
        axes = functional.pad(axes, (0, 3 - axes.shape[1])).to(features)
        if len(features) == 0:
            return cls(mean, axes, mean.new_zeros(3), mean.new_ones(3))
        tails = features.new_tensor([TAILS, 1 - TAILS])
        low, high = ((features - mean) @ axes).quantile(tails, dim=0)
        return cls(mean, axes, 0.5 * (low + high), (0.5 * (high - low)).clamp(min=1e-6))

    def __call__(self, features: Tensor) -> Tensor:
        """Colors [P,3] of features [P,C], in [0,1]."""
        along = (features - self.mean) @ self.axes
        return (0.5 + 0.5 * (along - self.middle) / self.half).clamp(0, 1)


def has_features(field: Field) -> bool:
    """Whether a field has an appearance grid, whose values are its features."""
    return isinstance(field, VoxelField)


@torch.no_grad()
def mean_features(field: VoxelField, sampler: RaySampler, rays: Rays) -> tuple[Tensor, Tensor]:
    """The mean feature along each pixel's rays [P,C], by weight, and opacity [P]."""
    values, opacity, _ = composited_grid(field, sampler, rays, field.appearance_grid)
    return values / opacity.clamp(min=MIN_OPACITY)[:, None], opacity


@torch.no_grad()
def feature_colors(field: VoxelField, sampler: RaySampler, cameras: Cameras) -> FeatureColors:
    """The colors of what the cameras see: of PIXELS pixels, always the same ones. cameras: on any device."""
    cameras = cameras.to(sampler.backend.device)
    generator = torch.Generator().manual_seed(SEED)
    pixels = torch.randint(cameras.first_pixel(len(cameras)), (PIXELS,), generator=generator)
    rays = cameras.rays_through(pixels.to(cameras.c2w.device), 1, sampler.backend.ops)
    features, opacity = mean_features(field, sampler, rays)
    return FeatureColors.of(features[opacity > SOLID])
