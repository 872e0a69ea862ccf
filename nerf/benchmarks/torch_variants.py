"""Faster PyTorch variants of the reference operations, for a fair comparison in the ablation.

A variant is a namespace with the functions of reference.py, some of them rewritten. The mathematics is the same, and
march_rays is always that of the reference, so the samples are bit-equal.

Legend: R rays, M samples, N points, C channels, X Y Z grid vertices.
"""

import inspect
import subprocess
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor
from torch.nn import functional

from nerf.ops import reference
from nerf.ops.composite import scale_gradients

# Exceptions of torch.compile if a compiler, Triton or Python's headers are missing.
COMPILE_ERRORS = (RuntimeError, OSError, ImportError, subprocess.SubprocessError)


@dataclass(frozen=True, eq=False)
class Variant:
    """One PyTorch variant of the operations. Compared by identity."""

    label: str
    ops: SimpleNamespace  # the same functions with the same arguments as reference.py
    channels_first: bool = False  # grids are stored as [C,X,Y,Z]; their shape stays [X,Y,Z,C]


def gather_once(grid: Tensor, coords: Tensor, grad: Tensor | None = None) -> Tensor:
    """reference.interpolate_trilinear with all eight corners in one index_select.

    With eight of them, autograd would fill and add up eight gradients of the whole grid.
    """
    rows, weights = _corners(grid, coords)
    values = grid.reshape(-1, grid.shape[3]).index_select(0, rows.view(-1)).view(*rows.shape, grid.shape[3])
    return (values * weights[..., None]).sum(1)


def embedding_bag(grid: Tensor, coords: Tensor, grad: Tensor | None = None) -> Tensor:
    """reference.interpolate_trilinear by F.embedding_bag, which gathers and sums with weights in one call."""
    rows, weights = _corners(grid, coords)
    return functional.embedding_bag(rows, grid.reshape(-1, grid.shape[3]), per_sample_weights=weights, mode="sum")


def grid_sample(grid: Tensor, coords: Tensor, grad: Tensor | None = None) -> Tensor:
    """reference.interpolate_trilinear by F.grid_sample, which takes coordinates z, y, x in [-1,1]."""
    unit = [coords[:, axis] * (2 / (grid.shape[axis] - 1)) - 1 for axis in (2, 1, 0)]
    points = torch.stack(unit, -1).view(1, 1, 1, -1, 3)
    volume = grid.permute(3, 0, 1, 2)[None]
    return functional.grid_sample(volume, points, padding_mode="border", align_corners=True)[0, :, 0, 0].T


