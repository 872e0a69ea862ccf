"""Pruning: cells that are transparent or hidden from all training rays leave the occupancy grid.

Early in training, gradients put density everywhere along a ray. Once a surface has formed in front, the density behind
it gets no gradient and would stay. Therefore a cell also needs a sample of enough weight on some training ray.
"""

import torch
from torch import Tensor

from nerf.distributed.grids import Parts
from nerf.fields.field import Field
from nerf.rendering.render import sample_weights, visible_samples
from nerf.rendering.sampler import RaySampler
from nerf.rendering.samples import RaySamples
from nerf.scene.occupancy import vertices_to_cells, with_neighbors
from nerf.training.batches import RayBatches

# A ray meets smoke, and not the haze that is to go, if it is as opaque as this and has no sample that weighs so much.
SMOKE, HEAVY = 0.5, 0.15
ENOUGH_OF_HEAVIEST, LEAST_WEIGHT = 0.1, 0.002  # of which weight makes cells visible there
RAYS_PER_CHUNK = {"cuda": 1 << 16, "cpu": 1 << 14}


@torch.no_grad()
def prune(
    field: Field,
    sampler: RaySampler,
    batches: RayBatches,
    alpha_threshold: float,
    min_weight: float,
    rays_per_surface_cell: int,
    parts: Parts | None = None,
) -> Tensor:
    """The cells to keep, [X-1,Y-1,Z-1] bool: opaque enough and visible from a training ray, or next to such a cell.

    The neighboring cells let surfaces move and restore cells that were pruned by mistake.

    alpha_threshold: alpha of one voxel length, at the densest vertex of a cell. Interpolation and activation are
    monotone, so no point in the cell is denser. min_weight: weight from which a sample makes its cell visible; in smoke
    less is enough (_enough).
    rays_per_surface_cell: rays drawn for each of the N^(2/3) cells that a surface covers in a grid of N cells. parts:
    of a scene on several ranks, each of which judges the cells of its own part.
    """
    opaque = vertices_to_cells(field.vertices_above_alpha(alpha_threshold))
    visible = torch.zeros_like(sampler.occupancy.occupied)
    sizes = torch.tensor(visible.shape, device=visible.device)
    chunk = RAYS_PER_CHUNK[visible.device.type]
    rays_left = int(rays_per_surface_cell * visible.numel() ** (2 / 3))
    finds_smoke = LEAST_WEIGHT < min_weight < HEAVY
    least = LEAST_WEIGHT if finds_smoke else min_weight
    while rays_left > 0:
        rays, jitter = batches.draw_rays(chunk)
        if parts is None:
            samples = visible_samples(field, sampler, rays, jitter, min_weight=least)
        else:
            of_part = parts.visible_samples(field, sampler, rays, jitter, least, with_weights=finds_smoke)
            samples = of_part.samples
        cells = samples.coords(sampler.grid_map).long()
        if finds_smoke:
            weights = sample_weights(field, sampler, samples) if parts is None else of_part.weights
            cells = cells[weights >= _enough(weights, samples, min_weight, parts)]
        visible[torch.minimum(cells.clamp(min=0), sizes - 1).unbind(-1)] = True
        rays_left -= chunk
    visible &= opaque  # in place, as a large grid of bools takes a tenth of the memory of the run
    del opaque
    return with_neighbors(visible if parts is None else parts.any_rank(visible))


def _enough(weights: Tensor, samples: RaySamples, min_weight: float, parts: Parts | None) -> Tensor:
    """The weight from which each sample makes its cell visible, [M].

    That is min_weight. But smoke has no sample that weighs much, and the finer the voxels are, the less: there a share
    of the ray's heaviest sample is enough.
    """
    ray, count = samples.ray_indices, len(samples.ray_offsets) - 1
    heaviest = weights.new_zeros(count).scatter_reduce_(0, ray, weights, "amax")
    # Of integers, whose sum is the same in every order.
    opacity = torch.zeros_like(heaviest, dtype=torch.int64).scatter_add_(0, ray, (weights * 2**20).long())
    if parts is not None:
        heaviest = parts.world.all_reduce_max_(heaviest, "pruning")
        opacity = parts.world.all_reduce_sum_(opacity, "pruning")
    share = (ENOUGH_OF_HEAVIEST * heaviest).clamp(LEAST_WEIGHT, min_weight)
    smoke = (opacity >= SMOKE * 2**20) & (heaviest < HEAVY)
    return torch.where(smoke, share, min_weight).index_select(0, ray)
