"""march_visible: the samples that weigh something, known from march_rays and composite_rays."""

import math

import pytest
import torch
from case_tools import Operation, as_case, with_gaps
from march_cases import (
    THIN_AIR,
    march_scene_through_density,
    march_through_density,
    march_through_empty_space,
    march_through_sparse_density,
)
from proofs import (
    BOTH,
    FLOATS,
    assert_rejected,
    outcome,
)

from nerf.ops import native, reference
from nerf.scene.occupancy import OccupancyGrid

NAME = "march_visible"


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(march_through_density),
            "empty": as_case(march_through_density, rays=0),
            "all_miss": as_case(march_through_density, away=True),
            "all_transparent": as_case(march_through_density, low=-40.0, high=-30.0),
            "huge_density": as_case(march_through_density, low=1e3, high=1e9),
            "long_rays": as_case(march_through_density, **THIN_AIR),
            "no_limits": as_case(march_through_density, min_transmittance=0.0, min_weight=0.0),
            "no_weight_limit": as_case(march_through_density, min_transmittance=0.3, min_weight=0.0),
            "no_transmittance_limit": as_case(march_through_density, min_transmittance=0.0, **THIN_AIR),
            "contracted": as_case(march_through_density, contraction=0.7, far=1e4),
            "empty_space": as_case(march_through_empty_space, far=200.0),
            "empty_space_contracted": as_case(march_through_empty_space, contraction=0.7, far=1e4),
            "empty_space_from_inside": as_case(march_through_empty_space, inside=True, contraction=0.7, far=1e4),
            "axis_of_one_cell": as_case(march_through_density, cells=(1, 7, 4)),
            "capacity_fits": as_case(march_through_density, capacity=1000),
            "capacity_overflows": as_case(march_through_density, capacity=25),
            "capacity_empty": as_case(march_through_density, rays=0, capacity=5),
            "in_scene_space": as_case(march_scene_through_density),
            "sparse": as_case(march_through_sparse_density),
            "non_contiguous": with_gaps(as_case(march_through_density, inside=True, far=1.5)),
        },
        no_derivative="which samples exist is a discrete choice",
        own_rule=True,
        sizes=("origins", "occupied"),
        opcheck=("typical", "empty", "all_miss", "capacity_fits", "capacity_overflows", "sparse", "in_scene_space"),
    ),
}
CASES = {name: known.cases for name, known in OPERATIONS.items()}


def wall(device: str, **options: float) -> tuple:
    """One ray along x through four cells. Raw density 0, no shift: density is log(2) * scale everywhere."""
    values = {"scale": 1.0, "min_transmittance": 0.0, "min_weight": 0.0, "capacity": 0} | options
    ray = [torch.tensor(x, device=device) for x in ([[-1.0, 0.5, 0.5]], [[1.0, 0.0, 0.0]], [0.0])]
    occupied = torch.ones(4, 1, 1, dtype=torch.bool, device=device)
    near, far = (torch.tensor([x], device=device) for x in (0.0, 100.0))
    grid = torch.zeros(5, 2, 2, 1, device=device)
    limits = values["min_transmittance"], values["min_weight"], values["capacity"]
    return *ray, occupied, near, far, 0.5, grid, 0.0, values["scale"], *limits


@BOTH
def test_a_sample_is_visible_if_it_weighs_enough(ops, device):
    """Density 2 log 2 lets half of the light through each half cell: the weights are 1/2, 1/4, 1/8, ..."""
    for min_weight, count in ((0.0, 8), (0.3, 1), (0.2, 2), (0.01, 6), (0.6, 0)):
        offsets, _, t_starts, *_ = ops.march_visible(*wall(device, scale=2.0, min_weight=min_weight))
        assert offsets.tolist() == [0, count], min_weight
        assert t_starts.tolist() == [1 + 0.5 * k for k in range(count)], min_weight


@BOTH
def test_density_is_known_to_five_digits(ops, device):
    """The first of eight equal samples weighs most: its weight is where there begin to be none."""
    for raw in torch.linspace(-15, 25, 81).tolist():
        weight = -math.expm1(-0.5 * math.log1p(math.exp(raw)))
        for factor in (1 - 4e-6, 1 + 4e-6):
            arguments = list(wall(device, min_weight=factor * weight))
            arguments[8] = raw  # the shift of the density
            assert bool(ops.march_visible(*arguments)[0][-1]) == (factor < 1), (raw, factor)


@BOTH
def test_behind_too_little_light_nothing_weighs(ops, device):
    """Before sample k the light is 2^-k: from 2^-3 on it is below 0.2."""
    dim = wall(device, scale=2.0, min_transmittance=0.2, min_weight=1e-6)
    assert ops.march_visible(*dim)[0].tolist() == [0, 3]
    without_limit = wall(device, scale=2.0, min_transmittance=0.2, min_weight=0.0)
    assert ops.march_visible(*without_limit)[0].tolist() == [0, 8], "a weight of zero is enough"


