"""shading_inputs: what a color network sees of a pixel, features and the encoded view direction."""

import torch
from torch import Tensor
from torch.nn import functional

from nerf.ops.registry import derivative, example, fake, numbers

_ops = torch.ops.nerf


def shading_inputs(
    values: Tensor,
    opacity: Tensor,
    directions: Tensor,
    noise: Tensor | None,
    noise_scale: float,
    min_opacity: float,
    frequencies: int,
    width: int,
    write_empty: bool = True,
) -> Tensor:
    """The inputs [P,width] of a network that shades P pixels from what their rays have composited.

    values [P,C] and opacity [P]: as composite_rays returns them. Their ratio, the mean features of the surface, fills
    the first C columns; opacity counts as min_opacity where it is smaller. noise [P,C]: added, times noise_scale.

    directions [P,3], unit: the next 3 + 6 F columns are d, sin(2^k d) and cos(2^k d) for k = 0 .. F-1 (Mildenhall et
    al. 2020, eq. 4, without pi) with F = frequencies. Zeros follow. A pixel with an opacity of 0 has nothing but zeros.
    write_empty: False leaves its row as it is found in memory, for a network that leaves such pixels out: most of the
    time of a picture's inputs. Differentiable in values and opacity alone.
    """
    features = values / opacity.clamp(min=min_opacity)[:, None]
    if noise is not None:
        features = features + noise_scale * noise
    directions = directions.detach()
    scales = 2.0 ** torch.arange(frequencies, device=values.device, dtype=values.dtype)
    angles = (directions[:, None] * scales[:, None]).flatten(1)
    inputs = torch.cat([features, directions, angles.sin(), angles.cos()], dim=-1)
    inputs = inputs.masked_fill((opacity == 0)[:, None], 0.0)
    return functional.pad(inputs, (0, width - inputs.shape[1]))


@fake("shading_inputs")
def _(values, opacity, directions, noise, noise_scale, min_opacity, frequencies, width, write_empty=True):
    return values.new_empty(values.shape[0], width)


@fake("shading_inputs_backward")
def _(grad_out, values, opacity, min_opacity):
    return values.new_empty(values.shape), values.new_empty(opacity.shape)


def _save(ctx, inputs, output):
    values, opacity, *others = inputs
    ctx.min_opacity, ctx.others = others[3], [None] * len(others)
    ctx.save_for_backward(values, opacity)


@derivative("shading_inputs", of=("values", "opacity"), save=_save)
def _(ctx, grad_out):
    grads = _ops.shading_inputs_backward(grad_out, *ctx.saved_tensors, ctx.min_opacity)
    return *grads, *ctx.others


@example("shading_inputs")
def _():
    directions = functional.normalize(numbers(50, 3, low=-1, seed=2), dim=-1)
    return numbers(50, 12, low=-1), numbers(50, seed=1), directions, numbers(50, 12, seed=3), 0.1, 1e-3, 4, 40
