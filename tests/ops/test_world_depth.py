"""world_depth: the world distance at a ray's mean contracted distance, native against the reference."""

import math

import pytest
import torch
from case_tools import Operation, as_case, cotangent, numbers, with_gaps
from proofs import BOTH, FLOATS, assert_finite, assert_rejected, outcome

from nerf.ops import native, reference
from nerf.scene.contraction import ContractedSpace

NAME = "world_depth"
CENTER, HALF = torch.tensor([0.3, -0.2, 0.1]).double(), torch.tensor([1.0, 2.0, 0.7]).double()


def _rays(count: int = 40, reach: float = 3.0, contraction: float = 1.0, least_opacity: float = 0.2) -> tuple:
    """Rays from within the box whose mean is up to reach of contracted distance away."""
    directions = torch.nn.functional.normalize(numbers(count, 3, low=-1, seed=81), dim=-1)
    origins = CENTER + HALF * numbers(count, 3, low=-0.6, high=0.6, seed=82)
    opacity = numbers(count, low=least_opacity, seed=83)
    depth = reach * opacity * numbers(count, seed=84)
    return depth, opacity, origins, directions, CENTER, HALF, contraction


def _empty_rays() -> tuple:
    depth, opacity, *others = _rays()
    seen = torch.arange(len(depth)) % 3 > 0
    return depth * seen, opacity * seen, *others


def backward(*arguments: object) -> tuple:
    return cotangent(reference.world_depth(*arguments)), *arguments


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_rays),
            "empty": as_case(_rays, count=0),
            "non_contiguous": with_gaps(as_case(_rays)),
            "near": as_case(_rays, reach=1.8),
            "thin_shell": as_case(_rays, contraction=0.25, reach=1.5),
            "seen_by_few": as_case(_empty_rays),
            "many": as_case(_rays, count=3001),
        },
        gradcheck=("typical", "near", "thin_shell"),
    ),
}
OPERATIONS[f"{NAME}_backward"] = OPERATIONS[NAME].derived(backward)
CASES = {name: known.cases for name, known in OPERATIONS.items()}


@BOTH
@pytest.mark.parametrize("case", ["typical", "near", "thin_shell"])
def test_it_is_the_mean_in_the_box_and_farther_outside(ops, case, device):
    depth, opacity, origins, directions, center, half, thickness = CASES[NAME][case](torch.float64, device)
    distance, mean = (
        ops.world_depth(depth, opacity, origins, directions, center, half, thickness) / opacity,
        depth / opacity,
    )
    within = ((origins + distance[:, None] * directions - center) / half).abs().amax(-1) <= 1
    torch.testing.assert_close(distance[within], mean[within])
    assert (distance >= mean - 1e-12).all() and within.any() and (distance > mean + 1e-3).any()
    far = ContractedSpace(center, half, thickness).path(origins, directions, depth[:1], depth[:1])
    torch.testing.assert_close(far.distances(mean), distance)


@BOTH
def test_what_is_empty_has_no_depth(ops, device):
    arguments = CASES[NAME]["seen_by_few"](torch.float32, device)
    empty = arguments[1] == 0
    assert empty.any() and not ops.world_depth(*arguments)[empty].any()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("changed, value", [(0, math.nan), (0, math.inf), (1, math.nan)])
def test_what_is_not_finite_reaches_its_ray_as_in_the_reference(value, changed, dtype, device):
    arguments = CASES[NAME]["typical"](dtype, device)
    arguments[changed][7] = value
    expected = outcome(NAME, reference, arguments)
    for key, found in outcome(NAME, native, arguments).items():
        torch.testing.assert_close(found, expected[key], equal_nan=True, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("reach", [0.0, 1e-30, 10.0, 1e6, 1e15])
def test_extremes_stay_finite(reach, device):
    """Also beyond infinity, which is a number there."""
    assert_finite(NAME, as_case(_rays, reach=reach)(torch.float32, device))


def test_bad_arguments_are_named():
    arguments = CASES[NAME]["typical"](torch.float32, "cpu")
    assert_rejected(NAME, arguments, "opacity", arguments[1][1:], r"expected \[40\]")
    assert_rejected(NAME, arguments, "origins", arguments[2][:, :2], r"expected \[40,3\]")
    assert_rejected(NAME, arguments, "half", arguments[5][:2], r"expected \[3\]")
    assert_rejected(NAME, arguments, "center", arguments[4].double(), "expected float32")
    derived = CASES[f"{NAME}_backward"]["typical"](torch.float32, "cpu")
    assert_rejected(f"{NAME}_backward", derived, "grad_out", torch.ones(39), r"expected \[40\]")
