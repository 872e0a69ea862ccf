"""Nothing escapes the proofs: every operation has cases, tests, a fake kernel and its derivative."""

from pathlib import Path

import pytest
import torch
from cases import CASES
from proofs import DIFFERENTIABLE, FLOATS, argument_names, assert_rejected, operation, written
from torch import Tensor

from nerf.ops import native  # noqa: F401  loads the library

# Operations without a derivative, each with the reason.
NOT_DIFFERENTIABLE = {
    "march_rays": "which samples exist is a discrete choice",
    "march_visible": "which samples exist is a discrete choice",
    "render_rays": "for pictures alone; training takes the operations that it joins",
    "camera_rays": "raises: cameras that are learned make their rays of operations of PyTorch's",
    "sample_images": "bytes have no derivative",
    "total_variation_grad": "written in place, a gradient itself",
    "interpolate_trilinear_grad": "written in place, a gradient itself",
    "adam_step": "written in place, behind the loss",
    "interpolate_trilinear_backward": "raises: no second derivative",
    "composite_rays_backward": "raises: no second derivative",
    "contract_basis_backward": "raises: no second derivative",
    "interpolate_cells_backward": "raises: no second derivative",
    "index_add": "written in place; the gradient of src is an index_select",
    "distortion_loss_backward": "raises: no second derivative",
}

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

# Arguments that say how many rows the others must have; where nothing is listed, the first one.
SIZE_GIVERS = {
    "march_rays": ("origins", "occupied"),
    "march_visible": ("origins", "occupied"),
    "render_rays": ("origins", "occupied"),
    "interpolate_trilinear": ("grid", "coords"),
    "composite_rays": ("density", "ray_offsets"),
    "camera_rays": ("c2w", "pixel_indices", "subpixels"),
    "sample_images": ("images", "pixel_indices"),
    "distortion_loss": ("weights", "ray_offsets"),
    "interpolate_trilinear_grad": ("grad", "coords"),
    "contract_basis": ("values", "basis", "ray_indices"),
    "index_add": ("dst", "index"),
}


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
        tensors = [x for x in arguments if isinstance(x, Tensor)]
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
            arguments = [x.contiguous() if isinstance(x, Tensor) else x for x in arguments]
        found = operation(name)(*arguments)
        named = dict(zip(argument_names(name), arguments, strict=True))
        results.append([named[key] for key in written(name)] or found)
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("name", CASES)
def test_a_tensor_of_another_size_is_named(name):
    """One row more than the other arguments have."""
    arguments = CASES[name]["typical"](torch.float32, "cpu")
    forward = name.removesuffix("_backward")
    givers = SIZE_GIVERS.get(forward, argument_names(forward)[:1])
    for key, x in zip(argument_names(name), arguments, strict=True):
        if isinstance(x, Tensor) and key not in givers:
            assert_rejected(name, arguments, key, torch.cat([x, x[:1]]), r"expected \[")


@pytest.mark.parametrize("name", CASES)
def test_a_tensor_without_data_is_named(name):
    """Among tensors with data; otherwise the fake kernels would answer, with whatever is in memory."""
    arguments = CASES[name]["typical"](torch.float32, "cpu")
    for key, x in zip(argument_names(name), arguments, strict=True):
        if isinstance(x, Tensor) and sum(isinstance(other, Tensor) for other in arguments) > 1:
            assert_rejected(name, arguments, key, x.to("meta"), "expected cpu like the others")


@pytest.mark.parametrize("name", [name for name in CASES if written(name) and name != "index_add"])
def test_what_is_written_in_place_must_be_contiguous(name):
    arguments = CASES[name]["typical"](torch.float32, "cpu")
    for key, x in zip(argument_names(name), arguments, strict=True):
        if key in written(name):
            with_gaps = torch.stack([x, x], dim=-1)[..., 0]
            assert_rejected(name, arguments, key, with_gaps, "written in place and must be contiguous")


@pytest.mark.parametrize("name", CASES)
def test_every_operation_has_a_file_of_proofs(name):
    stem = name.removesuffix("_backward").removesuffix("_grad")
    proofs = Path(__file__).with_name(f"test_{stem}.py").read_text()
    assert all(f"def test_{kind}" in proofs for kind in ("opcheck", "bad_arguments_are_named"))


def test_every_operation_is_differentiable_or_says_why_not():
    assert set(DIFFERENTIABLE) | set(NOT_DIFFERENTIABLE) == set(CASES)
    assert not set(DIFFERENTIABLE) & set(NOT_DIFFERENTIABLE)
    for name in DIFFERENTIABLE:
        assert {name, f"{name}_backward"} <= set(CASES)
        proofs = Path(__file__).with_name(f"test_{name}.py").read_text()
        assert "def test_gradcheck" in proofs and "def test_second_derivative_raises" in proofs


@pytest.mark.parametrize("name", CASES)
def test_kernels_are_registered(name):
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    assert has(f"nerf::{name}", "CPU") and has(f"nerf::{name}", "Meta")
    raises = NOT_DIFFERENTIABLE.get(name, "").startswith("raises: ")
    assert has(f"nerf::{name}", "Autograd") == (name in DIFFERENTIABLE or raises)
    assert bool(written(name)) == ("written in place" in NOT_DIFFERENTIABLE.get(name, ""))


def test_cuda_kernels_are_registered(cuda):
    for name in CASES:
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"nerf::{name}", "CUDA")
