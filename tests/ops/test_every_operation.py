"""Nothing escapes the proofs: every operation has cases, tests, a fake kernel and its derivative."""

from itertools import product

import pytest
import torch
from case_tools import each_tensor, tensors_in
from cases import CASES, OPERATIONS
from proofs import (
    DIFFERENTIABLE,
    FLOATS,
    argument_names,
    assert_as_accurate,
    assert_checks_devices,
    assert_checks_types_and_shapes,
    assert_gradcheck,
    assert_no_forward_mode,
    assert_no_second_derivative,
    assert_opcheck,
    assert_rejected,
    operation,
    written,
)
from torch import Tensor

from nerf.ops import native  # noqa: F401  loads the library

REQUIRED = {"typical", "empty", "non_contiguous"}
REQUIRED_BY = {
    "march_rays": {"all_miss", "long_rays", "capacity_fits", "capacity_overflows", "capacity_empty"},
    "march_visible": {"all_miss", "long_rays", "no_limits", "capacity_fits", "capacity_overflows", "capacity_empty"},
    "render_rays": {"all_miss", "long_rays", "no_limits", "channels_7", "channels_28"},
    "interpolate_trilinear": {"outside", "on_vertices", "one_axis_single", "channels_1", "channels_28"},
    "interpolate_cells": {"outside", "one_point", "wide_rows", "channels_1", "channels_28"},
    "index_add": {"one_dimension", "dim_0", "middle_dim", "last_dim", "crowded", "int32_index"},
    "camera_rays": {"one_camera", "one_ray", "two_rays", "four_rays", "one_pixel_images", "wide_images"},
    "composite_rays": {"zero_samples", "long_rays", "huge_density", "zero_density", "early_termination"},
}


def chosen(kind: str) -> list[tuple[str, str]]:
    """Every operation with each of the cases that it names for a proof."""
    return [(name, case) for name, known in OPERATIONS.items() for case in getattr(known, kind)]


def registered() -> set[str]:
    names = torch._C._dispatch_get_all_op_names()
    return {name.removeprefix("nerf::").split(".")[0] for name in names if name.startswith("nerf::")}


def test_every_registered_operation_has_cases():
    assert registered() == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_the_cases_that_matter_are_there(name):
    missing = (REQUIRED | REQUIRED_BY.get(name.removesuffix("_backward"), set())) - set(CASES[name])
    assert not missing


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", CASES)
def test_every_case_has_the_dtype_and_device_asked_for_and_runs(name, dtype, device):
    for case, make in CASES[name].items():
        arguments = make(dtype, device)
        tensors = tensors_in(arguments)
        assert all(x.device.type == device for x in tensors), case
        assert name == "sample_images" or any(x.dtype == dtype for x in tensors), case
        assert (case == "non_contiguous") == any(not x.is_contiguous() for x in tensors), case
        operation(name)(*arguments)


@pytest.mark.parametrize("name", CASES)
def test_gaps_in_memory_change_nothing(name, device):
    """Results, and arguments written in place, are as with contiguous arguments."""
    results = []
    for copy in (False, True):
        arguments = CASES[name]["non_contiguous"](torch.float64, device)
        if copy:
            arguments = [each_tensor(Tensor.contiguous, x) for x in arguments]
        found = operation(name)(*arguments)
        named = dict(zip(argument_names(name), arguments, strict=False))
        results.append([named[key] for key in written(name)] or found)
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("name", CASES)
def test_a_tensor_of_another_size_is_named(name):
    """One row more than the other arguments have."""
    arguments = CASES[name]["typical"](torch.float32, "cpu")
    forward = name.removesuffix("_backward")
    givers = OPERATIONS[forward].sizes or argument_names(forward)[:1]
    for key, x in zip(argument_names(name), arguments, strict=False):
        if isinstance(x, Tensor) and key not in givers:
            assert_rejected(name, arguments, key, torch.cat([x, x[:1]]), r"expected \[")


@pytest.mark.parametrize("name", CASES)
def test_a_tensor_without_data_is_named(name):
    """Among tensors with data; otherwise the fake kernels would answer, with whatever is in memory."""
    arguments = CASES[name]["typical"](torch.float32, "cpu")
    for key, x in zip(argument_names(name), arguments, strict=False):
        if isinstance(x, Tensor) and sum(isinstance(other, Tensor) for other in arguments) > 1:
            assert_rejected(name, arguments, key, x.to("meta"), "expected cpu like the others")


