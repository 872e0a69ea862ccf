"""mark_vertices: the corners of the cells that points lie in, and what total variation reads beside them."""

from itertools import product

import pytest
import torch
from case_tools import Operation, as_case, numbers, with_gaps
from proofs import BOTH, assert_opcheck, assert_rejected
from torch import Tensor

from nerf.ops import native, reference
from nerf.ops.vertex_rows import VertexRows

NAME = "mark_vertices"
SIZES = ((7, 5, 70), (1, 4, 33), (3, 1, 32), (6, 6, 1), (2, 3, 64), (9, 8, 31))


def _rows(size: tuple[int, int, int], device: str = "cpu", share: float = 0.7) -> VertexRows:
    there = numbers(*size, seed=60) < share
    return VertexRows.of(there.flatten().nonzero()[:, 0].to(device), size)


def _points(size: tuple[int, int, int], count: int, low: float = -0.3, high: float = 1.3) -> Tensor:
    coords = numbers(count, 3, low=low, high=high, seed=61) * (torch.tensor(size).double() - 1)
    return torch.cat([coords, coords[: count // 4].round()])


def _marking(count: int = 40, size: tuple[int, int, int] = (5, 6, 70), share: float = 0.7, **where: float) -> tuple:
    return _points(size, count, **where), *_rows(size, share=share).arguments


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_marking),
            "empty": as_case(_marking, count=0),
            "non_contiguous": with_gaps(as_case(_marking)),
            "one_axis_single": as_case(_marking, size=(1, 4, 33)),
            "no_rows": as_case(_marking, share=0.0),
            "all_outside": as_case(_marking, low=1.5, high=4.0),
        },
        no_derivative="bits have no derivative",
        sizes=("coords", "table"),
        own_rule=True,
    ),
}


@BOTH
@pytest.mark.parametrize("size", SIZES)
def test_marked_are_the_corners_and_their_neighbors_that_have_a_row(ops, size, device):
    rows = _rows(size, device)
    stored = set(rows.vertices.tolist())
    for point in _points(size, 8).to(device).split(1):
        marks = ops.mark_vertices(point, *rows.arguments)
        assert marks.shape == rows.table.shape and marks.dtype == torch.int64
        base = [min(max(int(p), 0), max(n - 2, 0)) for p, n in zip(point[0].tolist(), size, strict=True)]
        corners = {tuple(b + d for b, d in zip(base, step, strict=True)) for step in product((0, 1), repeat=3)}
        corners = {c for c in corners if _inside(c, size)}
        steps = [(0, 0, 0), *[tuple(s * (i == axis) for i in range(3)) for axis in range(3) for s in (1, -1)]]
        read = {tuple(c + d for c, d in zip(corner, step, strict=True)) for corner in corners for step in steps}
        assert _listed(marks, size, 0) == {_number(c, size) for c in corners} & stored
        assert _listed(marks, size, 32) == {_number(c, size) for c in read if _inside(c, size)} & stored


def test_a_table_in_another_order_gives_marks_in_the_usual_order():
    points, table, size = as_case(_marking)(torch.float32, "cpu")
    assert_opcheck(NAME, (points, table.transpose(0, 1).contiguous().transpose(0, 1), size))


def _inside(place: tuple[int, ...], size: tuple[int, int, int]) -> bool:
    return all(0 <= p < n for p, n in zip(place, size, strict=True))


def _number(place: tuple[int, ...], size: tuple[int, int, int]) -> int:
    return (place[0] * size[1] + place[1]) * size[2] + place[2]


def _listed(marks: Tensor, size: tuple[int, int, int], shift: int) -> set[int]:
    found = (marks[..., None] >> (torch.arange(32, device=marks.device) + shift) & 1).flatten(2)
    assert not found[..., size[2] :].any()
    return set(found[..., : size[2]].flatten().nonzero()[:, 0].tolist())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_native_is_the_reference(dtype, device):
    for size in SIZES:
        coords = _points(size, 200).to(device, dtype)
        coords[3, 1], coords[4, 0], coords[5, 2] = torch.nan, torch.inf, -torch.inf
        found = [o.mark_vertices(coords, *_rows(size, device).arguments) for o in (native, reference)]
        assert torch.equal(*found)


def test_bad_arguments_are_named():
    arguments = _marking()
    assert_rejected(NAME, arguments, "table", arguments[1].int(), "expected int64")
    with pytest.raises(ValueError, match="a word for 32 vertices of size_z 200"):
        native.mark_vertices(*arguments[:2], 200)
