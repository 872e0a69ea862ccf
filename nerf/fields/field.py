"""What every field offers to sampling, rendering and training. Fields are siblings: open two side by side."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from nerf.config import LossConfig
from nerf.losses import TURNS, add_total_variation, rows_of_turn
from nerf.ops.backend import Backend
from nerf.scene_box import Resolution, SceneBox

LR_BACKGROUND = 0.01
POINTS_AT_A_TIME = 1 << 21


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
        self.noise: torch.Generator | None = None  # of a run that trains, on the device
        self.full_from = 0.0  # of a run that trains: the distance of nerf/near_fade.py
        self.density_scale = 1 / finest_voxel
        self.density_shift = math.log(math.expm1(-math.log1p(-initial_alpha)))
        self.set_resolution(resolution)
        self.density_grid = nn.Parameter(torch.zeros(*resolution, 1, device=backend.device))
        self.background: nn.Parameter | None = None  # [3] before the sigmoid

    def learn_background(self) -> None:
        """Gives the field a colour behind the scene, grey at first; without one it is given to the renderer."""
        self.background = nn.Parameter(torch.zeros(3, device=self.backend.device))

    def background_color(self) -> Tensor:
        """The learned colour [3] behind the scene."""
        return torch.sigmoid(self.background)

    def background_behind(self, given: Tensor) -> Tensor:
        """The colour behind rays: the learned one [3], else the given one, [3] or [R,3]."""
        return given if self.background is None else self.background_color()

    def background_groups(self) -> list[ParameterGroup]:
        return [] if self.background is None else [ParameterGroup("background", self.background, (LR_BACKGROUND,))]

    def set_resolution(self, resolution: Resolution) -> None:
        self.resolution = resolution
        self.grid_map = self.box.grid_map(resolution)
        self.voxel_size = self.box.voxel_size(resolution)  # read from the device once, not in every step

    def interpolate(self, grid: Tensor, coords: Tensor) -> Tensor:
        """A grid [X,Y,Z,C] at points [N,3] in grid units: [N,C]."""
        return self.backend.ops.interpolate_trilinear(grid, coords, grid.grad)

    def activate_density(self, raw_density: Tensor) -> Tensor:
        """Raw density to density per world unit."""
        return functional.softplus(raw_density + self.density_shift) * self.density_scale

    @torch.no_grad()
    def opaque_vertices(self, alpha: float) -> Tensor:
        """Vertices [X,Y,Z] where one voxel's length of their density has at least this opacity, bool.

        Activation rises strictly, so raw density tells.
        """
        if alpha >= 1:
            return torch.zeros(self.resolution, dtype=torch.bool, device=self.backend.device)
        density = -math.log1p(-alpha) / self.voxel_size / self.density_scale  # before the scale
        raw = density + math.log(-math.expm1(-density)) if density > 0 else -math.inf  # softplus, inverted
        return self.density_grid[..., 0] >= raw - self.density_shift

    @torch.no_grad()
    def upsample(self, resolution: Resolution) -> None:
        """Resamples every grid to another resolution. Parameters are new tensors afterwards."""
        for name in ("density_grid", self.color_grid_name):
            setattr(self, name, nn.Parameter(self._resampled(getattr(self, name), resolution)))
        self.set_resolution(resolution)

    def _resampled(self, grid: Tensor, resolution: Resolution) -> Tensor:
        """A grid at the vertices of another one, slab by slab: beside the two grids no third one needs to fit."""
        device, (x, y, z) = grid.device, resolution
        finer = grid.new_empty(*resolution, grid.shape[3])
        last = torch.tensor(grid.shape[:3], device=device) - 1
        axes = [torch.linspace(0, 1, n, device=device) * end for n, end in zip(resolution, last, strict=True)]
        slab = max(1, POINTS_AT_A_TIME // (y * z))
        for first in range(0, x, slab):
            coords = torch.cartesian_prod(axes[0][first : first + slab], *axes[1:])
            finer[first : first + slab] = self.backend.ops.interpolate_trilinear(grid, coords).view(
                -1, y, z, grid.shape[3]
            )
        return finer

    color_grid_name: str  # the attribute that holds the grid [X,Y,Z,C] of what colour is made of

    @property
    def composited_grid(self) -> Tensor | None:
        """The grid whose interpolated values are the values of forward(); None where they are more than that."""
        return None

    def density(self, coords: Tensor) -> Tensor:
        """Density [N] per unit of scene space at points [N,3] in grid units."""
        return self.activate_density(self.interpolate(self.density_grid, coords)[:, 0])

    def add_total_variation(
        self, loss: LossConfig, progress: float, num_rays: int, vertex_rows: Tensor, step_number: Tensor
    ) -> None:
        """Adds the gradient of the total variation of both grids, weighted by loss, to their gradients.

        Until loss.tv_until it is added where a batch of num_rays leaves a gradient, which shrinks with the batch: so
        weights are per ray. From then on it is the mean over all vertex_rows [L], which have their turns in the order
        of step_number [1]: where few rays come by it outweighs them, where many do they outweigh it.
        progress: share of the run that is done.
        """
        color_grid = getattr(self, self.color_grid_name)
        if progress < loss.tv_until:
            for grid, weight in ((self.density_grid, loss.tv_density), (color_grid, loss.tv_color)):
                add_total_variation(grid, weight / num_rays, self.backend, vertex_rows)
        elif loss.tv_everywhere > 0:
            rows, weight = rows_of_turn(vertex_rows, step_number), TURNS * loss.tv_everywhere / max(len(vertex_rows), 1)
            for grid in (self.density_grid, color_grid):
                add_total_variation(grid, weight, self.backend, rows, touched_only=False)

    @abstractmethod
    def forward(self, coords: Tensor, ray_directions: Tensor, ray_indices: Tensor) -> tuple[Tensor, Tensor]:
        """Density [N] per unit of scene space and values [N,C] at points [N,3] in grid units, seen along
        ray_directions[ray_indices].

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
