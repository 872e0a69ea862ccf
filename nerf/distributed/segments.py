"""The visible samples of one part, exactly those that one process would keep there.

One process looks at density along the whole ray: a sample is kept if its weight is large enough, and none behind a low
transmittance. A rank sees its own part only. So it marches all of that, says the transmittance of each segment, and
chooses when it has heard those of the others: which samples are visible depends on all samples in front of them, in
whatever part these are.

Straight rays meet a part once, and then a ray has one segment in it. In contracted space rays are bent and may come
back to a part. There each rank marches the lattice through all occupied cells, without density, and a segment ends
where the next sample has another owner: the order by t then holds by construction.

Legend: R rays, S segments of a ray in this part (the most of any ray and rank), M samples.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nerf.cameras.rays import Rays
from nerf.distributed.combine import Order, front_to_back
from nerf.distributed.parts import Division
from nerf.distributed.world import World
from nerf.fields.field import Field
from nerf.ops.backend import Backend
from nerf.rendering.sampler import RaySampler
from nerf.rendering.samples import RaySamples
from nerf.scene.occupancy import OccupancyGrid

LEAST_DEPTH = 1e-30  # of a sample: so that its alpha is not 0, and weight / alpha is the transmittance in front of it


@dataclass(frozen=True)
class PartSamples:
    """This rank's visible samples of a batch."""

    samples: RaySamples
    offsets: Tensor  # [R*S+1] int64: segment s of ray r owns the samples offsets[r*S+s] to offsets[r*S+s+1]
    segments: int  # S
    order: Order
    weights: Tensor | None = None  # [M] of the samples, composited alone, detached; where they were asked for

    @property
    def overflow(self) -> Tensor:
        return self.samples.overflow

    @property
    def ray_offsets(self) -> Tensor:
        return self.samples.ray_offsets


def visible_part_samples(
    world: World,
    division: Division,
    field: Field,
    sampler: RaySampler,
    rays: Rays,
    jitter: Tensor | None = None,
    min_weight: float | None = None,
    with_weights: bool = False,
) -> PartSamples:
    """The samples of the rays in this rank's part with a weight of at least min_weight in their pixel.

    sampler: of the whole scene, on every rank the same; so are rays and jitter. The choice is that of
    rendering.visible_samples, where that is one process.
    """
    min_weight = sampler.config.min_weight if min_weight is None else min_weight
    samples, segment, count = marched(world, division, sampler, rays, jitter)
    slots = len(samples.ray_offsets) - 1, count
    slot = samples.ray_indices * count + segment
    with torch.no_grad():
        density = field.density(samples.coords(sampler.grid_map))
        starts = _offsets(slot, slots[0] * slots[1])
        depth = density * (samples.t_ends - samples.t_starts)
        weight, in_front, through = undimmed(sampler.backend, depth, starts)
        first = torch.full_like(through, torch.inf)
        if len(slot):
            begins = starts[:-1].clamp(max=len(slot) - 1)
            first = torch.where(starts.diff() > 0, samples.t_starts.index_select(0, begins), first)
        order = front_to_back(world, through.view(slots), first.view(slots))
        light = order.transmittance.flatten().index_select(0, slot)
        weights = light * weight
        keep = (weights >= min_weight) & (light * in_front >= sampler.config.min_transmittance)
        offsets = torch.nn.functional.pad(keep.cumsum(0), (1, 0))[starts]
        kept_weights = None
        if with_weights:  # as one process has them, which composites what is kept alone: in smoke much is not
            weight, _, through = undimmed(sampler.backend, depth[keep], offsets)
            light = front_to_back(world, through.view(slots), first.view(slots)).transmittance.flatten()
            kept_weights = light.index_select(0, slot[keep]) * weight
    return PartSamples(samples.select(keep), offsets, count, order, kept_weights)


def undimmed(backend: Backend, optical_depth: Tensor, starts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What the samples of each slot weigh if light came to the slot undimmed.

    optical_depth [M]: of samples that are packed by slot. starts [slots+1] int64: where those of each slot begin.
    Returns weight [M], transmittance in front of each sample [M] and through each slot [slots], 1 where it is empty.

    composite_rays walks each slot in one order; a scan of all samples would differ from run to run on a GPU. It gives
    transmittance * alpha, and alpha is known.
    """
    depth = optical_depth.clamp(min=LEAST_DEPTH)
    nothing, zeros = depth.new_empty(len(depth), 0), torch.zeros_like(depth)
    weight = backend.ops.composite_rays(depth, nothing, zeros, torch.ones_like(depth), starts, 0.0)[3]
    in_front = weight / -torch.expm1(-depth)
    through = depth.new_ones(len(starts) - 1)
    if len(depth):
        last = (starts[1:] - 1).clamp(min=0)
        through = torch.where(starts.diff() > 0, (in_front * torch.exp(-depth)).index_select(0, last), through)
    return weight, in_front, through


def marched(
    world: World, division: Division, sampler: RaySampler, rays: Rays, jitter: Tensor | None
) -> tuple[RaySamples, Tensor, int]:
    """All samples of this rank's part, the segment of each [M] int64, and the number S of segments of a ray."""
    if not sampler.grid_map.space.contraction:
        own = OccupancyGrid(division.own_cells(world.rank))
        samples = replace(sampler, occupancy=own).sample(rays, jitter)
        return samples, torch.zeros_like(samples.ray_indices), 1
    samples = sampler.sample(rays, jitter)
    cells = samples.coords(sampler.grid_map).detach().floor().long()
    sizes = torch.tensor(division.occupied.shape, device=cells.device)
    mine = division.in_box(world.rank, torch.minimum(cells.clamp(min=0), sizes - 1))
    ray = samples.ray_indices
    again = torch.zeros_like(mine)  # goes on from the sample before
    again[1:] = mine[:-1] & (ray[1:] == ray[:-1])
    begun = (mine & ~again).cumsum(0)
    of_rays_before = torch.nn.functional.pad(begun, (1, 0))[samples.ray_offsets[:-1]]
    segment = (begun - 1 - of_rays_before.index_select(0, ray))[mine]
    most = segment.max() + 1 if len(segment) else segment.new_zeros(())
    count = int(world.all_reduce_max_(most.clamp(min=1).view(1), "segments"))
    return samples.select(mine), segment, count


def _offsets(slot: Tensor, count: int) -> Tensor:
    """Where the samples of each slot begin, [count+1]; slot [M]: of each sample, rising."""
    return torch.searchsorted(slot, torch.arange(count + 1, device=slot.device))
