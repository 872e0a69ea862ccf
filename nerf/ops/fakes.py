"""Fake kernels of the native operations: the shapes of their results without data, for torch.compile.

Importing this loads the native library.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from nerf.ops.library import load_library

load_library()
_ops = torch.ops.nerf


def _fake(name: str) -> Callable[[Callable[..., object]], None]:
    """Registers a fake kernel behind a check: a single tensor without data would make the whole call a fake one."""
    schema = getattr(_ops, name).default._schema

    def register(kernel: Callable[..., object]) -> None:
        def checked(*arguments: object) -> object:
            given = zip((a.name for a in schema.arguments), arguments, strict=False)  # defaults may be left out
            devices = {key: x.device for key, x in given if isinstance(x, Tensor)}
            expected = next((d for d in devices.values() if d.type != "meta"), torch.device("meta"))
            for key, device in devices.items():
                if device != expected:
                    raise ValueError(f"{key} is on {device}, expected {expected} like the others; move it with .to()")
            return kernel(*arguments)

        torch.library.register_fake(f"nerf::{name}", checked)

    return register


@_fake("camera_rays")
def _(c2w, intrinsics, pixel_indices, width, height, subpixels):
    rays = pixel_indices.shape[0] * subpixels.shape[0]
    return c2w.new_empty(rays, 3), c2w.new_empty(rays, 3)


@_fake("march_rays")
def _(origins, directions, jitter, occupied, near, far, step_size, capacity=0, contraction=0.0):
    count = capacity if capacity else torch.library.get_ctx().new_dynamic_size()
    long = {"dtype": torch.int64}
    return (
        origins.new_empty(origins.shape[0] + 1, **long),
        origins.new_empty(count, **long),
        origins.new_empty(count),
        origins.new_empty(count),
        origins.new_empty(1, **long),
    )


@_fake("interpolate_trilinear")
def _(grid, coords):
    return grid.new_empty(coords.shape[0], grid.shape[3])


@_fake("interpolate_trilinear_backward")
def _(grad_out, grid, coords, needs_grid, needs_coords):
    return (
        grid.new_empty(grid.shape) if needs_grid else grid.new_empty(0),
        grid.new_empty(coords.shape) if needs_coords else grid.new_empty(0),
    )


@_fake("interpolate_trilinear_grad")
def _(grad, grad_out, coords):
    return None


@_fake("composite_rays")
def _(density, values, t_starts, t_ends, ray_offsets, min_transmittance):
    rays = ray_offsets.shape[0] - 1
    return (
        density.new_empty(rays, values.shape[1]),
        density.new_empty(rays),
        density.new_empty(rays),
        density.new_empty(density.shape),
    )


@_fake("composite_rays_backward")
def _(grad_values, grad_opacity, grad_depth, grad_weights, density, values, *rest):
    return density.new_empty(density.shape), density.new_empty(values.shape)


@_fake("contract_basis")
def _(values, basis, ray_indices):
    return values.new_empty(values.shape[0], 3)


@_fake("contract_basis_backward")
def _(grad_out, basis, ray_indices, channels):
    return grad_out.new_empty(grad_out.shape[0], channels)


@_fake("sample_images")
def _(images, pixel_indices):
    return images.new_empty(pixel_indices.shape[0], images.shape[3], dtype=torch.float32)


@_fake("total_variation_grad")
def _(grad, grid, weight, touched_only, rows=None):
    return None


@_fake("adam_step")
def _(param, exp_avg, exp_avg_sq, grad, lr, step, rows, beta1, beta2, eps):
    return None


@_fake("interpolate_cells")
def _(feats, points):
    return feats.new_empty(feats.shape[0], feats.shape[2])


@_fake("interpolate_cells_backward")
def _(grad_out, feats, points, needs_feats, needs_points):
    return (
        feats.new_empty(feats.shape) if needs_feats else feats.new_empty(0),
        feats.new_empty(points.shape) if needs_points else feats.new_empty(0),
    )


@_fake("index_add")
def _(dst, dim, index, src, alpha):
    return None


@_fake("distortion_loss")
def _(weights, t_starts, t_ends, ray_offsets):
    return weights.new_empty(ray_offsets.shape[0] - 1)


@_fake("distortion_loss_backward")
def _(grad_loss, weights, t_starts, t_ends, ray_offsets):
    return weights.new_empty(weights.shape)


@_fake("march_visible")
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


@_fake("render_rays")
def _(origins, directions, jitter, occupied, near, far, step_size, density_grid, *rest):
    rays, values_grid, rays_per_pixel = origins.shape[0], rest[4], rest[6] if len(rest) > 6 else 1
    values = origins.new_empty(rays // rays_per_pixel, values_grid.shape[3])
    return values, origins.new_empty(rays), origins.new_empty(rays)
