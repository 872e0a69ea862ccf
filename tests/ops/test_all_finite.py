"""all_finite: one number that is not finite, wherever it is, is found, and nothing else is."""

import math

import pytest
import torch
from case_tools import Operation, as_case, numbers, with_gaps
from proofs import BOTH, FLOATS, operation
from torch import Tensor

from nerf.ops import native

NAME = "all_finite"
CHUNK = 4096  # cuda_ext/math/all_finite.h
BAD = (math.nan, math.inf, -math.inf)


def _some(*shapes: tuple[int, ...]) -> tuple[list[Tensor]]:
    return ([numbers(*shape, low=-1, seed=90 + i) for i, shape in enumerate(shapes)],)


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(lambda: _some((), (20,), (3, 4), (5000,))),
            "empty": as_case(lambda: _some((0,), (3, 0))),
            "non_contiguous": with_gaps(as_case(lambda: _some((20,), (3, 4)))),
            "one": as_case(lambda: _some((CHUNK,))),
            "many": as_case(lambda: _some(*[(i,) for i in range(100)])),
            "not_finite": as_case(lambda: (_some((7,))[0] + [torch.tensor([1.0, math.nan]).double()],)),
        },
        no_derivative="true and false have no derivative",
        own_rule=True,
    ),
}


@BOTH
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", OPERATIONS[NAME].cases)
def test_cases_are_finite_but_for_one(ops, case, dtype, device):
    found = ops.all_finite(*OPERATIONS[NAME].cases[case](dtype, device))
    assert found.shape == () and found.dtype == torch.bool and found.device.type == device
    assert bool(found) == (case != "not_finite")


@BOTH
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bad", BAD)
def test_a_bad_number_is_found_wherever_it_is(ops, bad, dtype, device):
    """At both ends of tensors around a chunk, and of those of several."""
    sizes = (1, 3, 4, 255, 257, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 5)
    tensors = [torch.ones(size, dtype=dtype, device=device) for size in sizes]
    for x in tensors:
        for place in {0, len(x) // 2, len(x) - 1}:
            x[place] = bad
            assert not ops.all_finite(tensors), (len(x), place)
            x[place] = 1.0
    assert ops.all_finite(tensors)


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_number_of_a_chunk_is_looked_at(dtype, device):
    """In a whole chunk at a multiple of 16 bytes, at another address, and in the last one, which is shorter."""
    memory = torch.zeros(2 * CHUNK + 101, dtype=dtype, device=device)
    places = range(len(memory)) if device == "cuda" else range(0, len(memory), 7)
    for first in (0, 1):
        values = memory[first:]
        found = []
        for place in places[:-1]:
            values[place] = math.inf
            found.append(native.all_finite([values]))
            values[place] = 0.0
        assert not torch.stack(found).any() and native.all_finite([values])


@BOTH
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_largest_and_smallest_numbers_are_finite(ops, dtype, device):
    """Though their sum is not."""
    info = torch.finfo(dtype)
    values = torch.tensor([info.max, info.max, -info.max, info.tiny, info.smallest_normal / 2, -0.0], dtype=dtype)
    assert ops.all_finite([values.to(device), values.repeat(CHUNK).to(device)])


@BOTH
@pytest.mark.parametrize("count", [1, 31, 32, 33, 64, 65, 130])
def test_any_number_of_tensors(ops, count, device):
    tensors = [torch.full((1 + i % 3, 2), float(i), device=device) for i in range(count)]
    tensors[3 % count] = tensors[3 % count][:0]
    assert ops.all_finite(tensors)
    for i in {0, count // 2, count - 1} - {3 % count}:
        tensors[i][0, 1] = math.nan
        assert not ops.all_finite(tensors)
        tensors[i][0, 1] = 0.0


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (torch.ones(3).double(), r"tensors\[1\] is float64, expected float32"),
        (torch.ones(3).half(), r"tensors\[1\] is float16, expected float32"),
        (torch.ones(3, dtype=torch.int64), r"tensors\[1\] is int64, expected float32"),
        (torch.ones(3, device="meta"), r"tensors\[1\] is on meta, expected cpu like the others"),
        (torch.frombuffer(bytearray(9), dtype=torch.float32, offset=1, count=2), r"tensors\[1\] is at an odd address"),
    ],
    ids=lambda x: str(x.dtype) if isinstance(x, Tensor) else "",
)
def test_a_tensor_unlike_the_first_is_named(second, expected):
    with pytest.raises(ValueError, match=f"^{expected}"):
        operation(NAME)([torch.ones(2), second])


def test_tensors_of_no_floats_and_none_at_all_are_named():
    with pytest.raises(ValueError, match=r"^tensors\[0\] is int64, expected float32 or float64"):
        native.all_finite([torch.ones(3, dtype=torch.int64)])
    with pytest.raises(ValueError, match="^tensors has no tensor, expected at least one"):
        native.all_finite([])


def test_tensors_on_several_devices_are_named(cuda):
    for tensors in ([torch.ones(2, device=cuda), torch.ones(2)], [torch.ones(2), torch.ones(2, device=cuda)]):
        with pytest.raises(ValueError, match=r"^tensors\[1\] is on .*, expected .* like the first argument; move it"):
            native.all_finite(tensors)


def test_a_million_numbers_on_a_gpu_and_more_than_a_grid_of_tensors(cuda):
    values = torch.zeros(5_000_001, device=cuda)
    assert native.all_finite([values] * 70)
    values[-1] = math.nan
    assert not native.all_finite([values]) and not native.all_finite([values[:9], *[values[:5]] * 40, values])
