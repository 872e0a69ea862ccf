"""The explicit field: raw density and spherical-harmonic color at every vertex, nothing else (as Plenoxels).

The color grid holds (sh_degree + 1)^2 coefficients each of red, green and blue, then padding to a multiple of 16
bytes, so that the values of a vertex are aligned. Density is a separate grid because it is read far more often.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nerf.config.fields import FieldConfig, FieldSettings, Recipe
from nerf.config.settings import setting
from nerf.fields.spherical_harmonics import num_coefficients, sh_basis
from nerf.fields.voxel_field import VoxelField
from nerf.ops.activations import sigmoid
from nerf.ops.backend import Backend
from nerf.optim.adam import ParameterGroup
from nerf.scene.box import Resolution, SceneBox


@dataclass
class VoxelShConfig(FieldConfig):
    name: str = setting("voxel_sh", "which field")
    sh_degree: int = setting(2, "degree of the spherical harmonics of the color", low=0, high=3)
    lr_color: float = setting(0.1, "learning rate of the color coefficients", low=0)


_SETTINGS = {
    "train.rays_per_step": 16384,
    "loss.opacity_entropy": 0.0,
    "loss.distortion": 0.01,
    # Harmonics that are smooth to the end overfit the training views less.
    "loss.tv_color": 1e-6,
    "loss.tv_until": 1.0,
}
_CUDA = {**_SETTINGS, "field.num_voxels": 256**3}
SETTINGS = FieldSettings(
    VoxelShConfig,
    (
        Recipe("cuda", "voxel_sh", 20.0, _CUDA),
        Recipe("cuda", "voxel_sh", math.inf, {**_CUDA, "train.lr_decay": 0.02}),
        Recipe("cpu", "voxel_sh", math.inf, {**_SETTINGS, "field.num_voxels": 80**3, "train.rays_per_step": 4096}),
    ),
    # Weaker smoothing than of features: with theirs, coefficients of harmonics lose three decibels.
    {"forward_facing": {"loss.tv_density": 1e-5, "loss.tv_color": 1e-5, "loss.distortion": 0.0}},
)


class VoxelSh(VoxelField):
    """Voxel grid with spherical harmonics up to degree 3."""

    appearance_name = "sh_grid"

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
        rgb = sigmoid(self.backend.ops.contract_basis(values.to(basis.dtype), basis, ray_indices))
        return self.density(coords), rgb

    def view_basis(self, ray_directions: Tensor) -> Tensor:
        """Spherical harmonics [R, (degree + 1)^2] of unit directions [R,3], weighted by view_weight."""
        basis = sh_basis(ray_directions, self.config.sh_degree)
        if self.view_weight is None:
            return basis
        return torch.cat([basis[:, :1], basis[:, 1:] * self.view_weight], dim=-1)

    def parameter_groups(self) -> list[ParameterGroup]:
        return [
            ParameterGroup(
                "density_grid", self.density_grid, (self.config.lr_density,), on_vertices=True, rows=self.rows
            ),
            ParameterGroup(
                "sh_grid",
                self.sh_grid,
                (self.config.lr_color,),
                on_vertices=True,
                rows=self.rows,
                host=self.host_rows,
            ),
            *self.background_groups(),
        ]
