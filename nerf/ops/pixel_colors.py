"""pixel_colors: what a color network says of pixels, over their background."""

import torch
from torch import Tensor

from nerf.ops.activations import sigmoid
from nerf.ops.registry import derivative, example, fake, numbers

_ops = torch.ops.nerf


def pixel_colors(logits: Tensor, opacity: Tensor, background: Tensor, diffuse: Tensor | None) -> Tensor:
    """Colors [P,3] of pixels: opacity * (sigmoid(logits) + diffuse) + (1 - opacity) * background.

    logits [P,3]: the outputs of a color network. opacity [P]. background [3] or [P,3]. diffuse [P,3]: colors that do
    not depend on the view; None: 0. Differentiable in all.
    """
    light = sigmoid(logits)
    light = light if diffuse is None else light + diffuse
    return torch.addcmul(light * opacity[:, None], 1 - opacity[:, None], background)


@fake("pixel_colors")
def _(logits, opacity, background, diffuse):
    return logits.new_empty(logits.shape)


@fake("pixel_colors_backward")
def _(grad_out, logits, opacity, background, diffuse):
    colors = logits.new_empty(logits.shape)
    return colors, logits.new_empty(opacity.shape), torch.empty_like(colors), torch.empty_like(colors)


@derivative("pixel_colors", of=("logits", "opacity", "background", "diffuse"))
def _(ctx, grad_out):
    background, diffuse = ctx.saved_tensors[2:]
    of_logits, of_opacity, of_background, of_diffuse = _ops.pixel_colors_backward(grad_out, *ctx.saved_tensors)
    if background.dim() == 1:
        of_background = of_background.sum(0) if ctx.needs_input_grad[2] else None
    return of_logits, of_opacity, of_background, None if diffuse is None else of_diffuse


@example("pixel_colors")
def _():
    return numbers(50, 3, low=-3, high=3), numbers(50, seed=1), numbers(50, 3, seed=2), numbers(50, 3, seed=3)
