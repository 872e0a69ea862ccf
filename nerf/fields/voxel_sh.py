"""The explicit field: raw density and spherical-harmonic colour at every vertex, nothing else (as Plenoxels).

The colour grid holds (sh_degree + 1)^2 coefficients of red, of green, of blue, then padding up to whole 16 bytes, so
that one vertex is one aligned record. Density has a grid of its own: it is looked at far more often.
"""

import torch
from torch import Tensor, nn

from nerf.config import VoxelShConfig
from nerf.fields.field import Field, ParameterGroup
from nerf.ops.backend import Backend
from nerf.scene_box import Resolution, SceneBox
from nerf.spherical_harmonics import num_coefficients, sh_basis


class VoxelSh(Field):
    """Voxel grid with spherical harmonics up to degree 3."""

    color_grid_name = "sh_grid"

    def __init__(
        self, config: VoxelShConfig, box: SceneBox, resolution: Resolution, finest_voxel: float, backend: Backend
    ) -> None:
        super().__init__(box, resolution, finest_voxel, config.initial_alpha, backend)
        self.config = config
        self.num_basis = num_coefficients(config.sh_degree)
        channels = -(-3 * self.num_basis // 4) * 4
        self.sh_grid = nn.Parameter(torch.zeros(*resolution, channels, device=backend.device))

    def forward(self, coords: Tensor, ray_directions: Tensor, ray_indices: Tensor) -> tuple[Tensor, Tensor]:
        values = self.interpolate(self.sh_grid, coords)
        basis = self.view_basis(ray_directions)
        rgb = torch.sigmoid(self.backend.ops.contract_basis(values, basis, ray_indices))
        return self.density(coords), rgb

    def view_basis(self, ray_directions: Tensor) -> Tensor:
        """What colour sees of unit directions [R,3]: spherical harmonics [R, (degree + 1)^2]."""
        basis = sh_basis(ray_directions, self.config.sh_degree)
        if self.view_weight is None:
            return basis
        return torch.cat([basis[:, :1], basis[:, 1:] * self.view_weight], dim=-1)

    def parameter_groups(self) -> list[ParameterGroup]:
        return [
            ParameterGroup("density_grid", self.density_grid, (self.config.lr_density,), on_vertices=True),
            ParameterGroup("sh_grid", self.sh_grid, (self.config.lr_color,), on_vertices=True),
            *self.background_groups(),
        ]
