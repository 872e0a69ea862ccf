"""What arguments hold and where: offsets, indices, memory in common, odd addresses, sizes without end.

On the CPU each is refused by name before anything is read or written there. On CUDA nobody waits for numbers: what
kernels do instead stands in cuda_ext/README.md.
"""

import math

import pytest
import torch
from cases import CASES
from march_cases import march, march_through_density, render
from proofs import BOTH, FLOATS, argument_names, assert_rejected, operation, written
from torch import Tensor

from nerf.ops import native

SAMPLES = 8
WRONG_OFFSETS = {
    "beyond the samples": ([0, 4, 12], "8 at most, the number of samples"),
    "far beyond": ([0, 4, 2**62], "8 at most"),
    "a hole in front": ([1, 4, 8], "0"),
    "negative": ([0, -1, 8], "0 or more"),
    "decreasing": ([0, 6, 3, 8], "6 or more, as before it"),
    "differences that overflow": ([0, 2**62 + 1, -(2**62), 8], "8 at most"),
    "one, not zero": ([5], "0"),
}


def with_offsets(name: str, offsets: list[int]) -> tuple:
    """Arguments of an operation on packed samples."""
    rays, sample, ray = len(offsets) - 1, torch.ones(SAMPLES), torch.ones(len(offsets) - 1)
    values, ends = torch.ones(SAMPLES, 3), torch.tensor(offsets)
    return {
        "composite_rays": (sample, values, sample, sample, ends, 0.0),
        "composite_rays_backward": (
            *(torch.ones(rays, 3), ray, ray, sample),
            *(sample, values, sample, sample, ends, sample, 0.0),
        ),
        "distortion_loss": (sample, sample, sample, ends),
        "distortion_loss_backward": (ray, sample, sample, sample, ends),
    }[name]


@pytest.mark.parametrize("wrong", WRONG_OFFSETS)
@pytest.mark.parametrize("name", [name for name in CASES if "ray_offsets" in argument_names(name)])
def test_offsets_that_are_none_are_named(name, wrong):
    offsets, expected = WRONG_OFFSETS[wrong]
    arguments = with_offsets(name, offsets)
    assert_rejected(name, arguments, "ray_offsets", torch.tensor(offsets), f"expected {expected}")
    operation(name)(*with_offsets(name, [0, 3, 3, SAMPLES]))


INDICES = {
    "camera_rays": "pixel_indices",
    "sample_images": "pixel_indices",
    "shift_pixels": "pixel_indices",
    "contract_basis": "ray_indices",
    "contract_basis_backward": "ray_indices",
    "compare_beside": "pixels",
    "compare_beside_backward": "pixels",
    "index_add": "index",
    "adam_step": "rows",
    "total_variation_grad": "rows",
}


@pytest.mark.parametrize("index", [-1, None, 2**40, -(2**63), 2**63 - 1], ids=str)
@pytest.mark.parametrize("name", INDICES)
def test_an_index_of_nothing_is_named_and_nothing_is_written(name, index):
    """None stands for the first number behind the last one."""
    rows = {"adam_step": "some_rows", "total_variation_grad": "some_rows"}
    arguments = CASES[name][rows.get(name, "typical")](torch.float64, "cpu")
    named = dict(zip(argument_names(name), arguments, strict=False))
    counts = {
        "camera_rays": lambda: named["width"] * named["height"] * len(named["c2w"]),
        "sample_images": lambda: named["images"].shape[:3].numel(),
        "shift_pixels": lambda: int(named["first_pixels"][-1]),
        "contract_basis": lambda: len(named["basis"]),
        "contract_basis_backward": lambda: len(named["basis"]),
        "compare_beside": lambda: len(named["images"]),
        "compare_beside_backward": lambda: len(named["images"]),
        "index_add": lambda: named["dst"].shape[named["dim"]],
        "adam_step": lambda: named["param"].shape[:-1].numel(),
        "total_variation_grad": lambda: named["grid"].shape[:3].numel(),
    }
    count, key = counts[name](), INDICES[name]
    wrong = named[key].clone()
    wrong[-1] = count if index is None else index
    before = {key: named[key].clone() for key in written(name)}
    last = len(wrong) - 1
    assert_rejected(name, arguments, key, wrong, f"the value {int(wrong[-1])} at {last}, expected 0 to {count - 1}")
    assert all(torch.equal(named[key], x) for key, x in before.items())


@pytest.mark.parametrize("name", [name for name in CASES if written(name)])
def test_what_is_written_shares_no_memory_with_another_argument(name):
    """Every other tensor in turn becomes a view of each that is written, from its first byte on."""
    case = "some_rows" if name in ("adam_step", "total_variation_grad") else "typical"
    arguments = CASES[name][case](torch.float64, "cpu")
    named = dict(zip(argument_names(name), arguments, strict=False))
    for key in written(name):
        for other, x in named.items():
            if other == key or not isinstance(x, Tensor) or x.nbytes > named[key].nbytes:
                continue
            view = named[key].flatten().view(torch.uint8)[: x.nbytes].view(x.dtype).view(x.shape)
            with pytest.raises(ValueError, match=r"^\w+ has memory in common with \w+, .*use .clone\(\)"):
                operation(name)(**named | {other: view})


