"""Fields with values at the vertices of the lattice: a grid of raw density and an appearance grid.

With field.sparse, a large grid of which samples can touch a part only is sparse: it has values and gradients for the
vertices of occupied cells and their neighbors alone (nerf/ops/vertex_rows.py). Elsewhere its values are 0, which is
almost transparent. Then the appearance grid can be in host memory (nerf/optim/host_rows.py), to be larger than the
device's.

Legend: N points, C channels, X Y Z grid vertices, L vertices that are stored.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from nerf.config.fields import FieldConfig
from nerf.fields.field import POINTS_AT_A_TIME, DensityGrid, Field
from nerf.ops.backend import Backend
from nerf.ops.vertex_rows import VertexRows
from nerf.optim.host_rows import HostRows, Window
from nerf.scene.box import Resolution, SceneBox

SPARSE_FROM = 2**16  # vertices; smaller grids take little memory
SPARSE_BELOW = 0.8  # stored vertices of all; a sparse grid saves nothing above


def sparse_saves(stored: int, resolution: Resolution) -> bool:
    """Whether grids with values at so many vertices are to be sparse."""
    count = math.prod(resolution)
    return count >= SPARSE_FROM and stored < SPARSE_BELOW * count


class VoxelField(Field):
    """A field with grids of raw values; activation follows interpolation. upsample() resamples the grids.

    A subclass makes the appearance grid [X,Y,Z,C] (color coefficients or features), an attribute of its own name.
    Grids are dense until store_at() or upsample(), and [L,C] where these make them sparse.
    """

    config: FieldConfig  # set by the subclass
    appearance_name: str  # the attribute that holds the appearance grid

    def __init__(
        self, box: SceneBox, resolution: Resolution, finest_voxel: float, initial_alpha: float, backend: Backend
    ) -> None:
        super().__init__(box, resolution, finest_voxel, initial_alpha, backend)
        self._rows: VertexRows | None = None
        self._host: HostRows | None = None
        self._feature_dtype: torch.dtype | None = None  # of the appearance grid on the device; None: as density
        self._density_gradients: list[Tensor] | None = None  # in a training step
        self.density_grid = nn.Parameter(torch.zeros(*resolution, 1, device=backend.device))

    @property
    def rows(self) -> VertexRows | None:
        return self._rows

    @property
    def host_rows(self) -> HostRows | None:
        return None if self._rows is None else self._host

    def keep_features_in_host_memory(self) -> None:
        """From the next store_at() or upsample() on, the appearance grid is in host memory where grids are sparse."""
        self._host = self._host or HostRows(self.backend)

    def store_features_as(self, dtype: torch.dtype) -> None:
        self._feature_dtype = dtype
        grid = self.appearance_grid
        if self.host_rows is None and grid.dtype != dtype:
            grid.grad = None
            grid.data = grid.data.to(dtype)

    def begin_step(self, window: Window | None = None) -> None:
        self._density_gradients = []
        if self.host_rows is not None:
            self.host_rows.begin_step(window)

    def take_density_gradients(self) -> list[Tensor] | None:
        gradients, self._density_gradients = self._density_gradients, None
        return gradients

    @property
    def appearance_grid(self) -> nn.Parameter:
        """The values from which color is computed, [X,Y,Z,C] or [L,C]."""
        return getattr(self, self.appearance_name)

    def interpolate(self, grid: Tensor, coords: Tensor) -> Tensor:
        """The trilinear interpolation [N,C] of one of the field's grids at points [N,3] in lattice units."""
        more: dict[str, Any] = {"deterministic": True} if self.backend.deterministic else {}  # what variants lack
        rows, host = self._rows, self.host_rows
        if host is not None and grid is self.appearance_grid and host.in_step and torch.is_grad_enabled():
            rows = host.begin_window(grid.detach(), coords.detach(), rows)
            grid = rows.values
        elif not self.reads_in_place(grid):
            rows = host.window_outside_steps(grid.detach(), coords.detach(), rows)
            grid = rows.values
        if rows is not None:
            more["table"], more["size_z"] = rows.arguments
        return self.backend.ops.interpolate_trilinear(grid, coords, grid.grad, **more)

    def raw_density(self, coords: Tensor) -> Tensor:
        raw = self.interpolate(self.density_grid, coords).squeeze(1)  # [:, 0] would fill a gradient with zeros first
        if self._density_gradients is not None and raw.requires_grad:
            raw.register_hook(self._density_gradients.append)
        return raw

    def density_slopes(self, coords: Tensor, positions: Tensor) -> Tensor:
        raw_density = self.interpolate(self.density_grid.detach(), coords)  # detached, so the grid gets no gradient
        return torch.autograd.grad(raw_density.sum(), positions)[0]

    def raw_density_at_vertices(self) -> Tensor:
        return self.dense(self.density_grid)[..., 0]

    @torch.no_grad()
    def vertices_above_alpha(self, alpha: float) -> Tensor:
        if self._rows is None or alpha >= 1:
            return super().vertices_above_alpha(alpha)
        least = self.raw_density_of(alpha)
        above = torch.full((math.prod(self.resolution),), least <= 0, device=self.backend.device)
        return above.index_copy_(0, self._rows.vertices, self.density_grid[:, 0] >= least).view(self.resolution)

    def dense(self, grid: Tensor) -> Tensor:
        """One of the field's grids as [X,Y,Z,C], 0 at vertices that are not stored."""
        values = grid if self._rows is None else self._rows.expanded(grid)
        return values.to(self.density_grid.dtype)

    def values_at(self, grid: Tensor, vertices: Tensor) -> Tensor:
        """The values [K,C] of one of the field's grids at vertices [K] int64, 0 where they are not stored."""
        if self._rows is None:
            return grid.flatten(0, 2).index_select(0, vertices).to(self.density_grid.dtype)
        if len(grid) == 0:
            return self.density_grid.new_zeros(len(vertices), grid.shape[1])
        row = self._rows.rows(vertices)
        values = grid.index_select(0, row.clamp(min=0)).masked_fill_(row[:, None] < 0, 0.0)
        return values.to(self.density_grid.dtype)

    @property
    def grids(self) -> tuple[nn.Parameter, ...]:
        return self.density_grid, self.appearance_grid

    @property
    def density_grid_view(self) -> DensityGrid:
        table = None if self._rows is None else self._rows.table
        return DensityGrid(self.density_grid, self.density_shift, self.density_scale, table)

    @torch.no_grad()
    def store_at(self, vertices: Tensor | None) -> None:
        """Makes the grids sparse, with values at these vertices [L] alone, or dense where that is as good; None: dense.

        What was stored keeps its value, other vertices start at 0. Parameters are new tensors afterwards, without
        gradients, unless the grids were dense and stay so.
        """
        rows = self._rows_for(vertices, self.resolution)
        if rows is None and self._rows is None:
            return
        self._replace_grids(rows, lambda name, grid: self._stored(name, grid, rows))

    @torch.no_grad()
    def hold(self, vertices: Tensor, made: Callable[[Tensor], Tensor]) -> None:
        """As store_at, with the values [L,C] that made gives for each grid.

        vertices [L] int64, rising. Where grids are dense and stay so, the values of other vertices stay too.
        """
        rows = self._rows_for(vertices, self.resolution)
        if rows is None and self._rows is None:
            for grid in self.grids:
                grid.detach().flatten(0, 2).index_copy_(0, vertices, made(grid.detach()).to(grid.dtype))
            return

        def replaced(_: str, grid: Tensor) -> Tensor:
            values = made(grid)
            if rows is not None:
                return values
            dense = values.new_zeros(*self.resolution, values.shape[1])
            dense.flatten(0, 2).index_copy_(0, vertices, values)
            return dense

        self._replace_grids(rows, replaced)

    def sparse_at(self, count: int, resolution: Resolution) -> bool:
        if not self.config.sparse or self.backend.deterministic:
            return False
        large = self._host is not None and math.prod(resolution) >= SPARSE_FROM  # rows can be elsewhere
        return large or sparse_saves(count, resolution)

    def _rows_for(self, vertices: Tensor | None, resolution: Resolution) -> VertexRows | None:
        """Where the values of these vertices [L] are in sparse grids; None where dense grids are as good or asked for.

        Gradients are added in one order to dense grids alone.
        """
        asked = vertices is not None and self.sparse_at(len(vertices), resolution)
        return VertexRows.of(vertices, resolution) if asked else None

    def _goes_to_host(self, name: str, rows: VertexRows | None) -> bool:
        """Whether the grid of that name is in host memory where its values have these rows."""
        return self._host is not None and rows is not None and name == self.appearance_name

    def _unfilled(self, name: str, grid: Tensor, rows: VertexRows) -> Tensor:
        """A grid for values at these rows, of as many channels as the one of that name."""
        shape = len(rows.vertices), grid.shape[-1]
        in_host = self._goes_to_host(name, rows)
        return self._host.no_values(*shape) if in_host else grid.new_empty(shape, dtype=self._dtype_of(name))

    def _dtype_of(self, name: str) -> torch.dtype:
        """As which the grid of that name is stored on the device."""
        of_features = name == self.appearance_name and self._feature_dtype
        return of_features or self.density_grid.dtype

    def _stored(self, name: str, grid: Tensor, rows: VertexRows | None) -> Tensor:
        """A grid's values dense, or at these rows: then where grids of that name are; in parts, to bound memory."""
        if rows is None:
            return self.dense(grid).to(self._dtype_of(name))
        values = self._unfilled(name, grid, rows)
        for first in range(0, len(values), POINTS_AT_A_TIME):
            some = slice(first, first + POINTS_AT_A_TIME)
            values[some] = self.values_at(grid, rows.vertices[some])
        return values

    @torch.no_grad()
    def upsample(self, resolution: Resolution, vertices: Tensor | None) -> None:
        """Resamples every grid to another resolution, where it is sparse at these vertices [L] alone.

        Parameters are new tensors afterwards.
        """
        rows = self._rows_for(vertices, resolution)
        self._replace_grids(rows, lambda name, grid: self._resampled(name, grid, resolution, rows))
        super().upsample(resolution, vertices)

    def read_by_upsample(self, resolution: Resolution, vertices: Tensor) -> Tensor:
        """The vertices [K] int64 whose values upsample reads for these vertices [L] of the finer lattice, at least."""
        read = torch.zeros(self.resolution, dtype=torch.bool, device=vertices.device)
        axes = self._coarse(resolution, vertices.device)
        for some in vertices.split(POINTS_AT_A_TIME):
            read[tuple(axis[place].long() for axis, place in zip(axes, _places(some, resolution), strict=True))] = True
        for axis, count in enumerate(self.resolution):  # the corners of these cells, and of those beside: of roundings
            lower, upper = read.narrow(axis, 0, count - 1), read.narrow(axis, 1, count - 1)
            before, after = lower.clone(), upper.clone()
            upper |= before
            lower |= after
        return read.view(-1).nonzero()[:, 0]

    def _coarse(self, resolution: Resolution, device: torch.device) -> list[Tensor]:
        """Where the vertices of another resolution are in this lattice, along each axis."""
        last = torch.tensor(self.resolution, device=device) - 1
        return [torch.linspace(0, 1, n, device=device) * end for n, end in zip(resolution, last, strict=True)]

    def _replace_grids(self, rows: VertexRows | None, make: Callable[[str, Tensor], Tensor]) -> None:
        """Replaces each grid by what is made of its name and values; rows: where its values are then."""
        for name in ("density_grid", self.appearance_name):
            before = getattr(self, name)
            before.grad = None  # is freed first
            setattr(self, name, nn.Parameter(make(name, before.detach()), requires_grad=before.requires_grad))
            before.data = before.data.new_empty(0)  # an optimizer may still hold on to it
        self._rows = rows

    def restore_grids(
        self, grids: Mapping[str, Tensor], resolution: Resolution, vertices: Tensor, sparse: bool = True
    ) -> None:
        """Takes over grids by name, [X,Y,Z,C] or [L,C], of another resolution than that of the field.

        vertices [L] int64, rising: those of sparse grids, and where grids are to be stored if sparse is True.
        """
        stored = self._rows_for(vertices if sparse else None, resolution)
        self.set_resolution(resolution)
        for name, grid in grids.items():
            self._rows = None if grid.dim() == 4 else VertexRows.of(vertices.to(grid.device), resolution)
            rows = stored and VertexRows(resolution, stored.vertices.to(grid.device), stored.table.to(grid.device))
            values = self._stored(name, grid, rows)
            if not self._goes_to_host(name, rows):
                values = values.to(self.backend.device, copy=True)
            setattr(self, name, nn.Parameter(values))
        self._rows = stored

    def _resampled(self, name: str, grid: Tensor, resolution: Resolution, rows: VertexRows | None) -> Tensor:
        """A grid resampled to another resolution, in slabs, so that memory is needed for the two grids only."""
        device, (x, y, z) = grid.device, resolution
        axes = self._coarse(resolution, device)
        if rows is not None:
            finer = self._unfilled(name, grid, rows)
            for first in range(0, len(finer), POINTS_AT_A_TIME):
                some = rows.vertices[first : first + POINTS_AT_A_TIME]
                places = zip(axes, _places(some, resolution), strict=True)
                coords = torch.stack([axis[place] for axis, place in places], -1)
                finer[first : first + POINTS_AT_A_TIME] = self.interpolate(grid, coords)
            return finer
        finer = self.density_grid.new_empty(*resolution, grid.shape[-1], dtype=self._dtype_of(name))
        slab = max(1, POINTS_AT_A_TIME // (y * z))
        for first in range(0, x, slab):
            coords = torch.cartesian_prod(axes[0][first : first + slab], *axes[1:])
            finer[first : first + slab] = self.interpolate(grid, coords).view(-1, y, z, grid.shape[-1])
        return finer


def _places(vertices: Tensor, resolution: Resolution) -> tuple[Tensor, Tensor, Tensor]:
    """The place of vertices [L] int64 along each axis."""
    _, y, z = resolution
    line = vertices.div(z, rounding_mode="floor")
    x_of = line.div(y, rounding_mode="floor")
    return x_of, line - x_of * y, vertices - line * z
