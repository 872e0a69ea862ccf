"""The operations through the native library: torch.ops.nerf, C++ on CPU tensors and CUDA on CUDA tensors.

Schemas stand in cuda_ext/library.cpp, meaning and shapes in reference.py. Here each operation gets what PyTorch needs
besides a kernel: a fake kernel (shapes without data, for torch.compile) and its derivative, itself an operation.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from nerf.ops.library import load_library

load_library()
_ops = torch.ops.nerf


def march_rays(
    origins: Tensor,
    directions: Tensor,
    jitter: Tensor,
    occupied: Tensor,
    near: Tensor,
    far: Tensor,
    step_size: float,
    capacity: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """See reference.march_rays."""
    o, d, j = origins.detach(), directions.detach(), jitter.detach()
    return _ops.march_rays(o, d, j, occupied, near, far, step_size, capacity)


def interpolate_trilinear(grid: Tensor, coords: Tensor) -> Tensor:
    """See reference.interpolate_trilinear."""
    return _ops.interpolate_trilinear(grid, coords)


def composite_rays(
    density: Tensor,
    values: Tensor,
    t_starts: Tensor,
    t_ends: Tensor,
    ray_offsets: Tensor,
    min_transmittance: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See reference.composite_rays."""
    return _ops.composite_rays(density, values, t_starts, t_ends, ray_offsets, min_transmittance)


def sample_images(images: Tensor, pixel_indices: Tensor) -> Tensor:
    """See reference.sample_images. An index outside the images reads NaN."""
    return _ops.sample_images(images, pixel_indices)


def total_variation_grad(grad: Tensor, grid: Tensor, weight: float, touched_only: bool) -> None:
    """See reference.total_variation_grad."""
    _ops.total_variation_grad(grad, grid.detach(), weight, touched_only)
    torch.autograd.graph.increment_version(grad)


def adam_step(
    param: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    grad: Tensor,
    lr: Tensor,
    step: Tensor,
    beta1: float,
    beta2: float,
    eps: float,
) -> None:
    """See reference.adam_step."""
    _ops.adam_step(param, exp_avg, exp_avg_sq, grad, lr, step, beta1, beta2, eps)
    torch.autograd.graph.increment_version([param, exp_avg, exp_avg_sq])


def distortion_loss(weights: Tensor, t_starts: Tensor, t_ends: Tensor, ray_offsets: Tensor) -> Tensor:
    """See reference.distortion_loss."""
    return _ops.distortion_loss(weights, t_starts, t_ends, ray_offsets)


# Fake kernels.


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


@_fake("march_rays")
def _(origins, directions, jitter, occupied, near, far, step_size, capacity=0):
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


@_fake("sample_images")
def _(images, pixel_indices):
    return images.new_empty(pixel_indices.shape[0], images.shape[3], dtype=torch.float32)


@_fake("total_variation_grad")
def _(grad, grid, weight, touched_only):
    return None


@_fake("adam_step")
def _(param, exp_avg, exp_avg_sq, grad, lr, step, beta1, beta2, eps):
    return None


@_fake("distortion_loss")
def _(weights, t_starts, t_ends, ray_offsets):
    return weights.new_empty(ray_offsets.shape[0] - 1)


@_fake("distortion_loss_backward")
def _(grad_loss, weights, t_starts, t_ends, ray_offsets):
    return weights.new_empty(weights.shape)


# Derivatives.


def _save_trilinear(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _trilinear_backward(ctx, grad_out):
    grid, coords = ctx.saved_tensors
    needs_grid, needs_coords = ctx.needs_input_grad
    grad_grid, grad_coords = _ops.interpolate_trilinear_backward(grad_out, grid, coords, needs_grid, needs_coords)
    return grad_grid if needs_grid else None, grad_coords if needs_coords else None


def _save_composite(ctx, inputs, output):
    *tensors, ctx.min_transmittance = inputs
    ctx.save_for_backward(*tensors, output[3])


def _composite_backward(ctx, *grads):
    density, values, t_starts, t_ends, ray_offsets, weights = ctx.saved_tensors
    rays = ray_offsets.shape[0] - 1
    shapes = ((rays, values.shape[1]), (rays,), (rays,), weights.shape)
    grads = [density.new_zeros(s) if g is None else g for g, s in zip(grads, shapes, strict=True)]
    grad_density, grad_values = _ops.composite_rays_backward(
        *grads, density, values, t_starts, t_ends, ray_offsets, weights, ctx.min_transmittance
    )
    return grad_density, grad_values, None, None, None, None


def _save_distortion(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _distortion_backward(ctx, grad_loss):
    return _ops.distortion_loss_backward(grad_loss, *ctx.saved_tensors), None, None, None


def _no_second_derivative(name: str):
    def backward(ctx, *grads):
        raise RuntimeError(f"{name} has no second derivative; use backend=torch where one is needed")

    return backward


torch.library.register_autograd("nerf::interpolate_trilinear", _trilinear_backward, setup_context=_save_trilinear)
torch.library.register_autograd("nerf::composite_rays", _composite_backward, setup_context=_save_composite)
torch.library.register_autograd("nerf::distortion_loss", _distortion_backward, setup_context=_save_distortion)
for _name in ("interpolate_trilinear", "composite_rays", "distortion_loss"):
    torch.library.register_autograd(f"nerf::{_name}_backward", _no_second_derivative(_name))
