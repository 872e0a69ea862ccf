"""Total variation of a field's grids, added to their gradients: neighbors shall not differ without a reason."""

import torch
from torch import Tensor

from nerf.config.schema import LossConfig
from nerf.fields.field import Field
from nerf.ops.backend import Backend

TV_SUBSETS = 8  # steps in which total variation everywhere comes around: all vertices at once cost what Adam costs


def regularize_grids(
    field: Field, loss: LossConfig, progress: float, num_rays: int, vertex_rows: Tensor | None, step_number: Tensor
) -> None:
    """Adds the gradient of the total variation of a field's grids, weighted by loss, to their gradients.

    Until loss.tv_until it is added where a batch of num_rays leaves a gradient, which shrinks with the batch: so
    weights are per ray. From then on it is the mean over all vertex_rows [L], which have their turns in the order
    of step_number [1]: where few rays come by it outweighs them, where many do they outweigh it.
    progress: fraction of the run that is done. A field without grids is left as it is.
    """
    if not field.grids:
        return
    if progress < loss.tv_until:
        for grid, weight in zip(field.grids, (loss.tv_density, loss.tv_color), strict=True):
            add_total_variation(grid, weight / num_rays, field.backend, vertex_rows)
    elif loss.tv_everywhere > 0:
        rows = round_robin_rows(vertex_rows, step_number)
        weight = TV_SUBSETS * loss.tv_everywhere / max(len(vertex_rows), 1)
        for grid in field.grids:
            add_total_variation(grid, weight, field.backend, rows, touched_only=False)


@torch.no_grad()
def add_total_variation(
    grid: torch.nn.Parameter,
    weight: float,
    backend: Backend,
    vertex_rows: Tensor | None = None,
    touched_only: bool = True,
) -> None:
    """Adds the gradient of weight * total variation to grid.grad, at vertices where the batch left a gradient.

    vertex_rows [L] int64: the vertices to look at, counted as OccupancyGrid.vertex_rows does; None: all. Where these
    are all at which it may have left one, the result is the same, without a look at the others. touched_only=False adds
    it at each of them.
    """
    if weight > 0:
        backend.ops.total_variation_grad(grid.grad, grid, weight, touched_only, vertex_rows)


def round_robin_rows(vertex_rows: Tensor, step_number: Tensor) -> Tensor:
    """One of TV_SUBSETS equal parts of vertices [L], each in its turn; the last L % TV_SUBSETS never have one.

    step_number [1]: stays on the device.
    """
    parts = vertex_rows[: len(vertex_rows) // TV_SUBSETS * TV_SUBSETS].view(TV_SUBSETS, -1)
    return parts.index_select(0, (step_number % TV_SUBSETS).long())[0]
