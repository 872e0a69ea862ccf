"""What every field offers to sampling, rendering and training. Fields are siblings: open two side by side.

A field answers at points of a box, which it is given in units of a lattice: the cells of the occupancy, by which empty
space is skipped. How it computes what it answers is its own affair; VoxelField (nerf/fields/voxel_field.py) keeps
values at the vertices of that lattice.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from nerf.ops.backend import Backend
from nerf.optim.adam import ParameterGroup
from nerf.scene.box import Resolution, SceneBox

LR_BACKGROUND = 0.01
POINTS_AT_A_TIME = 1 << 21


@dataclass(frozen=True)
class DensityGrid:
    """Raw density as a grid: what the operations read that march and look at density in one walk."""

    values: Tensor  # [X,Y,Z,1]
    shift: float
    scale: float  # density = softplus(raw + shift) * scale


class Field(nn.Module, ABC):
    """Density and view-dependent color at points of a box.

    Points are given in units of a lattice of X * Y * Z vertices that spans the box: 0 to X - 1 along the first axis. A
    field has to say raw_density, forward and parameter_groups; the rest has an answer that holds for every field.

    density = softplus(raw + shift) * scale, where scale is one over the voxel size of the finest lattice, and shift
    makes a raw density of zero almost transparent: one finest voxel has opacity initial_alpha (Sun et al. 2022, eq. 9).
    """

    def __init__(
        self, box: SceneBox, resolution: Resolution, finest_voxel: float, initial_alpha: float, backend: Backend
    ) -> None:
        super().__init__()
        self.box, self.backend = box, backend
        self.view_weight: Tensor | None = None  # [1]: how much of the direction color may see; None: all
        self.noise_generator: torch.Generator | None = None  # of a run that trains, on the device
        self.full_gradient_from = 0.0  # of a run that trains: the distance of nerf/rendering/gradient_scaling.py
        self.density_scale = 1 / finest_voxel
        self.density_shift = math.log(math.expm1(-math.log1p(-initial_alpha)))
        self.set_resolution(resolution)
        self.background: nn.Parameter | None = None  # [3] before the sigmoid

    # What a field has to say.

    @abstractmethod
    def raw_density(self, coords: Tensor) -> Tensor:
        """Density before its activation, [N], at points [N,3] in lattice units; differentiable in both."""

    @abstractmethod
    def forward(self, coords: Tensor, ray_directions: Tensor, ray_indices: Tensor) -> tuple[Tensor, Tensor]:
        """Density [N] per unit of scene space and values [N,C] at points [N,3] in lattice units, seen along
        ray_directions[ray_indices].

        ray_directions [R,3] unit; ray_indices [N] int64: what depends on the direction alone is computed once per ray.
        """

    @abstractmethod
    def parameter_groups(self) -> list[ParameterGroup]:
        """Every parameter with its initial learning rate; background_groups() among them."""

    # What follows from that, unless a field knows better.

    def density(self, coords: Tensor) -> Tensor:
        """Density [N] per unit of scene space at points [N,3] in lattice units."""
        return self.activate_density(self.raw_density(coords))

    def shade(self, values: Tensor, opacity: Tensor, ray_directions: Tensor) -> Tensor:
        """Light [R,3] of rays from their composited values [R,C] and opacity [R]: rgb times opacity.

        Where the values of the samples are colors, it is what they add up to.
        """
        return values

    def density_slopes(self, coords: Tensor, positions: Tensor) -> Tensor:
        """Gradient of raw density at points [N,3] by the positions [N,3] that the coords were computed from, [N,3].

        Leaves nothing in the gradients of parameters.
        """
        return torch.autograd.grad(self.raw_density(coords).sum(), positions)[0]

    @torch.no_grad()
    def vertices_above_alpha(self, alpha: float) -> Tensor:
        """Vertices [X,Y,Z] of the lattice where one voxel's length has at least this opacity, bool."""
        if alpha >= 1:
            return torch.zeros(self.resolution, dtype=torch.bool, device=self.backend.device)
        return self.raw_density_at_vertices() >= self.raw_density_of(alpha)

    def raw_density_at_vertices(self) -> Tensor:
        """Raw density at the vertices of the lattice, [X,Y,Z]; a slab at a time, whatever it costs to compute."""
        device, (x, y, z) = self.backend.device, self.resolution
        axes = [torch.arange(n, dtype=torch.float32, device=device) for n in self.resolution]
        slab = max(1, POINTS_AT_A_TIME // (y * z))
        slabs = [self.raw_density(torch.cartesian_prod(axes[0][i : i + slab], *axes[1:])) for i in range(0, x, slab)]
        return torch.cat(slabs).view(self.resolution)

    def upsample(self, resolution: Resolution) -> None:
        """Goes over to a finer lattice. Parameters may be new tensors afterwards."""
        self.set_resolution(resolution)

    @property
    def grids(self) -> tuple[nn.Parameter, ...]:
        """The grids of values at the lattice's vertices, density first; none where a field has no such grid."""
        return ()

    @property
    def density_grid_view(self) -> DensityGrid | None:
        """Raw density as a grid, for operations that march through it; None: density is asked for point by point."""
        return None

    @property
    def composited_grid(self) -> Tensor | None:
        """The grid whose interpolated values are the values of forward(); None where they are more than that."""
        return None

    # What is the same for all.

    def set_resolution(self, resolution: Resolution) -> None:
        self.resolution = resolution
        self.grid_map = self.box.grid_map(resolution)
        self.voxel_size = self.box.voxel_size(resolution)  # read from the device once, not in every step

    def activate_density(self, raw_density: Tensor) -> Tensor:
        """Raw density to density per unit of scene space."""
        return functional.softplus(raw_density + self.density_shift) * self.density_scale

    def raw_density_of(self, alpha: float) -> float:
        """The raw density at which one voxel's length has an opacity; activation rises strictly."""
        density = -math.log1p(-alpha) / self.voxel_size / self.density_scale  # before the scale
        raw = density + math.log(-math.expm1(-density)) if density > 0 else -math.inf  # softplus, inverted
        return raw - self.density_shift

    def learn_background(self) -> None:
        """Gives the field a color behind the scene, grey at first; without one it is given to the renderer."""
        self.background = nn.Parameter(torch.zeros(3, device=self.backend.device))

    def background_groups(self) -> list[ParameterGroup]:
        return [] if self.background is None else [ParameterGroup("background", self.background, (LR_BACKGROUND,))]
