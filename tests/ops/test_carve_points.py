"""carve_points: a point is given up where some view shows nothing around it, and kept where none sees it."""

import math

import pytest
import torch
from case_tools import Operation, as_case, numbers, with_gaps
from proofs import BOTH, FLOATS, assert_rejected
from torch import Tensor

from nerf.ops import native, reference

NAME = "carve_points"
WIDTH, HEIGHT = 13, 11


def _counts(shown: Tensor) -> Tensor:
    """Of masks [V,H,W] bool, as the operation takes them."""
    sums = shown.int().cumsum(1, dtype=torch.int32).cumsum(2, dtype=torch.int32)
    return torch.nn.functional.pad(sums, (1, 0, 1, 0))


def _views(points: int = 60, views: int = 4, share: float = 0.1, far: float = 3.0) -> tuple:
    """Points around the middle, at which cameras look from all sides."""
    axes = torch.linalg.qr(2 * numbers(views, 3, 3, seed=91) - 1)[0]
    c2w = torch.cat([axes, 4 * axes[:, :, 2:]], dim=-1)
    intrinsics = torch.tensor([[12.0, 11.0, 6.2, 5.7]], dtype=torch.float64).repeat(views, 1)
    counts = _counts(numbers(views, HEIGHT, WIDTH, seed=92) < share)
    return numbers(points, 3, low=-far, high=far, seed=93), c2w, intrinsics, counts, torch.arange(views) % 3


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_views),
            "empty": as_case(_views, points=0),
            "no_view": as_case(_views, views=0),
            "non_contiguous": with_gaps(as_case(_views)),
            "behind_cameras": as_case(_views, far=30.0),
            "many": as_case(_views, points=3000, views=30, share=0.4),
        },
        no_derivative="a point is kept or not",
        sizes=("points", "c2w"),
        own_rule=True,
    ),
}


def by_hand(points: Tensor, c2w: Tensor, intrinsics: Tensor, counts: Tensor, reach: Tensor) -> list[bool]:
    """One point and view after the other, the window pixel by pixel."""
    shown = counts[:, 1:, 1:].diff(dim=1, prepend=counts[:, :1, 1:])
    shown = shown.diff(dim=2, prepend=torch.zeros_like(shown[:, :, :1])) > 0
    kept = [True] * len(points)
    for view, pose in enumerate(c2w):
        fx, fy, cx, cy = intrinsics[view].tolist()
        around = int(reach[view])
        for i, (right, up, backward) in enumerate(((points - pose[:, 3]) @ pose[:, :3]).tolist()):
            if backward >= 0:
                continue
            column, row = math.floor(cx - fx * right / backward), math.floor(cy + fy * up / backward)
            if 0 <= column < WIDTH and 0 <= row < HEIGHT:
                rows = shown[view, max(row - around, 0) : row + around + 1]
                kept[i] &= bool(rows[:, max(column - around, 0) : column + around + 1].any())
    return kept


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", OPERATIONS[NAME].cases)
def test_native_keeps_what_pytorch_keeps_and_what_a_hand_does(case, dtype, device):
    arguments = OPERATIONS[NAME].cases[case](dtype, device)
    expected = by_hand(*(x.cpu() for x in arguments))
    for ops in (native, reference):
        assert ops.carve_points(*arguments).tolist() == expected
    assert case in ("empty", "no_view") or 0.02 < sum(expected) / len(expected) < 0.98


def one_view(*shown: tuple[int, int], reach: int = 0, device: str = "cpu") -> tuple[Tensor, ...]:
    """c2w, intrinsics, counts and reach of a camera at the origin, whose 5x4 pixels with these columns and rows show
    something: the point (column + 0.5, -row - 0.5, -1) is seen in the middle of a pixel."""
    mask = torch.zeros(1, 4, 5, dtype=torch.bool)
    for column, row in shown:
        mask[0, row, column] = True
    c2w, intrinsics = torch.eye(3, 4)[None], torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    return tuple(x.to(device) for x in (c2w, intrinsics, _counts(mask), torch.tensor([reach])))


def seen_at(*pixels: tuple[float, float], device: str = "cpu") -> Tensor:
    return torch.tensor([[column, -row, -1.0] for column, row in pixels], device=device)


@BOTH
def test_reach_is_counted_in_rows_and_columns_from_the_point_s_pixel(ops, device):
    points = seen_at((0.5, 0.5), (1.5, 1.5), (2.5, 1.5), (3.5, 2.5), (4.5, 3.5), device=device)
    for reach, expected in ((0, [False, False, True, False, False]), (1, [False, True, True, True, False])):
        assert ops.carve_points(points, *one_view((2, 1), reach=reach, device=device)).tolist() == expected
    for reach in (2, 2**62):
        assert ops.carve_points(points, *one_view((2, 1), reach=reach, device=device)).all()


@BOTH
def test_what_a_view_does_not_see_it_keeps(ops, device):
    """Beside the image of 5x4 pixels by a hair, behind the camera, at it, and points that are none."""
    nothing = one_view(device=device)
    edges = seen_at((0.0, 0.0), (4.999, 3.999), (-0.001, 1.0), (5.0, 1.0), (1.0, -0.001), (1.0, 4.0), device=device)
    assert ops.carve_points(edges, *nothing).tolist() == [False, False, True, True, True, True]
    unseen = torch.tensor([[1.0, -1.0, 1.0], [0.0, 0.0, 0.0], [math.nan, 0.0, -1.0], [0.0, 0.0, math.nan]])
    unseen = torch.cat([unseen, torch.tensor([[math.inf, 0.0, -1.0], [-math.inf, 0.0, -1.0]])])
    assert ops.carve_points(unseen.to(device), *nothing).all()


@BOTH
def test_a_point_is_kept_if_all_views_keep_it(ops, device):
    views = [one_view((2, 1), (3, 1), device=device), one_view((3, 1), (0, 0), device=device)]
    both = [torch.cat(parts) for parts in zip(*views, strict=True)]
    points = seen_at((0.5, 0.5), (2.5, 1.5), (3.5, 1.5), device=device)
    assert ops.carve_points(points, *both).tolist() == [False, False, True]


def test_any_counts_and_reach_have_an_answer_on_a_gpu(cuda):
    points, c2w, intrinsics, counts, reach = OPERATIONS[NAME].cases["typical"](torch.float32, cuda)
    expected = native.carve_points(points, c2w, intrinsics, counts, reach.clamp(max=0))
    assert torch.equal(native.carve_points(points, c2w, intrinsics, counts, -reach), expected)
    wild = torch.randint(-(2**31), 2**31 - 1, counts.shape, dtype=torch.int32, device=cuda)
    assert native.carve_points(points, c2w, intrinsics, wild, reach).shape == (60,)


def test_bad_arguments_are_named():
    arguments = OPERATIONS[NAME].cases["typical"](torch.float32, "cpu")
    _, c2w, intrinsics, counts, reach = arguments
    assert_rejected(NAME, arguments, "c2w", c2w[:, :, :3], r"expected \[\*,3,4\]")
    assert_rejected(NAME, arguments, "intrinsics", intrinsics[:3], r"expected \[4,4\]")
    assert_rejected(NAME, arguments, "counts", counts[:, :1], "expected a row and a column more")
    assert_rejected(NAME, arguments, "counts", counts.long(), "expected int32")
    assert_rejected(NAME, arguments, "reach", reach - 1, "the value -1 at 0, expected 0 or more")
