"""march_rays: which samples a ray has, known exactly; every backend makes the same ones to the last bit."""

import math

import numpy as np
import pytest
import torch
from case_tools import Operation, as_case, with_gaps
from march_cases import TOTAL, assert_samples, march, march_along_axes, march_in_scene_space, march_standing
from proofs import (
    BOTH,
    FLOATS,
    assert_rejected,
    outcome,
)
from torch import Tensor

from nerf.ops import native, reference

NAME = "march_rays"


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(march),
            "empty": as_case(march, rays=0),
            "all_miss": as_case(march, away=True),
            "nothing_occupied": as_case(march, filled=0.0),
            "long_rays": as_case(march, rays=6, filled=1.0, step=0.03),
            "far_skips": as_case(march, rays=30, cells=(37, 41, 29), filled=0.004, step=0.06),
            "from_inside": as_case(march, inside=True),
            "ends_inside": as_case(march, inside=True, far=1.5),
            "axis_parallel": as_case(march_along_axes),
            "single_cell": as_case(march, cells=(1, 1, 1), filled=1.0),
            "standing": as_case(march_standing),
            "step_beyond_grid": as_case(march, step=30.0),
            "capacity_fits": as_case(march, capacity=1000),
            "capacity_exact": as_case(march, capacity=TOTAL),
            "capacity_one_short": as_case(march, capacity=TOTAL - 1),
            "capacity_overflows": as_case(march, capacity=70),
            "capacity_one": as_case(march, capacity=1),
            "capacity_empty": as_case(march, rays=0, capacity=5),
            "contracted": as_case(march, contraction=0.7, far=1e4),
            "contracted_from_inside": as_case(march, inside=True, contraction=1.0, far=math.inf),
            "contracted_far_skips": as_case(
                march, rays=30, cells=(37, 41, 29), filled=0.004, step=0.06, inside=True, contraction=0.5, far=1e4
            ),
            "contracted_ends": as_case(march, contraction=0.7, far=3.0),
            "capacity_contracted": as_case(march, contraction=0.7, far=1e4, capacity=70),
            "in_scene_space": as_case(march_in_scene_space),
            "in_scene_space_contracted": as_case(march_in_scene_space, contraction=0.7, far=1e4, cells=(13, 6, 8)),
            "many_rays": as_case(march, rays=2500, cells=(3, 3, 3), step=1.1, capacity=1000),
            "non_contiguous": with_gaps(as_case(march, inside=True, far=1.5)),
        },
        no_derivative="which samples exist is a discrete choice",
        own_rule=True,
        sizes=("origins", "occupied"),
        opcheck=("typical", "empty", "all_miss", "capacity_fits", "capacity_overflows", "in_scene_space"),
    ),
}
CASES = {name: known.cases for name, known in OPERATIONS.items()}


def one_ray(
    occupied: Tensor, origin: list[float], direction: list[float], device: str = "cpu", **options: float
) -> tuple:
    """Arguments for a single float32 ray; near, far, jitter and step_size may be set."""
    values = {"jitter": 0.0, "near": 0.0, "far": 100.0, "step_size": 0.25, "capacity": 0} | options
    jitter, near, far = (torch.tensor([values[key]], device=device) for key in ("jitter", "near", "far"))
    rays = torch.tensor([origin], device=device), torch.tensor([direction], device=device)
    return *rays, jitter, occupied.to(device), near, far, values["step_size"], values["capacity"], 0.0


def row_of_cells(*occupied: int, length: int = 4) -> Tensor:
    """A grid of length x 1 x 1 cells, of which these are occupied."""
    cells = torch.zeros(length, 1, 1, dtype=torch.bool)
    cells[list(occupied)] = True
    return cells


@BOTH
@pytest.mark.parametrize("start, direction", [(-1.0, 1.0), (5.0, -1.0), (-3.0, 2.0), (13.0, -4.0)])
def test_samples_of_one_occupied_cell(ops, start, direction, device):
    """Cell 2 holds 2 <= x < 3, so t runs over (x - start) / direction in steps of a quarter of a cell."""
    step = 0.25 / abs(direction)
    arguments = one_ray(row_of_cells(2), [start, 0.5, 0.5], [direction, 0.0, 0.0], device, step_size=step)
    offsets, indices, t_starts, t_ends, overflow = ops.march_rays(*arguments)
    entered = 2.0 if direction > 0 else 3.0
    expected = (entered - start) / direction + step * torch.arange(4)
    assert offsets.tolist() == [0, 4] and indices.tolist() == [0] * 4 and overflow.tolist() == [0]
    assert t_starts.tolist() == expected.tolist() and t_ends.tolist() == (expected + step).tolist()


