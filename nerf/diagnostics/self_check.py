"""One small check of every operation against the reference, forward and backward: what `python -m nerf doctor` runs.

It finds what is broken on this machine: a kernel that does not run, or whose numbers are wrong. How accurate the
operations are is the tests' matter. The arguments are the example in the file of the operation, nerf/ops/x.py.
"""

import time
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor

from nerf.ops import reference
from nerf.ops.registry import BACKWARD, DERIVATIVES, EXAMPLES

TOLERANCE = 1e-4  # of the largest number of an output: far above float32's roundings, far below a mistake


@dataclass(frozen=True)
class Result:
    """What a check found."""

    operation: str
    device: str
    problem: str | None  # None: right, or not checked
    checked: bool
    seconds: float


def registered() -> list[str]:
    """The operations of torch.ops.nerf, sorted, those of the backward passes too."""
    names = torch._C._dispatch_get_all_op_names()
    return sorted({name.removeprefix("nerf::").split(".")[0] for name in names if name.startswith("nerf::")})


def is_checked(operation: str) -> bool:
    """Whether it has an example; a backward operation is checked by the gradients of its forward one."""
    forward = operation.removesuffix(BACKWARD)
    return forward in EXAMPLES and (bool(_differentiable(forward)) or not operation.endswith(BACKWARD))


def _differentiable(operation: str) -> tuple[str, ...]:
    """Names of the arguments that have a derivative."""
    return DERIVATIVES[operation].of if operation in DERIVATIVES else ()


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
    values = [x.to(device) if isinstance(x, Tensor) else x for x in EXAMPLES[name]()]
    arguments = dict(zip((argument.name for argument in schema.arguments), values, strict=True))
    leaves = {key: arguments[key].requires_grad_() for key in _differentiable(name)}
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
