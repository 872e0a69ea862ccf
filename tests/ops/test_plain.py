"""torch.ops.nerf_plain: the same operations as torch.ops.nerf, through the plain CUDA kernels."""

import pytest
import torch
from case_tools import each_tensor
from cases import CASES
from proofs import FLOATS, operation, written
from torch import Tensor

from nerf.ops import native  # noqa: F401  loads the library


def schemas(namespace: str) -> dict[str, str]:
    """Every operation of a namespace: its schema without the namespace."""
    found = [s for s in torch._C._jit_get_all_schemas() if s.name.startswith(f"{namespace}::")]
    return {s.name.split("::")[1]: str(s).split("::", 1)[1] for s in found}


def plain_operation(name: str) -> torch._ops.OpOverload:
    return getattr(torch.ops.nerf_plain, name).default


def called(function: torch._ops.OpOverload, name: str, arguments: tuple) -> list[Tensor]:
    """Outputs, or arguments written in place, of a call with arguments of its own."""
    schema = function._schema
    named = dict(zip((a.name for a in schema.arguments), arguments, strict=False))  # or defaults
    named |= {key: named[key].clone() for key in written(name)}
    outputs = function(**named)
    if written(name):
        return [named[key] for key in written(name)]
    return [outputs] if isinstance(outputs, Tensor) else list(outputs)


def test_both_namespaces_have_the_same_operations_and_schemas():
    plain, fast = schemas("nerf_plain"), schemas("nerf")
    assert plain == fast and set(plain) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_kernels_are_registered(name):
    assert torch._C._dispatch_has_kernel_for_dispatch_key(f"nerf_plain::{name}", "CPU")


def test_cuda_kernels_are_registered(cuda):
    for name in CASES:
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"nerf_plain::{name}", "CUDA"), name


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", CASES)
def test_plain_agrees_with_fast(name, dtype, device):
    """Twenty roundings of the largest number apart at most: the order of the sums is free. Samples are bit-equal."""
    for case, make in CASES[name].items():
        arguments = make(dtype, device)
        plain, fast = (called(f, name, arguments) for f in (plain_operation(name), operation(name)))
        for x, y in zip(plain, fast, strict=True):
            assert x.dtype == y.dtype and x.shape == y.shape, case
            if device == "cpu" or name == "march_rays" or not x.is_floating_point():
                torch.testing.assert_close(x, y, rtol=0, atol=0, equal_nan=True)
            elif x.numel():
                largest = y[y.isfinite()].abs().max().item() if bool(y.isfinite().any()) else 0.0
                torch.testing.assert_close(
                    x, y, rtol=2e-5, atol=20 * torch.finfo(x.dtype).eps * largest, equal_nan=True
                )


@pytest.mark.parametrize("name", CASES)
def test_plain_has_the_same_checks(name, device):
    """The first tensor in a dtype that no operation takes."""
    arguments = CASES[name]["typical"](torch.float32, device)
    bad = (each_tensor(lambda x: x.to(torch.complex64), arguments[0]), *arguments[1:])
    messages = []
    for function in (plain_operation(name), operation(name)):
        with pytest.raises(ValueError) as caught:
            function(*bad)
        messages.append(str(caught.value))
    assert messages[0] == messages[1] and "expected" in messages[0]


def test_the_scope_ends_with_the_call(cuda):
    """A plain call that fails must not leave the fast operations plain; kernels have different names."""
    grid = torch.rand(5, 5, 5, 4, device=cuda)
    with pytest.raises(ValueError):
        torch.ops.nerf_plain.interpolate_trilinear(grid, grid)

    def kernels(namespace: str) -> str:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            getattr(torch.ops, namespace).interpolate_trilinear(grid, torch.rand(9, 3, device=cuda))
            torch.cuda.synchronize()
        return " ".join(event.name for event in profile.events())

    assert "gather_float4" in kernels("nerf") and "gather_float4" not in kernels("nerf_plain")
