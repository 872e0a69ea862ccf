"""What every field offers to sampling, rendering and training. Fields are siblings: open two side by side."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from nerf.config import LossConfig
from nerf.losses import add_total_variation
from nerf.ops.backend import Backend
from nerf.scene_box import Resolution, SceneBox
from nerf.spherical_harmonics import sh_basis


@dataclass(frozen=True)
class ParameterGroup:
    """One parameter with its learning rate: one number, or one per channel of the last dimension."""

    name: str
    parameter: nn.Parameter
    lr: tuple[float, ...]
    on_vertices: bool = False  # a grid [X,Y,Z,C]: only vertices near samples get gradients


class Field(nn.Module, ABC):
    """Density and view-dependent colour at points of a box.

    Grids hold raw values at the vertices; activation follows interpolation. density = softplus(raw + shift) * scale,
    where scale is one over the voxel size of the finest grid: raw values keep their meaning when the grid grows. shift
    makes a zero grid almost transparent: one finest voxel has opacity initial_alpha (Sun et al. 2022, eq. 9).
    """

    def __init__(
        self, box: SceneBox, resolution: Resolution, finest_voxel: float, initial_alpha: float, backend: Backend
    ) -> None:
        super().__init__()
        self.box, self.backend = box, backend
        self.view_weight: Tensor | None = None  # [1]: how much of the direction colour may see; None: all
        self.density_scale = 1 / finest_voxel
        self.density_shift = math.log(math.expm1(-math.log1p(-initial_alpha)))
        self.set_resolution(resolution)
        self.density_grid = nn.Parameter(torch.zeros(*resolution, 1, device=backend.device))

    def set_resolution(self, resolution: Resolution) -> None:
        self.resolution = resolution
        self.grid_map = self.box.grid_map(resolution)
        self.voxel_size = self.box.voxel_size(resolution)  # read from the device once, not in every step

    def interpolate(self, grid: Tensor, positions: Tensor) -> Tensor:
        """A grid [X,Y,Z,C] at world positions [N,3]: [N,C]."""
        return self.backend.ops.interpolate_trilinear(grid, self.grid_map.to_grid(positions), grid.grad)

    def activate_density(self, raw_density: Tensor) -> Tensor:
        """Raw density to density per world unit."""
        return functional.softplus(raw_density + self.density_shift) * self.density_scale

    def view_basis(self, ray_directions: Tensor, degree: int) -> Tensor:
        """What colour sees of unit directions [R,3]: spherical harmonics [R, (degree + 1)^2]."""
        basis = sh_basis(ray_directions, degree)
        if self.view_weight is None:
            return basis
        return torch.cat([basis[:, :1], basis[:, 1:] * self.view_weight], dim=-1)

    @torch.no_grad()
    def vertex_alpha(self) -> Tensor:
        """Opacity of one voxel's length at every vertex, [X,Y,Z]."""
        return -torch.expm1(-self.activate_density(self.density_grid[..., 0]) * self.voxel_size)

    @torch.no_grad()
    def upsample(self, resolution: Resolution) -> None:
        """Resamples every grid to another resolution. Parameters are new tensors afterwards."""
        for name in ("density_grid", self.color_grid_name):
            grid = getattr(self, name).permute(3, 0, 1, 2)[None]
            finer = functional.interpolate(grid, size=resolution, mode="trilinear", align_corners=True)
            setattr(self, name, nn.Parameter(finer[0].permute(1, 2, 3, 0).contiguous()))
        self.set_resolution(resolution)

    color_grid_name: str  # the attribute that holds the grid [X,Y,Z,C] of what colour is made of

    def density(self, positions: Tensor) -> Tensor:
        """Density [N] at world positions [N,3]."""
        return self.activate_density(self.interpolate(self.density_grid, positions)[:, 0])

    def add_total_variation(self, loss: LossConfig) -> None:
        """Adds the gradient of the total variation of both grids, weighted by loss, to their gradients."""
        add_total_variation(self.density_grid, loss.tv_density, self.backend)
        add_total_variation(getattr(self, self.color_grid_name), loss.tv_color, self.backend)

    @abstractmethod
    def forward(self, positions: Tensor, ray_directions: Tensor, ray_indices: Tensor) -> tuple[Tensor, Tensor]:
        """Density [N] per world unit and values [N,C] at positions [N,3], seen along ray_directions[ray_indices].

        ray_directions [R,3] unit; ray_indices [N] int64: what depends on the direction alone is computed once per ray.
        """

    def shade(self, values: Tensor, opacity: Tensor, ray_directions: Tensor) -> Tensor:
        """Light [R,3] of rays from their composited values [R,C] and opacity [R]: rgb times opacity.

        Where the values of the samples are colours, it is what they add up to.
        """
        return values

    @abstractmethod
    def parameter_groups(self) -> list[ParameterGroup]:
        """Every parameter with its initial learning rate."""
