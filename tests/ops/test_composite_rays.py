"""composite_rays: closed forms of the volume rendering sum, native against the reference, extremes."""

import math
from collections.abc import Iterator

import pytest
import torch
from case_tools import CHANNELS, LONG_RAYS, Operation, as_case, cotangent, numbers, packed_samples, with_gaps
from proofs import (
    BOTH,
    FLOATS,
    assert_finite,
    assert_rejected,
)
from torch import Tensor

from nerf.ops import native, reference

NAME = "composite_rays"
HALF = math.log(2)  # the optical depth that lets half of the light through


def _halving(min_transmittance: float) -> tuple:
    """Each sample takes half of the light, so that the limit lies well between two of the powers of two."""
    _, values, starts, ends, offsets, _ = packed_samples(counts=(3, 40, 8, 0))
    return HALF / (ends - starts), values, starts, ends, offsets, min_transmittance


def _faded(**more: object) -> tuple:
    """Samples of which the first ones have weaker gradients."""
    return *packed_samples(**more), 2.0


def backward(*arguments: object) -> tuple:
    tensors, settings = arguments[:5], arguments[5:]
    outputs = reference.composite_rays(*tensors, *settings)
    return *map(cotangent, outputs), *tensors, outputs[3], *settings


OPERATIONS = {
    NAME: Operation(
        {
            "typical": as_case(packed_samples),
            "empty": as_case(packed_samples, counts=()),
            "zero_samples": as_case(packed_samples, counts=(0, 0, 0)),
            "long_rays": as_case(packed_samples, counts=LONG_RAYS, density=0.4),
            **{
                f"long_rays_{c}_channels": as_case(packed_samples, counts=LONG_RAYS, density=0.4, channels=c)
                for c in (4, 7, 8, 12, 16, 20, 24, 28, 32)
            },
            "no_channels": as_case(packed_samples, counts=LONG_RAYS, density=0.4, channels=0),
            "huge_density": as_case(packed_samples, density=1e10),
            "zero_density": as_case(packed_samples, density=0.0),
            "thin_density": as_case(packed_samples, density=1e-6),
            "early_termination": as_case(_halving, min_transmittance=0.1),
            "late_termination": as_case(_halving, min_transmittance=0.7 * 2**-33),
            "capacity_tail": as_case(packed_samples, tail=6),
            "non_contiguous": with_gaps(as_case(packed_samples)),
            **{f"channels_{c}": as_case(packed_samples, channels=c) for c in CHANNELS},
            "capacity_tail_28_channels": as_case(packed_samples, tail=40, channels=28),
            "empty_tail": as_case(packed_samples, counts=(), tail=6),
            "faded": as_case(_faded),
            "faded_tail": as_case(_faded, tail=6, min_transmittance=0.1),
            **{f"faded_{c}_channels": as_case(_faded, counts=LONG_RAYS, density=0.4, channels=c) for c in (0, 7, 16)},
        },
        sizes=("density", "ray_offsets"),
        gradcheck=("typical", "channels_4", "channels_7", "early_termination", "capacity_tail"),
        opcheck=("typical", "faded", "empty", "zero_samples", "capacity_tail", "non_contiguous", "channels_7"),
    ),
}
OPERATIONS[f"{NAME}_backward"] = OPERATIONS[NAME].derived(backward)
CASES = {name: known.cases for name, known in OPERATIONS.items()}


