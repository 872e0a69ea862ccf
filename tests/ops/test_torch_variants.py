"""The ablation's PyTorch variants compute what the reference computes."""

import inspect

import pytest
import torch
from cases import CASES
from proofs import outcome

from nerf.ops import reference
from nerf.ops.torch_variants import EAGER, Variant, compiled

# Fields have two vertices per axis at least, training one ray; one sum over all rays cannot hold densities of 1e10.
BEYOND = {"one_axis_single", "all_axes_single", "empty", "huge_density"}
LABELS = [variant.label for variant in EAGER]


@pytest.mark.parametrize("variant", EAGER, ids=LABELS)
@pytest.mark.parametrize("name", ["interpolate_trilinear", "composite_rays"])
def test_variant_agrees_with_the_reference(variant: Variant, name: str, device: str) -> None:
    for case in CASES[name].keys() - BEYOND:
        arguments = CASES[name][case](torch.float64, device)
        found, expected = (outcome(name, ops, arguments) for ops in (variant.ops, reference))
        found.pop("gradient of coords", None)  # unused in training, and ambiguous on a cell's wall
        for key, value in found.items():
            torch.testing.assert_close(value, expected[key], rtol=1e-9, atol=1e-9, msg=f"{case}: {key}")


@pytest.mark.parametrize("variant", EAGER, ids=LABELS)
def test_variant_has_the_functions_of_the_reference(variant: Variant) -> None:
    assert vars(variant.ops).keys() == {n for n, f in vars(reference).items() if inspect.isfunction(f)}
    assert variant.ops.march_rays is reference.march_rays  # so that samples stay bit-equal


def test_compiled_variant_leaves_marching_as_it_is() -> None:
    ops = compiled(EAGER[1], torch.device("cpu")).ops
    assert ops.march_rays is reference.march_rays
    assert ops.interpolate_trilinear is not EAGER[1].ops.interpolate_trilinear
