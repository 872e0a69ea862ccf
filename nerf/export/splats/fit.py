"""Gaussians are fitted to the field's pictures: a short optimization from where the surface put them."""

import math
from dataclasses import replace

import torch
from torch import Tensor
from tqdm import tqdm

from nerf.export.splats.gaussians import Gaussians
from nerf.export.splats.pictures import Pictures
from nerf.export.splats.rasterize import Lattice, rasterize
from nerf.ops.backend import Backend

STEPS = {"cuda": 4000, "cpu": 500}
PIXELS = {"cuda": 1 << 21, "cpu": 1 << 16}  # that a step renders at most; of a larger picture every n-th column and row
# Learning rates; positions are in units of a Gaussian's first size.
RATES = {"shifts": 0.15, "log_scales": 0.06, "rotations": 0.03, "logits": 0.15, "base": 0.02, "rest": 0.005}
LAST_RATE = 0.1  # of the first one, at the end
TAIL = 0.1  # of the steps, whose mean error is reported


def fit(gaussians: Gaussians, pictures: Pictures, backend: Backend, steps: int | None) -> tuple[Gaussians, float]:
    """The fitted Gaussians, and their PSNR in dB on pictures over random backgrounds; nan without steps.

    steps: None means STEPS. The background is random, so that no Gaussian stands for it.
    """
    device = backend.device.type
    steps = STEPS[device] if steps is None else steps
    if steps == 0:
        return gaussians, float("nan")
    size = gaussians.log_scales.exp().amax(-1, keepdim=True)
    start = {
        "shifts": torch.zeros_like(gaussians.means),
        "log_scales": gaussians.log_scales,
        "rotations": gaussians.rotations,
        "logits": gaussians.logits,
        "base": gaussians.harmonics[:, :1],
        "rest": gaussians.harmonics[:, 1:],
    }
    learned = {name: value.clone().requires_grad_() for name, value in start.items()}
    groups = [{"params": [value], "lr": RATES[name]} for name, value in learned.items()]
    optimizer = torch.optim.Adam(groups, betas=(0.9, 0.99), eps=1e-15, fused=True)
    decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, LAST_RATE ** (1 / steps))
    generator = torch.Generator().manual_seed(0)
    errors, views = [], torch.empty(0, dtype=torch.int64)
    for _ in tqdm(range(steps), desc="fitting", unit="step", leave=False):
        if len(views) == 0:
            views = torch.randperm(len(pictures), generator=generator)
        view, views = int(views[0]), views[1:]
        stride = math.ceil(math.sqrt(pictures.opacity[view].numel() / PIXELS[device]))
        column, row = torch.randint(stride, (2,), generator=generator).tolist()
        lattice = Lattice(stride, column, row)
        background = torch.rand(3, generator=generator).to(gaussians.means)
        light, opacity = rasterize(_assembled(gaussians, learned, size), pictures.cameras, view, backend.ops, lattice)
        target = lattice.of(pictures.light[view]).float() / 255
        opaque = lattice.of(pictures.opacity[view]).float() / 255
        loss = (light - target + (opaque - opacity)[:, None] * background).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
        errors.append(loss.detach())
    tail = torch.stack(errors[-max(1, round(TAIL * steps)) :])
    return _assembled(gaussians, learned, size).detach(), -10 * tail.mean().log10().item()


def _assembled(gaussians: Gaussians, learned: dict[str, Tensor], size: Tensor) -> Gaussians:
    return replace(
        gaussians,
        means=gaussians.means + size * learned["shifts"],
        log_scales=learned["log_scales"],
        rotations=learned["rotations"],
        logits=learned["logits"],
        harmonics=torch.cat([learned["base"], learned["rest"]], dim=1),
    )
