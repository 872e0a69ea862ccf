"""Total variation of a field's grids, added to their gradients: it smooths the grids where the data do not object."""

import torch
from torch import Tensor

from nerf.config.schema import LossConfig
from nerf.distributed.grids import Parts
from nerf.fields.field import Field
from nerf.ops.backend import Backend
from nerf.ops.vertex_rows import VertexRows
from nerf.optim.host_rows import Window

TV_SUBSETS = 8  # global total variation visits one subset of the vertices per step; all at once cost as much as Adam


def regularize_grids(
    field: Field,
    loss: LossConfig,
    progress: float,
    num_rays: int,
    active_vertices: Tensor | None,
    step_number: Tensor,
    parts: Parts | None = None,
) -> tuple[float, ...]:
    """Adds the gradient of the weighted total variation of a field's grids to their gradients.

    Returns the weights, grid by grid, of what Adam is to add instead as it reads the gradients; empty: nothing is left.
    That is so of the first kind below, where left_to_adam.

    Until progress reaches loss.tv_until, it is added only at vertices with a gradient from the batch. These gradients
    are means over num_rays, so the weights are divided by num_rays as well.

    Afterwards it is the mean over all active_vertices [L] int64, a subset per step by step_number [1]. It dominates
    where few rays pass, and the data dominate where many rays pass.

    progress: fraction of the run that is done. parts: of a scene divided among ranks; active_vertices are then this
    rank's own. A field without grids is not changed. Of features in host memory a step has what the first kind reads,
    and not what the second does (nerf/runs/resolve.py:check_features).
    """
    if not field.grids:
        return ()
    if progress < loss.tv_until:
        if left_to_adam(field, parts):
            return loss.tv_density / num_rays, loss.tv_color / num_rays
        window = None if field.host_rows is None else field.host_rows.window
        for grid, weight in zip(field.grids, (loss.tv_density, loss.tv_color), strict=True):
            if window is not None and grid is field.grids[1]:
                places = window.values, weight / num_rays, field.backend, window.vertices
                add_total_variation(*places, sparse=window)
            else:
                add_total_variation(grid, weight / num_rays, field.backend, active_vertices, sparse=field.rows)
    elif loss.tv_global > 0:
        if parts is None:
            rows, count = round_robin_rows(active_vertices, step_number), len(active_vertices)
        else:
            rows, count = parts.subset(step_number, TV_SUBSETS)
        weight = TV_SUBSETS * loss.tv_global / max(count, 1)
        for grid in field.grids:
            add_total_variation(grid, weight, field.backend, rows, touched_only=False, sparse=field.rows)
    return ()


def left_to_adam(field: Field, parts: Parts | None) -> bool:
    """Whether Adam adds the total variation of what a batch touched: where sums have no fixed order, on one rank and
    with all features on the device.
    """
    return field.backend.smooths_in_adam and parts is None and field.host_rows is None


@torch.no_grad()
def add_total_variation(
    grid: torch.nn.Parameter,
    weight: float,
    backend: Backend,
    active_vertices: Tensor | None = None,
    touched_only: bool = True,
    sparse: VertexRows | Window | None = None,
) -> None:
    """Adds the gradient of weight * total variation to grid.grad, at vertices whose gradient is not zero.

    active_vertices [L] int64: the vertices to visit, as OccupancyGrid.active_vertices gives them; None: all. The
    result is the same if all other gradients are zero, and takes less time. touched_only=False adds it at every visited
    vertex. sparse: where the values of a sparse grid [L,C] are; differences to vertices that are not stored do not
    count, and active_vertices must be given.
    """
    if weight > 0:
        table = () if sparse is None else sparse.arguments
        backend.ops.total_variation_grad(grid.grad, grid, weight, touched_only, active_vertices, *table)


def round_robin_rows(active_vertices: Tensor, step_number: Tensor) -> Tensor:
    """The step's subset of the vertices [L], one of TV_SUBSETS in turn; the last L % TV_SUBSETS are in none.

    step_number [1]: a tensor, so that a CUDA graph can be captured.
    """
    parts = active_vertices[: len(active_vertices) // TV_SUBSETS * TV_SUBSETS].view(TV_SUBSETS, -1)
    return parts.index_select(0, (step_number % TV_SUBSETS).long())[0]
