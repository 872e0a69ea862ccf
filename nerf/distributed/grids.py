"""The grids of a divided scene: each vertex is trained by the ranks whose cells it touches.

A rank stores the values that it needs alone, if its grids are sparse: those of its own cells and of one layer around
them. A vertex on the border of two parts has a replica on both. Their gradients are summed, so both take the same Adam
step and stay equal. Total variation also looks at the vertices one layer beyond; their values come from a rank that
trains them, after each step. Dense grids have room for the whole scene, and what lies farther in other parts is old.

Rank 0 alone has the whole scene between collect_values and the next step.

Legend: L rows of a list of vertices, C channels of a grid.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nerf.cameras.rays import Rays
from nerf.distributed.parts import Division, divide
from nerf.distributed.render import composite_parts, shade_of
from nerf.distributed.segments import PartSamples, visible_part_samples
from nerf.distributed.world import World
from nerf.fields.field import Field
from nerf.ops.vertex_rows import VertexRows
from nerf.optim.adam import MaskedAdam
from nerf.optim.averages import packed
from nerf.rendering.render import Composited, Shade
from nerf.rendering.sampler import RaySampler
from nerf.scene.occupancy import OccupancyGrid, cells_to_vertices, with_neighbors

AT_A_TIME = 1 << 20  # vertices in a message between two steps, to bound memory


@dataclass(frozen=True)
class Exchanged:
    """Vertices whose sum over the ranks is taken, and what of them this rank has."""

    places: Tensor  # [L] int64: their rows in this rank's grids; any where it does not store them
    given: Tensor  # [L,1] bool: which this rank gives
    taken: Tensor  # int64: the indices of those whose sum it takes


@dataclass
class Parts:
    """This rank's part of a scene, and what it exchanges with the others."""

    world: World
    division: Division
    in_order: bool = False  # sums over the ranks are made in one order
    whole_optimizer: dict[str, Tensor] | None = None  # of collect_moments, until the next step
    whole: bool = False  # rank 0 has all values, until the next step
    _placed: tuple[VertexRows | None, Exchanged, Exchanged] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, world: World, occupancy: OccupancyGrid, field: Field) -> "Parts":
        """The parts of a scene. Raises UserError where there are fewer cells than ranks."""
        return cls(world, _divided(world, occupancy, field), field.backend.deterministic)

    def _become(self, division: Division) -> None:
        self.division, self.whole, self.whole_optimizer, self._placed = division, False, None, None
        for name in ("rows", "_in_all_rows"):
            self.__dict__.pop(name, None)

    @functools.cached_property
    def rows(self) -> Tensor:
        """The vertices that this rank trains, [L] int64, rising."""
        return self.division.rows(self.world.rank)

    @functools.cached_property
    def _in_all_rows(self) -> tuple[Tensor, int]:
        """The place of each of rows among the vertices that any rank trains, [L] int64, and how many these are."""
        all_rows = self.division.all_rows()
        return torch.searchsorted(all_rows, self.rows), len(all_rows)

    def lists(self) -> list[Tensor]:
        """What is kept between steps beside the grids."""
        kept = [self.division.occupied, self.division.shared, self.division.halo, self.rows]
        kept += [] if "_in_all_rows" not in self.__dict__ else [self._in_all_rows[0]]
        exchanges = () if self._placed is None else self._placed[1:]
        return kept + [x for one in exchanges for x in (one.places, one.given, one.taken)]

    def _exchanges(self, rows: VertexRows | None) -> tuple[Exchanged, Exchanged]:
        """The gradients of borders, and the values of the halo. rows: of the grids."""
        if self._placed is None or self._placed[0] is not rows:
            shared, halo = self.division.shared, self.division.halo
            trainer = torch.full_like(halo, self.world.size)
            for rank in reversed(range(self.world.size)):
                trainer = trainer.masked_fill(_membership(self.division.rows(rank), halo), rank)
            mine = _membership(self.rows, shared)
            stored = _membership(self.division.stored(self.world.rank), halo)
            borders = _exchanged(shared, rows, given=mine, taken=mine)
            self._placed = rows, borders, _exchanged(halo, rows, given=trainer == self.world.rank, taken=stored)
        return self._placed[1:]

    # In every step.

    def visible_samples(
        self,
        field: Field,
        sampler: RaySampler,
        rays: Rays,
        jitter: Tensor | None,
        min_weight: float | None = None,
        with_weights: bool = False,
    ) -> PartSamples:
        """This rank's share of rendering.visible_samples. sampler: of the whole scene."""
        return visible_part_samples(self.world, self.division, field, sampler, rays, jitter, min_weight, with_weights)

    def composite(
        self, field: Field, sampler: RaySampler, samples: PartSamples, with_distortion: bool, with_depth: bool
    ) -> Composited:
        """See composite_parts."""
        return composite_parts(self.world, field, sampler, samples, with_distortion, with_depth)

    def shade_of(self, field: Field) -> Shade | None:
        """In place of field.shade; None: every rank shades all pixels."""
        return shade_of(self.world, field)

    def begin_step(self, field: Field, optimizer: MaskedAdam) -> None:
        """Stores this rank's own values alone again."""
        if self.whole and self.world.leads:
            field.store_at(self.division.stored(self.world.rank))
            optimizer.set_active(optimizer.active_vertices)
        self.whole = False

    def end_step(self, field: Field) -> None:
        """After Adam: what was collected is old, and the halo is brought."""
        self.whole_optimizer = None
        self.refresh_halo(field)

    def sum_gradients(self, *optimizers: MaskedAdam) -> None:
        """Sums the gradients of border vertices, and of all that is no grid, over the ranks."""
        small = []
        for optimizer in optimizers:
            for group in optimizer.groups:
                if group.parameter.grad is None:
                    group.parameter.grad = torch.zeros_like(group.parameter)
                if not group.on_vertices:
                    small.append(group.parameter.grad)
        self._summed([x.view(-1, 1) for x in small], None, self.all_reduce_sum_, "gradients of small modules")
        grids = [group for optimizer in optimizers for group in optimizer.groups if group.on_vertices]
        if grids:
            gradients = [group.parameter.grad.view(-1, group.parameter.shape[-1]) for group in grids]
            self._summed(gradients, self._exchanges(grids[0].rows)[0], self.all_reduce_sum_, "border gradients")

    def all_reduce_sum_(self, x: Tensor, purpose: str) -> Tensor:
        """Replaces x, contiguous, by its sum over the ranks, which is the same in every run where that is asked for."""
        return self.world.sum_in_order_(x, purpose) if self.in_order else self.world.all_reduce_sum_(x, purpose)

    def _summed(
        self, tensors: list[Tensor], where: Exchanged | None, sum_: Callable[[Tensor, str], Tensor], purpose: str
    ) -> None:
        """Replaces rows of tensors [V,C] by their sums over the ranks. where: which rows; None: all."""
        if not tensors or (where is not None and len(where.places) == 0):
            return
        parts = [x if where is None else x.index_select(0, where.places) * where.given for x in tensors]
        joined = sum_(torch.cat([x.reshape(-1) for x in parts]), purpose)
        for tensor, found in zip(tensors, joined.split([x.numel() for x in parts]), strict=True):
            if where is None:
                tensor.copy_(found.view_as(tensor))
                continue
            sums = found.view(-1, tensor.shape[1]).index_select(0, where.taken)
            tensor.index_copy_(0, where.places.index_select(0, where.taken), sums)

    @torch.no_grad()
    def refresh_halo(self, field: Field) -> None:
        """Brings the values of the vertices beside one's own, which another rank has trained."""
        grids = [grid.detach().view(-1, grid.shape[-1]) for grid in field.grids]
        # One rank gives each value and the others zeros: any order is exact.
        self._summed(grids, self._exchanges(field.rows)[1], self.world.all_reduce_sum_, "halo values")

    def all_true(self, condition: Tensor) -> Tensor:
        """Whether a condition [] bool holds on every rank."""
        return self.world.all_reduce_max_((~condition).view(1).to(torch.uint8), "decisions")[0] == 0

    def any_rank(self, mask: Tensor) -> Tensor:
        """Where a bool mask is set on some rank."""
        return self.world.all_reduce_max_(mask.to(torch.uint8), "occupancy") > 0

    def subset(self, step_number: Tensor, subsets: int) -> tuple[Tensor, int]:
        """This rank's rows in the step's subset of all active vertices, and how many active vertices there are.

        The same vertices as total_variation.round_robin_rows gives one process.
        """
        places, count = self._in_all_rows
        size = count // subsets
        first = int(step_number) % subsets * size
        begin, end = torch.searchsorted(places, places.new_tensor([first, first + size])).tolist()
        return self.rows[begin:end], count

    # Between steps.

    @torch.no_grad()
    def collect_values(self, field: Field) -> None:
        """Brings the values of all parts to rank 0."""
        if not self.whole:
            self._hold(field, self._all_vertices(field) if self.world.leads else None, "whole grids")
            self.whole = True

    def _all_vertices(self, field: Field) -> Tensor:
        """Every vertex that has a value, [L] int64."""
        if self.division.everywhere:
            return torch.arange(torch.Size(field.resolution).numel(), device=self.division.occupied.device)
        return OccupancyGrid(self.division.occupied).stored_vertices()

    def _hold(self, field: Field, wanted: Tensor | None, purpose: str) -> None:
        """Stores the values of wanted vertices [L], whoever has them; None: those of before, for others' sake."""
        if not field.grids:
            return
        kept = self.division.kept(self.world.rank)

        def brought(grid: Tensor) -> Tensor:
            rows = kept[:0] if wanted is None else wanted
            return self._brought(self.division.kept, field.values_at(grid, kept), rows, purpose)

        if wanted is None:
            for grid in field.grids:
                brought(grid.detach())
        else:
            field.hold(wanted, brought)

    @torch.no_grad()
    def upsample(self, field: Field, occupancy: OccupancyGrid) -> None:
        """Resamples the grids to the lattice of the occupancy, and divides the scene anew there."""
        after = _divided(self.world, occupancy, field)
        stored = after.stored(self.world.rank)
        resolution = tuple(n + 1 for n in occupancy.occupied.shape)
        if field.grids:
            self._hold(field, field.read_by_upsample(resolution, stored), "whole grids")
        field.upsample(resolution, stored)
        self._become(after)

    @torch.no_grad()
    def redivide(self, field: Field, occupancy: OccupancyGrid, optimizer: MaskedAdam | None) -> None:
        """Divides the scene anew for a changed occupancy; vertices take values and moments along.

        optimizer: None where there are no moments to keep.
        """
        before, after = self.division, _divided(self.world, occupancy, field)
        self._hold(field, after.stored(self.world.rank), "whole grids")
        self._become(after)
        if optimizer is not None:
            optimizer.set_active(self.rows, lambda moment: self._brought(before.rows, moment, self.rows, "moments"))

    def collect_moments(self, optimizer: MaskedAdam) -> None:
        """Brings the optimizer's state of the whole scene to rank 0, for a checkpoint (whole_optimizer)."""
        wanted = self.division.all_rows() if self.world.leads else self.rows[:0]
        state = {"step_number": optimizer.step_number}
        for group in optimizer.groups:
            for kind, moment in zip(("exp_avg", "exp_avg_sq"), optimizer.moments[group.name], strict=True):
                if group.on_vertices:
                    moment = self._brought(self.division.rows, moment, wanted, "moments")
                state[f"{group.name}.{kind}"] = moment
        means = dict(optimizer.averages.values)
        for group in optimizer.groups:
            if group.on_vertices and group.name in means:
                means[group.name] = self._brought(self.division.rows, means[group.name], wanted, "averages")
        self.whole_optimizer = state | packed(means, optimizer.averages.count)

    def _brought(self, had: Callable[[int], Tensor], own: Tensor, wanted: Tensor, purpose: str) -> Tensor:
        """The rows of wanted vertices [L], zero where no rank has any.

        had: the vertices [K] of each rank. own [K,C]: the rows of this rank's.
        """
        result = own.new_zeros(len(wanted), own.shape[-1])
        for rank in range(self.world.size):
            vertices = had(rank)
            for first in range(0, len(vertices), AT_A_TIME):
                some = vertices[first : first + AT_A_TIME]
                if rank == self.world.rank:
                    theirs = own[first : first + AT_A_TIME].contiguous()
                else:
                    theirs = own.new_empty(len(some), own.shape[-1])
                theirs = self.world.broadcast_(theirs, rank, purpose)
                inside = _membership(wanted, some)
                result.index_copy_(0, torch.searchsorted(wanted, some[inside]), theirs[inside])
        return result


def _divided(world: World, occupancy: OccupancyGrid, field: Field) -> Division:
    """The division of a scene, with values at the vertices where one process has some."""
    resolution = tuple(n + 1 for n in occupancy.occupied.shape)
    count = int(with_neighbors(cells_to_vertices(occupancy.occupied)).sum())
    return divide(occupancy.occupied, world.size, everywhere=not field.sparse_at(count, resolution))


def _exchanged(vertices: Tensor, rows: VertexRows | None, given: Tensor, taken: Tensor) -> Exchanged:
    """How a rank with grids of these rows (None: dense) exchanges vertices [L], some given and some taken [L] bool."""
    places = vertices if rows is None else rows.rows(vertices).clamp(min=0)
    return Exchanged(places, given[:, None], taken.nonzero()[:, 0])


def _membership(rows: Tensor, asked: Tensor) -> Tensor:
    """Which of the rows asked [L] are among rows [K], both rising, [L] bool."""
    if len(rows) == 0:
        return torch.zeros_like(asked, dtype=torch.bool)
    return rows.index_select(0, torch.searchsorted(rows, asked).clamp(max=len(rows) - 1)) == asked
