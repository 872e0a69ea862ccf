"""march_visible: the samples of rays that weigh something in their pixel."""

import torch
from torch import Tensor

from nerf.ops.activations import activate_density
from nerf.ops.composite import composite_rays
from nerf.ops.march import march_example, march_rays
from nerf.ops.ray_paths import rays_through_grid, rays_to_march
from nerf.ops.registry import example, fake, numbers, without_gradients
from nerf.ops.trilinear import interpolate_trilinear


def march_visible(
    origins: Tensor,
    directions: Tensor,
    jitter: Tensor,
    occupied: Tensor,
    near: Tensor,
    far: Tensor,
    step_size: float,
    density_grid: Tensor,
    density_shift: float,
    density_scale: float,
    min_transmittance: float,
    min_weight: float,
    capacity: int = 0,
    contraction: float = 0.0,
    table: Tensor | None = None,
    lower: Tensor | None = None,
    scale: Tensor | None = None,
    words: Tensor | None = None,
    clear: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The samples of march_rays that weigh at least min_weight in their pixel (Sun et al. 2022, section 4.3).

    Density is softplus(raw + density_shift) * density_scale per world unit, weights are those of composite_rays with
    min_transmittance. density_grid [X,Y,Z,1]: raw density at the vertices of the cells. table: of a sparse grid [L,1],
    see interpolate_trilinear. clear: see OccupancyGrid.clear; given only beside words. The others: see march_rays.

    Returns ray_offsets [R+1], ray_indices [M], t_starts [M], t_ends [M], coords [M,3] (the midpoints in grid units),
    overflow [1]; the rows behind the last ray are zero. Not differentiable.
    """
    density_grid, rays = density_grid.detach(), (origins.detach(), directions.detach(), jitter.detach())
    origins, directions, jitter, near, far = rays_to_march(*rays, near, far, lower, scale)
    ray_offsets, ray_indices, t_starts, t_ends, overflow = march_rays(
        origins, directions, jitter, occupied, near, far, step_size, contraction=contraction
    )
    upper = torch.tensor(occupied.shape, device=origins.device).to(origins.dtype)
    *_, position = rays_through_grid(origins, directions, near, far, upper, contraction)
    coords = position((0.5 * (t_starts + t_ends))[:, None], ray_indices)[:, 0]
    raw_density = interpolate_trilinear(density_grid, coords, table=table, size_z=occupied.shape[2] + 1)[:, 0]
    density = activate_density(raw_density, density_shift, density_scale)
    nothing = density.new_empty(len(density), 0)
    weights = composite_rays(density, nothing, t_starts, t_ends, ray_offsets, min_transmittance)[3]

    keep = weights >= min_weight
    ends = torch.nn.functional.pad(keep.cumsum(0), (1, 0))[ray_offsets][1:]
    if capacity > 0:
        counts, fits = ends.diff(prepend=ends.new_zeros(1)), ends <= capacity
        overflow = overflow + ((counts > 0) & ~fits).sum()
        ends = torch.where(fits, ends, 0).cummax(0).values if len(ends) else ends
        keep &= fits[ray_indices]
    rows = keep.nonzero()[:, 0]
    tail = capacity - len(rows) if capacity > 0 else 0
    kept = [torch.nn.functional.pad(x[rows], (0, tail)) for x in (ray_indices, t_starts, t_ends)]
    coords = torch.nn.functional.pad(coords[rows], (0, 0, 0, tail))
    return torch.nn.functional.pad(ends, (1, 0)), *kept, coords, overflow


without_gradients("march_visible")


@fake("march_visible")
def _(origins, directions, jitter, occupied, near, far, step_size, density_grid, *rest):
    capacity = rest[4] if len(rest) > 4 else 0
    count = capacity if capacity else torch.library.get_ctx().new_dynamic_size()
    long = {"dtype": torch.int64}
    return (
        origins.new_empty(origins.shape[0] + 1, **long),
        origins.new_empty(count, **long),
        origins.new_empty(count),
        origins.new_empty(count),
        origins.new_empty(count, 3),
        origins.new_empty(1, **long),
    )


@example("march_visible")
def visible_example() -> tuple:
    """The rays of march_example, through density that is empty, thin or thick."""
    *rays, capacity, contraction = march_example()
    return *rays, numbers(7, 6, 5, 1, low=-4, high=6, seed=5), -2.0, 1.5, 1e-3, 0.01, capacity, contraction
