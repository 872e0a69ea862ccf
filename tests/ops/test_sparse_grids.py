"""Sparse grids: operations do with rows and a table what they do with all vertices."""

import pytest
import torch
from case_tools import cotangent, numbers
from cases import CASES
from proofs import BOTH
from torch import Tensor

from nerf.ops import native, reference, vertex_rows
from nerf.ops.vertex_rows import VertexRows, listed_vertices
from nerf.scene.occupancy import cells_to_vertices

SIZES = ((7, 5, 70), (1, 4, 33), (3, 1, 32), (6, 6, 1), (2, 3, 64), (9, 8, 31))
CHANNELS = (1, 3, 4, 12, 16, 28)
RENDERED = ["typical", "long_rays", "channels_7", "channels_28", "four_rays_a_pixel", "four_long_rays"]


def rows_of(size: tuple[int, int, int], device: str, share: float = 0.5, seed: int = 3) -> VertexRows:
    """About this share of the vertices."""
    there = numbers(*size, seed=seed) < share
    return VertexRows.of(there.flatten().nonzero()[:, 0].to(device), size)


def grids(rows: VertexRows, channels: int, dtype: torch.dtype, seed: int = 4) -> tuple[Tensor, Tensor]:
    """The same numbers dense, [X,Y,Z,C] with zeros where there is no row, and sparse, [L,C]."""
    device = rows.vertices.device
    sparse = numbers(len(rows.vertices), channels, low=-2, high=2, seed=seed).to(device, dtype)
    return rows.expanded(sparse), sparse


def points(size: tuple[int, int, int], device: str, dtype: torch.dtype, count: int = 500) -> Tensor:
    """Inside, outside and on the surface of a grid."""
    low, high = -1.0, torch.tensor(size) + 0.5
    coords = low + (high - low) * numbers(count, 3, seed=5).float()
    return torch.cat([coords, coords[:50].round(), torch.tensor([[0.0, 0, 0]]), high[None] - 1.5]).to(device, dtype)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("at_a_time", [7, 1 << 23])
def test_a_table_finds_every_row_and_no_other(size, share, at_a_time, device, monkeypatch):
    monkeypatch.setattr(vertex_rows, "AT_A_TIME", at_a_time)
    rows = rows_of(size, device, share)
    count = size[0] * size[1] * size[2]
    expected = torch.full((count,), -1, device=device)
    expected[rows.vertices] = torch.arange(len(rows.vertices), device=device)
    assert torch.equal(rows.rows(torch.arange(count, device=device)), expected)
    assert torch.equal(listed_vertices(*rows.arguments), rows.vertices)
    assert rows.table.shape == (*size[:2], -(-size[2] // 32))


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels", CHANNELS)
def test_interpolation_is_that_of_the_dense_grid(ops, channels, dtype, device):
    for size in SIZES:
        rows = rows_of(size, device)
        dense, sparse = grids(rows, channels, dtype)
        coords = points(size, device, dtype)
        expected = ops.interpolate_trilinear(dense, coords)
        assert torch.equal(ops.interpolate_trilinear(sparse, coords, None, False, *rows.arguments), expected)


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels", CHANNELS)
def test_the_gradient_is_that_of_the_dense_grid_at_the_rows(ops, channels, dtype, device):
    for size in SIZES:
        rows = rows_of(size, device)
        dense, sparse = grids(rows, channels, dtype)
        coords = points(size, device, dtype)
        found = []
        for grid, arguments in ((dense, ()), (sparse, rows.arguments)):
            leaves = grid.requires_grad_(), coords.clone().requires_grad_()
            out = ops.interpolate_trilinear(*leaves, None, False, *arguments)
            found.append(torch.autograd.grad(out, leaves, cotangent(out)))
        (whole, whole_coords), (at_rows, at_coords) = found
        same = torch.equal if device == "cpu" else _close  # atomics add in any order
        assert same(at_rows, whole.flatten(0, 2)[rows.vertices])
        assert torch.equal(at_coords, whole_coords)


def _close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-5, atol=1e-5)


@BOTH
def test_gradients_are_added_to_those_that_are_there(ops, device):
    rows = rows_of(SIZES[0], device)
    _, sparse = grids(rows, 12, torch.float64)
    coords, grad = points(SIZES[0], device, torch.float64), torch.ones_like(sparse)
    out = ops.interpolate_trilinear(sparse, coords, None, False, *rows.arguments)
    ops.interpolate_trilinear_grad(grad, cotangent(out), coords, False, *rows.arguments)
    leaf = sparse.requires_grad_()
    again = ops.interpolate_trilinear(leaf, coords, None, False, *rows.arguments)
    torch.testing.assert_close(grad, 1 + torch.autograd.grad(again, leaf, cotangent(out))[0])
    leaf.grad = torch.zeros_like(leaf)
    ops.interpolate_trilinear(leaf, coords, leaf.grad, False, *rows.arguments).backward(cotangent(out))
    torch.testing.assert_close(leaf.grad, grad - 1)


@pytest.mark.parametrize("channels", CHANNELS)
def test_native_is_the_reference(channels, device):

    for size in SIZES:
        rows = rows_of(size, device)
        _, sparse = grids(rows, channels, torch.float64)
        coords = points(size, device, torch.float64)
        ours, theirs = (
            o.interpolate_trilinear(sparse, coords, None, False, *rows.arguments) for o in (native, reference)
        )
        torch.testing.assert_close(ours, theirs)


def _marching(arguments: tuple, grid_at: tuple[int, ...], device: str) -> tuple[list, list]:
    """Arguments with dense grids and with sparse ones of the vertices of occupied cells."""
    dense, sparse = list(arguments), list(arguments)
    there = cells_to_vertices(arguments[3])
    rows = VertexRows.of(there.flatten().nonzero()[:, 0], tuple(there.shape))
    for place in grid_at:
        sparse[place] = arguments[place].flatten(0, 2)[rows.vertices]
    return dense, [*sparse, rows.table]


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", ["typical", "long_rays", "no_limits", "capacity_overflows"])
def test_marching_finds_the_same_samples(ops, case, dtype, device):

    arguments = CASES["march_visible"][case](dtype, device)
    dense, sparse = _marching(arguments, (7,), device)
    for one, other in zip(ops.march_visible(*sparse), ops.march_visible(*dense), strict=True):
        assert torch.equal(one, other)


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "case", ["typical", "long_rays", "channels_7", "channels_28", "four_rays_a_pixel", "four_long_rays"]
)
def test_rendering_is_the_same(ops, case, dtype, device):

    arguments = CASES["render_rays"][case](dtype, device)
    dense, sparse = _marching(arguments, (7, 12), device)
    same = torch.equal if ops is native or device == "cpu" else _close  # PyTorch adds in any order on a GPU
    for one, other in zip(ops.render_rays(*sparse), ops.render_rays(*dense), strict=True):
        assert same(one, other)


