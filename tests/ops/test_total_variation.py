"""total_variation_grad: Huber by hand, autograd and finite differences, native against the reference."""

import pytest
import torch
from case_tools import CHANNELS, Operation, as_case, as_sparse, numbers, with_gaps
from proofs import (
    BOTH,
    assert_finite,
    assert_rejected,
)
from torch import Tensor

from nerf.ops import native, reference

NAME = "total_variation_grad"


def _variation(
    shape: tuple[int, int, int] = (4, 3, 5),
    channels: int = 3,
    span: float = 2.0,
    touched_only: bool = False,
    rows: list[int] | None = None,
) -> tuple:
    """A gradient, half of it zero, and a grid with differences on both sides of the Huber function's bend."""
    shape = (*shape, channels)
    grad = numbers(*shape, low=-1, seed=14) * (numbers(*shape, seed=15) < 0.5)
    chosen = None if rows is None else torch.tensor(rows, dtype=torch.int64)
    return grad, numbers(*shape, low=-span, high=span, seed=16), 0.3, touched_only, chosen


def _sparse_variation(channels: int, touched_only: bool) -> tuple:
    grad, grid, weight, *_ = _variation((5, 4, 35), channels)
    (grad, table, size_z), (grid, *_) = as_sparse(grad), as_sparse(grid)
    return grad.contiguous(), grid, weight, touched_only, torch.arange(0, 700, 2), table, size_z


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_variation),
            "empty": as_case(_variation, shape=(0, 3, 5)),
            "touched_only": as_case(_variation, touched_only=True),
            "rough": as_case(_variation, span=1e6),
            "one_axis_single": as_case(_variation, shape=(1, 4, 3)),
            "all_axes_single": as_case(_variation, shape=(1, 1, 1)),
            "non_contiguous": with_gaps(as_case(_variation), first=1),
            **{f"channels_{c}": as_case(_variation, channels=c) for c in CHANNELS},
            "tiles": as_case(_variation, shape=(17, 9, 13), channels=12),
            "tiles_touched_only": as_case(_variation, shape=(9, 17, 12), channels=12, touched_only=True),
            "sparse": as_case(_sparse_variation, channels=12, touched_only=False),
            "sparse_touched_only": as_case(_sparse_variation, channels=3, touched_only=True),
            "some_rows": as_case(_variation, touched_only=True, rows=[59, 0, 7, 30, 31]),
            "no_rows": as_case(_variation, rows=[]),
            "many_rows": as_case(_variation, shape=(9, 17, 12), channels=12, rows=list(range(1, 1836, 2))),
            "many_rows_touched_only": as_case(
                _variation, shape=(9, 17, 12), channels=12, touched_only=True, rows=list(range(0, 1836, 3))
            ),
        },
        no_derivative="written in place, a gradient itself",
        opcheck=("typical", "empty", "touched_only", "some_rows", "non_contiguous", "sparse"),
    ),
}
CASES = {name: known.cases for name, known in OPERATIONS.items()}


def huber_sum(grid: Tensor) -> float:
    """Total variation by its definition: half a square up to a difference of 1, a straight line beyond."""
    total = 0.0
    for axis in range(3):
        size = grid.shape[axis]
        difference = (grid.narrow(axis, 1, size - 1) - grid.narrow(axis, 0, size - 1)).abs()
        total += torch.where(difference <= 1, difference**2 / 2, difference - 0.5).sum().item()
    return total


@BOTH
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_row_of_known_differences(ops, axis, device):
    """Differences 1/4, 3, -1/2: small ones pull with their size, large ones with 1."""
    row = torch.tensor([0.0, 0.25, 3.25, 2.75], device=device)
    grid = row.view([4 if a == axis else 1 for a in range(3)] + [1])
    grad = torch.zeros_like(grid)
    ops.total_variation_grad(grad, grid, 2.0, False)
    assert grad.flatten().tolist() == [2 * -0.25, 2 * (0.25 - 1.0), 2 * (1.0 + 0.5), 2 * -0.5]


def test_reference_value_is_its_definition():
    for case in ("typical", "rough", "one_axis_single"):
        grid = CASES[NAME][case](torch.float64, "cpu")[1]
        assert reference.total_variation(grid).item() == pytest.approx(huber_sum(grid), rel=1e-12)


@BOTH
@pytest.mark.parametrize("case", ["typical", "one_axis_single", "channels_7"])
def test_gradient_matches_finite_differences(ops, case, device):
    _, grid, weight, *_ = CASES[NAME][case](torch.float64, device)
    grad = torch.zeros_like(grid)
    ops.total_variation_grad(grad, grid, weight, False)
    direction = numbers(*grid.shape, low=-1).to(device)
    # The slope is continuous and its bends few, so central differences err by about the step squared.
    step = 1e-5
    slope = (huber_sum(grid + step * direction) - huber_sum(grid - step * direction)) / (2 * step)
    assert (grad * direction).sum().item() == pytest.approx(weight * slope, abs=1e-4)