def cell_rows(grid: Tensor, coords: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Rows [N,8] int64 of the flat grid around each point, and its position within its cell, [N] in [0,1] per axis."""
    first, offsets, fractions = 0, [0], []
    for axis, size in enumerate(grid.shape[:3]):
        x = coords[:, axis].clamp(0, size - 1)
        low = x.detach().floor().clamp(max=max(size - 2, 0))
        stride = grid.shape[1:3].numel() if axis == 0 else grid.shape[2] if axis == 1 else 1
        first = first + low.long() * stride
        offsets = [offset + step for offset in offsets for step in (0, stride if size > 1 else 0)]
        fractions.append(x - low)
    return torch.stack([first + offset for offset in offsets], -1), fractions


def _corners(grid: Tensor, coords: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [N,8] int64 of the flat grid around each point, and their weights [N,8]."""
    rows, fractions = cell_rows(grid, coords)
    weights = coords.new_ones(len(coords), 1)
    for fraction in fractions:
        both = torch.stack([1 - fraction, fraction], -1)
        weights = (weights[:, :, None] * both[:, None]).flatten(1)
    return rows, weights


def composite_packed(
    density: Tensor,
    values: Tensor,
    t_starts: Tensor,
    t_ends: Tensor,
    ray_offsets: Tensor,
    min_transmittance: float = 0.0,
    full_gradient_from: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """reference.composite_rays for at least one ray, without its dense matrix and its two reads from the device."""
    density, values = scale_gradients(density, values, 0.5 * (t_starts + t_ends), full_gradient_from)
    along = _along_rays(density, t_starts, t_ends, ray_offsets)
    return _weigh(values, t_starts, t_ends, len(ray_offsets) - 1, min_transmittance, *along)


def _along_rays(density: Tensor, t_starts: Tensor, t_ends: Tensor, ray_offsets: Tensor) -> tuple[Tensor, ...]:
    """For each sample, [M]: its ray, its optical depth, and the optical depth before it on its ray.

    One cumulative sum over all rays, in float64 because it becomes large; the sum before each ray is subtracted.
    """
    num_samples = len(density)
    sample = torch.arange(num_samples, device=density.device)
    # Rows after the last ray have length 0, so any ray may own them.
    ray = torch.searchsorted(ray_offsets[1:].contiguous(), sample, right=True).clamp(max=len(ray_offsets) - 2)
    optical_depth = density * (t_ends - t_starts)
    total = optical_depth.double().cumsum(0) - optical_depth
    first = ray_offsets.index_select(0, ray).clamp(max=num_samples - 1)
    return ray, optical_depth, (total - total.index_select(0, first)).to(density.dtype)


def _weigh(
    values: Tensor,
    t_starts: Tensor,
    t_ends: Tensor,
    num_rays: int,
    min_transmittance: float,
    ray: Tensor,
    optical_depth: Tensor,
    before: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The outputs of composite_rays, from the optical depth of each sample and before it."""
    transmittance = torch.exp(-before)
    weights = transmittance * -torch.expm1(-optical_depth)
    weights = torch.where(transmittance < min_transmittance, torch.zeros_like(weights), weights)

    def per_ray(x: Tensor) -> Tensor:
        return x.new_zeros(num_rays, *x.shape[1:]).index_add(0, ray, x)

    t_mid = 0.5 * (t_starts + t_ends)
    return per_ray(weights[:, None] * values), per_ray(weights), per_ray(weights * t_mid), weights


_REFERENCE = {name: f for name, f in vars(reference).items() if inspect.isfunction(f)}


def _variant(label: str, interpolate_trilinear: object, channels_first: bool = False) -> Variant:
    changed = {"interpolate_trilinear": interpolate_trilinear, "composite_rays": composite_packed}
    return Variant(label, SimpleNamespace(**_REFERENCE | changed), channels_first)


GATHER_ONCE = _variant("one gather + index_add", gather_once)
EAGER = (
    Variant("gather + index_add", SimpleNamespace(**_REFERENCE)),  # the reference as it is
    GATHER_ONCE,
    _variant("embedding_bag", embedding_bag),
    _variant("grid_sample, channels first", grid_sample, channels_first=True),
    _variant("grid_sample, channels last", grid_sample),
)


def compiled(variant: Variant, device: torch.device) -> Variant:
    """The variant with torch.compile, including Adam, except march_rays and _along_rays.

    Compiled, _along_rays gave NaN on a GPU (PyTorch 2.11) and was slower. Compilation happens at the first calls, which
    raise COMPILE_ERRORS.
    """
    torch.compiler.reset()  # the limit of recompilations counts per function, over all rows
    dynamic = device.type == "cpu"  # shapes are fixed on a GPU and vary between batches on a CPU
    weigh = torch.compile(_weigh, dynamic=dynamic)

    def composite_rays(density, values, t_starts, t_ends, ray_offsets, min_transmittance=0.0, full_gradient_from=0.0):
        density, values = scale_gradients(density, values, 0.5 * (t_starts + t_ends), full_gradient_from)
        along = _along_rays(density, t_starts, t_ends, ray_offsets)
        return weigh(values, t_starts, t_ends, len(ray_offsets) - 1, min_transmittance, *along)

    ops = SimpleNamespace(**vars(variant.ops) | {"composite_rays": composite_rays})
    ops.interpolate_trilinear = torch.compile(ops.interpolate_trilinear, dynamic=dynamic)
    ops.contract_basis = torch.compile(ops.contract_basis, dynamic=dynamic)
    ops.adam_step = torch.compile(ops.adam_step, dynamic=False)
    return Variant(f"compile of {variant.label}", ops, variant.channels_first)
