"""march_rays through all of space: the grid is an inner box with the rest of the world pressed around it."""

import numpy as np
import pytest
import torch
from cases import CASES
from march_cases import assert_samples
from proofs import BOTH, FLOATS

from nerf.ops import native
from nerf.ops.contraction import contract, contracted_to_distance, distance_to_contracted, expand, leave_box

NAME = "march_rays"


def thickness(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


@pytest.mark.parametrize("shell", [0.3, 1.0, 2.5])
def test_contraction_by_hand(shell):
    """The inner box stays; twice its half goes to 1 + 1 / (1 + 1 / shell); infinity to 1 + shell."""
    points = torch.tensor([[0.5, -1.0, 0.2], [2.0, 0.5, -1.0], [0.0, -1e12, 1e11]]).double()
    pressed = 1 + 1 / (1 + 1 / shell)
    expected = [[0.5, -1.0, 0.2], [pressed, pressed / 4, -pressed / 2], [0.0, -(1 + shell), (1 + shell) / 10]]
    torch.testing.assert_close(contract(points, thickness(shell)), torch.tensor(expected).double())


def test_thickness_one_is_the_contraction_of_mip_nerf_360():
    points = 4 * torch.randn(200, 3, dtype=torch.float64)
    norm = points.abs().amax(-1, keepdim=True)
    expected = torch.where(norm > 1, (2 - 1 / norm) / norm, 1.0) * points
    torch.testing.assert_close(contract(points, thickness(1.0)), expected)


@pytest.mark.parametrize("shell", [0.3, 1.0])
def test_inverses(shell):
    points = torch.randn(500, 3, dtype=torch.float64).exp() * torch.randn(500, 3, dtype=torch.float64).sign()
    torch.testing.assert_close(expand(contract(points, thickness(shell)), thickness(shell)), points)
    directions = torch.nn.functional.normalize(torch.randn(500, 3, dtype=torch.float64), dim=-1)
    leave, limit = leave_box(points, directions, thickness(shell))
    distance = 50 * torch.rand(500, dtype=torch.float64)
    there = distance_to_contracted(distance, leave, limit)
    torch.testing.assert_close(contracted_to_distance(there, leave, limit), distance)
    assert (there < leave + limit).all() and (there > leave).any() and (there < leave).any()


def test_contraction_has_finite_gradients_everywhere():
    points = torch.tensor([[0.0, 0.0, 0.0], [1.0, -1.0, 1.0], [1e6, 0.0, 3.0]], requires_grad=True)
    contract(points, torch.tensor(0.5)).sum().backward()
    assert points.grad.isfinite().all()


def by_definition(arguments: tuple) -> list[tuple[int, float, float]]:
    """The docstring of reference.march_rays with a contraction, number by number in numpy: no vectors, no skipping."""
    origins, directions, jitter, occupied, near, far = (x.cpu().numpy() for x in arguments[:6])
    number = origins.dtype.type
    step, shell, found = number(arguments[6]), number(arguments[8]), []
    half = np.array(occupied.shape).astype(number) / number(2)
    inner = half / (number(1) + shell)
    farthest, one = number(2**22), number(1)
    for ray in range(len(origins)):
        o, d = (origins[ray] - half) / inner, directions[ray] / inner
        axis = np.abs(d).argmax()
        outward, steepest = np.copysign(one, d[axis]) * o[axis], np.abs(d[axis])
        passes = np.abs(o - d / steepest * outward).max()
        leave = (max(passes, one) - outward) / steepest
        limit = max(shell, np.sqrt(passes * (one + shell))) / steepest

        def press(distance, leave=leave, limit=limit):
            beyond = distance - leave
            return leave + beyond / (one + beyond / limit) if distance > leave else distance

        t_min, t_max, k = press(near[ray]), press(min(far[ray], leave + limit * farthest)), number(0)
        while (t := t_min + (k + number(0.5) + jitter[ray]) * step) < t_max:
            beyond = t - leave
            distance = leave + beyond / (one - min(beyond / limit, one - one / farthest)) if t > leave else t
            point = o + distance * d
            norm = np.abs(point).max()
            shrink = (one + (norm - one) / (one + (norm - one) / shell)) / norm if norm > 1 else one
            cell = np.clip(np.floor(half + inner * (shrink * point)), 0, np.array(occupied.shape) - 1).astype(int)
            if occupied[tuple(cell)]:
                found.append((ray, t_min + (k + jitter[ray]) * step, t_min + (k + one + jitter[ray]) * step))
            k += one
    return found


@BOTH
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", ["contracted", "contracted_from_inside", "contracted_far_skips", "contracted_ends"])
def test_samples_are_those_of_the_definition(ops, case, dtype, device):
    arguments = CASES[NAME][case](dtype, device)
    assert_samples(ops.march_rays(*arguments), by_definition(arguments))


def test_steps_are_never_longer_than_cells():
    """In the contracted grid, whatever the ray: from inside, from outside, past the box, along it."""
    shell, cells, count = 0.6, 32, 400
    origins = cells / 2 + cells / 2 * torch.randn(count, 3, dtype=torch.float64)
    directions = torch.nn.functional.normalize(torch.randn(count, 3, dtype=torch.float64), dim=-1)
    zeros = torch.zeros(count).double()
    everywhere, step = torch.ones(cells, cells, cells, dtype=torch.bool), 0.5
    _, rays, starts, ends, _ = native.march_rays(
        origins, directions, zeros, everywhere, zeros, zeros + 1e3, step, 0, shell
    )
    half, inner = cells / 2, cells / 2 / (1 + shell)
    o, d = (origins - half) / inner, directions / inner
    leave, limit = (x[rays] for x in leave_box(o, d, thickness(shell)))

    def coordinates(t):
        return inner * contract(o[rays] + contracted_to_distance(t, leave, limit)[:, None] * d[rays], thickness(shell))

    lengths = (coordinates(ends) - coordinates(starts)).abs().amax(-1)
    assert (ends < leave + limit).float().mean() > 0.9
    assert lengths.median() > 0.05 and lengths.max() < 1


@BOTH
def test_every_ray_reaches_infinity_in_a_bounded_number_of_steps(ops, device):
    """From the middle along an axis: half a box of plain steps, then a shell's thickness of growing ones."""
    cells, shell, step = 16, 0.6, 0.25
    everywhere = torch.ones(cells, cells, cells, dtype=torch.bool, device=device)
    middle = torch.full((1, 3), cells / 2, device=device)
    along, zero = torch.tensor([[1.0, 0.0, 0.0]], device=device), torch.zeros(1, device=device)
    found = ops.march_rays(middle, along, zero, everywhere, zero, zero + torch.inf, step, 0, shell)
    assert len(found[1]) == cells / 2 / step
    inner = cells / 2 / (1 + shell)
    t_last = found[2][-1:].double().cpu()
    leave, limit = torch.tensor([inner]).double(), torch.tensor([inner * shell]).double()
    assert contracted_to_distance(t_last, leave, limit).item() == pytest.approx(38)