@BOTH
def test_gradient_is_that_of_autograd_and_added(ops, device):
    grad, grid, weight, *_ = CASES[NAME]["typical"](torch.float64, device)
    leaf = grid.clone().requires_grad_()
    (slope,) = torch.autograd.grad(reference.total_variation(leaf), leaf)
    before = grad.clone()
    ops.total_variation_grad(grad, grid, weight, False)
    torch.testing.assert_close(grad, before + weight * slope)


@BOTH
def test_touched_only_leaves_zero_gradients_alone(ops, device):
    grad, grid, weight, *_ = CASES[NAME]["typical"](torch.float64, device)
    everywhere, touched = grad.clone(), grad.clone()
    ops.total_variation_grad(everywhere, grid, weight, False)
    ops.total_variation_grad(touched, grid, weight, True)
    zero = grad == 0
    assert zero.any() and not touched[zero].any() and everywhere[zero].any()
    assert torch.equal(touched[~zero], everywhere[~zero])


@BOTH
@pytest.mark.parametrize("case", ["typical", "tiles"])
@pytest.mark.parametrize("touched_only", [False, True])
def test_listed_rows_get_what_all_would_and_others_nothing(ops, case, touched_only, device):
    grad, grid, weight, *_ = CASES[NAME][case](torch.float32, device)
    rows = torch.arange(0, grad[..., 0].numel(), 3, device=device)
    everywhere, listed = grad.clone(), grad.clone()
    ops.total_variation_grad(everywhere, grid, weight, touched_only)
    ops.total_variation_grad(listed, grid, weight, touched_only, rows)
    visited = torch.zeros(grad[..., 0].numel(), dtype=torch.bool, device=device)
    visited[rows] = True
    visited = visited.view(grad.shape[:3])
    assert torch.equal(listed[visited], everywhere[visited])
    assert torch.equal(listed[~visited], grad[~visited]) and not torch.equal(everywhere[~visited], grad[~visited])


@BOTH
def test_constant_grids_and_zero_weight_add_nothing(ops, device):
    grad, grid, weight, *_ = CASES[NAME]["typical"](torch.float32, device)
    before = grad.clone()
    ops.total_variation_grad(grad, torch.full_like(grid, 7.0), weight, False)
    ops.total_variation_grad(grad, grid, 0.0, False)
    assert torch.equal(grad, before)


@BOTH
def test_autograd_notices_the_change(ops, device):
    grad, grid, weight, *_ = CASES[NAME]["typical"](torch.float32, device)
    leaf = torch.ones_like(grad, requires_grad=True)
    product = (leaf * grad).sum()  # saves grad for its backward pass
    ops.total_variation_grad(grad, grid, weight, False)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


@BOTH
def test_a_value_that_is_not_a_number_shows_in_its_neighbors(ops, device):
    grid = torch.zeros(5, 1, 1, 1, device=device)
    grid[1] = float("nan")
    grad = torch.zeros_like(grid)
    ops.total_variation_grad(grad, grid, 1.0, False)
    assert grad.isnan().flatten().tolist() == [True, True, True, False, False]


@BOTH
def test_an_infinite_value_at_the_border_pulls_with_the_weight(ops, device):
    """Where there is no neighbor nothing is added, not the difference of infinity with itself."""
    grid = torch.zeros(4, 1, 1, 4, device=device)
    grid[0] = float("inf")
    grad = torch.zeros_like(grid)
    ops.total_variation_grad(grad, grid, 0.5, False)
    assert grad[..., 0].flatten().tolist() == [0.5, -0.5, 0.0, 0.0]


@pytest.mark.parametrize("values", [0.0, 1e-30, 1e-10, 1e10, 1e30])
@pytest.mark.parametrize("weight", [0.0, 1e-30, 1e30])
def test_extremes_stay_finite(values, weight, device):
    grad, grid, _, *rest = CASES[NAME]["typical"](torch.float32, device)
    assert_finite(NAME, (grad, values * grid, weight, *rest))


def test_bad_arguments_are_named():
    arguments = CASES[NAME]["typical"](torch.float32, "cpu")
    assert_rejected(NAME, arguments, "grid", arguments[1][1:], r"expected \[4,3,5,3\]")
    assert_rejected(NAME, arguments, "grid", arguments[1].double(), "expected float32")
    with_rows = CASES[NAME]["some_rows"](torch.float32, "cpu")
    outside = torch.tensor([3, 60])
    assert_rejected(NAME, with_rows, "rows", outside, "expected 0 to 59")
    assert_rejected(NAME, with_rows, "rows", outside.int(), "expected int64")
    with pytest.raises(ValueError, match="grad is written in place and must be contiguous"):
        native.total_variation_grad(arguments[0].transpose(0, 1), arguments[1].transpose(0, 1), 1.0, False)