@pytest.mark.parametrize("name", CASES)
def test_numbers_at_odd_addresses_are_named(name):
    arguments = CASES[name]["typical"](torch.float32, "cpu")
    for key, x in zip(argument_names(name), arguments, strict=False):
        if isinstance(x, Tensor) and x.element_size() > 1:
            odd = torch.frombuffer(bytearray(x.nbytes + 1), dtype=x.dtype, offset=1).view(x.shape)
            assert_rejected(name, arguments, key, odd, f"a multiple of {x.element_size()} bytes")


def test_sizes_whose_product_no_integer_holds_are_named():
    cameras = torch.zeros(2, 3, 4), torch.zeros(2, 4)
    with pytest.raises(ValueError, match="^width has sizes .*below 2"):
        native.camera_rays(*cameras, torch.zeros(1, dtype=torch.int64), 2**62, 2**62, torch.zeros(1, 2))
    nothing = torch.zeros(0, 2**62)
    with pytest.raises(ValueError, match=f"^values has 28 channels, .* {2**62} basis functions"):
        torch.ops.nerf.contract_basis_backward(torch.ones(2, 3), nothing, torch.zeros(2, dtype=torch.int64), 28)
    with pytest.raises(ValueError, match="^density has|^values has .* fewer than 2"):
        sample = torch.zeros(0)
        native.composite_rays(sample, nothing, sample, sample, torch.zeros(3, dtype=torch.int64), 0.0)


def test_an_adam_step_without_channels_is_accepted(device):
    state = [torch.zeros(5, 0, device=device) for _ in range(4)]
    native.adam_step(*state, torch.zeros(0, device=device), torch.ones(1, device=device), None, 0.9, 0.99, 1e-8)


def test_what_cannot_be_allocated_is_said():
    """A row that stands for 2^50 rows has to be copied."""
    endless = torch.ones(1, 1, 1, 1).expand(2**20, 2**20, 2**10, 1)
    with pytest.raises(RuntimeError, match=r"out of memory: \[1048576,1048576,1024,1\] of float32"):
        native.interpolate_trilinear(endless, torch.ones(1, 3))


# Walks that would never end.

WALKS = {"march_rays": march, "march_visible": march_through_density, "render_rays": render}
ENDLESS = {
    "tiny steps": {"step_size": 1e-30},
    "a huge jitter": {"jitter": -1e30},
    "a jitter without end": {"jitter": -math.inf},
    "hardly a direction": {"directions": 1e-20, "near": 0.0, "far": 3e38},
}


def changed(name: str, dtype: torch.dtype, changes: dict[str, float]) -> dict[str, object]:
    """Rays inside of the grid; a change of a tensor is of the last ray."""
    arguments = [
        x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x for x in WALKS[name](rays=4, inside=True)
    ]
    named = dict(zip(argument_names(name), arguments, strict=False))
    for key, value in changes.items():
        if isinstance(named[key], Tensor):
            named[key][-1] = value
        else:
            named[key] = value
    return named


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("endless", ENDLESS)
@pytest.mark.parametrize("name", WALKS)
@BOTH
def test_a_walk_that_would_never_end_is_named(ops, name, endless, dtype):
    with pytest.raises(ValueError, match="^step_size is .*, expected 1048576 steps along a ray at most"):
        getattr(ops, name)(**changed(name, dtype, ENDLESS[endless]))


@pytest.mark.parametrize("step", [1e-60, 1e60, math.inf])
@pytest.mark.parametrize("name", WALKS)
def test_a_step_that_the_dtype_does_not_hold_is_named(name, step):
    with pytest.raises(ValueError, match="^step_size is .*, expected a positive length"):
        getattr(native, name)(**changed(name, torch.float32, {"step_size": step}))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "changes",
    [
        {"jitter": math.nan},
        {"jitter": math.inf},
        {"near": math.nan},
        {"far": math.nan},
        {"near": 9.0, "far": 1.0},
        {"near": math.inf},
        {"far": -math.inf},
        {"origins": math.nan},
        {"directions": math.nan},
        {"directions": math.inf},
        {"directions": 0.0, "far": math.inf},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", WALKS)
def test_a_ray_that_is_none_has_no_samples(name, changes, dtype, device):
    """And the others have theirs."""
    arguments = {k: x.to(device) if isinstance(x, Tensor) else x for k, x in changed(name, dtype, changes).items()}
    found = getattr(native, name)(**arguments)
    if name == "render_rays":
        assert found[1][-1] == 0 and found[2][-1] == 0 and found[1].any()
    else:
        assert found[0][-1] == found[0][-2] > 0
