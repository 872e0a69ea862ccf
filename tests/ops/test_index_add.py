"""index_add: the definition, like Tensor.index_add_ for any strides, native against the reference, bad arguments."""

import pytest
import torch
from case_tools import Operation, as_case, numbers, with_gaps
from proofs import (
    BOTH,
    FLOATS,
    assert_finite,
    assert_rejected,
)

from nerf.ops import native

NAME = "index_add"
DTYPES = (*FLOATS, torch.bfloat16)


def _rows(
    shape: tuple[int, ...] = (6, 8),
    dim: int = 0,
    rows: int = 10,
    targets: int | None = None,
    index_dtype: torch.dtype = torch.int64,
    deterministic: bool = False,
) -> tuple:
    """Rows for a dst of this shape, all of them for its first `targets` rows along dim."""
    source = list(shape)
    source[dim] = rows
    index = (numbers(rows, seed=24) * (shape[dim] if targets is None else targets)).to(index_dtype)
    return numbers(*shape, low=-1, seed=25), dim, index, numbers(*source, low=-1, seed=26), 0.75, deterministic


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_rows),
            "empty": as_case(_rows, rows=0),
            "empty_slices": as_case(_rows, shape=(6, 0)),
            "int32_index": as_case(_rows, index_dtype=torch.int32),
            "one_dimension": as_case(_rows, shape=(50,), rows=70),
            "dim_0": as_case(_rows, shape=(5, 3, 4), rows=7),
            "middle_dim": as_case(_rows, shape=(3, 5, 4), dim=1, rows=7),
            "last_dim": as_case(_rows, shape=(3, 4, 5), dim=-1, rows=7),
            "one_row": as_case(_rows, shape=(4, 3), rows=1),
            "single_target": as_case(_rows, shape=(1, 6), rows=30),
            "crowded": as_case(_rows, shape=(6, 2048), rows=200, targets=3),
            "crowded_odd": as_case(_rows, shape=(2, 3, 1031), dim=1, rows=150, targets=2),
            "crowded_last_dim": as_case(_rows, shape=(40, 7), dim=1, rows=300),
            "crowded_numbers": as_case(_rows, shape=(9,), rows=5000),
            "crowded_short_rows": as_case(_rows, shape=(9, 12), rows=1500, targets=5),
            "many_numbers": as_case(_rows, shape=(30000,), rows=40000),
            "many_rows": as_case(_rows, shape=(3000, 28), rows=1000),
            "typical_in_order": as_case(_rows, deterministic=True),
            "empty_in_order": as_case(_rows, rows=0, deterministic=True),
            "crowded_in_order": as_case(_rows, shape=(6, 2048), rows=200, targets=3, deterministic=True),
            "crowded_numbers_in_order": as_case(_rows, shape=(9,), rows=5000, deterministic=True),
            "crowded_last_dim_in_order": as_case(_rows, shape=(40, 7), dim=1, rows=300, deterministic=True),
            "many_rows_in_order": as_case(_rows, shape=(300, 28), rows=1000, deterministic=True),
            "non_contiguous": with_gaps(as_case(_rows, shape=(5, 3, 4), dim=1, rows=7)),
        },
        no_derivative="written in place; the gradient of src is an index_select",
        dtypes=DTYPES,
        sizes=("dst", "index"),
        opcheck=("typical", "empty", "non_contiguous", "one_dimension", "int32_index"),
    ),
}
CASES = {name: known.cases for name, known in OPERATIONS.items()}
CROWDED = [case for case in CASES[NAME] if case.startswith("crowded")]

# Ways for a tensor to lie in memory; each keeps its shape.
LAYOUTS = {
    "permuted": lambda x: x.permute(2, 0, 1).contiguous().permute(1, 2, 0),
    "transposed": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "every_other": lambda x: torch.stack([x, x], 2).flatten(1, 2)[:, ::2],
    "columns": lambda x: torch.cat([x, x, x], 2).chunk(3, 2)[1],
    "odd_columns": lambda x: torch.cat([x[..., :1], x, x[..., :7]], 2)[..., 1 : 1 + x.shape[2]],
    "from_within": lambda x: torch.cat([x, x, x]).chunk(3)[1],
    "contiguous": lambda x: x,
}


def integers(*shape: int, seed: int, high: int = 9) -> torch.Tensor:
    """Small integers: sums of them are exact in any order, in bfloat16 too."""
    return (numbers(*shape, seed=seed) * high).floor()


