"""The proofs that every operation goes through, so that the files in ops/ differ in their mathematics alone.

name is an operation of torch.ops.nerf, arguments a case of cases.py. Argument names come from the schemas.
"""

from functools import partial
from types import ModuleType

import pytest
import torch
from case_tools import cotangent, each_tensor
from torch import Tensor
from torch.autograd import forward_ad

from nerf.ops import native, reference
from nerf.ops.registry import DERIVATIVES

FLOATS = (torch.float32, torch.float64)
BOTH = pytest.mark.parametrize("ops", [native, reference], ids=["native", "torch"])

# Arguments with a derivative; an operation that is not listed has none.
DIFFERENTIABLE = {name: known.of for name, known in DERIVATIVES.items() if known.of}

ALWAYS_FLOAT32 = ("lr", "step")  # of adam_step

TAKES_HALF = {  # operation and argument
    *(("adam_rows", "param"), ("bring_rows", "grid"), ("adam_step", "param")),
    *(("interpolate_trilinear", "grid"), ("render_rays", "values_grid")),
}

# One type beside the one that is expected.
WRONG_DTYPE = {
    torch.float32: torch.float16,
    torch.float64: torch.float16,
    torch.int64: torch.int32,
    torch.int32: torch.int64,
    torch.uint8: torch.int16,
    torch.bool: torch.uint8,
}


def operation(name: str) -> torch._ops.OpOverload:
    """The operation itself, without the Python function around it."""
    return getattr(torch.ops.nerf, name).default


def argument_names(name: str) -> list[str]:
    return [argument.name for argument in operation(name)._schema.arguments]


def written(name: str) -> list[str]:
    """Arguments that the operation changes in place."""
    schema = operation(name)._schema
    return [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]


def outcome(name: str, ops: ModuleType, arguments: tuple) -> dict[str, Tensor]:
    """All that a call yields: outputs or arguments written in place, and gradients from all outputs."""
    named = dict(zip(argument_names(name), arguments, strict=False))
    named |= {key: named[key].clone() for key in written(name)}
    keys = [key for key in DIFFERENTIABLE.get(name, ()) if named[key] is not None]
    named |= {key: named[key].detach().requires_grad_() for key in keys}
    outputs = getattr(ops, name)(**named)
    if written(name):
        return {key: named[key] for key in written(name)}
    outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
    found = {f"output {index}": x.detach() for index, x in enumerate(outputs)}
    if keys:
        leaves = [named[key] for key in keys]
        gradients = torch.autograd.grad(outputs, leaves, [cotangent(x) for x in outputs])
        found |= {f"gradient of {key}": g for key, g in zip(keys, gradients, strict=True)}
    return found


def exact_outcome(name: str, arguments: tuple) -> dict[str, Tensor]:
    """The reference on the same numbers in float64 on the CPU."""
    named = dict(zip(argument_names(name), arguments, strict=False))
    for key, x in named.items():
        named[key] = each_tensor(partial(_exact, wide=key not in ALWAYS_FLOAT32), x)
    return outcome(name, reference, tuple(named.values()))


def _exact(x: Tensor, wide: bool) -> Tensor:
    return x.cpu().double() if wide and x.is_floating_point() else x.cpu()


def assert_as_accurate(name: str, arguments: tuple) -> None:
    """Native errs at most twice as much as the reference of the same dtype does, both against float64.

    Twice, because the order of a sum is free. To that comes a floor for outputs that the reference happens to
    hit exactly: eight roundings of the largest number, as threads add up in any order. No wider type measures the
    reference in float64; there the floor is all, twenty roundings, which is what sums of this length collect.
    """
    exact = exact_outcome(name, arguments)
    theirs, ours = outcome(name, reference, arguments), outcome(name, native, arguments)
    for key, expected in exact.items():
        assert ours[key].dtype == theirs[key].dtype and ours[key].shape == theirs[key].shape, key
        if not expected.numel():
            continue
        roundings = 20 if ours[key].dtype == torch.float64 else 8
        floor = roundings * torch.finfo(ours[key].dtype).eps * expected.abs().max().item()
        error, allowed = ((x[key].cpu() - expected).abs().max().item() for x in (ours, theirs))
        assert error <= 2 * allowed + floor, f"{key}: error {error:.2e}, the reference's {allowed:.2e}"


