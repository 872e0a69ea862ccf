"""Fields with values at the vertices of the lattice: a grid of raw density and an appearance grid.

Legend: N points, C channels, X Y Z grid vertices.
"""

import torch
from torch import Tensor, nn

from nerf.fields.field import POINTS_AT_A_TIME, DensityGrid, Field
from nerf.ops.backend import Backend
from nerf.scene.box import Resolution, SceneBox


class VoxelField(Field):
    """A field with grids of raw values; activation follows interpolation. upsample() resamples the grids.

    A subclass makes the appearance grid [X,Y,Z,C] (color coefficients or features), an attribute of its own name.
    """

    appearance_name: str  # the attribute that holds the appearance grid

    def __init__(
        self, box: SceneBox, resolution: Resolution, finest_voxel: float, initial_alpha: float, backend: Backend
    ) -> None:
        super().__init__(box, resolution, finest_voxel, initial_alpha, backend)
        self.density_grid = nn.Parameter(torch.zeros(*resolution, 1, device=backend.device))

    @property
    def appearance_grid(self) -> nn.Parameter:
        """The values from which color is computed, [X,Y,Z,C]."""
        return getattr(self, self.appearance_name)

    def interpolate(self, grid: Tensor, coords: Tensor) -> Tensor:
        """The trilinear interpolation [N,C] of a grid [X,Y,Z,C] at points [N,3] in lattice units."""
        order = {"deterministic": True} if self.backend.deterministic else {}  # variants of the benchmark lack it
        return self.backend.ops.interpolate_trilinear(grid, coords, grid.grad, **order)

    def raw_density(self, coords: Tensor) -> Tensor:
        return self.interpolate(self.density_grid, coords)[:, 0]

    def density_slopes(self, coords: Tensor, positions: Tensor) -> Tensor:
        raw_density = self.interpolate(self.density_grid.detach(), coords)  # detached, so the grid gets no gradient
        return torch.autograd.grad(raw_density.sum(), positions)[0]

    def raw_density_at_vertices(self) -> Tensor:
        return self.density_grid[..., 0]

    @property
    def grids(self) -> tuple[nn.Parameter, ...]:
        return self.density_grid, self.appearance_grid

    @property
    def density_grid_view(self) -> DensityGrid:
        return DensityGrid(self.density_grid, self.density_shift, self.density_scale)

    @torch.no_grad()
    def upsample(self, resolution: Resolution) -> None:
        """Resamples every grid to another resolution. Parameters are new tensors afterwards."""
        for name in ("density_grid", self.appearance_name):
            setattr(self, name, nn.Parameter(self._resampled(getattr(self, name), resolution)))
        super().upsample(resolution)

    def _resampled(self, grid: Tensor, resolution: Resolution) -> Tensor:
        """A grid resampled to another resolution, in slabs, so that memory is needed for the two grids only."""
        device, (x, y, z) = grid.device, resolution
        finer = grid.new_empty(*resolution, grid.shape[3])
        last = torch.tensor(grid.shape[:3], device=device) - 1
        axes = [torch.linspace(0, 1, n, device=device) * end for n, end in zip(resolution, last, strict=True)]
        slab = max(1, POINTS_AT_A_TIME // (y * z))
        for first in range(0, x, slab):
            coords = torch.cartesian_prod(axes[0][first : first + slab], *axes[1:])
            values = self.backend.ops.interpolate_trilinear(grid, coords)
            finer[first : first + slab] = values.view(-1, y, z, grid.shape[3])
        return finer