@pytest.mark.parametrize("name", [name for name in CASES if written(name) and name != "index_add"])
def test_what_is_written_in_place_must_be_contiguous(name):
    arguments = CASES[name]["typical"](torch.float32, "cpu")
    for key, x in zip(argument_names(name), arguments, strict=False):
        if key in written(name):
            with_gaps = torch.stack([x, x], dim=-1)[..., 0]
            assert_rejected(name, arguments, key, with_gaps, "written in place and must be contiguous")


def test_every_operation_is_differentiable_or_says_why_not():
    """A backward operation raises."""
    forward = {name for name in CASES if not name.endswith("_backward")}
    assert set(DIFFERENTIABLE) == {name for name in forward if not OPERATIONS[name].no_derivative}
    assert CASES.keys() - forward == {f"{name}_backward" for name in DIFFERENTIABLE}


def rounded() -> list[tuple[str, str, torch.dtype]]:
    """Operation, case and dtype of all that is compared with the reference by its roundings."""
    forward = {name: known for name, known in OPERATIONS.items() if not name.endswith("_backward")}
    of_all = ((name, known) for name, known in forward.items() if not known.own_rule)
    return [(name, case, dtype) for name, known in of_all for case in known.cases for dtype in known.dtypes]


@pytest.mark.parametrize("name, case, dtype", rounded())
def test_native_is_as_accurate_as_the_reference(name, case, dtype, device):
    assert_as_accurate(name, CASES[name][case](dtype, device))


@pytest.mark.parametrize("name, case", [pair for pair in chosen("gradcheck") if pair[0] in DIFFERENTIABLE])
def test_gradcheck(name, case, device):
    assert_gradcheck(name, OPERATIONS[name].smooth(*CASES[name][case](torch.float64, device)))


@pytest.mark.parametrize("name, case", chosen("opcheck"))
def test_opcheck(name, case, device):
    assert_opcheck(name, CASES[name][case](torch.float32, device))


@pytest.mark.parametrize("case", ["typical", "channels_7"])
@pytest.mark.parametrize("name", [name for name in CASES if argument_names(name)[-1].startswith("needs_")])
def test_only_the_gradients_asked_for_are_computed(name, case, device):
    tensors = [x for x in CASES[name][case](torch.float32, device) if isinstance(x, Tensor)]
    choices = list(product([True, False], repeat=len(argument_names(name)) - len(tensors)))
    everything = operation(name)(*tensors, *choices[0])
    for chosen_ones in choices:
        found = operation(name)(*tensors, *chosen_ones)
        for needed, ours, full in zip(chosen_ones, found, everything, strict=True):
            torch.testing.assert_close(ours, full if needed else full.new_empty(0))
        assert_opcheck(name, (*tensors, *chosen_ones))


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_second_derivative_raises(name, device):
    assert_no_second_derivative(name, CASES[name]["typical"](torch.float32, device))


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_forward_mode_raises(name, device):
    assert_no_forward_mode(name, CASES[name]["typical"](torch.float32, device))


@pytest.mark.parametrize("name", [name for name in CASES if name != "index_add"])  # takes any shape and two dtypes
def test_wrong_types_and_shapes_are_named(name):
    assert_checks_types_and_shapes(name, CASES[name]["typical"](torch.float32, "cpu"), OPERATIONS[name].any_shape)


@pytest.mark.parametrize("name", CASES)
def test_arguments_on_another_device_are_named(name, cuda):
    assert_checks_devices(name, CASES[name]["typical"](torch.float32, cuda))


@pytest.mark.parametrize("name", CASES)
def test_kernels_are_registered(name):
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    assert has(f"nerf::{name}", "CPU") and has(f"nerf::{name}", "Meta")
    raises = name.endswith("_backward") or OPERATIONS[name].no_derivative.startswith("raises: ")
    assert has(f"nerf::{name}", "Autograd") == (name in DIFFERENTIABLE or raises)
    assert bool(written(name)) == ("written in place" in OPERATIONS[name].no_derivative)


def test_cuda_kernels_are_registered(cuda):
    for name in CASES:
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"nerf::{name}", "CUDA")
