"""distortion_loss: its definition over all pairs, closed forms, native against the reference, and what it is for."""

import time

import pytest
import torch
from case_tools import LONG_RAYS, Operation, as_case, cotangent, numbers, packed_samples, with_gaps
from proofs import (
    BOTH,
    assert_finite,
    assert_rejected,
)
from torch import Tensor

from nerf.ops import native, reference

NAME = "distortion_loss"


def _weighted(
    counts: tuple[int, ...] = (5, 0, 3, 12, 1), near: float = 1.0, scale: float = 1.0, tail: int = 0
) -> tuple:
    """Weights of packed samples from near on: neighbors touch, overlap or leave a gap."""
    _, _, starts, ends, offsets, _ = packed_samples(counts=counts, tail=tail)
    weights = scale * numbers(len(starts), seed=22)
    return weights, near - 1 + starts, near - 1 + ends, offsets


def backward(*arguments: Tensor) -> tuple:
    return cotangent(reference.distortion_loss(*arguments)), *arguments


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(_weighted),
            "empty": as_case(_weighted, counts=()),
            "zero_samples": as_case(_weighted, counts=(0, 0, 0)),
            "long_rays": as_case(_weighted, counts=LONG_RAYS),
            "far_away": as_case(_weighted, counts=LONG_RAYS, near=1000.0),
            "zero_weights": as_case(_weighted, scale=0.0),
            "huge_weights": as_case(_weighted, scale=1e10),
            "capacity_tail": as_case(_weighted, tail=6),
            "non_contiguous": with_gaps(as_case(_weighted)),
        },
        sizes=("weights", "ray_offsets"),
        gradcheck=("typical", "long_rays", "capacity_tail"),
        opcheck=("typical", "empty", "zero_samples", "capacity_tail", "non_contiguous"),
    ),
}
OPERATIONS[f"{NAME}_backward"] = OPERATIONS[NAME].derived(backward)
CASES = {name: known.cases for name, known in OPERATIONS.items()}


def all_pairs(weights: Tensor, t_starts: Tensor, t_ends: Tensor, ray_offsets: Tensor) -> Tensor:
    """Barron et al. 2022, eq. 15 to the letter, ray by ray in O(N^2)."""
    losses = [weights[:0]]
    for begin, end in zip(ray_offsets[:-1].tolist(), ray_offsets[1:].tolist(), strict=True):
        w, starts, ends = weights[begin:end], t_starts[begin:end], t_ends[begin:end]
        mid = (starts + ends) / 2
        distances = (mid[:, None] - mid[None, :]).abs()
        losses.append(((w[:, None] * w[None, :] * distances).sum() + (w.square() * (ends - starts)).sum() / 3)[None])
    return torch.cat(losses)


@BOTH
@pytest.mark.parametrize("case", CASES[NAME])
def test_it_is_the_sum_over_all_pairs(ops, case, device):
    weights, *intervals = CASES[NAME][case](torch.float64, device)
    weights.requires_grad_()
    found, expected = ops.distortion_loss(weights, *intervals), all_pairs(weights, *intervals)
    torch.testing.assert_close(found, expected)
    slopes = [torch.autograd.grad(x.square().sum(), weights)[0] for x in (found, expected)]
    torch.testing.assert_close(*slopes)


@BOTH
@pytest.mark.parametrize("samples", [1, 10, 33, 500])
def test_fog_of_equal_weights_has_a_closed_form(ops, samples, device):
    """Weights 1/n over a length: a third of it, which is the mean distance of two points drawn from it."""
    edges = torch.linspace(2.0, 5.0, samples + 1, dtype=torch.float64, device=device)
    weights = torch.full((samples,), 1 / samples, dtype=torch.float64, device=device)
    found = ops.distortion_loss(weights, edges[:-1], edges[1:], torch.tensor([0, samples], device=device))
    torch.testing.assert_close(found, torch.tensor([3.0 / 3], dtype=torch.float64, device=device))


@BOTH
def test_it_is_linear_in_t_and_blind_to_the_distance(ops, device):
    weights, starts, ends, offsets = CASES[NAME]["long_rays"](torch.float64, device)
    plain = ops.distortion_loss(weights, starts, ends, offsets)
    torch.testing.assert_close(ops.distortion_loss(weights, 7 * starts, 7 * ends, offsets), 7 * plain)
    torch.testing.assert_close(ops.distortion_loss(weights, starts + 50, ends + 50, offsets), plain)


def test_distance_costs_no_digits(device):
    """A difference of two running sums would lose four digits where the samples lie 1000 units away."""
    weights, starts, ends, offsets = CASES[NAME]["far_away"](torch.float32, device)
    exact = reference.distortion_loss(*(x.double() for x in (weights, starts, ends)), offsets)
    found = native.distortion_loss(weights, starts, ends, offsets).double()
    assert ((found - exact) / exact).abs().max() < 1e-5


@BOTH
def test_descent_moves_the_weight_of_a_floater_to_the_surface(ops, device):
    """Two samples of a ray share the light, a floater and a surface. The photograph cannot tell them apart, since both
    have its color and the opacity stays one; the distortion can, and gives all weight to the stronger one."""
    t_starts = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64, device=device)
    offsets, shares = torch.tensor([0, 4], device=device), torch.tensor([0.25, 0.01, 0.04, 0.7], device=device).double()
    logits = shares.log().requires_grad_()
    for _ in range(300):
        weights = logits.softmax(0)
        (slope,) = torch.autograd.grad(ops.distortion_loss(weights, t_starts, t_starts + 0.1, offsets).sum(), logits)
        logits = (logits - 1.0 * slope).detach().requires_grad_()
    weights = logits.softmax(0)
    assert weights[3] > 0.99 and weights[0] < 0.005


def test_time_grows_with_the_samples_and_not_with_their_square():
    """16 times the samples of one ray: 16 times the work, where all pairs would take 256 times. Processor time."""

    def seconds(samples: int) -> float:
        edges, weights = torch.linspace(0, 1, samples + 1), numbers(samples).float()
        arguments = (weights.requires_grad_(), edges[:-1].clone(), edges[1:].clone(), torch.tensor([0, samples]))
        times = []
        for _ in range(7):
            start = time.process_time()
            native.distortion_loss(*arguments).backward()
            times.append(time.process_time() - start)
        return min(times)

    assert seconds(16 << 16) < 80 * seconds(1 << 16)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-10, 1e10, 1e15])
@pytest.mark.parametrize("length", [0.0, 1e-30, 1e-10, 1e5])
@pytest.mark.parametrize("case", ["typical", "long_rays"])
def test_extremes_stay_finite(case, scale, length, device):
    weights, t_starts, t_ends, offsets = CASES[NAME][case](torch.float32, device)
    assert_finite(NAME, (scale * weights, length * t_starts, length * t_ends, offsets))


@pytest.mark.parametrize("name", [NAME, f"{NAME}_backward"])
def test_bad_arguments_are_named(name):
    arguments = CASES[name]["typical"](torch.float32, "cpu")
    first = 0 if name == NAME else 1
    for index, key in ((1, "t_starts"), (2, "t_ends")):
        assert_rejected(name, arguments, key, arguments[first + index][1:], r"expected \[21\]")
    assert_rejected(name, arguments, "ray_offsets", arguments[first + 3][:0], r"expected \[R\+1\]")
    if name != NAME:
        assert_rejected(name, arguments, "grad_loss", arguments[0][1:], r"expected \[5\]")
