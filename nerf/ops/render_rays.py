"""render_rays: what each ray sees, in one walk."""

from torch import Tensor

from nerf.ops.activations import activate_density
from nerf.ops.composite import composite_rays
from nerf.ops.march_visible import march_visible, visible_example
from nerf.ops.registry import example, fake, numbers, without_gradients
from nerf.ops.trilinear import interpolate_trilinear


def render_rays(
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
    values_grid: Tensor,
    contraction: float = 0.0,
    rays_per_pixel: int = 1,
    table: Tensor | None = None,
    lower: Tensor | None = None,
    scale: Tensor | None = None,
    words: Tensor | None = None,
    clear: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Composited values of pixels: march_visible, interpolate_trilinear and composite_rays in one.

    values_grid [X,Y,Z,C]: at the vertices of the density; float16 too, where all others are float32. rays_per_pixel: 1,
    2 or 4 rays beside each other, whose values are averaged. table: of sparse grids [L,1] and [L,C]. The others: see
    march_visible.
    Returns values [R / rays_per_pixel,C], opacity [R], depth [R] as composite_rays. Not differentiable.
    """
    rays = (origins, directions, jitter, occupied, near, far, step_size)
    density = (density_grid, density_shift, density_scale, min_transmittance, min_weight)
    ray_offsets, _, t_starts, t_ends, coords, _ = march_visible(
        *rays, *density, contraction=contraction, table=table, lower=lower, scale=scale
    )
    sparse = {"table": table, "size_z": occupied.shape[2] + 1}
    raw_density = interpolate_trilinear(density_grid.detach(), coords, **sparse)[:, 0]
    sigma = activate_density(raw_density, density_shift, density_scale)
    values = interpolate_trilinear(values_grid.detach(), coords, **sparse)
    values, opacity, depth, _ = composite_rays(sigma, values, t_starts, t_ends, ray_offsets, 0.0)
    pixels = len(opacity) // rays_per_pixel
    return values.view(pixels, rays_per_pixel, values.shape[1]).mean(1), opacity, depth


without_gradients("render_rays")


@fake("render_rays")
def _(origins, directions, jitter, occupied, near, far, step_size, density_grid, *rest):
    rays, values_grid, rays_per_pixel = origins.shape[0], rest[4], rest[6] if len(rest) > 6 else 1
    values = origins.new_empty(rays // rays_per_pixel, values_grid.shape[-1])
    return values, origins.new_empty(rays), origins.new_empty(rays)


@example("render_rays")
def _():
    *arguments, _, contraction = visible_example()
    return *arguments, numbers(7, 6, 5, 12, low=-1, seed=6), contraction, 1
