"""activate_density: raw density as density."""

import torch

from nerf.ops.activations import activate_density as activate_density
from nerf.ops.registry import derivative, example, fake, numbers

_ops = torch.ops.nerf


@fake("activate_density")
def _(raw_density, shift, scale):
    return raw_density.new_empty(raw_density.shape)


@fake("activate_density_backward")
def _(grad_out, raw_density, shift, scale):
    return raw_density.new_empty(raw_density.shape)


def _save(ctx, inputs, output):
    raw_density, *ctx.line = inputs
    ctx.save_for_backward(raw_density)


@derivative("activate_density", of=("raw_density",), save=_save)
def _(ctx, grad_out):
    return _ops.activate_density_backward(grad_out, *ctx.saved_tensors, *ctx.line), None, None


@example("activate_density")
def _():
    return numbers(50, low=-9, high=9), -2.0, 1.5