def assert_finite(name: str, arguments: tuple) -> None:
    """Native yields a finite number wherever the true one is finite in the dtype at hand."""
    exact = exact_outcome(name, arguments)
    for key, ours in outcome(name, native, arguments).items():
        representable = exact[key].to(ours.dtype).isfinite()
        assert ours.cpu()[representable].isfinite().all(), key


def assert_gradcheck(name: str, arguments: tuple) -> None:
    """The derivative against finite differences in float64."""
    named = dict(zip(argument_names(name), arguments, strict=False))
    keys = [key for key in DIFFERENTIABLE[name] if named[key] is not None]

    def function(*leaves: Tensor) -> tuple[Tensor, ...] | Tensor:
        return getattr(native, name)(**{**named, **dict(zip(keys, leaves, strict=True))})

    # The order of atomic additions on a GPU is free: 1e-12 of nondeterminism.
    leaves = [named[key].detach().requires_grad_() for key in keys]
    assert torch.autograd.gradcheck(function, leaves, nondet_tol=1e-12)


def assert_opcheck(name: str, arguments: tuple) -> None:
    """PyTorch's own check of schema, aliasing, fake kernel, autograd registration and compilation."""
    keys = DIFFERENTIABLE.get(name, ())
    leaves = [
        x.detach().requires_grad_() if key in keys and x is not None else x
        for key, x in zip(argument_names(name), arguments, strict=False)
    ]
    torch.library.opcheck(operation(name), tuple(leaves))


def assert_no_second_derivative(name: str, arguments: tuple) -> None:
    """Asking for a second derivative raises instead of giving zero."""
    keys = DIFFERENTIABLE[name]
    named = dict(zip(argument_names(name), arguments, strict=False))
    leaves = {key: named[key].detach().requires_grad_() for key in keys}
    outputs = getattr(native, name)(**{**named, **leaves})
    first = outputs if isinstance(outputs, Tensor) else outputs[0]
    gradients = torch.autograd.grad(first.square().sum(), list(leaves.values()), create_graph=True)
    for gradient in gradients:
        with pytest.raises(RuntimeError, match="no second derivative"):
            torch.autograd.grad(gradient.square().sum(), list(leaves.values()), retain_graph=True)


def assert_no_forward_mode(name: str, arguments: tuple) -> None:
    """Asking for a directional derivative raises instead of giving zero."""
    named = dict(zip(argument_names(name), arguments, strict=False))
    for key in DIFFERENTIABLE[name]:
        with forward_ad.dual_level():
            dual = {**named, key: forward_ad.make_dual(named[key].detach(), torch.ones_like(named[key]))}
            with pytest.raises(RuntimeError, match="no forward-mode derivative"):
                getattr(native, name)(**dual)


def assert_rejected(name: str, arguments: tuple, key: str, bad: object, expected: str) -> None:
    """A bad argument raises ValueError whose message begins with its name and says what was expected."""
    named = dict(zip(argument_names(name), arguments, strict=False)) | {key: bad}
    with pytest.raises(ValueError, match=rf"^{key} (is|has) .*{expected}"):
        operation(name)(*named.values())


def assert_checks_types_and_shapes(name: str, arguments: tuple, any_shape: tuple[str, ...] = ()) -> None:
    """Every tensor argument in turn gets a wrong dtype and one dimension too many."""
    for key, x in zip(argument_names(name), arguments, strict=False):
        if isinstance(x, Tensor):
            wrong = x.to(torch.int32 if (name, key) in TAKES_HALF else WRONG_DTYPE[x.dtype])
            assert_rejected(name, arguments, key, wrong, "expected (float|int|uint|bool)")
            if key not in any_shape:
                assert_rejected(name, arguments, key, x[None], r"expected \[")


def assert_checks_devices(name: str, arguments: tuple) -> None:
    """Every tensor argument in turn stays on the CPU while the others are on the GPU, like the first one.

    A backward operation compares with what is first of its forward one, unless it does not take that.
    """
    forward = argument_names(name.removesuffix("_backward"))[0]
    first = forward if forward in argument_names(name) else argument_names(name)[0]
    for key, x in zip(argument_names(name), arguments, strict=False):
        if isinstance(x, Tensor) and key != first:
            assert_rejected(name, arguments, key, x.cpu(), "expected cuda:0 like the first argument; move it")
