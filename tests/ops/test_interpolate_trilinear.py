"""interpolate_trilinear: exact on linear functions, like grid_sample, native against the reference."""

import pytest
import torch
from case_tools import CHANNELS, Case, Operation, as_case, as_sparse, cotangent, numbers, with_gaps
from proofs import (
    BOTH,
    assert_finite,
    assert_rejected,
)
from torch import Tensor

from nerf.ops import native, reference

NAME, INTO = "interpolate_trilinear", "interpolate_trilinear_grad"


def _points(
    resolution: tuple[int, int, int] = (5, 4, 6),
    channels: int = 4,
    points: int = 30,
    low: float = 0.0,
    high: float = 1.0,
    round_to_vertices: bool = False,
) -> tuple:
    """A grid, and points from low to high times its size."""
    last = torch.tensor(resolution, dtype=torch.float64) - 1
    coords = numbers(points, 3, low=low, high=high, seed=7) * last
    coords[:2] = torch.stack([torch.zeros(3), last])[:points]  # both ends of the grid are in every case
    grid = numbers(*resolution, channels, low=-1, seed=8)
    return grid, coords.round() if round_to_vertices else coords


def _ray_points(channels: int, rays: int = 4, points: int = 37) -> tuple:
    """A grid, and points along rays at steps of half a cell; some rays leave the grid, some points lie on vertices."""
    last = torch.tensor([8.0, 7.0, 6.0], dtype=torch.float64)
    starts, directions = last * numbers(rays, 1, 3, seed=34), numbers(rays, 1, 3, low=-1, seed=35)
    steps = 0.5 * torch.arange(points).double()[None, :, None]
    coords = (starts + steps * torch.nn.functional.normalize(directions, dim=-1)).view(-1, 3)
    coords[::5] = coords[::5].round()
    return numbers(9, 8, 7, channels, low=-1, seed=36), coords


def _sparse_points(channels: int) -> tuple:
    grid, coords = _points((5, 4, 35), channels, 60, low=-0.2, high=1.2)
    values, table, size_z = as_sparse(grid)
    return values, coords, table, size_z


def backward(grid: Tensor, coords: Tensor, *sparse: object) -> tuple:
    out = reference.interpolate_trilinear(grid, coords, None, False, *sparse)
    return cotangent(out), grid, coords, True, True, *sparse


def gradient_there(grid: Tensor, coords: Tensor, *sparse: object) -> tuple:
    """The gradient that is there before is a grid like any other."""
    out = reference.interpolate_trilinear(grid, coords, None, False, *sparse)
    return torch.sin(grid).contiguous(), cotangent(out), coords, False, *sparse


def in_order(case: Case) -> Case:
    """The same additions in one order; some points weigh nothing."""

    def build(dtype: torch.dtype, device: str) -> tuple:
        grad, grad_out, coords, _ = case(dtype, device)
        grad_out = torch.where(torch.arange(len(coords), device=device)[:, None] % 5 == 3, 0, grad_out)
        return grad, grad_out, coords, True

    return build


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_points),
            "empty": as_case(_points, points=0),
            "outside": as_case(_points, low=-2.0, high=3.0),
            "on_vertices": as_case(_points, round_to_vertices=True),
            "one_axis_single": as_case(_points, resolution=(1, 4, 3)),
            "all_axes_single": as_case(_points, resolution=(1, 1, 1), low=-1.0),
            "many_points_per_cell": as_case(_points, resolution=(2, 3, 2), points=300),
            "non_contiguous": with_gaps(as_case(_points)),
            **{f"channels_{c}": as_case(_points, channels=c) for c in CHANNELS},
            **{f"sparse_{c}_channels": as_case(_sparse_points, channels=c) for c in (1, 4, 7)},
            **{f"along_rays_{c}_channels": as_case(_ray_points, channels=c) for c in (1, 3, 4, 12, 28)},
        },
        sizes=("grid", "coords"),
        gradcheck=("typical", "outside", "one_axis_single", "channels_7", "sparse_4_channels"),
        # The first two points lie on corners of the grid, where the function has a bend.
        smooth=lambda grid, coords, *sparse: (grid, coords[2:10], *sparse),
        opcheck=("typical", "empty", "non_contiguous", "channels_3", "sparse_4_channels"),
    ),
}
OPERATIONS[f"{NAME}_backward"] = OPERATIONS[NAME].derived(backward)
OPERATIONS[INTO] = OPERATIONS[NAME].derived(
    gradient_there, first_gap=1, no_derivative="written in place, a gradient itself", sizes=("grad", "coords")
)
ORDERED = ("typical", "empty", "outside", "on_vertices", "one_axis_single", "all_axes_single")
ORDERED += ("many_points_per_cell", "channels_3", "channels_7", "along_rays_1_channels", "along_rays_28_channels")
OPERATIONS[INTO].cases.update({f"{case}_in_order": in_order(OPERATIONS[INTO].cases[case]) for case in ORDERED})
CASES = {name: known.cases for name, known in OPERATIONS.items()}
SLOPES = ((2.0, -3.0, 5.0, 1.0), (0.5, 4.0, -2.0, -7.0))  # of each channel: x, y, z, constant


