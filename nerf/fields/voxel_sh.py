"""The explicit field: raw density and spherical-harmonic colour at every vertex, nothing else (as Plenoxels).

One grid holds it all: channel 0 is raw density, then (sh_degree + 1)^2 coefficients of red, of green, of blue, then
padding up to whole 16 bytes, so that one vertex is one aligned record.
"""

import torch
from torch import Tensor, nn

from nerf.config import LossConfig, VoxelShConfig
from nerf.fields.field import Field, ParameterGroup
from nerf.losses import add_total_variation
from nerf.ops.backend import Backend
from nerf.scene_box import Resolution, SceneBox
from nerf.spherical_harmonics import num_coefficients, sh_basis


class VoxelSh(Field):
    """Voxel grid with spherical harmonics up to degree 3."""

    grid_names = ("grid",)

    def __init__(
        self, config: VoxelShConfig, box: SceneBox, resolution: Resolution, finest_voxel: float, backend: Backend
    ) -> None:
        super().__init__(box, resolution, finest_voxel, config.initial_alpha, backend)
        self.config = config
        self.num_basis = num_coefficients(config.sh_degree)
        channels = -(-(1 + 3 * self.num_basis) // 4) * 4
        self.grid = nn.Parameter(torch.zeros(*resolution, channels, device=backend.device))

    def forward(self, positions: Tensor, ray_directions: Tensor, ray_indices: Tensor) -> tuple[Tensor, Tensor]:
        values = self.interpolate(self.grid, positions)
        basis = sh_basis(ray_directions, self.config.sh_degree).index_select(0, ray_indices)
        coefficients = values[:, 1 : 1 + 3 * self.num_basis].view(-1, 3, self.num_basis)
        rgb = torch.sigmoid((coefficients * basis[:, None, :]).sum(-1))
        return self.activate_density(values[:, 0]), rgb

    def density(self, positions: Tensor) -> Tensor:
        return self.activate_density(self.interpolate(self.grid[..., :1], positions)[:, 0])

    def raw_vertex_density(self) -> Tensor:
        return self.grid[..., 0]

    def parameter_groups(self) -> list[ParameterGroup]:
        color = (self.config.lr_color,) * (self.grid.shape[-1] - 1)
        return [ParameterGroup("grid", self.grid, (self.config.lr_density, *color))]

    def add_total_variation(self, loss: LossConfig) -> None:
        # One grid, one weight: a kernel that split the channels would read the record twice.
        add_total_variation(self.grid, loss.tv_color, self.backend)
