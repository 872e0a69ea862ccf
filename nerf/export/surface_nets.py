"""Naive surface nets: triangles around the positive values of a grid.

One vertex in each cell that the surface crosses, at the mean of the points where it cuts the cell's edges; one quad for
each grid edge that it cuts (Gibson 1998, "Constrained Elastic Surface Nets", without the relaxation).

Legend: V vertices, F triangles, K cells, X Y Z grid vertices.
"""

import torch
from torch import Tensor

CORNERS = torch.tensor([[k >> 2 & 1, k >> 1 & 1, k & 1] for k in range(8)])  # of a cell, [8,3]
EDGES = torch.tensor([[k, k | bit] for bit in (4, 2, 1) for k in range(8) if not k & bit])  # their corners, [12,2]
CELLS_AT_A_TIME = 1 << 20


def surface_net(volume: Tensor) -> tuple[Tensor, Tensor]:
    """The surface around the positive values of volume [X,Y,Z]: vertices [V,3] in grid units, faces [F,3] int64.

    The surface ends at NaN values and at the edge of the volume.
    """
    device, cells = volume.device, [n - 1 for n in volume.shape]
    inside = volume > 0
    known = ~volume.isnan()
    count, knowing = (torch.zeros(cells, dtype=torch.uint8, device=device) for _ in range(2))
    for x, y, z in CORNERS.tolist():
        corner = (slice(x, x + cells[0]), slice(y, y + cells[1]), slice(z, z + cells[2]))
        count += inside[corner]
        knowing += known[corner]
    crossed = ((count > 0) & (count < 8) & (knowing == 8)).flatten().nonzero()[:, 0]  # [K], rising
    vertices = [_cell_vertices(volume, part, cells) for part in crossed.split(CELLS_AT_A_TIME)]
    vertices = torch.cat([volume.new_zeros(0, 3), *vertices])
    quads = torch.cat([_quads_across(inside, axis, crossed, cells) for axis in range(3)])
    corners = vertices[quads]
    shorter = (corners[:, 0] - corners[:, 2]).norm(dim=-1) <= (corners[:, 1] - corners[:, 3]).norm(dim=-1)
    one = torch.where(shorter[:, None], quads[:, [0, 1, 2]], quads[:, [0, 1, 3]])
    other = torch.where(shorter[:, None], quads[:, [0, 2, 3]], quads[:, [1, 2, 3]])
    return vertices, torch.cat([one, other])


def _cell_vertices(volume: Tensor, crossed: Tensor, cells: list[int]) -> Tensor:
    """The mean of the points where the surface cuts the edges of each of K cells, [K,3] in grid units."""
    corners, (start, end) = CORNERS.to(volume.device), EDGES.T.to(volume.device)
    first = torch.stack(torch.unravel_index(crossed, cells), dim=-1)
    x, y, z = (first[:, None] + corners).unbind(-1)
    values = volume[x, y, z]  # [K,8]
    before, after = values[:, start], values[:, end]
    cut = (before > 0) != (after > 0)
    fraction = torch.where(cut, before / torch.where(cut, before - after, 1.0), 0.0)
    points = corners[start] + fraction[..., None] * (corners[end] - corners[start])
    return first + (points * cut[..., None]).sum(1) / cut.sum(1, keepdim=True)


def _quads_across(inside: Tensor, axis: int, crossed: Tensor, cells: list[int]) -> Tensor:
    """A quad [.,4] of vertices for each grid edge along axis that the surface cuts: of the four cells around it."""
    lower = inside.narrow(axis, 0, inside.shape[axis] - 1)
    edges = (lower != inside.narrow(axis, 1, inside.shape[axis] - 1)).nonzero()
    outwards = lower[tuple(edges.unbind(-1))]  # the surface faces along the axis
    u, v = (torch.eye(3, dtype=torch.int64, device=inside.device)[(axis + k) % 3] for k in (1, 2))
    around = torch.stack([edges, edges - u, edges - u - v, edges - v], dim=1)  # counterclockwise seen from ahead
    size = torch.tensor(cells, device=inside.device)
    number = (around * torch.stack([size[1] * size[2], size[2], size[2] ** 0])).sum(-1)
    quads = torch.searchsorted(crossed, number).clamp(max=max(len(crossed) - 1, 0))
    whole = ((around >= 0) & (around < size)).all(-1)  # and each of them has a vertex
    whole = (whole & (crossed[quads] == number)).all(-1) if len(crossed) else whole.all(-1) & False
    return torch.where(outwards[:, None], quads, quads.flip(1))[whole]


def large_parts(faces: Tensor, num_vertices: int, smallest: float) -> Tensor:
    """The faces [.,3] of connected parts that have at least this fraction of all faces."""
    parent = torch.arange(num_vertices, device=faces.device)
    while True:
        labels = parent[faces]
        lowest = labels.amin(1, keepdim=True).expand(-1, 3)
        joined = parent.scatter_reduce(0, labels.flatten(), lowest.flatten(), "amin")
        joined = joined[joined]
        if torch.equal(joined, parent):
            break
        parent = joined
    part = parent[faces[:, 0]]
    return faces[part.bincount(minlength=num_vertices)[part] >= smallest * len(faces)]