@BOTH
def test_jitter_near_and_far_move_the_lattice(ops, device):
    """The lattice starts at near or where the ray enters the grid, whichever is later, shifted by jitter.

    Cell 0 holds 1 <= t < 2, and a midpoint decides.
    """
    for options, expected in (
        ({}, [1.0, 1.5]),
        ({"jitter": 0.25}, [1.125, 1.625]),
        ({"jitter": -0.5}, [0.75, 1.25]),
        ({"near": 1.25}, [1.25]),
        ({"far": 1.75}, [1.0]),
        ({"far": 1.5}, [1.0]),
        ({"near": 3.0, "far": 2.0}, []),
    ):
        options = {"step_size": 0.5, **options}
        arguments = one_ray(row_of_cells(0), [-1.0, 0.5, 0.5], [1.0, 0.0, 0.0], device, **options)
        assert ops.march_rays(*arguments)[2].tolist() == expected, options


@BOTH
@pytest.mark.parametrize("cell", [1, 4, 8, 10])
@pytest.mark.parametrize("start, direction", [(0.0, 1.0), (12.0, -1.0)])
def test_midpoints_on_walls_belong_to_the_upper_cell(ops, cell, start, direction, device):
    """Midpoints at every quarter, many of them on walls of the 4 x 4 x 4 bricks that the walk may skip."""
    row = row_of_cells(cell, length=12)
    arguments = one_ray(row, [start, 0.5, 0.5], [direction, 0.0, 0.0], device, jitter=-0.5)
    t_mid = ops.march_rays(*arguments)[2] + 0.125
    assert sorted((start + direction * t_mid).tolist()) == [cell, cell + 0.25, cell + 0.5, cell + 0.75]


@BOTH
def test_rays_that_miss_have_no_samples(ops, device):
    everywhere = torch.ones(4, 4, 4, dtype=torch.bool)
    misses = (
        ([-1.0, 0.5, 0.5], [-1.0, 0.0, 0.0]),  # the grid lies behind
        ([-1.0, 5.0, 0.5], [1.0, 0.0, 0.0]),  # past it, parallel to an axis
        ([-1.0, 5.0, 0.5], [1.0, 0.5, 0.0]),
    )
    for origin, direction in misses:
        offsets, *_ = ops.march_rays(*one_ray(everywhere, origin, direction, device))
        assert offsets.tolist() == [0, 0], (origin, direction)


def samples_by_definition(arguments: tuple) -> list[tuple[int, float, float]]:
    """The docstring of reference.march_rays, number by number in numpy: no vectors, no skipping."""
    origins, directions, jitter, occupied, near, far = (x.cpu().numpy() for x in arguments[:6])
    number = origins.dtype.type
    step, found = number(arguments[6]), []
    for ray in range(len(origins)):
        t_min, t_max = near[ray], far[ray]
        for axis in range(3):
            o, d, upper = origins[ray, axis], directions[ray, axis], number(occupied.shape[axis])
            if d == 0:
                t_max = t_max if 0 <= o <= upper else -np.inf
            else:
                crossings = (number(0) - o) / d, (upper - o) / d
                t_min, t_max = max(t_min, min(crossings)), min(t_max, max(crossings))
        k = number(0)
        while (t_mid := t_min + (k + number(0.5) + jitter[ray]) * step) < t_max:
            position = np.floor(origins[ray] + t_mid * directions[ray])
            if occupied[tuple(np.clip(position, 0, np.array(occupied.shape) - 1).astype(int))]:
                found.append((ray, t_min + (k + jitter[ray]) * step, t_min + (k + 1 + jitter[ray]) * step))
            k += number(1)
    return found


@BOTH
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", ["typical", "from_inside", "far_skips", "axis_parallel"])
def test_samples_are_those_of_the_definition(ops, case, dtype, device):
    arguments = CASES[NAME][case](dtype, device)
    assert_samples(ops.march_rays(*arguments), samples_by_definition(arguments))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", CASES[NAME])
def test_native_equals_reference_to_the_last_bit(case, dtype, device):
    arguments = CASES[NAME][case](dtype, device)
    ours, theirs = outcome(NAME, native, arguments), outcome(NAME, reference, arguments)
    on_cpu = outcome(NAME, reference, CASES[NAME][case](dtype, "cpu"))
    for key in theirs:
        assert ours[key].dtype == theirs[key].dtype, key
        assert torch.equal(ours[key], theirs[key]), key
        assert torch.equal(ours[key].cpu(), on_cpu[key]), f"{key} differs from the CPU"


