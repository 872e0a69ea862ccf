"""Giving up cells that no training ray can see.

Early in training a ray spreads density all along its way; once a surface stands in front, what lies behind gets no
gradient and would stay for ever. So a cell is kept only if a sample in it had weight for one of many training rays.
"""

import torch
from torch import Tensor

from nerf.fields.field import Field
from nerf.rendering.render import visible_samples
from nerf.rendering.sampler import RaySampler
from nerf.scene.occupancy import vertices_to_cells, with_neighbors
from nerf.training.batches import RayBatches

RAYS_PER_CHUNK = {"cuda": 1 << 16, "cpu": 1 << 14}
# A surface in a grid of N cells takes about N^(2/3) of them; each shall be met several times.
RAYS_PER_SURFACE_CELL = {"cuda": 8, "cpu": 12}


@torch.no_grad()
def prune(field: Field, sampler: RaySampler, batches: RayBatches, alpha_threshold: float, min_weight: float) -> Tensor:
    """Cells [X-1,Y-1,Z-1] worth sampling: opaque enough and seen by a training ray, or next to such a cell.

    The layer around them lets surfaces move, and brings back what was given up by mistake.

    alpha_threshold: opacity of one voxel's length at the densest vertex of a cell (interpolation and activation are
    monotone, so no point of the cell is denser). min_weight: weight of a sample that counts as seen.
    """
    dense = vertices_to_cells(field.vertices_above_alpha(alpha_threshold))
    seen = torch.zeros_like(sampler.occupancy.occupied)
    sizes = torch.tensor(seen.shape, device=seen.device)
    chunk = RAYS_PER_CHUNK[seen.device.type]
    rays_left = int(RAYS_PER_SURFACE_CELL[seen.device.type] * seen.numel() ** (2 / 3))
    while rays_left > 0:
        rays, jitter = batches.draw_rays(chunk)
        samples = visible_samples(field, sampler, rays, jitter, min_weight=min_weight)
        cells = samples.coords(sampler.grid_map).long()
        seen[torch.minimum(cells.clamp(min=0), sizes - 1).unbind(-1)] = True
        rays_left -= chunk
    return with_neighbors(dense & seen)
