"""A deferred field as bytes: what a browser keeps of it.

Features reach a browser as few channels, which a small network decodes once a pixel (nerf/export/web/distill.py), and
every value as one byte. Only vertices of occupied cells are kept (Hedman et al. 2021, "Baking Neural Radiance Fields
for Real-Time View Synthesis", section 5).

Legend: X Y Z vertices of the lattice, L vertices that are kept, F channels of the field, K channels that are kept.
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nerf.fields.voxel_deferred import VoxelDeferred
from nerf.scene.occupancy import OccupancyGrid

LEVELS = 255  # of a byte, above zero
TRANSPARENT, SOLID = 1e-4, 0.9999  # opacities of one voxel between which densities are told apart


@dataclass(frozen=True)
class Baked:
    """The kept vertices of a field as bytes, and how bytes become numbers again."""

    resolution: tuple[int, int, int]  # vertices X, Y, Z
    rows: Tensor  # [L] int64, rising: (x * Y + y) * Z + z of each kept vertex
    density: Tensor  # [L] uint8
    features: Tensor  # [L,K] uint8
    density_range: tuple[float, float]  # raw density of byte 0 and of byte 255
    feature_range: Tensor  # [2,K] values of byte 0 and of byte 255

    def raw_density(self) -> Tensor:
        """Raw density of the kept vertices, [L]."""
        low, high = self.density_range
        return low + (high - low) / LEVELS * self.density

    def feature_values(self) -> Tensor:
        """Features of the kept vertices, [L,K]."""
        low, high = self.feature_range
        return low + (high - low) / LEVELS * self.features

    def as_field(self, field: VoxelDeferred) -> VoxelDeferred:
        """A field with these values for its grids, to march through as a browser does; its network is not for them."""
        baked = copy.copy(field)  # another module around the same box, backend and settings
        baked._parameters, baked._rows, device = {}, None, field.density_grid.device
        density = torch.full((self.rows.new_tensor(self.resolution).prod().item(),), self.density_range[0])
        features = torch.zeros(len(density), self.features.shape[1])
        density[self.rows], features[self.rows] = self.raw_density(), self.feature_values()
        baked.density_grid = nn.Parameter(density.view(*self.resolution, 1).to(device), requires_grad=False)
        baked.feature_grid = nn.Parameter(features.view(*self.resolution, -1).to(device), requires_grad=False)
        return baked


def bake(field: VoxelDeferred, occupancy: OccupancyGrid, projection: Tensor) -> Baked:
    """The field as bytes, in host memory. projection [K,F]: from its features to those that are kept."""
    rows = occupancy.active_vertices()
    raw = field.values_at(field.density_grid.detach(), rows)[:, 0]
    low, high = field.raw_density_of(TRANSPARENT), field.raw_density_of(SOLID)
    density = _to_bytes(raw, torch.tensor(low), torch.tensor(high))
    features = field.values_at(field.feature_grid.detach(), rows) @ projection.to(raw).T
    # What is nearly transparent may have any features: it is no reason for a coarser scale.
    visible = raw > field.raw_density_of(0.01)
    some = features[visible] if visible.any() else features
    limits = torch.stack([some.amin(0), some.amax(0)])
    limits[1] = torch.maximum(limits[1], limits[0] + 1e-6)
    quantized = _to_bytes(features, *limits)
    return Baked(field.resolution, rows.cpu(), density.cpu(), quantized.cpu(), (low, high), limits.cpu())


def _to_bytes(values: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The nearest of 256 levels between low and high, uint8."""
    return ((values - low.to(values)) / (high - low).to(values) * LEVELS + 0.5).clamp(0, LEVELS).to(torch.uint8)
