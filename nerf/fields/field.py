"""The interface of a radiance field, as sampling, rendering and training use it.

A field is evaluated at points of a box. Points are given in units of a lattice, whose cells are those of the occupancy
grid. How a field computes its values is up to it; VoxelField (nerf/fields/voxel_field.py) stores values at the vertices
of the lattice.

Legend: N points, R rays, C channels, X Y Z lattice vertices.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nerf.errors import UserError
from nerf.ops import activations
from nerf.ops.backend import Backend
from nerf.ops.vertex_rows import VertexRows
from nerf.optim.adam import ParameterGroup
from nerf.optim.host_rows import HostRows, Window
from nerf.scene.box import Resolution, SceneBox

LR_BACKGROUND = 0.01
POINTS_AT_A_TIME = 1 << 21


@dataclass(frozen=True)
class DensityGrid:
    """Raw density as a grid, for the operations that march and query density in one kernel."""

    values: Tensor  # [X,Y,Z,1]; [L,1] if it is sparse
    shift: float
    scale: float  # density = softplus(raw + shift) * scale
    table: Tensor | None  # of a sparse grid, VertexRows.table


class Field(nn.Module, ABC):
    """Density and view-dependent color at points of a box.

    Points are given in units of a lattice of X * Y * Z vertices that spans the box: 0 to X - 1 along the first axis. A
    subclass must define raw_density, forward and parameter_groups; every other method has a default.

    density = softplus(raw + shift) * scale. scale is 1 / (voxel size of the finest lattice). shift is chosen so that a
    raw density of 0 gives one finest voxel the alpha initial_alpha, almost transparent (Sun et al. 2022, eq. 9).
    """

    def __init__(
        self, box: SceneBox, resolution: Resolution, finest_voxel: float, initial_alpha: float, backend: Backend
    ) -> None:
        super().__init__()
        self.box, self.backend = box, backend
        self.box_diagonal = box.size.norm().item()  # length in scene space; a float, as voxel_size
        self.view_weight: Tensor | None = None  # [1] in [0,1]: view-dependence weight; None: 1
        self.noise_generator: torch.Generator | None = None  # on the device; None outside of training
        self.full_gradient_from = 0.0  # distance of nerf/rendering/gradient_scaling.py; 0 outside of training
        self.density_scale = 1 / finest_voxel
        self.density_shift = math.log(math.expm1(-math.log1p(-initial_alpha)))
        self.set_resolution(resolution)
        self.background: nn.Parameter | None = None  # [3] before the sigmoid

    def set_progress(self, progress: float) -> None:
        """Told before each step how much of the run is done, in [0,1], outside of a CUDA graph."""

    @property
    def annealed(self) -> float:
        """How much has come in of what a run brings in bit by bit, in [0,1]; a saved model keeps it."""
        return 1.0

    def anneal(self, fraction: float) -> None:
        """Sets `annealed`, as it was where a run was saved."""

    # To be defined by every field.

    @abstractmethod
    def raw_density(self, coords: Tensor) -> Tensor:
        """Density before its activation, [N], at points [N,3] in lattice units. Differentiable in coords, too."""

    @abstractmethod
    def forward(self, coords: Tensor, ray_directions: Tensor, ray_indices: Tensor) -> tuple[Tensor, Tensor]:
        """Density [N] per unit of scene space and values [N,C] at points [N,3] in lattice units.

        Point i is viewed along ray_directions[ray_indices[i]]: ray_directions [R,3] unit, ray_indices [N] int64. What
        depends on the direction only can be computed once per ray. The values are composited along rays, then passed
        to shade.
        """

    @abstractmethod
    def parameter_groups(self) -> list[ParameterGroup]:
        """Every parameter with its initial learning rate, including background_groups()."""

    # Defaults, which a field may override.

    def density(self, coords: Tensor) -> Tensor:
        """Density [N] per unit of scene space at points [N,3] in lattice units."""
        return self.activate_density(self.raw_density(coords))

    def shade(self, values: Tensor, opacity: Tensor, ray_directions: Tensor) -> Tensor:
        """Light [R,3] of rays, that is rgb times opacity, from composited values [R,C] and opacity [R].

        By default the values are colors, so it is the composited values.
        """
        return values

    def colors(self, values: Tensor, opacity: Tensor, ray_directions: Tensor, background: Tensor) -> Tensor:
        """Colors [R,3] of rays: the light of shade(), and the background [3] or [R,3] as far as they let it through."""
        return torch.addcmul(self.shade(values, opacity, ray_directions), 1 - opacity[:, None], background)

    @property
    def shading(self) -> str:
        """What shade() does with pixels, which ranks could share: "none", "alone" (each) or "random" (all at once)."""
        return "none" if type(self).shade is Field.shade else "alone"

    def density_slopes(self, coords: Tensor, positions: Tensor) -> Tensor:
        """Gradient [N,3] of raw density with respect to positions [N,3], from which the coords [N,3] were computed.

        Does not change the gradients of parameters.
        """
        return torch.autograd.grad(self.raw_density(coords).sum(), positions)[0]

    @torch.no_grad()
    def vertices_above_alpha(self, alpha: float) -> Tensor:
        """The lattice vertices where one voxel length has at least this alpha, [X,Y,Z] bool."""
        if alpha >= 1:
            return torch.zeros(self.resolution, dtype=torch.bool, device=self.backend.device)
        return self.raw_density_at_vertices() >= self.raw_density_of(alpha)

    def raw_density_at_vertices(self) -> Tensor:
        """Raw density at the vertices of the lattice, [X,Y,Z]; computed in slabs, to bound memory."""
        device, (x, y, z) = self.backend.device, self.resolution
        axes = [torch.arange(n, dtype=torch.float32, device=device) for n in self.resolution]
        slab = max(1, POINTS_AT_A_TIME // (y * z))
        slabs = [self.raw_density(torch.cartesian_prod(axes[0][i : i + slab], *axes[1:])) for i in range(0, x, slab)]
        return torch.cat(slabs).view(self.resolution)

    def upsample(self, resolution: Resolution, vertices: Tensor | None) -> None:
        """Changes to a finer lattice. Parameters may be new tensors afterwards.

        vertices [L] int64, rising: those of the finer lattice whose values matter, (x * Y + y) * Z + z, as
        OccupancyGrid.stored_vertices gives them; None: all.
        """
        self.set_resolution(resolution)

    def store_at(self, vertices: Tensor | None) -> None:
        """Told whenever the vertices whose values matter change, [L] int64, rising: others may be forgotten. None: all.

        Parameters may be new tensors afterwards.
        """

    def sparse_at(self, count: int, resolution: Resolution) -> bool:
        """Whether the grids are sparse where so many vertices' values matter."""
        return False

    @property
    def rows(self) -> VertexRows | None:
        """Where the values of the grids are, if they are sparse; None: every vertex has some."""
        return None

    def keep_features_in_host_memory(self) -> None:
        """Keeps what a large field has most of in host memory, train.features=host. Raises UserError if it cannot."""
        raise UserError(
            f"train.features=host: {type(self).__name__} has no grid of features to keep there; use "
            "train.features=device."
        )

    def store_features_as(self, dtype: torch.dtype) -> None:
        """Stores the appearance grid on the device as float16 or float32 from now on; without one nothing changes.

        float16 rounds values to the nearest. An optimizer that holds the grid needs set_active() afterwards.
        """

    def begin_step(self, window: Window | None = None) -> None:
        """Called before a training step evaluates the field. window: as HostRows.begin_step takes it."""

    def take_density_gradients(self) -> list[Tensor] | None:
        """The gradients [N] of all raw densities since begin_step(), with which the step ends; None: not known."""
        return None

    @property
    def host_rows(self) -> HostRows | None:
        """Where the appearance grid is, and what the current step has of it, while it is in host memory; else None."""
        return None

    def reads_in_place(self, grid: Tensor) -> bool:
        """Whether operations read one of the field's grids where it is: not one of 16 bits in host memory."""
        return self.host_rows is None or grid.dtype != torch.float16

    @property
    def grids(self) -> tuple[nn.Parameter, ...]:
        """The grids of values at the lattice's vertices, density first; empty if the field has none."""
        return ()

    @property
    def density_grid_view(self) -> DensityGrid | None:
        """Raw density as a grid, for operations that march through it; None: density is queried point by point."""
        return None

    @property
    def deferred_grid(self) -> Tensor | None:
        """The grid whose interpolation gives the values of forward(), for deferred shading.

        None if there is none, or operations cannot read it in place.
        """
        return None

    # The same for all fields.

    def set_resolution(self, resolution: Resolution) -> None:
        self.resolution = resolution
        self.grid_map = self.box.grid_map(resolution)
        self.voxel_size = self.box.voxel_size(resolution)  # a float, so that steps need not read it from the device

    def activate_density(self, raw_density: Tensor) -> Tensor:
        """Raw density to density per unit of scene space."""
        line = self.density_shift, self.density_scale
        if raw_density.is_cuda:
            return self.backend.ops.activate_density(raw_density.flatten(), *line).view(raw_density.shape)
        return activations.activate_density(raw_density, *line)  # whole vectors at a time

    def raw_density_of(self, alpha: float) -> float:
        """The raw density at which one voxel length has this alpha. The activation is strictly increasing."""
        density = -math.log1p(-alpha) / self.voxel_size / self.density_scale  # before the scale
        raw = density + math.log(-math.expm1(-density)) if density > 0 else -math.inf  # inverse of softplus
        return raw - self.density_shift

    def learn_background(self) -> None:
        """Adds a learned background color, initially gray."""
        self.background = nn.Parameter(torch.zeros(3, device=self.backend.device))

    def background_groups(self) -> list[ParameterGroup]:
        return [] if self.background is None else [ParameterGroup("background", self.background, (LR_BACKGROUND,))]
