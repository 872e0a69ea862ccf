"""composite_rays: the samples of each ray front to back."""

import torch
from torch import Tensor

from nerf.ops.registry import call, derivative, example, fake, numbers

_ops = torch.ops.nerf


class _ScaledGradient(torch.autograd.Function):
    """Identity on x [M] or [M,C] whose gradient is multiplied by scales [M]."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, scales: Tensor) -> Tensor:
        ctx.save_for_backward(scales)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        (scales,) = ctx.saved_tensors
        return gradient * scales.view(-1, *[1] * (gradient.dim() - 1)), None


def scale_gradients(density: Tensor, values: Tensor, t_mid: Tensor, full_gradient_from: float) -> tuple[Tensor, Tensor]:
    """Density [M] and values [M,C] as they are, their gradients multiplied as composite_rays says. t_mid [M]."""
    if full_gradient_from == 0:
        return density, values
    scales = (t_mid / full_gradient_from).clamp(max=1).square()
    return _ScaledGradient.apply(density, scales), _ScaledGradient.apply(values, scales)


def composite_rays(
    density: Tensor,
    values: Tensor,
    t_starts: Tensor,
    t_ends: Tensor,
    ray_offsets: Tensor,
    min_transmittance: float = 0.0,
    full_gradient_from: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Front-to-back compositing along rays (Max 1995; Mildenhall et al. 2020, eq. 3).

    alpha = 1 - exp(-density * delta), transmittance = product of (1 - alpha) before, weight = transmittance * alpha.
    Samples behind transmittance < min_transmittance weigh nothing.

    density [M]: per world unit, >= 0. values [M,C]; bfloat16 beside float32 too, and so is their gradient then.
    t_starts, t_ends [M]: world units. ray_offsets [R+1] int64: from 0, never less than the one before, M at most;
    others raise ValueError on the CPU and are clamped to 0 ... M on CUDA.
    Returns values [R,C], opacity [R], depth [R] (sum of weight * midpoint, not divided by opacity), weights [M].
    Differentiable in density and values through all four.

    full_gradient_from: gradients of density and values are multiplied by min(1, t / full_gradient_from)^2, t the middle
    of the sample. Space close to a camera is sampled densely by that camera and hardly by others; it gets large
    consistent gradients from one view and grows floaters, which hide the scene from held-out views. The density of rays
    falls with the square of the distance, so gradients are scaled by that square (Philip & Deschaintre 2023, "Floaters
    No More: Radiance Field Gradient Scaling"). 0: no scaling.
    """
    t_mid = 0.5 * (t_starts + t_ends)
    density, values = scale_gradients(density, values.to(density.dtype), t_mid, full_gradient_from)
    num_rays, num_samples = len(ray_offsets) - 1, len(density)
    counts = ray_offsets.diff()
    ray = torch.repeat_interleave(torch.arange(num_rays, device=density.device), counts)
    owned = slice(0, len(ray))
    slot = torch.arange(len(ray), device=density.device) - ray_offsets[ray]
    optical_depth = (density * (t_ends - t_starts))[owned]
    longest = int(counts.max().item()) if num_rays else 0
    dense = optical_depth.new_zeros(num_rays, longest + 1).index_put((ray, slot + 1), optical_depth)
    transmittance = torch.exp(-dense.cumsum(1))[ray, slot]
    weights = transmittance * -torch.expm1(-optical_depth)
    weights = torch.where(transmittance < min_transmittance, torch.zeros_like(weights), weights)

    def per_ray(x: Tensor) -> Tensor:
        return x.new_zeros(num_rays, *x.shape[1:]).index_add(0, ray, x)

    t_mid = t_mid[owned]
    rows = per_ray(weights[:, None] * values[owned])
    padded = torch.nn.functional.pad(weights, (0, num_samples - len(ray)))
    return rows, per_ray(weights), per_ray(weights * t_mid), padded


@call("composite_rays")
def _(
    density: Tensor,
    values: Tensor,
    t_starts: Tensor,
    t_ends: Tensor,
    ray_offsets: Tensor,
    min_transmittance: float = 0.0,
    full_gradient_from: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _ops.composite_rays(density, values, t_starts, t_ends, ray_offsets, min_transmittance, full_gradient_from)


@fake("composite_rays")
def _(density, values, t_starts, t_ends, ray_offsets, min_transmittance=0.0, full_gradient_from=0.0):
    rays = ray_offsets.shape[0] - 1
    return (
        density.new_empty(rays, values.shape[1]),
        density.new_empty(rays),
        density.new_empty(rays),
        density.new_empty(density.shape),
    )


@fake("composite_rays_backward")
def _(grad_values, grad_opacity, grad_depth, grad_weights, density, values, *rest):
    return density.new_empty(density.shape), values.new_empty(values.shape)


def _save(ctx, inputs, output):
    *tensors, ctx.min_transmittance, ctx.full_gradient_from = inputs
    ctx.set_materialize_grads(False)  # few losses ask for weights, and zeros for all samples are a kernel of their own
    ctx.save_for_backward(*tensors, output[3])


@derivative("composite_rays", of=("density", "values"), save=_save)
def _(ctx, *grads):
    density, values, t_starts, t_ends, ray_offsets, weights = ctx.saved_tensors
    rays = ray_offsets.shape[0] - 1
    shapes = (rays, values.shape[1]), (rays,)
    needed = [density.new_zeros(s) if g is None else g for g, s in zip(grads[:2], shapes, strict=True)]
    samples = density, values, t_starts, t_ends, ray_offsets, weights
    settings = ctx.min_transmittance, ctx.full_gradient_from
    grad_density, grad_values = _ops.composite_rays_backward(*needed, *grads[2:], *samples, *settings)
    return grad_density, grad_values, None, None, None, None, None


@example("composite_rays")
def composite_example() -> tuple:
    """Five rays, one of them without samples, one with more than two rounds of a warp."""
    offsets = torch.tensor([0, 5, 5, 40, 41, 110])
    starts = 1 + 0.1 * torch.arange(110.0)
    values = numbers(110, 3, low=-1, seed=1)
    return 4 * numbers(110), values, starts, starts + 0.1, offsets, 1e-4
