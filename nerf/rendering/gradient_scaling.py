"""Weaker gradients near the cameras, against blobs that hang before them.

What stands close to a camera fills many of its pixels and is seen by few others: it gets gradients from dense rays
that agree with each other, and becomes a blob that hides the scene from held-out views. Rays thin out with the square
of the distance; with gradients scaled by it a place is judged alike from near and far, and the cameras that look
through it decide (Philip & Deschaintre 2023, "Floaters No More: Radiance Field Gradient Scaling").
"""

import torch
from torch import Tensor

from nerf.config.schema import LossConfig
from nerf.errors import UserError
from nerf.rendering.samples import RaySamples
from nerf.scene.box import SceneBox
from nerf.scene.contraction import ContractedSpace


def full_gradient_distance(loss: LossConfig, box: SceneBox) -> float:
    """The distance from which on gradients count in full, in scene space; 0: everywhere. Reads from the device.

    Raises UserError where the scene has no such distance.
    """
    if loss.near_fade == 0:
        return 0.0
    if box.space.kind == "forward":
        raise UserError(
            f"loss.near_fade={loss.near_fade:g} has no meaning in a forward-facing scene, whose cameras stand before "
            "all of it; expected 0."
        )
    half = box.space.half if isinstance(box.space, ContractedSpace) else 0.5 * box.size
    return loss.near_fade * half.min().item()


def scale_gradients(x: Tensor, factors: Tensor) -> Tensor:
    """x [M] or [M,C] as it is; its gradient times factors [M]."""
    return _Faded.apply(x, factors)


def gradient_scales(samples: RaySamples, full_gradient_from: float) -> Tensor:
    """How much the gradients of each sample count, [M]: (distance / full_gradient_from)^2, from there on 1."""
    middle = 0.5 * (samples.t_starts + samples.t_ends)
    return (middle / full_gradient_from).clamp(max=1).square()


class _Faded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, factors: Tensor) -> Tensor:
        ctx.save_for_backward(factors)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        (factors,) = ctx.saved_tensors
        return gradient * factors.view(-1, *[1] * (gradient.dim() - 1)), None
