"""A small check of every operation against the reference, forward and backward, for `python -m nerf doctor`.

It finds kernels that do not run or give wrong results on this machine. Accuracy is tested in tests/ops. The arguments
are the example in the operation's file, nerf/ops/x.py.
"""

import time
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from nerf.ops import reference
from nerf.ops.registry import BACKWARD, DERIVATIVES, EXAMPLES

TOLERANCE = 1e-4  # relative to the largest value of an output: far above float32 rounding, far below a mistake


@dataclass(frozen=True)
class Result:
    """The result of a check."""

    operation: str
    device: str
    problem: str | None  # None: correct, or not checked
    checked: bool
    seconds: float


def registered() -> list[str]:
    """The operations of torch.ops.nerf, sorted, including those of backward passes."""
    names = torch._C._dispatch_get_all_op_names()
    return sorted({name.removeprefix("nerf::").split(".")[0] for name in names if name.startswith("nerf::")})


def is_checked(operation: str) -> bool:
    """Whether the operation has an example; a backward operation is checked through its forward operation."""
    forward = operation.removesuffix(BACKWARD)
    return forward in EXAMPLES and (bool(_differentiable(forward)) or not operation.endswith(BACKWARD))


def _differentiable(operation: str) -> tuple[str, ...]:
    """Names of the differentiable arguments."""
    return DERIVATIVES[operation].of if operation in DERIVATIVES else ()


def check(operation: str, device: str, ops: ModuleType) -> Result:
    """Runs ops.<operation> on a device and compares it with the reference in float32 on the CPU.

    ops: nerf.ops.native. For a backward operation, gradients of its forward operation are compared. An exception of
    the operation becomes the result's problem.
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
    """An operation's results by name, on the CPU: gradients (backward), or outputs and arguments written in place."""
    schema = getattr(torch.ops.nerf, name).default._schema
    values = tree_map_only(Tensor, lambda x: x.to(device), EXAMPLES[name]())
    arguments = {argument.name: value for argument, value in zip(schema.arguments, values, strict=False)}  # or defaults
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
    """A sentence on the first output that differs from the reference; None if all agree."""
    for key, target in expected.items():
        value = found[key]
        if (value.shape, value.dtype) != (target.shape, target.dtype):
            kinds = [f"{x.dtype} {list(x.shape)}" for x in (value, target)]
            return f"{name} on {device}: {key} is {kinds[0]}, expected {kinds[1]}"
        error = (value.double() - target.double()).abs().max().item()
        largest = target.double().abs().max().item()
        if not error <= (TOLERANCE * largest if target.is_floating_point() else 0):  # also for NaN
            found_error = f"differs from the reference by {error:.1e}, whose largest value is {largest:.1e}"
            return f"{name} on {device}: {key} {found_error}"
    return None