def linear_grid(*resolution: int) -> Tensor:
    """Vertex values of the linear functions SLOPES; small integers and halves, so that sums are exact."""
    x, y, z = torch.meshgrid(*(torch.arange(float(n)) for n in resolution), indexing="ij")
    return torch.stack([a * x + b * y + c * z + d for a, b, c, d in SLOPES], dim=-1)


def linear_function(points: Tensor) -> Tensor:
    slopes = torch.tensor(SLOPES, device=points.device)
    return points @ slopes[:, :3].T + slopes[:, 3]


def dyadic_points(count: int, *resolution: int) -> Tensor:
    """Points on a lattice of 1/8 cells: their weights are exact in float32, and some lie on vertices."""
    return torch.round(8 * numbers(count, 3) * (torch.tensor(resolution) - 1)).float() / 8


@BOTH
def test_linear_functions_are_reproduced_exactly(ops, device):
    grid, points = linear_grid(4, 3, 6).to(device), dyadic_points(200, 4, 3, 6).to(device)
    assert torch.equal(ops.interpolate_trilinear(grid, points), linear_function(points))


@BOTH
def test_gradient_with_respect_to_the_point_is_the_slope(ops, device):
    points = dyadic_points(200, 4, 3, 6).to(device).requires_grad_()
    out = ops.interpolate_trilinear(linear_grid(4, 3, 6).to(device), points)
    for channel, slopes in enumerate(SLOPES):
        (gradient,) = torch.autograd.grad(out[:, channel].sum(), points, retain_graph=True)
        assert torch.equal(gradient, torch.tensor([slopes[:3]], device=device).expand(200, 3))


@BOTH
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_grid_in_another_order_of_memory_gets_its_gradient(ops, deterministic, device):
    values, coords = _points()
    grid, coords = values.float().to(device), coords.float().to(device)
    gradients = []
    for given in (grid, grid.permute(3, 0, 1, 2).contiguous().permute(1, 2, 3, 0)):
        leaf = given.detach().requires_grad_()
        ops.interpolate_trilinear(leaf, coords, None, deterministic).square().sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients)


@BOTH
def test_vertices_give_their_own_values(ops, device):
    grid = numbers(3, 4, 2, 5).float().to(device)
    vertices = torch.cartesian_prod(*(torch.arange(float(n)) for n in (3, 4, 2))).to(device)
    assert torch.equal(ops.interpolate_trilinear(grid, vertices), grid.reshape(-1, 5))


@BOTH
def test_outside_the_nearest_point_of_the_surface_counts(ops, device):
    grid, inner = linear_grid(4, 3, 6).to(device), torch.tensor([[3.0, 1.5, 0.0]], device=device)
    outer = torch.tensor([[3.5, 1.5, -2.0]], device=device, requires_grad=True)
    out = ops.interpolate_trilinear(grid, outer)
    assert torch.equal(out, ops.interpolate_trilinear(grid, inner))
    (gradient,) = torch.autograd.grad(out[:, 0].sum(), outer)
    assert gradient.tolist() == [[0.0, SLOPES[0][1], 0.0]], "none where the coordinate is clamped"


@BOTH
def test_matches_grid_sample(ops, device):
    """PyTorch's own interpolation: corners aligned, coordinates z, y, x from -1 to 1."""
    grid, coords = (x.requires_grad_() for x in CASES[NAME]["outside"](torch.float64, device))
    last = torch.tensor(grid.shape[:3], device=device) - 1
    places = (2 * coords / last - 1).flip(-1)[None, None, None]
    volume = grid.permute(3, 0, 1, 2)[None]
    theirs = torch.nn.functional.grid_sample(volume, places, padding_mode="border", align_corners=True)
    theirs, ours = theirs[0, :, 0, 0].T, ops.interpolate_trilinear(grid, coords)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    weights = numbers(*ours.shape, seed=1).to(device)
    # Points on a face itself are left out: grid_sample gives them no slope, ours is that of the inside.
    rows = ((coords != 0) & (coords != last)).all(-1)
    gradients = [torch.autograd.grad((out * weights)[rows].sum(), (grid, coords)) for out in (ours, theirs)]
    for our, their in zip(*gradients, strict=True):
        torch.testing.assert_close(our, their, rtol=0, atol=1e-11)


