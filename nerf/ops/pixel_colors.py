"""pixel_colors: what a color network says of pixels, over their background."""

import torch
from torch import Tensor

from nerf.ops.activations import sigmoid
from nerf.ops.registry import derivative, example, fake, numbers

_ops = torch.ops.nerf


def pixel_colors(logits: Tensor, opacity: Tensor, background: Tensor, values: Tensor | None) -> Tensor:
    """Colors [P,3] of pixels: opacity * sigmoid(logits) + values[:, :3] + (1 - opacity) * background.

    logits [P,3]: the outputs of a color network. opacity [P]. background [3] or [P,3]. values [P,C], C >= 3: as
    composite_rays returns them; the first three are diffuse colors, which do not depend on the view and, composited,
    carry their opacity already. None: no such colors. Differentiable in all.
    """
    colors = torch.addcmul(sigmoid(logits) * opacity[:, None], 1 - opacity[:, None], background)
    return colors if values is None else colors + values[:, :3]


@fake("pixel_colors")
def _(logits, opacity, background, values):
    return logits.new_empty(logits.shape)


@fake("pixel_colors_backward")
def _(grad_out, logits, opacity, background, values):
    of_values = logits.new_empty(0 if values is None else values.shape)
    colors = logits.new_empty(logits.shape)
    return colors, logits.new_empty(opacity.shape), torch.empty_like(colors), of_values


@derivative("pixel_colors", of=("logits", "opacity", "background", "values"))
def _(ctx, grad_out):
    background, values = ctx.saved_tensors[2:]
    of_logits, of_opacity, of_background, of_values = _ops.pixel_colors_backward(grad_out, *ctx.saved_tensors)
    if background.dim() == 1:
        of_background = of_background.sum(0) if ctx.needs_input_grad[2] else None
    return of_logits, of_opacity, of_background, None if values is None else of_values


@example("pixel_colors")
def _():
    return numbers(50, 3, low=-3, high=3), numbers(50, seed=1), numbers(50, 3, seed=2), numbers(50, 12, seed=3)
