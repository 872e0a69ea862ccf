"""march_rays: the samples of rays in occupied cells."""

import torch
from torch import Tensor

from nerf.ops.ray_paths import rays_through_grid, rays_to_march
from nerf.ops.registry import example, fake, numbers, without_gradients

MAX_STEPS_OF_RAY = 1 << 20  # as math/march.h has it: more are no picture but a wrong length
LATTICE_POINTS_AT_A_TIME = 1 << 24  # per chunk of rays in march_rays; bounds the memory of the dense lattice


def march_rays(
    origins: Tensor,
    directions: Tensor,
    jitter: Tensor,
    occupied: Tensor,
    near: Tensor,
    far: Tensor,
    step_size: float,
    capacity: int = 0,
    contraction: float = 0.0,
    lower: Tensor | None = None,
    scale: Tensor | None = None,
    words: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Samples of rays in occupied cells.

    Sample k of a ray covers t_min + (k + jitter) * step_size to t_min + (k + 1 + jitter) * step_size, where t_min and
    t_max are near and far clipped to the grid. It exists if its midpoint lies before t_max in an occupied cell. A ray
    that would never end (inside the grid, direction zero, far infinite) has no samples.

    origins, directions [R,3]: grid units, directions not renormalized, so t stays world distance. With lower and scale
    [3], those of a GridMap, they are in scene space and brought to grid units here.
    jitter [R]: in [-0.5, 0.5); or [P], one for every R / P rays side by side, whose lattices lie evenly beside each
    other and are all shifted by it. occupied [X-1,Y-1,Z-1] bool. near, far [R] or [1] and step_size: world units.
    words: see OccupancyGrid.words; they must be those of occupied, and save the time to find them.
    capacity: 0 gives exactly the M samples, with one host read; otherwise M = capacity, rays from the first that does
    not fit on are dropped, and the rows behind the last ray have index 0 and length 0.
    contraction: 0, or the grid holds all of space: a box around its middle, and around that a shell, this many halves
    of the box thick, into which nerf.ops.contraction presses what is outside. t is contracted distance then, for the
    lattice and the results, so that equal steps grow with the cells; near and far stay world distances.

    A ray has 2^20 steps at most: more raise ValueError, but on CUDA, where nothing is read back, its walk ends there.

    Returns ray_offsets [R+1] int64, ray_indices [M] int64, t_starts [M], t_ends [M], overflow [1] int64 (rays dropped).
    Not differentiable.
    """
    rays = origins.detach(), directions.detach(), jitter.detach()
    origins, directions, jitter, near, far = rays_to_march(*rays, near, far, lower, scale)
    cells = torch.tensor(occupied.shape, device=origins.device)
    upper = cells.to(origins.dtype)
    t_min, t_max, position = rays_through_grid(origins, directions, near, far, upper, contraction)
    t_max = torch.where(t_max - t_min < torch.inf, t_max, -torch.inf)

    steps = (t_max - t_min) / step_size - jitter
    if bool((steps > MAX_STEPS_OF_RAY).any()):
        raise ValueError(f"step_size is {step_size:g}, expected {MAX_STEPS_OF_RAY} steps along a ray at most")
    steps = steps.nan_to_num(0).clamp(min=0)
    num_points = int(steps.max().ceil().item()) + 1 if len(steps) else 1
    k = torch.arange(num_points, device=origins.device, dtype=origins.dtype)
    chunk = max(1, LATTICE_POINTS_AT_A_TIME // num_points)
    found = []
    for first in range(0, len(origins), chunk):
        rows = slice(first, first + chunk)
        t_mid = t_min[rows, None] + (k + 0.5 + jitter[rows, None]) * step_size
        cell = position(t_mid, rows).floor().nan_to_num(0).clamp(min=torch.zeros_like(upper), max=upper - 1).long()
        exists = (t_mid < t_max[rows, None]) & occupied[cell.unbind(-1)]
        ray, point = exists.nonzero(as_tuple=True)
        found.append(torch.stack([ray + first, point], -1))
    ray_indices, point = (torch.cat(found) if found else torch.zeros(0, 2).to(cells)).unbind(-1)

    counts = torch.bincount(ray_indices, minlength=len(origins))
    ends = counts.cumsum(0)
    overflow = torch.zeros(1, dtype=torch.int64, device=origins.device)
    if capacity > 0:
        fits = ends <= capacity
        overflow += ((counts > 0) & ~fits).sum()
        ends = torch.where(fits, ends, 0).cummax(0).values if len(ends) else ends
        kept = fits[ray_indices]
        ray_indices, point = ray_indices[kept], point[kept]
    t_starts = t_min[ray_indices] + (k[point] + jitter[ray_indices]) * step_size
    t_ends = t_min[ray_indices] + (k[point] + 1 + jitter[ray_indices]) * step_size
    if capacity > 0:
        tail = (0, capacity - len(ray_indices))
        ray_indices, t_starts, t_ends = (torch.nn.functional.pad(x, tail) for x in (ray_indices, t_starts, t_ends))
    return torch.nn.functional.pad(ends, (1, 0)), ray_indices, t_starts, t_ends, overflow


without_gradients("march_rays")


@fake("march_rays")
def _(origins, directions, jitter, occupied, near, far, step_size, capacity=0, contraction=0.0, *rest):
    count = capacity if capacity else torch.library.get_ctx().new_dynamic_size()
    long = {"dtype": torch.int64}
    return (
        origins.new_empty(origins.shape[0] + 1, **long),
        origins.new_empty(count, **long),
        origins.new_empty(count),
        origins.new_empty(count),
        origins.new_empty(1, **long),
    )


@example("march_rays")
def march_example() -> tuple:
    """Rays from all around through a grid of 6 x 5 x 4 cells, 0.4 of them occupied."""
    rays, cells = 60, (6, 5, 4)
    center = torch.tensor(cells) / 2
    origins = center + 9 * torch.nn.functional.normalize(numbers(rays, 3, low=-1, seed=1), dim=-1)
    directions = center + numbers(rays, 3, low=-2, high=2, seed=2) - origins
    near = torch.zeros(rays)
    occupied = numbers(*cells, seed=3) < 0.4
    return origins, directions, numbers(rays, low=-0.5, high=0.5, seed=4), occupied, near, near + 9, 0.02, 2000, 0.0