@BOTH
@pytest.mark.parametrize("touched_only", [False, True])
@pytest.mark.parametrize("channels", CHANNELS)
def test_total_variation_of_a_whole_grid_is_that_of_the_dense_one(ops, channels, touched_only, device):
    for size in SIZES:
        rows = rows_of(size, device, 1.0)
        dense, sparse = grids(rows, channels, torch.float32)
        grad = numbers(*sparse.shape, low=-1, seed=6) * (numbers(*sparse.shape, seed=7) < 0.5)
        grad = grad.to(device, torch.float32)
        expected, some = rows.expanded(grad), rows.vertices[::3].contiguous()
        ops.total_variation_grad(expected, dense, 0.3, touched_only, some)
        ops.total_variation_grad(grad, sparse, 0.3, touched_only, some, *rows.arguments)
        # A compiler rounds the product before it is added, or not.
        torch.testing.assert_close(grad, expected.flatten(0, 2), rtol=1e-6, atol=1e-6)


@BOTH
@pytest.mark.parametrize("channels", [1, 12])
def test_total_variation_counts_neighbors_that_both_have_rows(ops, channels, device):
    """By hand: the slope of each pair, added one after the other."""
    size = SIZES[0]
    rows = rows_of(size, device)
    _, sparse = grids(rows, channels, torch.float64)
    grad = torch.zeros_like(sparse)
    ops.total_variation_grad(grad, sparse, 0.5, False, rows.vertices, *rows.arguments)
    row_of = {v: i for i, v in enumerate(rows.vertices.tolist())}
    expected = torch.zeros_like(sparse)
    for vertex, row in row_of.items():
        at = (vertex // size[2] // size[1], vertex // size[2] % size[1], vertex % size[2])
        for axis, stride in enumerate((size[1] * size[2], size[2], 1)):
            above = row_of.get(vertex + stride) if at[axis] + 1 < size[axis] else None
            if above is not None:
                slope = 0.5 * (sparse[row] - sparse[above]).clamp(-1, 1)
                expected[row] += slope
                expected[above] -= slope
    torch.testing.assert_close(grad, expected)


def test_whatever_a_table_says_nothing_outside_of_the_rows_is_read_or_written(device):
    """Rows that do not exist count as missing: guards behind and before the values stay as they are."""
    size = SIZES[0]
    generator = torch.Generator().manual_seed(8)
    table = torch.randint(-(2**63), 2**63 - 1, (*size[:2], 3), generator=generator).to(device)
    for channels in CHANNELS:
        whole = torch.zeros(12, channels, device=device)
        values, coords = whole[4:8], points(size, device, torch.float32)
        whole[:4], whole[8:] = float("nan"), float("nan")
        out = native.interpolate_trilinear(values, coords, None, False, table, size[2])
        assert out.isfinite().all()
        native.interpolate_trilinear_grad(values, torch.ones_like(out), coords, False, table, size[2])
        all_vertices = torch.arange(size[0] * size[1] * size[2], device=device)
        native.total_variation_grad(values, torch.ones_like(values), 1.0, False, all_vertices, table, size[2])
        assert whole[:4].isnan().all() and whole[8:].isnan().all() and values.isfinite().all()


def test_bad_tables_are_named(device):
    rows = rows_of(SIZES[0], device)
    _, sparse = grids(rows, 4, torch.float32)
    coords = points(SIZES[0], device, torch.float32)
    for table, size_z, expected in (
        (rows.table, 33, r"table has shape \[7,5,3\], expected \[\*,\*,2\]"),
        (rows.table, 0, "table has shape"),
        (rows.table[0], 70, r"table has shape \[5,3\]"),
        (rows.table.int(), 70, "table is int32, expected int64"),
        (rows.table[:0], 70, "at least one vertex"),
    ):
        with pytest.raises(ValueError, match=expected):
            native.interpolate_trilinear(sparse, coords, None, False, table, size_z)
    with pytest.raises(ValueError, match=r"grid has shape \[7,5,70,4\], expected \[\*,\*\]"):
        native.interpolate_trilinear(rows.expanded(sparse), coords, None, False, *rows.arguments)
    with pytest.raises(ValueError, match="rows is missing"):
        native.total_variation_grad(sparse.clone(), sparse, 1.0, False, None, *rows.arguments)