@BOTH
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_adds_row_by_row(ops, dtype, dim, device):
    sizes = [4, 5, 6]
    dst, index = integers(*sizes, seed=1).to(device, dtype), torch.tensor([3, 0, 3, 1], device=device)
    sizes[dim] = len(index)
    src = integers(*sizes, seed=2).to(device, dtype)
    expected = dst.clone()
    for row, target in enumerate(index.tolist()):
        expected.select(dim, target).add_(0.5 * src.select(dim, row))
    ops.index_add(dst, dim, index, src, 0.5)
    assert torch.equal(dst, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [5, 40])
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("src_layout", LAYOUTS)
@pytest.mark.parametrize("dst_layout", LAYOUTS)
def test_any_strides(dst_layout, src_layout, dim, rows, dtype, device):
    start, sizes = integers(4, 6, 8, seed=1).to(device, dtype), [4, 6, 8]
    index = integers(rows, seed=2, high=sizes[dim]).long().to(device)
    sizes[dim] = rows
    src = LAYOUTS[src_layout](integers(*sizes, seed=3, high=3).to(device, dtype))
    dst = LAYOUTS[dst_layout](start.clone())
    # What lies between the elements of dst must stay as it is.
    memory = dst.as_strided((dst.untyped_storage().nbytes() // dst.element_size(),), (1,), 0)
    outside = torch.ones_like(memory, dtype=torch.bool)
    outside.as_strided(dst.shape, dst.stride(), dst.storage_offset()).fill_(False)
    before = memory[outside].clone()
    native.index_add(dst, dim, index, src, 1.0)
    assert torch.equal(dst, start.index_add(dim, index, src))
    assert torch.equal(memory[outside], before)


@pytest.mark.parametrize("dim", [0, 1])
def test_src_may_be_expanded(dim, device):
    dst, row = integers(4, 6, seed=1).to(device), integers(6 if dim == 0 else 4, seed=2).to(device)
    src = (row if dim == 0 else row[:, None]).expand((9, 6) if dim == 0 else (4, 9))
    index = torch.arange(9, device=device) % 4
    expected = dst.index_add(dim, index, src)
    native.index_add(dst, dim, index, src, 1.0)
    assert torch.equal(dst, expected)


@pytest.mark.parametrize("rows", [3, 400])
@pytest.mark.parametrize("width", [1, 16, 2048])
def test_places_beyond_32_bits(rows, width, device):
    """Two rows of dst, 2^31 numbers apart in memory that is never touched elsewhere."""
    memory = torch.empty(2**31 + width, dtype=torch.bfloat16, device=device)
    dst = memory.as_strided((2, width), (2**31, 1)).zero_()
    index = torch.arange(rows, device=device) % 2
    native.index_add(dst, 0, index, torch.ones(rows, width, dtype=torch.bfloat16, device=device), 1.0)
    counts = torch.bincount(index, minlength=2)
    assert torch.equal(dst, counts[:, None].expand(2, width).bfloat16())


@pytest.mark.parametrize("case", CASES[NAME])
def test_result_does_not_depend_on_the_number_of_cores(case):
    """Nor on anything else: on the CPU every sum is made in the order of the rows."""
    results, threads = [], torch.get_num_threads()
    for count in (1, 2, 3):
        dst, *rest = CASES[NAME][case](torch.float32, "cpu")
        torch.set_num_threads(count)
        try:
            native.index_add(dst, *rest)
        finally:
            torch.set_num_threads(threads)
        results.append(dst)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_wide_rows_are_summed_in_their_order_on_cuda(cuda):
    results = []
    for _ in range(3):
        dst, *rest = CASES[NAME]["crowded"](torch.float32, cuda)
        dst = dst.repeat(1, 600)  # so many columns that one block walks all rows
        rest[2] = rest[2].repeat(1, 600)
        native.index_add(dst, *rest)
        results.append(dst)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


@BOTH
def test_autograd_notices_the_change_and_records_nothing(ops, device):
    dst, dim, index, src, alpha, _ = CASES[NAME]["typical"](torch.float32, device)
    leaf = torch.ones_like(dst, requires_grad=True)
    product = (leaf * dst).sum()
    ops.index_add(dst, dim, index, src.requires_grad_(), alpha)
    assert not dst.requires_grad
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


@pytest.mark.parametrize("values", [0.0, 1e-30, 1e10, 1e30])
@pytest.mark.parametrize("case", ["typical", *CROWDED])
def test_extremes_stay_finite(case, values, device):
    dst, dim, index, src, alpha, *order = CASES[NAME][case](torch.float32, device)
    assert_finite(NAME, (dst, dim, index, values * src, alpha, *order))


@pytest.mark.parametrize("outside", [-1, 6, 2**40])
def test_index_outside_raises_before_anything_is_written(outside):
    dst, dim, index, src, alpha, *order = CASES[NAME]["typical"](torch.float32, "cpu")
    before, index[7] = dst.clone(), outside
    with pytest.raises(ValueError, match=rf"^index has the value {outside} at 7, expected 0 to 5"):
        native.index_add(dst, dim, index, src, alpha, *order)
    assert torch.equal(dst, before)


@pytest.mark.parametrize("case", ["typical", "one_dimension", "last_dim", *CROWDED])
def test_index_outside_is_left_out_on_cuda(case, cuda):
    """A look at the index would make the host wait for the device."""
    dst, dim, index, src, alpha, *order = CASES[NAME][case](torch.float64, cuda)
    outside = torch.arange(len(index), device=cuda) % 3 == 1
    inside = (~outside).nonzero().flatten()
    expected = dst.index_add(dim, index[inside], src.index_select(dim, inside), alpha=alpha)
    native.index_add(dst, dim, torch.where(outside, index - 2**33, index), src, alpha, *order)
    torch.testing.assert_close(dst, expected)


def test_bad_arguments_are_named():
    arguments = CASES[NAME]["dim_0"](torch.float32, "cpu")
    dst, _, index, src, *_ = arguments
    for dim in (3, -4):
        assert_rejected(NAME, arguments, "dim", dim, "expected -3 to 2")
    assert_rejected(NAME, arguments, "dst", dst.half(), "expected float32, float64 or bfloat16")
    assert_rejected(NAME, arguments, "dst", torch.zeros(()), "expected one dimension at least")
    assert_rejected(NAME, arguments, "dst", dst[:1].expand(5, 3, 4), "in a place of its own")
    overlapping = torch.zeros(40).as_strided((5, 3, 4), (5, 2, 1))
    assert_rejected(NAME, arguments, "dst", overlapping, "in a place of its own")
    assert_rejected(NAME, arguments, "index", index.short(), "expected int64 or int32")
    assert_rejected(NAME, arguments, "index", index[None], r"expected \[\*\]")
    assert_rejected(NAME, arguments, "src", src.double(), "expected float32")
    assert_rejected(NAME, arguments, "src", src[1:], r"expected \[7,3,4\]")
    assert_rejected(NAME, arguments, "src", src[:, :2], r"expected \[7,3,4\]")
    assert_rejected(NAME, arguments, "src", src[None], r"expected \[7,3,4\]")
    common = torch.zeros(9, 3, 4)
    with pytest.raises(ValueError, match="^src has memory in common with dst"):
        native.index_add(common[:5], 0, index, common[2:], 1.0)
    native.index_add(common[:5], 0, index[:0], common[2:2], 1.0)  # nothing is in common with nothing


def test_columns_of_one_matrix_may_be_added_to_each_other(device):
    matrix = integers(6, 8, seed=1).to(device)
    expected = matrix.clone()
    expected[:, 1::2] += matrix[:, ::2].flip(0)
    native.index_add(matrix[:, 1::2], 0, torch.arange(5, -1, -1, device=device), matrix[:, ::2], 1.0)
    assert torch.equal(matrix, expected)


@pytest.mark.parametrize("first, shared", [(0, True), (1, True), (2, False), (6, False), (5, False)])
def test_blocks_of_columns_share_memory_where_they_meet(first, shared):
    """Of one matrix: columns 0 and 1, and two others."""
    matrix = integers(6, 8, seed=1)
    dst, src, index = matrix[:, :2], matrix[:3, first : first + 2], torch.arange(3)
    if shared:
        with pytest.raises(ValueError, match="^src has memory in common with dst"):
            native.index_add(dst, 0, index, src, 1.0)
    else:
        expected = dst[:3] + src
        native.index_add(dst, 0, index, src, 1.0)
        assert torch.equal(dst[:3], expected)


def test_more_dimensions_than_can_be_walked_are_named():
    shape = (2,) * 14
    dst = torch.zeros((3,) * 14, dtype=torch.float32)[(slice(0, 2),) * 14]
    with pytest.raises(ValueError, match="^dst has 14 dimensions of unrelated strides, expected 12 at most"):
        native.index_add(dst, 0, torch.tensor([0, 1]), torch.ones(shape), 1.0)
