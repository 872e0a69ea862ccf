"""The grids of a divided scene: each vertex is trained by the ranks whose cells it touches.

A vertex on the border of two parts has a replica on both. Their gradients are summed, so both take the same Adam step
and stay equal. Total variation also looks at the vertices one layer beyond; their values come from a rank that trains
them, after each step. What lies farther in other parts is old, until collect_values brings it.

Legend: L rows of a list of vertices, C channels of all grids.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from nerf.cameras.rays import Rays
from nerf.distributed.parts import Division, divide
from nerf.distributed.render import render_parts
from nerf.distributed.segments import PartSamples, visible_part_samples
from nerf.distributed.world import World
from nerf.fields.field import Field
from nerf.optim.adam import MaskedAdam
from nerf.rendering.render import Rendering
from nerf.rendering.sampler import RaySampler
from nerf.scene.occupancy import OccupancyGrid


@dataclass
class Parts:
    """This rank's part of a scene, and what it exchanges with the others."""

    world: World
    division: Division
    whole_optimizer: dict[str, Tensor] | None = None  # of collect_moments, until the next step

    @classmethod
    def of(cls, world: World, occupancy: OccupancyGrid) -> "Parts":
        """The parts of a scene. Raises UserError where there are fewer cells than ranks."""
        return cls(world, divide(occupancy.occupied, world.size))

    @functools.cached_property
    def _borders(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Shared rows and whether they are mine, halo rows and whether I am the first rank that trains them."""
        shared, halo = self.division.shared, self.division.halo
        trainer = torch.full_like(halo, self.world.size)
        for rank in reversed(range(self.world.size)):
            trainer = trainer.masked_fill(_membership(self.division.rows[rank], halo), rank)
        return (shared, _membership(self.rows, shared)), (halo, trainer == self.world.rank)

    @property
    def rows(self) -> Tensor:
        """The vertices that this rank trains, [L] int64, rising."""
        return self.division.rows[self.world.rank]

    # In every step.

    def visible_samples(
        self, field: Field, sampler: RaySampler, rays: Rays, jitter: Tensor | None, min_weight: float | None = None
    ) -> PartSamples:
        """This rank's share of rendering.visible_samples. sampler: of the whole scene."""
        return visible_part_samples(self.world, self.division, field, sampler, rays, jitter, min_weight)

    def render(
        self, field: Field, sampler: RaySampler, samples: PartSamples, background: Tensor, with_distortion: bool
    ) -> Rendering:
        """See render_parts."""
        return render_parts(self.world, field, sampler, samples, background, with_distortion)

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
        self._summed([x.view(-1, 1) for x in small], None, "gradients of small modules")
        grids = [g.parameter.grad for optimizer in optimizers for g in optimizer.groups if g.on_vertices]
        self._summed([x.view(-1, x.shape[-1]) for x in grids], self._borders[0], "border gradients")

    def _summed(self, tensors: list[Tensor], where: tuple[Tensor, Tensor] | None, purpose: str) -> None:
        """Replaces rows of tensors [V,C] by their sums over the ranks. where: rows, and which of them are mine."""
        if not tensors or (where is not None and len(where[0]) == 0):
            return
        parts = [x if where is None else x.index_select(0, where[0]) * where[1][:, None] for x in tensors]
        joined = self.world.sum_(torch.cat([x.reshape(-1) for x in parts]), purpose)
        for tensor, found in zip(tensors, joined.split([x.numel() for x in parts]), strict=True):
            if where is None:
                tensor.copy_(found.view_as(tensor))
            else:
                tensor.index_copy_(0, where[0], found.view(-1, tensor.shape[1]))

    @torch.no_grad()
    def refresh_halo(self, field: Field) -> None:
        """Brings the values of the vertices beside one's own, which another rank has trained."""
        self._summed([_rows(grid) for grid in field.grids], self._borders[1], "halo values")

    def all_true(self, condition: Tensor) -> Tensor:
        """Whether a condition [] bool holds on every rank."""
        return self.world.max_((~condition).view(1).to(torch.uint8), "decisions")[0] == 0

    def any_rank(self, mask: Tensor) -> Tensor:
        """Where a bool mask is set on some rank."""
        return self.world.max_(mask.to(torch.uint8), "occupancy") > 0

    def subset(self, step_number: Tensor, subsets: int) -> tuple[Tensor, int]:
        """This rank's rows in the step's subset of all active vertices, and how many active vertices there are.

        The same vertices as total_variation.round_robin_rows gives one process.
        """
        size = len(self.division.all_rows) // subsets
        first = int(step_number) % subsets * size
        chosen = self.division.all_rows[first : first + size]
        return chosen[_membership(self.rows, chosen)], len(self.division.all_rows)

    # Between steps.

    @torch.no_grad()
    def collect_values(self, field: Field) -> None:
        """Brings the values of all parts to every rank."""
        for grid in field.grids:
            values = _rows(grid)
            for rank, rows in enumerate(self.division.rows):
                found = self.world.sent_by(rank, values.index_select(0, rows), "whole grids")
                values.index_copy_(0, rows, found)

    @torch.no_grad()
    def redivide(self, occupancy: OccupancyGrid, optimizer: MaskedAdam) -> None:
        """Divides the scene anew for a changed occupancy; vertices take their moments along."""
        before, self.division = self.division, divide(occupancy.occupied, self.world.size)
        self.__dict__.pop("_borders", None)
        moments = self._collected(before.rows, optimizer, self.rows)
        optimizer.set_active(self.rows)
        for name, pair in moments.items():
            for own, found in zip(optimizer.moments[name], pair, strict=True):
                own.copy_(found)

    def collect_moments(self, optimizer: MaskedAdam) -> None:
        """Brings the optimizer's state of the whole scene to this rank, for a checkpoint (whole_optimizer)."""
        moments = dict(optimizer.moments) | self._collected(self.division.rows, optimizer, self.division.all_rows)
        names = ("exp_avg", "exp_avg_sq")
        of_groups = {f"{name}.{kind}": x for name, pair in moments.items() for kind, x in zip(names, pair, strict=True)}
        self.whole_optimizer = {"step_number": optimizer.step_number, **of_groups}

    def _collected(
        self, had: Iterable[Tensor], optimizer: MaskedAdam, wanted: Tensor
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """The moments of some rows [L], zero where no rank had any. had: the rows of each rank."""
        found: dict[str, tuple[Tensor, Tensor]] = {}
        for name in (group.name for group in optimizer.groups if group.on_vertices):
            pair = []
            for own in optimizer.moments[name]:
                result = own.new_zeros(len(wanted), own.shape[-1])
                for rank, rows in enumerate(had):
                    theirs = own if rank == self.world.rank else own.new_empty(len(rows), own.shape[-1])
                    theirs = self.world.sent_by(rank, theirs.contiguous(), "moments")
                    inside = _membership(wanted, rows)
                    places = torch.searchsorted(wanted, rows[inside])
                    result.index_copy_(0, places, theirs[inside])
                pair.append(result)
            found[name] = pair[0], pair[1]
        return found


def _rows(grid: Tensor) -> Tensor:
    return grid.detach().view(-1, grid.shape[-1])


def _membership(rows: Tensor, asked: Tensor) -> Tensor:
    """Which of the rows asked [L] are among rows [K], both rising, [L] bool."""
    if len(rows) == 0:
        return torch.zeros_like(asked, dtype=torch.bool)
    return rows.index_select(0, torch.searchsorted(rows, asked).clamp(max=len(rows) - 1)) == asked
