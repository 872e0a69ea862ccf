"""What the file of an operation says beside its reference, kept until the native library is there.

A file nerf/ops/x.py defines an operation in PyTorch; its decorators from here say what PyTorch needs besides a kernel:
a fake kernel, a derivative, and how nerf.ops.native.x calls torch.ops.nerf.x where that is not all. Importing such a
file loads no library: native.py does, and then registers what was kept here.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import forward_ad

BACKWARD = "_backward"


def save_inputs(ctx: torch.autograd.function.FunctionCtx, inputs: tuple, output: object) -> None:
    """Keeps all arguments for the backward pass; they are tensors."""
    ctx.save_for_backward(*inputs)


@dataclass(frozen=True)
class Derivative:
    """The derivative of torch.ops.nerf.NAME."""

    backward: Callable[..., object]  # (ctx, *gradients of the outputs) -> gradients of the arguments
    of: tuple[str, ...]  # arguments that have one; empty: the backward pass raises
    save: Callable[..., None] | None  # (ctx, inputs, output): keeps for the backward pass what it needs


CALLS: dict[str, Callable[..., object]] = {}
DETACHED: set[str] = set()
FAKES: dict[str, Callable[..., object]] = {}
DERIVATIVES: dict[str, Derivative] = {}
EXAMPLES: dict[str, Callable[[], tuple]] = {}


def call(name: str) -> Callable[[Callable], Callable]:
    """The decorated function is nerf.ops.native.NAME; otherwise that passes its arguments to torch.ops.nerf.NAME."""
    return _kept_in(CALLS, name)


def without_gradients(name: str) -> None:
    """nerf.ops.native.NAME detaches its arguments: nothing that comes out of torch.ops.nerf.NAME has a gradient."""
    DETACHED.add(name)


def fake(name: str) -> Callable[[Callable], Callable]:
    """The decorated function makes the results of torch.ops.nerf.NAME without data, for torch.compile."""
    return _kept_in(FAKES, name)


def derivative(
    name: str, of: tuple[str, ...], save: Callable[..., None] | None = save_inputs
) -> Callable[[Callable], Callable]:
    """The decorated function is the backward pass of torch.ops.nerf.NAME.

    It calls torch.ops.nerf.NAME_backward, an operation of its own whose derivative raises: there is no second one.
    """

    def keep(backward: Callable) -> Callable:
        DERIVATIVES[name] = Derivative(backward, of, save)
        return backward

    return keep


def example(name: str) -> Callable[[Callable], Callable]:
    """The decorated function makes arguments for torch.ops.nerf.NAME, float32 on the CPU, in the schema's order.

    `python -m nerf doctor` runs the operation on them, and its derivative, against the reference.
    """
    return _kept_in(EXAMPLES, name)


def numbers(*shape: int, low: float = 0.0, high: float = 1.0, seed: int = 0) -> Tensor:
    """Uniform float32 numbers for examples, the same at every call."""
    generator = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(shape, generator=generator)


def native_function(name: str, reference: Callable[..., object]) -> Callable[..., object]:
    """nerf.ops.native.NAME, with the docstring of its reference."""
    if name in CALLS:
        function = functools.update_wrapper(CALLS[name], reference)
        del function.__wrapped__  # it keeps the signature of its own
        return _without_tangents(name, function) if name in DERIVATIVES else function
    operation = getattr(torch.ops.nerf, name)

    @functools.wraps(reference)
    def plain(*arguments, **named):
        return operation(*arguments, **named)

    @functools.wraps(reference)
    def detached(*arguments, **named):
        return operation(*map(_detached, arguments), **{key: _detached(x) for key, x in named.items()})

    return detached if name in DETACHED else _without_tangents(name, plain) if name in DERIVATIVES else plain


def _without_tangents(name: str, function: Callable[..., object]) -> Callable[..., object]:
    """The function, which refuses forward-mode derivatives: PyTorch would take those that nobody registers for zero."""

    @functools.wraps(function)
    def checked(*arguments, **named):
        if forward_ad._current_level >= 0:
            for x in (*arguments, *named.values()):
                if isinstance(x, Tensor) and forward_ad.unpack_dual(x).tangent is not None:
                    raise RuntimeError(f"{name} has no forward-mode derivative; use backend=torch where one is needed")
        return function(*arguments, **named)

    return checked


def _detached(x: object) -> object:
    return x.detach() if isinstance(x, Tensor) and x.requires_grad else x


def register() -> None:
    """Hands fake kernels and derivatives to PyTorch; the library must be loaded."""
    for name, kernel in FAKES.items():
        torch.library.register_fake(f"nerf::{name}", _checked(name, kernel))
    for name, known in DERIVATIVES.items():
        torch.library.register_autograd(f"nerf::{name}", known.backward, setup_context=known.save)
        if known.of:
            torch.library.register_autograd(f"nerf::{name}{BACKWARD}", _no_second_derivative(name))


def _kept_in(registry: dict[str, Callable], name: str) -> Callable[[Callable], Callable]:
    def keep(function: Callable) -> Callable:
        registry[name] = function
        return function

    return keep


def _checked(name: str, kernel: Callable[..., object]) -> Callable[..., object]:
    """A fake kernel behind a check: a single tensor without data would make the whole call a fake one."""
    schema = getattr(torch.ops.nerf, name).default._schema

    def checked(*arguments: object) -> object:
        given = dict(zip((a.name for a in schema.arguments), arguments, strict=False))  # defaults may be left out
        for key, several in [(key, x) for key, x in given.items() if isinstance(x, list | tuple)]:
            given |= {f"{key}[{index}]": x for index, x in enumerate(several)}
        devices = {key: x.device for key, x in given.items() if isinstance(x, Tensor)}
        expected = next((d for d in devices.values() if d.type != "meta"), torch.device("meta"))
        for key, device in devices.items():
            if device != expected:
                raise ValueError(f"{key} is on {device}, expected {expected} like the others; move it with .to()")
        return kernel(*arguments)

    return checked


def _no_second_derivative(name: str) -> Callable[..., object]:
    def backward(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> None:
        raise RuntimeError(f"{name} has no second derivative; use backend=torch where one is needed")

    return backward
