"""render_rays: the picture that march_visible, interpolate_trilinear and composite_rays make."""

import pytest
import torch
from case_tools import CHANNELS, Operation, as_case, with_gaps
from march_cases import THIN_AIR, render, render_scene, render_sparse
from proofs import (
    BOTH,
    FLOATS,
    assert_rejected,
    outcome,
)

from nerf.ops import native, reference

NAME = "render_rays"


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(render),
            "empty": as_case(render, rays=0),
            "all_miss": as_case(render, away=True),
            "huge_density": as_case(render, low=1e3, high=1e9),
            "long_rays": as_case(render, **THIN_AIR),
            "no_limits": as_case(render, min_transmittance=0.0, min_weight=0.0),
            "contracted": as_case(render, contraction=0.7, far=1e4),
            "no_channels": as_case(render, channels=0),
            "two_rays_a_pixel": as_case(render, rays_per_pixel=2),
            "four_rays_a_pixel": as_case(render, rays_per_pixel=4, channels=16),
            "four_long_rays": as_case(render, rays_per_pixel=4, **THIN_AIR | {"rays": 8}),
            "four_contracted": as_case(render, rays_per_pixel=4, contraction=0.7, far=1e4),
            "in_scene_space": as_case(render_scene),
            "in_scene_space_four": as_case(render_scene, channels=16, rays_per_pixel=4),
            "sparse": as_case(render_sparse, channels=12),
            "sparse_plain": as_case(render_sparse, channels=7),
            "sparse_four_rays": as_case(render_sparse, channels=16, rays_per_pixel=4),
            "non_contiguous": with_gaps(as_case(render, inside=True, far=1.5)),
            **{f"channels_{c}": as_case(render, channels=c) for c in (*CHANNELS, 8, 16)},
        },
        no_derivative="for pictures alone; training takes the operations that it joins",
        own_rule=True,
        sizes=("origins", "occupied"),
        opcheck=("typical", "empty", "channels_7", "four_rays_a_pixel", "sparse", "in_scene_space"),
    ),
}
CASES = {name: known.cases for name, known in OPERATIONS.items()}


@BOTH
@pytest.mark.parametrize(
    "case", ["typical", "long_rays", "no_limits", "channels_7", "channels_16", "two_rays_a_pixel", "four_long_rays"]
)
def test_it_is_the_three_operations_in_one(ops, case, device):
    *march, grid, _, per_pixel = CASES[NAME][case](torch.float64, device)
    density_grid, shift, scale = march[7:10]
    offsets, _, starts, ends, coords, _ = ops.march_visible(*march)
    density = scale * torch.nn.functional.softplus(ops.interpolate_trilinear(density_grid, coords)[:, 0] + shift)
    values = ops.interpolate_trilinear(grid, coords)
    values, opacity, depth, _ = ops.composite_rays(density, values, starts, ends, offsets, 0.0)
    assert opacity.max() > 0.1
    expected = values.unflatten(0, (-1, per_pixel)).mean(1), opacity, depth
    for ours, theirs in zip(ops.render_rays(*march, grid, rays_per_pixel=per_pixel), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", CASES[NAME])
def test_native_equals_the_reference(case, dtype, device):
    """Density changes by tens within a cell here, so a rounded midpoint shows: hence more than a few roundings."""
    arguments = CASES[NAME][case](dtype, device)
    ours, theirs = outcome(NAME, native, arguments), outcome(NAME, reference, arguments)
    roundings = 500 * torch.finfo(dtype).eps
    for key, expected in theirs.items():
        size = expected.abs().max().item() if expected.numel() else 0.0
        torch.testing.assert_close(ours[key], expected, rtol=roundings, atol=roundings * size)


@BOTH
def test_a_ray_that_sees_nothing_is_black_and_transparent(ops, device):
    values, opacity, depth = ops.render_rays(*CASES[NAME]["all_miss"](torch.float32, device))
    assert not values.any() and not opacity.any() and not depth.any() and len(opacity) == 40


def test_bad_arguments_are_named():
    arguments = CASES[NAME]["typical"](torch.float32, "cpu")
    assert_rejected(NAME, arguments, "values_grid", arguments[-3][:-1], r"expected \[10,7,6,\*\]")
    assert_rejected(NAME, arguments, "rays_per_pixel", 3, "expected 1, 2 or 4")
    odd = CASES[NAME]["long_rays"](torch.float32, "cpu")  # six rays
    assert_rejected(NAME, odd, "rays_per_pixel", 4, "expected a divisor of 6, the number of rays")
