"""One small check of every operation against the reference, forward and backward: what `python -m nerf doctor` runs.

It finds what is broken on this machine: a kernel that does not run, or whose numbers are wrong. How accurate the
operations are is the tests' matter. A new operation gets a function that makes its arguments and a line in CHECKS.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor

from nerf.ops import reference

TOLERANCE = 1e-4  # of the largest number of an output: far above float32's roundings, far below a mistake
BACKWARD = "_backward"


@dataclass(frozen=True)
class Check:
    """How an operation is checked."""

    arguments: Callable[[], tuple]  # makes them in the schema's order, float32 on the CPU
    gradients: tuple[str, ...] = ()  # names of the arguments that have a derivative


@dataclass(frozen=True)
class Result:
    """What a check found."""

    operation: str
    device: str
    problem: str | None  # None: right, or not checked
    checked: bool
    seconds: float


def _numbers(*shape: int, low: float = 0.0, high: float = 1.0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(shape, generator=generator)


def _camera_rays() -> tuple:
    c2w, intrinsics = _numbers(3, 3, 4, low=-1), _numbers(3, 4, low=4, high=9, seed=1)
    return c2w, intrinsics, (3 * 72 * _numbers(100, seed=2)).long(), 9, 8, _numbers(4, 2, low=-0.5, high=0.5, seed=3)


def _march_rays() -> tuple:
    rays, cells = 60, (6, 5, 4)
    center = torch.tensor(cells) / 2
    origins = center + 9 * torch.nn.functional.normalize(_numbers(rays, 3, low=-1, seed=1), dim=-1)
    directions = center + _numbers(rays, 3, low=-2, high=2, seed=2) - origins
    near = torch.zeros(rays)
    occupied = _numbers(*cells, seed=3) < 0.4
    return origins, directions, _numbers(rays, low=-0.5, high=0.5, seed=4), occupied, near, near + 9, 0.02, 2000, 0.0


def _interpolate_trilinear() -> tuple:
    return _numbers(5, 4, 6, 12, low=-1), _numbers(200, 3, low=-1, high=6, seed=1)


def _composite_rays() -> tuple:
    offsets = torch.tensor([0, 5, 5, 40, 41, 110])
    starts = 1 + 0.1 * torch.arange(110.0)
    values = _numbers(110, 3, low=-1, seed=1)
    return 4 * _numbers(110), values, starts, starts + 0.1, offsets, 1e-4


def _sample_images() -> tuple:
    return (256 * _numbers(2, 8, 9, 4)).to(torch.uint8), (144 * _numbers(100, seed=1)).long()


def _total_variation_grad() -> tuple:
    grad = _numbers(5, 4, 6, 3, low=-1) * (_numbers(5, 4, 6, 3, seed=1) < 0.5)
    return grad, _numbers(5, 4, 6, 3, low=-2, high=2, seed=2), 0.3, True, torch.arange(0, 120, 2)


def _adam_step() -> tuple:
    shape = (30, 12)
    grad = _numbers(*shape, low=-1) * (_numbers(*shape, seed=1) < 0.5)
    moments = _numbers(*shape, low=-0.1, high=0.1, seed=2), _numbers(*shape, low=0.001, high=0.1, seed=3)
    return _numbers(*shape, seed=4), *moments, grad, torch.full((1,), 0.1), torch.full((1,), 3.0), None, 0.9, 0.99, 1e-8


def _interpolate_trilinear_grad() -> tuple:
    grid, coords = _interpolate_trilinear()
    return grid, _numbers(len(coords), grid.shape[3], low=-1, seed=2), coords


def _contract_basis() -> tuple:
    return _numbers(100, 28, low=-1), _numbers(7, 9, low=-1, seed=1), (7 * _numbers(100, seed=2)).long()


def _interpolate_cells() -> tuple:
    return _numbers(200, 8, 12, low=-1), _numbers(200, 3, low=-1, seed=1)


def _index_add() -> tuple:
    return _numbers(7, 5, low=-1), 0, (7 * _numbers(100, seed=1)).long(), _numbers(100, 5, low=-1, seed=2), 0.5


def _distortion_loss() -> tuple:
    _, _, starts, ends, offsets, _ = _composite_rays()
    return _numbers(110), starts, ends, offsets


def _march_visible() -> tuple:
    *rays, capacity, contraction = _march_rays()
    return *rays, _numbers(7, 6, 5, 1, low=-4, high=6, seed=5), -2.0, 1.5, 1e-3, 0.01, capacity, contraction


def _render_rays() -> tuple:
    *arguments, _, contraction = _march_visible()
    return *arguments, _numbers(7, 6, 5, 12, low=-1, seed=6), contraction, 1


CHECKS: dict[str, Check] = {
    "camera_rays": Check(_camera_rays),
    "march_rays": Check(_march_rays),
    "interpolate_trilinear": Check(_interpolate_trilinear, gradients=("grid", "coords")),
    "composite_rays": Check(_composite_rays, gradients=("density", "values")),
    "sample_images": Check(_sample_images),
    "total_variation_grad": Check(_total_variation_grad),
    "adam_step": Check(_adam_step),
    "interpolate_trilinear_grad": Check(_interpolate_trilinear_grad),
    "contract_basis": Check(_contract_basis, gradients=("values",)),
    "interpolate_cells": Check(_interpolate_cells, gradients=("feats", "points")),
    "index_add": Check(_index_add),
    "march_visible": Check(_march_visible),
    "render_rays": Check(_render_rays),
    "distortion_loss": Check(_distortion_loss, gradients=("weights",)),
}


def registered() -> list[str]:
    """The operations of torch.ops.nerf, sorted, those of the backward passes too."""
    names = torch._C._dispatch_get_all_op_names()
    return sorted({name.removeprefix("nerf::").split(".")[0] for name in names if name.startswith("nerf::")})


def is_checked(operation: str) -> bool:
    """Whether CHECKS covers it; a backward operation is covered by the gradients of its forward one."""
    forward = CHECKS.get(operation.removesuffix(BACKWARD))
    return forward is not None and (bool(forward.gradients) or not operation.endswith(BACKWARD))


def check(operation: str, device: str, ops: ModuleType) -> Result:
    """Runs ops.<operation>, or for a backward operation its forward one with gradients, on a device.

    ops: nerf.ops.native. The reference computes the same in float32 on the CPU. What it raises is its problem.
    """
    if not is_checked(operation):
        return Result(operation, device, None, False, 0.0)
    started = time.perf_counter()
    forward, backward = operation.removesuffix(BACKWARD), operation.endswith(BACKWARD)
    try:
        found = _outcome(forward, backward, ops, device)
    except (RuntimeError, ValueError) as error:  # PyTorch's errors of kernels, arguments and missing kernels
        problem = f"{operation} does not run on {device}: {str(error).splitlines()[0]}"
    else:
        problem = _difference(operation, device, found, _outcome(forward, backward, reference, "cpu"))
    return Result(operation, device, problem, True, time.perf_counter() - started)


def _outcome(name: str, backward: bool, ops: ModuleType, device: str) -> dict[str, Tensor]:
    """By name, on the CPU: gradients (backward), or the outputs and the arguments written in place."""
    schema = getattr(torch.ops.nerf, name).default._schema
    values = [x.to(device) if isinstance(x, Tensor) else x for x in CHECKS[name].arguments()]
    arguments = dict(zip((argument.name for argument in schema.arguments), values, strict=True))
    leaves = {key: arguments[key].requires_grad_() for key in CHECKS[name].gradients}
    returned = getattr(ops, name)(*arguments.values())
    returned = () if returned is None else (returned,) if isinstance(returned, Tensor) else returned
    if backward:
        weights = [torch.cos(torch.arange(x.numel(), device=device)).view(x.shape) for x in returned]
        gradients = torch.autograd.grad(returned, list(leaves.values()), weights)
        named = {f"the gradient of {key}": g for key, g in zip(leaves, gradients, strict=True)}
    else:
        written = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        named = {key: arguments[key] for key in written}
        named |= {f"output {index}": x for index, x in enumerate(returned)}
    return {key: x.detach().cpu() for key, x in named.items()}


def _difference(name: str, device: str, found: dict[str, Tensor], expected: dict[str, Tensor]) -> str | None:
    """The first output that is not the reference's, in a sentence."""
    for key, wanted in expected.items():
        got = found[key]
        if (got.shape, got.dtype) != (wanted.shape, wanted.dtype):
            kinds = [f"{x.dtype} {list(x.shape)}" for x in (got, wanted)]
            return f"{name} on {device}: {key} is {kinds[0]}, expected {kinds[1]}"
        error = (got.double() - wanted.double()).abs().max().item()
        largest = wanted.double().abs().max().item()
        if not error <= (TOLERANCE * largest if wanted.is_floating_point() else 0):  # NaN too
            found_error = f"differs from the reference by {error:.1e}, its numbers reach {largest:.1e}"
            return f"{name} on {device}: {key} {found_error}"
    return None
