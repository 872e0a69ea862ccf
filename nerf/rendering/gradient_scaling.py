"""Gradient scaling: weaker gradients for samples near the camera, against floaters.

Space close to a camera is sampled densely by that camera and hardly by others. It gets large consistent gradients from
one view and grows floaters, which hide the scene from held-out views. The density of rays falls with the square of the
distance, so gradients are scaled by that square, up to a maximum distance (Philip & Deschaintre 2023, "Floaters No
More: Radiance Field Gradient Scaling").

Legend: M samples, C channels.
"""

import torch
from torch import Tensor

from nerf.config.schema import LossConfig
from nerf.errors import UserError
from nerf.rendering.samples import RaySamples
from nerf.scene.box import SceneBox
from nerf.scene.contraction import ContractedSpace


def full_gradient_distance(loss: LossConfig, box: SceneBox) -> float:
    """The distance from which gradients are not scaled, in scene space; 0: no scaling. Reads from the device.

    Raises UserError for a forward-facing scene, where this distance is not defined.
    """
    if loss.grad_scaling_distance == 0:
        return 0.0
    if box.space.kind == "forward_facing":
        raise UserError(
            f"loss.grad_scaling_distance={loss.grad_scaling_distance:g} has no meaning in a forward-facing "
            "scene, whose cameras stand before all of it; expected 0."
        )
    half = box.space.half if isinstance(box.space, ContractedSpace) else 0.5 * box.size
    return loss.grad_scaling_distance * half.min().item()


def scale_gradients(x: Tensor, factors: Tensor) -> Tensor:
    """Identity on x [M] or [M,C] whose gradient is multiplied by factors [M]."""
    return _ScaledGradient.apply(x, factors)


def gradient_scales(samples: RaySamples, full_gradient_from: float) -> Tensor:
    """The factors for the gradients of the samples, [M]: min(1, distance / full_gradient_from)^2."""
    middle = 0.5 * (samples.t_starts + samples.t_ends)
    return (middle / full_gradient_from).clamp(max=1).square()


class _ScaledGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, factors: Tensor) -> Tensor:
        ctx.save_for_backward(factors)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        (factors,) = ctx.saved_tensors
        return gradient * factors.view(-1, *[1] * (gradient.dim() - 1)), None
