"""The operations through the native library: torch.ops.nerf, C++ on CPU tensors and CUDA on CUDA tensors.

Schemas stand in cuda_ext/library.cpp, meaning and shapes in reference.py. Here each operation gets what PyTorch needs
besides a kernel: a fake kernel (fakes.py) and here its derivative, itself an operation.
"""

import torch
from torch import Tensor

from nerf.ops import fakes  # noqa: F401  loads the library

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
    contraction: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """See reference.march_rays."""
    o, d, j = origins.detach(), directions.detach(), jitter.detach()
    return _ops.march_rays(o, d, j, occupied, near, far, step_size, capacity, contraction)


def interpolate_trilinear(grid: Tensor, coords: Tensor, grad: Tensor | None = None) -> Tensor:
    """See reference.interpolate_trilinear. Backward adds to grad and hands autograd no gradient of the grid."""
    if grad is None or not torch.is_grad_enabled():
        return _ops.interpolate_trilinear(grid, coords)
    return _InterpolateInto.apply(grid, coords, grad)


def interpolate_trilinear_grad(grad: Tensor, grad_out: Tensor, coords: Tensor) -> None:
    """See reference.interpolate_trilinear_grad."""
    _ops.interpolate_trilinear_grad(grad, grad_out, coords)
    torch.autograd.graph.increment_version(grad)


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


def contract_basis(values: Tensor, basis: Tensor, ray_indices: Tensor) -> Tensor:
    """See reference.contract_basis. A ray index outside the basis reads NaN; the basis has no derivative here."""
    return _ops.contract_basis(values, basis, ray_indices)


def camera_rays(
    c2w: Tensor, intrinsics: Tensor, pixel_indices: Tensor, width: int, height: int, subpixels: Tensor
) -> tuple[Tensor, Tensor]:
    """See reference.camera_rays. A pixel outside the images has rays of NaN; cameras have no derivative here."""
    return _ops.camera_rays(c2w, intrinsics, pixel_indices, width, height, subpixels)


def sample_images(images: Tensor, pixel_indices: Tensor) -> Tensor:
    """See reference.sample_images. An index outside the images reads NaN."""
    return _ops.sample_images(images, pixel_indices)


def total_variation_grad(
    grad: Tensor, grid: Tensor, weight: float, touched_only: bool, rows: Tensor | None = None
) -> None:
    """See reference.total_variation_grad."""
    _ops.total_variation_grad(grad, grid.detach(), weight, touched_only, rows)
    torch.autograd.graph.increment_version(grad)


def adam_step(
    param: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    grad: Tensor,
    lr: Tensor,
    step: Tensor,
    rows: Tensor | None,
    beta1: float,
    beta2: float,
    eps: float,
) -> None:
    """See reference.adam_step."""
    _ops.adam_step(param, exp_avg, exp_avg_sq, grad, lr, step, rows, beta1, beta2, eps)
    torch.autograd.graph.increment_version([param, exp_avg, exp_avg_sq, grad])


def interpolate_cells(feats: Tensor, points: Tensor) -> Tensor:
    """See reference.interpolate_cells."""
    return _ops.interpolate_cells(feats, points)


def index_add(dst: Tensor, dim: int, index: Tensor, src: Tensor, alpha: float = 1.0) -> None:
    """See reference.index_add. A row whose index is outside of dst raises on the CPU and is left out on CUDA."""
    _ops.index_add(dst, dim, index, src.detach(), alpha)
    torch.autograd.graph.increment_version(dst)


def distortion_loss(weights: Tensor, t_starts: Tensor, t_ends: Tensor, ray_offsets: Tensor) -> Tensor:
    """See reference.distortion_loss."""
    return _ops.distortion_loss(weights, t_starts, t_ends, ray_offsets)


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
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """See reference.march_visible."""
    rays = (origins.detach(), directions.detach(), jitter.detach(), occupied, near, far, step_size)
    density = (density_grid.detach(), density_shift, density_scale, min_transmittance, min_weight)
    return _ops.march_visible(*rays, *density, capacity, contraction)


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
) -> tuple[Tensor, Tensor, Tensor]:
    """See reference.render_rays."""
    rays = (origins.detach(), directions.detach(), jitter.detach(), occupied, near, far, step_size)
    density = (density_grid.detach(), density_shift, density_scale, min_transmittance, min_weight)
    return _ops.render_rays(*rays, *density, values_grid.detach(), contraction, rays_per_pixel)


# Derivatives.


def _cameras_backward(ctx, *grads):
    raise RuntimeError("camera_rays has no derivative; use backend=torch for one, or poses=refine to learn cameras")


def _save_trilinear(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _trilinear_backward(ctx, grad_out):
    grid, coords = ctx.saved_tensors
    needs_grid, needs_coords = ctx.needs_input_grad
    grad_grid, grad_coords = _ops.interpolate_trilinear_backward(grad_out, grid, coords, needs_grid, needs_coords)
    return grad_grid if needs_grid else None, grad_coords if needs_coords else None


class _InterpolateInto(torch.autograd.Function):
    """Interpolation whose backward pass adds to a gradient that is there; coords get theirs through autograd."""

    @staticmethod
    def forward(ctx, grid, coords, grad):
        ctx.save_for_backward(grid, coords)
        ctx.grad = grad
        return _ops.interpolate_trilinear(grid, coords)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_out):
        grid, coords = ctx.saved_tensors
        if ctx.needs_input_grad[0]:
            interpolate_trilinear_grad(ctx.grad, grad_out, coords)
        if not ctx.needs_input_grad[1]:
            return None, None, None
        return None, _ops.interpolate_trilinear_backward(grad_out, grid, coords, False, True)[1], None


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


def _save_basis(ctx, inputs, output):
    values, basis, ray_indices = inputs
    ctx.channels = values.shape[1]
    ctx.save_for_backward(basis, ray_indices)


def _basis_backward(ctx, grad_out):
    if ctx.needs_input_grad[1]:
        raise RuntimeError("contract_basis has no derivative with respect to basis; use backend=torch for one")
    return _ops.contract_basis_backward(grad_out, *ctx.saved_tensors, ctx.channels), None, None


def _save_cells(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _cells_backward(ctx, grad_out):
    feats, points = ctx.saved_tensors
    needs_feats, needs_points = ctx.needs_input_grad
    grad_feats, grad_points = _ops.interpolate_cells_backward(
        grad_out, feats, points, needs_feats, needs_points
    )
    return grad_feats if needs_feats else None, grad_points if needs_points else None


def _save_distortion(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _distortion_backward(ctx, grad_loss):
    return _ops.distortion_loss_backward(grad_loss, *ctx.saved_tensors), None, None, None


def _no_second_derivative(name: str):
    def backward(ctx, *grads):
        raise RuntimeError(f"{name} has no second derivative; use backend=torch where one is needed")

    return backward


torch.library.register_autograd("nerf::camera_rays", _cameras_backward)
torch.library.register_autograd("nerf::interpolate_trilinear", _trilinear_backward, setup_context=_save_trilinear)
torch.library.register_autograd("nerf::composite_rays", _composite_backward, setup_context=_save_composite)
torch.library.register_autograd("nerf::contract_basis", _basis_backward, setup_context=_save_basis)
torch.library.register_autograd("nerf::interpolate_cells", _cells_backward, setup_context=_save_cells)
torch.library.register_autograd("nerf::distortion_loss", _distortion_backward, setup_context=_save_distortion)
for _name in ("interpolate_trilinear", "composite_rays", "contract_basis", "interpolate_cells", "distortion_loss"):
    torch.library.register_autograd(f"nerf::{_name}_backward", _no_second_derivative(_name))