@BOTH
def test_the_walk_goes_on_as_long_as_a_sample_could_weigh_enough(ops, device):
    """Behind the first cell 1.5 times min_weight of the light is left, and all of it meets the last one."""
    arguments = list(wall(device, min_weight=0.01))
    arguments[3] = torch.tensor([True, False, False, True], device=device).view(4, 1, 1)
    arguments[7] = torch.tensor([4.185, 4.185, 0.0, 1e4, 1e4], device=device).view(5, 1, 1, 1).expand(5, 2, 2, 1)
    assert ops.march_visible(*arguments)[2].tolist() == [1.0, 1.5, 4.0]


@BOTH
def test_coordinates_are_the_midpoints_in_grid_units(ops, device):
    coords = ops.march_visible(*wall(device))[4]
    assert coords.tolist() == [[0.25 + 0.5 * k, 0.5, 0.5] for k in range(8)]


@BOTH
@pytest.mark.parametrize("case", ["typical", "long_rays", "no_limits"])
def test_it_is_marching_density_and_weights_in_one(ops, case, device):
    *rays, grid, shift, scale, min_transmittance, min_weight, _, _ = CASES[NAME][case](torch.float64, device)
    offsets, indices, starts, ends, _ = ops.march_rays(*rays)
    coords = rays[0][indices] + (0.5 * (starts + ends))[:, None] * rays[1][indices]
    density = scale * torch.nn.functional.softplus(ops.interpolate_trilinear(grid, coords)[:, 0] + shift)
    weights = ops.composite_rays(density, density[:, None], starts, ends, offsets, min_transmittance)[3]
    keep = weights >= min_weight
    found = ops.march_visible(*rays, grid, shift, scale, min_transmittance, min_weight)
    assert keep.sum() > 0 and (case == "no_limits") == bool(keep.all())
    for ours, all_of_them in zip(found[1:5], (indices, starts, ends, coords), strict=True):
        torch.testing.assert_close(ours, all_of_them[keep], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", CASES[NAME])
def test_native_finds_the_samples_of_the_reference(case, dtype, device):
    """The same ones, at the same t to the last bit; midpoints are rounded once more."""
    arguments = CASES[NAME][case](dtype, device)
    ours, theirs = outcome(NAME, native, arguments), outcome(NAME, reference, arguments)
    for key in theirs:
        assert ours[key].dtype == theirs[key].dtype, key
        if key == "output 4":
            torch.testing.assert_close(ours[key], theirs[key])
        else:
            assert torch.equal(ours[key], theirs[key]), key


def test_the_cases_have_empty_space_to_skip():
    for case in ("empty_space", "empty_space_contracted", "empty_space_from_inside"):
        arguments = CASES[NAME][case](torch.float64, "cpu")
        assert OccupancyGrid(arguments[3]).clear.float().mean() > 0.5, case
        assert (reference.march_visible(*arguments)[0].diff() > 0).float().mean() > 0.2, case


def test_the_cases_go_beyond_one_round_of_a_warp():
    counts = reference.march_visible(*CASES[NAME]["long_rays"](torch.float64, "cpu"))[0].diff()
    assert counts.max() > 64 and THIN_AIR["min_weight"] > 0


@BOTH
def test_capacity_keeps_whole_rays_and_counts_the_rest(ops, device):
    arguments = CASES[NAME]["typical"](torch.float32, device)[:-2]
    exact = ops.march_visible(*arguments)
    capacity = int(exact[0][10]) + 1  # ray 10 or a later one does not fit
    offsets, *samples, overflow = ops.march_visible(*arguments, capacity)
    kept = int(offsets[-1])
    assert torch.equal(offsets, exact[0].clamp(max=kept)) and kept in exact[0].tolist()
    assert int(overflow) == int((exact[0].diff()[exact[0][1:] > kept] > 0).sum()) > 0
    for ours, full in zip(samples, exact[1:5], strict=True):
        assert len(ours) == capacity and torch.equal(ours[:kept], full[:kept]) and not ours[kept:].any()


@BOTH
def test_density_that_is_not_a_number_is_not_visible(ops, device):
    arguments = list(wall(device, min_weight=0.01))
    arguments[7] = torch.full_like(arguments[7], math.nan)
    assert ops.march_visible(*arguments)[0].tolist() == [0, 0]


def test_bad_arguments_are_named():
    arguments = CASES[NAME]["typical"](torch.float32, "cpu")
    assert_rejected(NAME, arguments, "density_grid", arguments[7][..., :0], r"expected \[10,7,6,1\]")
    assert_rejected(NAME, arguments, "step_size", 0.0, "expected a positive length")
    assert_rejected(NAME, arguments, "capacity", -1, "expected 0")
