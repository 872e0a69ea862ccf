"""interpolate_cells: exact on linear functions, one with interpolate_trilinear, native against the reference."""

import pytest
import torch
from case_tools import CHANNELS, Operation, as_case, cotangent, numbers, with_gaps
from proofs import (
    BOTH,
    FLOATS,
    assert_finite,
    assert_rejected,
)
from torch import Tensor

from nerf.ops import native, reference

NAME = "interpolate_cells"


def _cells(points: int = 20, channels: int = 8, low: float = -1.0, high: float = 1.0) -> tuple:
    """Corner values and points, from low to high; the first two are corners of their cells."""
    places = numbers(points, 3, low=low, high=high, seed=22)
    places[:2] = torch.tensor([[-1.0] * 3, [1.0] * 3], dtype=torch.float64)[:points]
    return numbers(points, 8, channels, low=-1, seed=23), places


def backward(feats: Tensor, points: Tensor) -> tuple:
    return cotangent(reference.interpolate_cells(feats, points)), feats, points, True, True


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_cells),
            "empty": as_case(_cells, points=0),
            "no_channels": as_case(_cells, channels=0),
            "one_point": as_case(_cells, points=1),
            "outside": as_case(_cells, low=-3.0, high=3.0),
            "many_points": as_case(_cells, points=300, channels=12),
            "wide_rows": as_case(_cells, points=5, channels=256),
            "non_contiguous": with_gaps(as_case(_cells)),
            **{f"channels_{c}": as_case(_cells, channels=c) for c in (*CHANNELS, 132, 150)},
        },
        gradcheck=("typical", "outside", "one_point", "channels_7"),
        opcheck=("typical", "empty", "non_contiguous", "channels_3"),
    ),
}
OPERATIONS[f"{NAME}_backward"] = OPERATIONS[NAME].derived(backward)
CASES = {name: known.cases for name, known in OPERATIONS.items()}
CORNERS = torch.cartesian_prod(*(torch.tensor([-1.0, 1.0]),) * 3)  # x slowest, z fastest: k = 4x + 2y + z
SLOPES = ((2.0, -3.0, 5.0, 1.0), (0.5, 4.0, -2.0, -7.0), (1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 8.0, 0.0))


def linear_function(points: Tensor) -> Tensor:
    """Four features: x, y, z, constant; small integers and halves, so that sums are exact."""
    slopes = torch.tensor(SLOPES, device=points.device)
    return (points[..., None, :] * slopes[:, :3]).sum(-1) + slopes[:, 3]


def dyadic_points(count: int, low: float = -1.0, high: float = 1.0) -> Tensor:
    return torch.round(8 * numbers(count, 3, low=low, high=high)).float() / 8


@BOTH
@pytest.mark.parametrize("reach", [1.0, 3.0])
def test_linear_functions_are_reproduced_exactly(ops, reach, device):
    points = dyadic_points(100, -reach, reach).to(device)
    feats = linear_function(CORNERS.to(device)).expand(100, 8, 4)
    assert torch.equal(ops.interpolate_cells(feats, points), linear_function(points))


@BOTH
def test_gradient_with_respect_to_the_point_is_the_slope(ops, device):
    points = dyadic_points(100).to(device).requires_grad_()
    out = ops.interpolate_cells(linear_function(CORNERS.to(device)).expand(100, 8, 4), points)
    for feature, slopes in enumerate(SLOPES):
        (gradient,) = torch.autograd.grad(out[:, feature].sum(), points, retain_graph=True)
        assert torch.equal(gradient, torch.tensor([slopes[:3]], device=device).expand(100, 3))


@BOTH
def test_corners_give_their_own_values(ops, device):
    feats = numbers(1, 8, 5).float().to(device)
    assert torch.equal(ops.interpolate_cells(feats.expand(8, 8, 5), CORNERS.to(device)), feats[0])


@BOTH
def test_is_interpolate_trilinear_of_a_grid_with_one_cell(ops, device):
    feats, points = CASES[NAME]["typical"](torch.float64, device)
    expected = [
        ops.interpolate_trilinear(cell.view(2, 2, 2, -1), (0.5 + 0.5 * point)[None])[0]
        for cell, point in zip(feats, points, strict=True)
    ]
    torch.testing.assert_close(ops.interpolate_cells(feats, points), torch.stack(expected))


@BOTH
def test_gradient_of_the_corners_is_the_adjoint(ops, device):
    """The weights sum to 1, and (grad_out . out(other)) = (gradient . other) for any other corner values."""
    feats, points = CASES[NAME]["wide_rows"](torch.float64, device)
    out = ops.interpolate_cells(feats.requires_grad_(), points)
    grad_out = numbers(*out.shape, seed=1).to(device)
    (gradient,) = torch.autograd.grad(out, feats, grad_out)
    torch.testing.assert_close(gradient.sum(1), grad_out)
    other = numbers(*feats.shape, seed=2).to(device)
    expected = (grad_out * ops.interpolate_cells(other, points)).sum()
    torch.testing.assert_close((gradient * other).sum(), expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_memory_that_starts_anywhere(dtype, device):
    """Rows of whole 16 bytes that do not start at a multiple of 16 bytes."""
    feats, points = CASES[NAME]["typical"](dtype, device)
    shifted = torch.cat([feats.new_zeros(1), feats.flatten()])[1:].view(feats.shape)
    assert shifted.data_ptr() % 16
    found, expected = (native.interpolate_cells(x, points) for x in (shifted, feats))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("values", [0.0, 1e-10, 1e10, 1e30])
@pytest.mark.parametrize("places", [0.0, 1e-10, 1.0])
def test_extremes_stay_finite(values, places, device):
    feats, points = CASES[NAME]["typical"](torch.float32, device)
    assert_finite(NAME, (values * feats, places * points))


@pytest.mark.parametrize("name", [NAME, f"{NAME}_backward"])
def test_bad_arguments_are_named(name):
    arguments = CASES[name]["typical"](torch.float32, "cpu")
    feats, points = arguments[-2:] if name == NAME else arguments[1:3]
    assert_rejected(name, arguments, "feats", feats[:, :7], r"expected \[\*,8,\*\]")
    assert_rejected(name, arguments, "points", points[:, :2], r"expected \[20,3\]")
    assert_rejected(name, arguments, "points", points[1:], r"expected \[20,3\]")
    assert_rejected(name, arguments, "points", points.double(), "expected float32")
    if name != NAME:
        assert_rejected(name, arguments, "grad_out", arguments[0][1:], r"expected \[20,8\]")