def intervals(samples: int, length: float, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """t_starts, t_ends and ray_offsets of one ray whose samples fill 1 to 1 + length, in float64."""
    edges = torch.linspace(1.0, 1.0 + length, samples + 1, dtype=torch.float64, device=device)
    return edges[:-1], edges[1:], torch.tensor([0, samples], device=device)


def constant(value: float, samples: int, device: str) -> Tensor:
    return torch.full((samples,), value, dtype=torch.float64, device=device)


@BOTH
@pytest.mark.parametrize("samples", [1, 7, 32, 33, 200])
def test_constant_density_has_a_closed_form(ops, samples, device):
    """opacity = 1 - exp(-density * length) for any number of samples; a constant color is scaled by it."""
    density, length = 1.7, 0.9
    t_starts, t_ends, offsets = intervals(samples, length, device)
    values = torch.tensor([[0.2, 0.5, 1.0]], dtype=torch.float64, device=device).expand(samples, 3)
    outputs = ops.composite_rays(constant(density, samples, device), values, t_starts, t_ends, offsets)
    rgb, opacity, depth, weights = outputs
    expected = constant(1 - math.exp(-density * length), 1, device)
    torch.testing.assert_close(opacity, expected)
    torch.testing.assert_close(rgb, expected[:, None] * values[:1])
    torch.testing.assert_close(weights.sum(), expected[0])
    torch.testing.assert_close(depth, (weights * 0.5 * (t_starts + t_ends)).sum()[None])


@BOTH
def test_depth_approaches_the_mean_free_path(ops, device):
    """Light in an endless fog of density 5 gets 1/5 far on average; samples of 1/1000 err below 1e-6."""
    t_starts, t_ends, offsets = intervals(10_000, 10.0, device)
    values = constant(1.0, 10_000, device)[:, None]
    _, _, depth, _ = ops.composite_rays(constant(5.0, 10_000, device), values, t_starts, t_ends, offsets)
    torch.testing.assert_close(depth, constant(1.0 + 1 / 5, 1, device), rtol=0, atol=1e-6)


@BOTH
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("samples", [12, 70])
def test_halving_samples_weigh_the_powers_of_two(ops, dtype, samples, device):
    density = torch.full((samples,), HALF, dtype=dtype, device=device)
    t_starts = torch.arange(samples, dtype=dtype, device=device)
    offsets = torch.tensor([0, samples], device=device)
    _, opacity, _, weights = ops.composite_rays(density, density[:, None], t_starts, t_starts + 1, offsets)
    powers = 0.5 ** torch.arange(1, samples + 1, device=device).to(dtype)
    # Up to `samples` optical depths are added and each sum, up to `samples` itself, is rounded; the exponential
    # turns that absolute error into a relative one.
    torch.testing.assert_close(weights, powers, rtol=samples**2 * torch.finfo(dtype).eps, atol=0)
    torch.testing.assert_close(opacity, 1 - powers[-1:])


@BOTH
@pytest.mark.parametrize("place", [0, 5, 31, 32, 39])
def test_one_opaque_sample_takes_all(ops, place, device):
    t_starts, t_ends, offsets = intervals(40, 4.0, device)
    density, values = constant(0.0, 40, device), numbers(40, 3).to(device)
    density[place] = 1e9
    density[place + 1 :] = 3.0  # hidden behind it
    rgb, opacity, depth, weights = ops.composite_rays(density, values, t_starts, t_ends, offsets)
    one_hot = torch.nn.functional.one_hot(torch.tensor(place), 40).double().to(device)
    assert torch.equal(weights, one_hot) and torch.equal(rgb[0], values[place])
    assert opacity.tolist() == [1.0]
    torch.testing.assert_close(depth, 0.5 * (t_starts + t_ends)[place : place + 1])


@BOTH
def test_samples_behind_the_limit_weigh_nothing(ops, device):
    """Transmittance 1, 1/2, 1/4, 1/8, 1/16: with the limit 0.1 the first four samples count."""
    density = constant(HALF, 8, device).requires_grad_()
    values = numbers(8, 2).to(device).requires_grad_()
    t_starts = torch.arange(8.0, device=device).double()
    offsets = torch.tensor([0, 8], device=device)
    outputs = ops.composite_rays(density, values, t_starts, t_starts + 1, offsets, 0.1)
    torch.testing.assert_close(outputs[3][:4], 0.5 ** torch.arange(1.0, 5.0, device=device).double())
    assert outputs[3][4:].tolist() == [0.0] * 4
    torch.testing.assert_close(outputs[1], constant(1 - 1 / 16, 1, device))
    gradients = torch.autograd.grad(sum(x.square().sum() for x in outputs), (density, values))
    for gradient in gradients:
        assert gradient[:4].all() and not gradient[4:].any()


@BOTH
def test_rays_do_not_mix(ops, device):
    """Each ray gives alone what it gives in the batch; no samples give zeros, and so does the tail."""
    density, values, t_starts, t_ends, offsets, limit = CASES[NAME]["capacity_tail"](torch.float64, device)
    together = ops.composite_rays(density, values, t_starts, t_ends, offsets, limit)
    for ray, (begin, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        one, own = torch.tensor([0, end - begin], device=device), slice(begin, end)
        alone = ops.composite_rays(density[own], values[own], t_starts[own], t_ends[own], one, limit)
        for batch, single in zip(together[:3], alone[:3], strict=True):
            torch.testing.assert_close(batch[ray : ray + 1], single)
        torch.testing.assert_close(together[3][own], alone[3])
        assert end > begin or not any(x[ray].any() for x in together[:3])
    assert not together[3][int(offsets[-1]) :].any()


@pytest.fixture
def dirty_memory() -> Iterator[None]:
    """What is allocated meanwhile is filled with NaN."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # see torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(before)


@pytest.mark.parametrize("library", ["nerf", "nerf_plain"])
@pytest.mark.parametrize("channels", [0, 3, 7, 12, 28])
def test_gradients_that_nobody_asks_for_are_left_out(library, channels, device):
    """None is as zeros of depth and weights."""
    ops, samples = getattr(torch.ops, library), 50
    offsets = torch.tensor([0, 5, 45, 45, samples], device=device)
    density, starts = (numbers(samples, low=low, seed=1).float().to(device) for low in (0.5, 1.0))
    inputs = (density, numbers(samples, channels, low=-1, seed=2).float().to(device), starts, starts + 0.1, offsets)
    outputs = ops.composite_rays(*inputs, 0.0)
    grads = [torch.ones_like(x) for x in outputs[:2]]
    zeros = [torch.zeros_like(x) for x in outputs[2:]]
    expected = ops.composite_rays_backward(*grads, *zeros, *inputs, outputs[3], 0.0)
    found = ops.composite_rays_backward(*grads, None, None, *inputs, outputs[3], 0.0)
    assert expected[0].any() and all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))


@pytest.mark.parametrize("library", ["nerf", "nerf_plain"])
@pytest.mark.parametrize("counts", [(), (0, 0), (5, 40, 3), (64,)])
@pytest.mark.parametrize("channels", [0, 3, 7, 12, 28])
def test_samples_of_no_ray_are_cleared(library, counts, channels, dirty_memory, device):
    offsets = torch.tensor([0, *counts], device=device).cumsum(0)
    owned, rays = sum(counts), len(counts)
    samples, ops = owned + 500, getattr(torch.ops, library)
    one, rows = torch.ones(samples, device=device), torch.ones(samples, channels, device=device)
    assert one.new_empty(1).isnan().all(), "memory is dirty"
    inputs = (one, rows, 0 * one, one, offsets)
    outputs = ops.composite_rays(*inputs, 0.0)
    grads = [torch.ones_like(x) for x in outputs]
    gradients = ops.composite_rays_backward(*grads, *inputs, outputs[3], 0.0)
    assert [x.shape[0] for x in outputs] == [rays, rays, rays, samples]
    assert all(x.isfinite().all() for x in (*outputs, *gradients))
    assert not any(x[owned:].any() for x in (outputs[3], *gradients))
    assert owned == 0 or outputs[3][:owned].any()


def test_a_number_of_channels_without_a_fast_kernel_is_said_once(capfd):
    _, _, starts, ends, offsets, limit = CASES[NAME]["typical"](torch.float32, "cpu")
    for channels in (41, 20, 41, 32, 3, 0):  # 41: of no other test
        native.composite_rays(starts, torch.zeros(len(starts), channels), starts, ends, offsets, limit)
    said = [line for line in capfd.readouterr().err.splitlines() if "no fast kernel" in line]
    assert len(said) == 1 and "41 channels" in said[0] and "20, 24, 28, 32" in said[0]


@pytest.mark.parametrize("density", [0.0, 1e-30, 1e-10, 1e10, 1e30])
@pytest.mark.parametrize("length", [0.0, 1e-30, 1e-10, 1e10, 1e30])
@pytest.mark.parametrize("case", ["typical", "long_rays", "channels_7"])
def test_extremes_stay_finite(case, density, length, device):
    sigma, values, t_starts, t_ends, offsets, limit = CASES[NAME][case](torch.float32, device)
    assert_finite(NAME, (density * sigma, values, length * t_starts, length * t_ends, offsets, limit))


@pytest.mark.parametrize("name", [NAME, f"{NAME}_backward"])
def test_bad_arguments_are_named(name):
    arguments = CASES[name]["typical"](torch.float32, "cpu")
    first = 0 if name == NAME else 4
    for index, key in ((1, "values"), (2, "t_starts"), (3, "t_ends")):
        assert_rejected(name, arguments, key, arguments[first + index][1:], r"expected \[21")
        assert_rejected(name, arguments, key, arguments[first + index].double(), "expected float32")
    assert_rejected(name, arguments, "ray_offsets", arguments[first + 4][:0], r"expected \[R\+1\]")
    for distance in (-1.0, math.inf, math.nan):
        assert_rejected(name, arguments, "full_gradient_from", distance, "expected 0 or a distance")
    if name != NAME:
        for index, key in enumerate(("grad_values", "grad_opacity", "grad_depth", "grad_weights")):
            assert_rejected(name, arguments, key, arguments[index][1:], r"expected \[(5|21)")