@BOTH
def test_gradient_of_the_grid_is_the_adjoint(ops, device):
    """The weights sum to 1, and (grad_out . out(other)) = (gradient . other) for any other grid."""
    grid, coords = CASES[NAME]["many_points_per_cell"](torch.float64, device)
    out = ops.interpolate_trilinear(grid.requires_grad_(), coords)
    grad_out = numbers(*out.shape, seed=1).to(device)
    (gradient,) = torch.autograd.grad(out, grid, grad_out)
    torch.testing.assert_close(gradient.sum((0, 1, 2)), grad_out.sum(0))
    other = numbers(*grid.shape, seed=2).to(device)
    expected = (grad_out * ops.interpolate_trilinear(other, coords)).sum()
    torch.testing.assert_close((gradient * other).sum(), expected)


@BOTH
@pytest.mark.parametrize("points_too", [False, True])
def test_a_gradient_that_is_there_is_added_to(ops, points_too, device):
    """Two backward passes into grid.grad equal their sum; where the points want a gradient, they get it."""
    grid, coords = (x.requires_grad_() for x in CASES[NAME]["typical"](torch.float64, device))
    other = CASES[NAME]["outside"](torch.float64, device)[1]
    expected = []
    for points in (coords, other):
        out = reference.interpolate_trilinear(grid, points)
        expected += torch.autograd.grad(out, grid, cotangent(out))
    grid.grad, kept = torch.zeros_like(grid), None
    for points in (coords if points_too else coords.detach(), other):
        kept = kept if points is other else grid.grad
        out = ops.interpolate_trilinear(grid, points, grid.grad)
        out.backward(cotangent(out))
    torch.testing.assert_close(grid.grad, expected[0] + expected[1])
    assert grid.grad is kept or ops is reference
    assert (coords.grad is not None) == points_too
    if points_too:
        out = reference.interpolate_trilinear(grid.detach(), coords)
        torch.testing.assert_close(coords.grad, *torch.autograd.grad(out, coords, cotangent(out)))


@BOTH
def test_a_point_that_is_not_a_number_reads_not_a_number(ops, device):
    grid, coords = CASES[NAME]["typical"](torch.float32, device)
    coords[3, 1] = float("nan")
    out = ops.interpolate_trilinear(grid, coords)
    assert out[3].isnan().all() and out[:3].isfinite().all() and out[4:].isfinite().all()


@pytest.mark.parametrize("values", [0.0, 1e-10, 1e10, 1e30])
@pytest.mark.parametrize("places", [0.0, 1e-10, 1e10, 1e30])
def test_extremes_stay_finite(values, places, device):
    grid, coords = CASES[NAME]["outside"](torch.float32, device)
    assert_finite(NAME, (values * grid, places * coords))


@pytest.mark.parametrize("name", [NAME, f"{NAME}_backward"])
def test_bad_arguments_are_named(name):
    arguments = CASES[name]["typical"](torch.float32, "cpu")
    grid, coords = arguments[-2:] if name == NAME else arguments[1:3]
    assert_rejected(name, arguments, "coords", coords[:, :2], r"expected \[\*,3\]")
    assert_rejected(name, arguments, "coords", coords.double(), "expected float32")
    assert_rejected(name, arguments, "grid", grid[:0], "expected at least one vertex")
    if name != NAME:
        assert_rejected(name, arguments, "grad_out", arguments[0][1:], r"expected \[30,4\]")


def test_bad_arguments_of_the_gradient_are_named():
    arguments = CASES[INTO]["typical"](torch.float32, "cpu")
    assert_rejected(INTO, arguments, "coords", arguments[2][:, :2], r"expected \[\*,3\]")
    assert_rejected(INTO, arguments, "grad", arguments[0][:0], "expected at least one vertex")
    assert_rejected(INTO, arguments, "grad_out", arguments[1][1:], r"expected \[30,4\]")
    with pytest.raises(ValueError, match="^grad is written in place and must be contiguous"):
        native.interpolate_trilinear_grad(arguments[0].transpose(0, 1).contiguous().transpose(0, 1), *arguments[1:])
