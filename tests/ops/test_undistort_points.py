"""undistort_points: lenses there and back, points beyond their reach, native against the reference."""

import math

import pytest
import torch
from case_tools import Operation, as_case, numbers, with_gaps
from proofs import BOTH, FLOATS, assert_rejected

from nerf.cameras.distortion import Lenses
from nerf.ops import native, reference

NAME = "undistort_points"
MODELS = {
    "perspective": [0.12, -0.03, 0.004, -0.006, 0.01, 0.002],
    "fisheye": [0.06, -0.02, 0.004, -0.001],
    "equirectangular": [],
}


def _points(
    count: int = 60, models: tuple[str, ...] = ("perspective",) * 3, reach: float = 0.8, iterations: int = 6
) -> tuple:
    """Points of pictures up to reach from the middle, one of them in it."""
    lenses = Lenses.of(models, [MODELS[model] for model in models], [reach * math.sqrt(2)] * len(models))
    points, image = reach * numbers(count, 2, low=-1, seed=91), (len(models) * numbers(count, seed=92)).long()
    points[:1] = 0
    tensors = (x.double() for x in (lenses.coefficients, lenses.reach, lenses.rim))
    return points, image, lenses.numbers, *tensors, iterations


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_points),
            "empty": as_case(_points, count=0),
            "non_contiguous": with_gaps(as_case(_points)),
            "fisheye": as_case(_points, models=("fisheye",) * 2),
            "panorama": as_case(_points, models=("equirectangular",)),
            "mixed": as_case(_points, models=tuple(MODELS)),
            "beyond": as_case(_points, models=tuple(MODELS), reach=3.0),
            "many": as_case(_points, count=3001, models=tuple(MODELS)),
        },
        no_derivative="raises: cameras that are learned leave lenses as they are",
        sizes=("points", "models"),
        own_rule=True,
    ),
}
CASES = {name: known.cases for name, known in OPERATIONS.items()}


@BOTH
@pytest.mark.parametrize("case", ["typical", "fisheye", "panorama", "mixed"])
def test_what_is_distorted_again_is_what_it_was(ops, case, device):
    points, image, models, coefficients, reach, rim, iterations = CASES[NAME][case](torch.float64, device)
    directions = ops.undistort_points(points, image, models, coefficients, reach, rim, iterations)
    kinds = tuple(kind for number, kind in enumerate(MODELS) if (models == number).any())
    lenses = Lenses(coefficients, reach, rim, models, kinds, iterations)
    torch.testing.assert_close(lenses.distort(image, 3 * directions), points, rtol=0, atol=1e-9)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", CASES[NAME])
def test_native_is_the_reference(case, dtype, device):
    """Up to rounding, which steep lenses make larger."""
    arguments = CASES[NAME][case](dtype, device)
    found, expected = native.undistort_points(*arguments), reference.undistort_points(*arguments)
    tolerance = 2e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@BOTH
def test_cameras_with_lenses_have_its_rays(ops, device):
    points, image, models, *lens, _ = CASES[NAME]["mixed"](torch.float32, device)
    lenses = Lenses(*lens, models, tuple(MODELS))
    with_kinds, of_all = lenses.undistort(image, points), lenses.undistort(image, points, ops)
    torch.testing.assert_close(with_kinds, of_all, rtol=2e-5, atol=2e-5)


def test_a_point_of_no_image_has_a_direction_of_not_a_number_on_a_gpu(cuda):
    points, image, *lenses = CASES[NAME]["mixed"](torch.float32, cuda)
    wrong = image.clone()
    wrong[::5], wrong[1::7] = -1, 3
    found = native.undistort_points(points, wrong, *lenses)
    assert torch.equal(found.isnan().any(1), wrong != image)


def test_derivative_raises(device):
    points, *others = CASES[NAME]["typical"](torch.float32, device)
    with pytest.raises(RuntimeError, match="^undistort_points has no derivative; use backend=torch"):
        native.undistort_points(points.requires_grad_(), *others).sum().backward()


def test_bad_arguments_are_named():
    arguments = CASES[NAME]["mixed"](torch.float32, "cpu")
    assert_rejected(NAME, arguments, "points", arguments[0][:, :1], r"expected \[\*,2\]")
    assert_rejected(NAME, arguments, "models", arguments[2] + 1, "expected 0 to 2")
    assert_rejected(NAME, arguments, "coefficients", arguments[3][:, :4], r"expected \[3,6\]")
    assert_rejected(NAME, arguments, "rim", arguments[5].double(), "expected float32")
    for iterations in (0, 1001):
        assert_rejected(NAME, arguments, "iterations", iterations, "expected 1 to 1000")
