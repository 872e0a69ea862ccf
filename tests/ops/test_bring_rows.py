"""bring_rows: the marked rows of a sparse grid as a sparse grid of their own."""

import pytest
import torch
from case_tools import Operation, as_case, numbers, with_gaps
from proofs import BOTH, assert_opcheck, assert_rejected
from torch import Tensor

from nerf.ops import native, reference
from nerf.ops.vertex_rows import LOWER_HALF, VertexRows, listed_vertices

NAME = "bring_rows"
SIZES = ((7, 5, 70), (1, 4, 33), (3, 1, 32), (6, 6, 1), (2, 3, 64), (9, 8, 31))


def _bringing(
    size: tuple[int, int, int] = (5, 6, 70), channels: int = 3, share: float = 0.7, points: int = 25, room: tuple = ()
) -> tuple:
    rows = VertexRows.of((numbers(*size, seed=60) < share).flatten().nonzero()[:, 0], size)
    coords = numbers(points, 3, low=-0.2, high=1.2, seed=61) * (torch.tensor(size).double() - 1)
    grid = numbers(len(rows.vertices), channels, low=-1, seed=62)
    return grid, reference.mark_vertices(coords, *rows.arguments), *rows.arguments, *room


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_bringing),
            "empty": as_case(_bringing, points=0),
            "non_contiguous": with_gaps(as_case(_bringing)),
            "with_room": as_case(_bringing, room=(900, 300)),
            "without_room": as_case(_bringing, room=(200, 30)),
            "no_rows": as_case(_bringing, share=0.0),
            "no_channels": as_case(_bringing, channels=0),
            "one_axis_single": as_case(_bringing, size=(1, 4, 33)),
        },
        no_derivative="rows are copied",
        opcheck=("typical", "empty", "non_contiguous", "with_room"),
        sizes=("grid", "table"),
        own_rule=True,
    ),
}


@BOTH
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("room", [(), (2000, 1000)])
def test_the_window_has_the_marked_rows(ops, size, room, device):
    grid, marks, *table = (x.to(device) if isinstance(x, Tensor) else x for x in _bringing(size))
    window, values, stored, corners, vertices, counts = ops.bring_rows(grid, marks, *table, *room)
    read, of_corners = listed_vertices(marks >> 32, size[2]), listed_vertices(marks & LOWER_HALF, size[2])
    k, t = len(read), len(of_corners)
    assert counts.tolist() == [k, t] and 0 < t < k
    assert (len(values), len(corners)) == (room or (k, t)) and (len(stored), len(vertices)) == (room or (k, t))
    assert torch.equal(listed_vertices(window, size[2]), read)
    assert torch.equal(VertexRows(size, read, window).rows(read), torch.arange(k, device=device))
    assert torch.equal(stored[:k], VertexRows(size, grid, table[0]).rows(read)) and (stored[:k] >= 0).all()
    assert torch.equal(values[:k], grid[stored[:k]]) and not values[k:].any()
    assert torch.equal(vertices[:t], of_corners) and torch.equal(read[corners[:t]], of_corners)
    assert all((x == -1).all() for x in (stored[k:], corners[t:], vertices[t:]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("room", [(), (2000, 1000), (100, 1000), (2000, 40), (100, 40), (100, 0)])
def test_native_is_the_reference(room, dtype, device):
    for size in SIZES:
        for channels in (1, 3, 16):
            arguments = as_case(_bringing, size=size, channels=channels, room=room)(dtype, device)
            for ours, theirs in zip(native.bring_rows(*arguments), reference.bring_rows(*arguments), strict=True):
                assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)


@BOTH
def test_what_does_not_fit_is_counted_and_left_out(ops, device):
    """Operations that look for its rows find none, and lists pass over it."""
    arguments = as_case(_bringing, room=(100, 1000))(torch.float32, device)
    window, values, _, corners, vertices, counts = ops.bring_rows(*arguments)
    assert counts[0] > 100 and len(values) == 100
    size = (*window.shape[:2], arguments[3])
    rows = VertexRows(size, values, window).rows(listed_vertices(window, size[2]))
    assert torch.equal(rows[:100], torch.arange(100, device=device)) and (rows[100:] == -1).all()
    assert corners.max() < 100 and torch.equal(corners < 0, vertices < 0) and (corners >= 0).any()


@pytest.mark.parametrize("channels", [1, 3, 4, 8, 12, 16])
@BOTH
def test_the_window_of_a_float16_grid_is_float32(ops, channels, device):
    grid, *rest = as_case(_bringing, channels=channels, room=(400, 300))(torch.float32, device)
    found, expected = ops.bring_rows(grid.half(), *rest), ops.bring_rows(grid.half().float(), *rest)
    assert found[1].dtype == torch.float32 and found[1].any()
    assert all(map(torch.equal, found, expected))


def test_every_float16_has_its_number(device):
    grid = torch.arange(1 << 16, device=device).to(torch.int16).view(torch.float16).view(-1, 16)
    rows = VertexRows.of(torch.arange(1 << 12, device=device), (16, 8, 32))
    values = native.bring_rows(grid, torch.full_like(rows.table, -1), *rows.arguments)[1]
    torch.testing.assert_close(values, grid.float(), rtol=0, atol=0, equal_nan=True)


def test_marks_without_a_row_have_no_value(device):
    grid, marks, table, size_z = as_case(_bringing)(torch.float32, device)
    everywhere = torch.full_like(marks, -1)
    empty, beyond = torch.zeros_like(table), torch.full_like(table, 1 << 62 | LOWER_HALF)
    for some, words in ((grid, empty), (grid, beyond), (grid[:0], table)):
        _, values, stored, *_ = native.bring_rows(some, everywhere, words, size_z)
        assert len(values) == 32 * marks.numel() and (stored == -1).all() and not values.any()


def test_a_table_in_another_order_gives_one_in_the_usual_order():
    grid, marks, table, *rest = as_case(_bringing, room=(2000, 1000))(torch.float32, "cpu")
    assert_opcheck(NAME, (grid, marks, table.transpose(0, 1).contiguous().transpose(0, 1), *rest))


def test_bad_arguments_are_named():
    arguments = (*_bringing(), 0, 0)
    assert_rejected(NAME, arguments, "marks", arguments[1][1:], r"expected \[5,6,3\]")
    assert_rejected(NAME, arguments, "capacity", -1, "expected 0 .exact. or a number of rows")
    assert_rejected(NAME, arguments, "corner_capacity", -1, "expected 0 .exact. or a number of rows")
    with pytest.raises(ValueError, match="a word for 32 vertices of size_z 200"):
        native.bring_rows(*arguments[:3], 200)