@BOTH
def test_capacity_keeps_whole_rays_and_counts_the_rest(ops, device):
    arguments = CASES[NAME]["typical"](torch.float32, device)[:-2]
    exact = ops.march_rays(*arguments)
    counts = exact[0].diff()
    capacity = int(exact[0][10]) + 1  # one sample more than ten rays have: ray 10 or a later one does not fit
    offsets, indices, t_starts, t_ends, overflow = ops.march_rays(*arguments, capacity)
    kept = int(offsets[-1])
    assert len(indices) == len(t_starts) == len(t_ends) == capacity
    assert torch.equal(offsets, exact[0].clamp(max=kept)) and kept in exact[0].tolist()
    assert kept <= capacity < kept + int(counts[exact[0][1:] > kept][0])
    assert int(overflow) == int((counts[exact[0][1:] > kept] > 0).sum()) > 0
    for ours, full in zip((indices, t_starts, t_ends), exact[1:4], strict=True):
        assert torch.equal(ours[:kept], full[:kept])
    assert not indices[kept:].any() and torch.equal(t_starts[kept:], t_ends[kept:])


@BOTH
def test_no_gradient_flows_through_the_samples(ops, device):
    origins, directions, jitter, *rest = CASES[NAME]["typical"](torch.float32, device)
    outputs = ops.march_rays(*(x.requires_grad_() for x in (origins, directions, jitter)), *rest)
    assert not any(x.requires_grad for x in outputs)


@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1e10, 1e30])
def test_huge_and_tiny_units_stay_finite_and_equal(scale, device):
    origins, directions, jitter, occupied, near, far, step, *rest = CASES[NAME]["typical"](torch.float32, device)
    arguments = origins, directions / scale, jitter, occupied, near * scale, far * scale, step * scale, *rest
    ours, theirs = outcome(NAME, native, arguments), outcome(NAME, reference, arguments)
    assert len(ours["output 1"]) > 100
    for key in theirs:
        assert ours[key].isfinite().all() and torch.equal(ours[key], theirs[key]), key


def test_a_ray_that_stands_still_is_sampled_up_to_far(device):
    arguments = one_ray(row_of_cells(1), [1.5, 0.5, 0.5], [0.0, 0.0, 0.0], device, far=2.0, step_size=0.5)
    for ops in (native, reference):
        assert ops.march_rays(*arguments)[2].tolist() == [0.0, 0.5, 1.0, 1.5]


def test_bad_arguments_are_named():
    arguments = CASES[NAME]["typical"](torch.float32, "cpu")
    for index, key in ((1, "directions"), (2, "jitter"), (4, "near"), (5, "far")):
        assert_rejected(NAME, arguments, key, arguments[index][1:], r"expected \[40")
    assert_rejected(NAME, arguments, "jitter", arguments[2][:0], "or one number for every few rays side by side")
    scene = CASES[NAME]["in_scene_space"](torch.float32, "cpu")
    assert_rejected(NAME, scene, "words", scene[-1][1:], r"expected \[3,2,2\]")
    assert_rejected(NAME, scene, "lower", None, "expected both or none")
    no_cells = torch.zeros(0, 3, 3, dtype=torch.bool)
    assert_rejected(NAME, arguments, "occupied", no_cells, "expected at least one cell")
    assert_rejected(NAME, arguments, "step_size", 0.0, "expected a positive length")
    assert_rejected(NAME, arguments, "step_size", float("nan"), "expected a positive length")
    assert_rejected(NAME, arguments, "capacity", -1, "expected 0")
    for contraction in (-0.5, float("inf"), float("nan")):
        assert_rejected(NAME, arguments, "contraction", contraction, "expected 0 .none. or the thickness")


@pytest.mark.parametrize("cells", [(4, 4, 1), (8, 12, 5), (9, 8, 7), (12, 12, 12), (13, 5, 33), (5, 9, 34), (8, 8, 3)])
def test_occupied_cells_are_found_wherever_their_rows_begin(cells, device):
    """Rows of every length, at every address: CUDA reads them by words of four cells."""
    *rays, occupied, near, far, step, capacity, shell = as_case(march, rays=200, cells=cells, filled=0.3)(
        torch.float32, device
    )
    rest = near, far, step, capacity, shell
    expected = reference.march_rays(*rays, occupied, *rest)
    assert expected[0][-1] > 100
    for offset in range(4):
        memory = occupied.new_zeros(offset + occupied.numel())
        there = memory[offset:].view(occupied.shape).copy_(occupied)
        assert there.data_ptr() % 4 == offset
        for found, same in zip(native.march_rays(*rays, there, *rest), expected, strict=True):
            assert torch.equal(found, same), offset


@pytest.mark.parametrize("cells", [(3, 3, 3), (5, 6, 7), (8, 8, 8)])
def test_a_cell_of_any_byte_but_zero_is_occupied(cells, device):
    """On CUDA a byte of 2 once stood for the cell beside, one of 255 for all cells of its word."""
    *rays, occupied, near, far, step, capacity, shell = as_case(march, rays=200, cells=cells, filled=0.2)(
        torch.float32, device
    )
    expected = native.march_rays(*rays, occupied, near, far, step, capacity, shell)
    for byte in (2, 255):
        bytes_seen = (occupied.to(torch.uint8) * byte).view(torch.bool)
        found = native.march_rays(*rays, bytes_seen, near, far, step, capacity, shell)
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True)), byte
