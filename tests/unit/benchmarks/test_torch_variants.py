"""The ablation's variants, in PyTorch and in native operations taken apart, compute what the reference computes."""

import inspect

import pytest
import torch
from cases import CASES
from proofs import argument_names, outcome

from nerf.benchmarks.torch_variants import EAGER, GATHER_ONCE, Variant, compiled
from nerf.benchmarks.unfused import unfused
from nerf.ops import native, reference

# Fields have two vertices per axis at least, training one ray; a sum over all rays cannot hold a density of 1e10.
BEYOND = {"one_axis_single", "all_axes_single", "empty", "empty_tail", "huge_density"}
LABELS = [variant.label for variant in EAGER]


def is_sparse(name: str, arguments: tuple) -> bool:
    """Whether a grid is sparse. The ablation compares dense ones, which alone PyTorch's functions take."""
    return dict(zip(argument_names(name), arguments, strict=False)).get("table") is not None


@pytest.mark.parametrize("variant", EAGER, ids=LABELS)
@pytest.mark.parametrize("name", ["interpolate_trilinear", "composite_rays"])
def test_variant_agrees_with_the_reference(variant: Variant, name: str, device: str) -> None:
    for case in CASES[name].keys() - BEYOND:
        arguments = CASES[name][case](torch.float64, device)
        if is_sparse(name, arguments):
            continue
        found, expected = (outcome(name, ops, arguments) for ops in (variant.ops, reference))
        found.pop("gradient of coords", None)  # unused in training, and ambiguous on a cell's wall
        for key, value in found.items():
            torch.testing.assert_close(value, expected[key], rtol=1e-9, atol=1e-9, msg=f"{case}: {key}")


@pytest.mark.parametrize("variant", EAGER, ids=LABELS)
def test_variant_has_the_functions_of_the_reference(variant: Variant) -> None:
    assert vars(variant.ops).keys() == {n for n, f in vars(reference).items() if inspect.isfunction(f)}
    assert variant.ops.march_rays is reference.march_rays  # so that samples stay bit-equal


def test_unfused_agrees_with_the_reference(device: str) -> None:
    for case in CASES["interpolate_trilinear"]:
        arguments = CASES["interpolate_trilinear"][case](torch.float64, device)
        if is_sparse("interpolate_trilinear", arguments):
            continue
        found, expected = (outcome("interpolate_trilinear", ops, arguments) for ops in (unfused(native).ops, reference))
        for key, value in found.items():
            torch.testing.assert_close(value, expected[key], rtol=1e-9, atol=1e-9, msg=f"{case}: {key}")


def test_unfused_goes_through_the_operations_that_it_is_named_after(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def watched(name: str) -> object:
        function = getattr(native, name)
        return lambda *arguments: calls.append(name) or function(*arguments)

    for name in ("interpolate_cells", "index_add", "interpolate_trilinear"):
        monkeypatch.setattr(native, name, watched(name))
    grid, coords = CASES["interpolate_trilinear"]["typical"](torch.float64, "cpu")
    ops = unfused(native).ops
    ops.interpolate_trilinear(grid.requires_grad_(), coords).sum().backward()
    assert calls == ["interpolate_cells", "index_add"]
    assert ops.march_rays is native.march_rays and ops.adam_step is native.adam_step


def assert_compiled_agrees(device: str) -> None:
    """On a million samples: torch.compile has other code for long rows than for short ones."""
    ops = compiled(GATHER_ONCE, torch.device(device)).ops
    counts = torch.arange(8192, device=device) % 256
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    samples = int(offsets[-1]) + 100  # a tail of a fixed capacity
    starts = torch.rand(samples, device=device)
    ends = starts + 0.01
    starts[-100:] = ends[-100:] = 0
    density = (20 * torch.rand(samples, device=device)).requires_grad_()
    grid = torch.rand(40, 50, 60, 3, device=device, requires_grad=True)
    coords = 40 * torch.rand(samples, 3, device=device)
    results = []
    for candidate in (ops, reference):
        values = candidate.interpolate_trilinear(grid, coords)
        outputs = candidate.composite_rays(density, values, starts, ends, offsets, 1e-4)
        gradients = torch.autograd.grad(sum(x.square().sum() for x in outputs), (grid, density))
        results.append((*(x.detach() for x in outputs), *gradients))
    for found, expected in zip(*results, strict=True):
        assert (found - expected).norm() <= 1e-4 * expected.norm()


def test_compiled_variant_agrees_with_the_reference(cuda: str) -> None:
    assert_compiled_agrees(cuda)


def test_compiled_variant_leaves_marching_as_it_is() -> None:
    ops = compiled(GATHER_ONCE, torch.device("cpu")).ops
    assert ops.march_rays is reference.march_rays
    assert ops.interpolate_trilinear is not GATHER_ONCE.ops.interpolate_trilinear
