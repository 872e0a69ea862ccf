"""A deferred field as bytes: what a browser keeps of it.

Features reach a browser as few channels, which a small network decodes once a pixel (nerf/export/web/distill.py), and
every value as one byte. Only vertices of occupied cells are kept (Hedman et al. 2021, "Baking Neural Radiance Fields
for Real-Time View Synthesis", section 5).

Legend: X Y Z vertices of the lattice, L vertices that are kept, F channels of the field, K channels that are kept.
"""

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from nerf.fields.voxel_deferred import VoxelDeferred
from nerf.ops.vertex_rows import VertexRows
from nerf.scene.occupancy import OccupancyGrid

LEVELS = 255  # of a byte, above zero
TRANSPARENT, SOLID = 1e-4, 0.9999  # opacities of one voxel between which densities are told apart
VISIBLE = 0.01  # opacity of one voxel from which a vertex's features count


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

    def with_features(self, features: Tensor, visible: Tensor) -> "Baked":
        """These features [L,K] as bytes, in place of its own. visible [L] bool: the vertices that set their scale, as
        what is nearly transparent may have any features."""
        some = features[visible] if visible.any() else features
        limits = torch.stack([some.amin(0), some.amax(0)])
        limits[1] = torch.maximum(limits[1], limits[0] + 1e-6)
        return replace(self, features=_to_bytes(features, *limits).cpu(), feature_range=limits.cpu())

    def as_field(self, field: VoxelDeferred) -> VoxelDeferred:
        """A field with these values for its grids, to march through as a browser does; its network is not for them.

        Zeros follow the K channels of its features up to a multiple of four, for which operations have fast kernels.
        """
        baked = copy.copy(field)  # another module around the same box, backend and settings
        baked._parameters, baked._host, device = {}, None, field.backend.device
        rows = VertexRows.of(self.rows.to(device), self.resolution)
        features = functional.pad(self.feature_values(), (0, -self.features.shape[1] % 4))
        grids = [values.to(device) for values in (self.raw_density()[:, None], features)]
        if field.backend.deterministic:  # gradients are added in one order to dense grids alone
            grids, rows = [rows.expanded(values) for values in grids], None
        baked._rows = rows
        baked.density_grid, baked.feature_grid = (nn.Parameter(grid, requires_grad=False) for grid in grids)
        return baked


def bake(field: VoxelDeferred, occupancy: OccupancyGrid, projection: Tensor) -> Baked:
    """The field as bytes, in host memory. projection [K,F]: from its features to those that are kept."""
    rows = occupancy.active_vertices()
    raw = field.values_at(field.density_grid.detach(), rows)[:, 0]
    low, high = field.raw_density_of(TRANSPARENT), field.raw_density_of(SOLID)
    density = _to_bytes(raw, torch.tensor(low), torch.tensor(high))
    features = field.values_at(field.feature_grid.detach(), rows) @ projection.to(raw).T
    baked = Baked(field.resolution, rows.cpu(), density.cpu(), torch.empty(0), (low, high), torch.empty(0))
    return baked.with_features(features, raw > field.raw_density_of(VISIBLE))


def _to_bytes(values: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The nearest of 256 levels between low and high, uint8."""
    return ((values - low.to(values)) / (high - low).to(values) * LEVELS + 0.5).clamp(0, LEVELS).to(torch.uint8)
