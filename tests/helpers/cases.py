"""Named inputs of every operation, shared by all proofs: CASES[operation][case](dtype, device) are arguments.

Numbers are drawn in float64 from a fixed seed and rounded to dtype, so both dtypes see the same case. A case of
a backward operation is a forward case with gradients for its outputs. Sizes are small: what counts is which
branch of the code a case enters.
"""

import math
from functools import partial

import torch
from case_tools import CHANNELS, Case, numbers
from case_tools import as_case as _case
from case_tools import with_gaps as _with_gaps
from march_cases import MARCH_CASES
from torch import Tensor

from nerf.cameras.cameras import SUBPIXELS
from nerf.ops import reference

HALF = math.log(2)  # the optical depth that lets half of the light through
LONG_RAYS = (33, 64, 130, 32, 31)  # samples per ray: around one, two and more rounds of a warp


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


def _packed(
    counts: tuple[int, ...] = (5, 0, 3, 12, 1),
    channels: int = 3,
    density: float = 4.0,
    min_transmittance: float = 0.0,
    tail: int = 0,
) -> tuple:
    """Packed samples of rays with these counts; behind the last ray tail rows of index 0 and length 0."""
    samples = sum(counts)
    offsets = torch.tensor([0, *counts]).cumsum(0)
    starts = 1.0 + 0.11 * torch.arange(samples).double()
    ends = starts + numbers(samples, low=0.05, high=0.15, seed=9)
    starts, ends = (torch.nn.functional.pad(x, (0, tail)) for x in (starts, ends))
    densities, values = density * numbers(len(starts), seed=10), numbers(len(starts), channels, seed=11)
    return densities, 2 * values - 1, starts, ends, offsets, min_transmittance


def _halving(min_transmittance: float) -> tuple:
    """Each sample takes half of the light, so that the limit lies well between two of the powers of two."""
    _, values, starts, ends, offsets, _ = _packed(counts=(3, 40, 8, 0))
    return HALF / (ends - starts), values, starts, ends, offsets, min_transmittance


def _pixels(rays: int = 20, channels: int = 3, shape: tuple[int, int, int] = (2, 5, 7)) -> tuple:
    count = math.prod(shape)
    images = (256 * numbers(*shape, channels, seed=12)).to(torch.uint8)
    indices = (count * numbers(rays, seed=13)).long()
    indices[:2] = torch.tensor([0, count - 1])[:rays]
    return images, indices


def _views(pixels: int = 20, cameras: int = 3, width: int = 7, height: int = 5, rays_per_pixel: int = 4) -> tuple:
    """Cameras in any pose, and pixels of their images, the first and the last of all among them."""
    axes, centers = torch.linalg.qr(numbers(cameras, 3, 3, low=-1, seed=37)).Q, numbers(cameras, 3, 1, low=-4, seed=38)
    size, count = torch.tensor([width, height]).double(), cameras * width * height
    focal, middle = numbers(cameras, 2, low=0.7, high=1.4, seed=39), numbers(cameras, 2, low=0.4, high=0.6, seed=40)
    indices = (count * numbers(pixels, seed=41)).long()
    indices[:2] = torch.tensor([0, count - 1])[:pixels]
    intrinsics, shifts = torch.cat([width * focal, size * middle], dim=-1), torch.tensor(SUBPIXELS[rays_per_pixel])
    return torch.cat([axes, centers], dim=-1), intrinsics, indices, width, height, shifts.double()


def _coefficients(samples: int = 30, rays: int = 7, basis: int = 4, channels: int | None = None) -> tuple:
    channels = 3 * basis if channels is None else channels
    return (
        numbers(samples, channels, low=-1, seed=31),
        numbers(rays, basis, low=-1, seed=32),
        (rays * numbers(samples, seed=33)).long(),
    )


def _variation(
    shape: tuple[int, int, int] = (4, 3, 5),
    channels: int = 3,
    span: float = 2.0,
    touched_only: bool = False,
    rows: list[int] | None = None,
) -> tuple:
    """A gradient, half of it zero, and a grid with differences on both sides of the Huber function's bend."""
    shape = (*shape, channels)
    grad = numbers(*shape, low=-1, seed=14) * (numbers(*shape, seed=15) < 0.5)
    chosen = None if rows is None else torch.tensor(rows, dtype=torch.int64)
    return grad, numbers(*shape, low=-span, high=span, seed=16), 0.3, touched_only, chosen


def _adam(
    shape: tuple[int, ...] = (7, 5),
    zeros: float = 0.0,
    rates: int = 1,
    step: int = 3,
    scale: float = 1.0,
    rows: list[int] | None = None,
) -> tuple:
    """Parameters in the middle of a training; a share `zeros` of the gradients is exactly zero."""
    moments = shape if rows is None else (len(rows), shape[-1])
    param, first = numbers(*shape, low=-1, seed=17), numbers(*moments, low=-0.1, high=0.1, seed=18)
    grad = scale * numbers(*shape, low=-1, seed=19) * (numbers(*shape, seed=20) >= zeros)
    second = numbers(*moments, low=0.001, high=0.1, seed=21)
    lr, number = torch.linspace(0.1, 0.01, rates), torch.tensor([float(step)])
    visited = None if rows is None else torch.tensor(rows, dtype=torch.int64)
    return param, first, second, grad, lr, number, visited, 0.9, 0.99, 1e-8


def _cells(points: int = 20, channels: int = 8, low: float = -1.0, high: float = 1.0) -> tuple:
    """Corner values and points, from low to high; the first two are corners of their cells."""
    places = numbers(points, 3, low=low, high=high, seed=22)
    places[:2] = torch.tensor([[-1.0] * 3, [1.0] * 3], dtype=torch.float64)[:points]
    return numbers(points, 8, channels, low=-1, seed=23), places


def _rows(
    shape: tuple[int, ...] = (6, 8),
    dim: int = 0,
    rows: int = 10,
    targets: int | None = None,
    index_dtype: torch.dtype = torch.int64,
) -> tuple:
    """Rows for a dst of this shape, all of them for its first `targets` rows along dim."""
    source = list(shape)
    source[dim] = rows
    index = (numbers(rows, seed=24) * (shape[dim] if targets is None else targets)).to(index_dtype)
    return numbers(*shape, low=-1, seed=25), dim, index, numbers(*source, low=-1, seed=26), 0.75


def _weighted(
    counts: tuple[int, ...] = (5, 0, 3, 12, 1), near: float = 1.0, scale: float = 1.0, tail: int = 0
) -> tuple:
    """Weights of packed samples from near on: neighbours touch, overlap or leave a gap."""
    _, _, starts, ends, offsets, _ = _packed(counts=counts, tail=tail)
    weights = scale * numbers(len(starts), seed=22)
    return weights, near - 1 + starts, near - 1 + ends, offsets


def cotangent(x: Tensor) -> Tensor:
    """A gradient for an output: numbers of both signs, none of them zero."""
    return torch.cos(torch.arange(x.numel(), device=x.device, dtype=torch.float64)).view(x.shape).to(x.dtype)


def _trilinear_backward(forward: Case, dtype: torch.dtype, device: str) -> tuple:
    grid, coords = forward(dtype, device)
    return cotangent(reference.interpolate_trilinear(grid, coords)), grid, coords, True, True


def _trilinear_grad(forward: Case, dtype: torch.dtype, device: str) -> tuple:
    """The gradient that is there before is a grid like any other."""
    grid, coords = forward(dtype, device)
    return torch.sin(grid).contiguous(), cotangent(reference.interpolate_trilinear(grid, coords)), coords


def _basis_backward(forward: Case, dtype: torch.dtype, device: str) -> tuple:
    values, basis, rays = forward(dtype, device)
    return cotangent(reference.contract_basis(values, basis, rays)), basis, rays, values.shape[1]


def _composite_backward(forward: Case, dtype: torch.dtype, device: str) -> tuple:
    *tensors, min_transmittance = forward(dtype, device)
    outputs = reference.composite_rays(*tensors, min_transmittance)
    return *map(cotangent, outputs), *tensors, outputs[3], min_transmittance


def _cells_backward(forward: Case, dtype: torch.dtype, device: str) -> tuple:
    feats, points = forward(dtype, device)
    return cotangent(reference.interpolate_cells(feats, points)), feats, points, True, True


def _distortion_backward(forward: Case, dtype: torch.dtype, device: str) -> tuple:
    arguments = forward(dtype, device)
    return cotangent(reference.distortion_loss(*arguments)), *arguments


CASES: dict[str, dict[str, Case]] = {
    **MARCH_CASES,
    "interpolate_trilinear": {
        "typical": _case(_points),
        "empty": _case(_points, points=0),
        "outside": _case(_points, low=-2.0, high=3.0),
        "on_vertices": _case(_points, round_to_vertices=True),
        "one_axis_single": _case(_points, resolution=(1, 4, 3)),
        "all_axes_single": _case(_points, resolution=(1, 1, 1), low=-1.0),
        "many_points_per_cell": _case(_points, resolution=(2, 3, 2), points=300),
        "non_contiguous": _with_gaps(_case(_points)),
        **{f"channels_{c}": _case(_points, channels=c) for c in CHANNELS},
        **{f"along_rays_{c}_channels": _case(_ray_points, channels=c) for c in (1, 3, 4, 12, 28)},
    },
    "composite_rays": {
        "typical": _case(_packed),
        "empty": _case(_packed, counts=()),
        "zero_samples": _case(_packed, counts=(0, 0, 0)),
        "long_rays": _case(_packed, counts=LONG_RAYS, density=0.4),
        **{
            f"long_rays_{c}_channels": _case(_packed, counts=LONG_RAYS, density=0.4, channels=c)
            for c in (4, 7, 8, 12, 16, 28)
        },
        "no_channels": _case(_packed, counts=LONG_RAYS, density=0.4, channels=0),
        "huge_density": _case(_packed, density=1e10),
        "zero_density": _case(_packed, density=0.0),
        "thin_density": _case(_packed, density=1e-6),
        "early_termination": _case(_halving, min_transmittance=0.1),
        "late_termination": _case(_halving, min_transmittance=0.7 * 2**-33),
        "capacity_tail": _case(_packed, tail=6),
        "non_contiguous": _with_gaps(_case(_packed)),
        **{f"channels_{c}": _case(_packed, channels=c) for c in CHANNELS},
        "capacity_tail_28_channels": _case(_packed, tail=40, channels=28),
        "empty_tail": _case(_packed, counts=(), tail=6),
    },
    "contract_basis": {
        "typical": _case(_coefficients),
        "empty": _case(_coefficients, samples=0),
        "one_ray": _case(_coefficients, rays=1),
        "padded": _case(_coefficients, basis=9, channels=28),
        "non_contiguous": _with_gaps(_case(_coefficients)),
        **{f"basis_{k}": _case(_coefficients, basis=k) for k in (1, 2, 9, 16)},
    },
    "camera_rays": {
        "typical": _case(_views),
        "empty": _case(_views, pixels=0),
        "one_camera": _case(_views, cameras=1),
        "one_ray": _case(_views, rays_per_pixel=1),
        "two_rays": _case(_views, rays_per_pixel=2),
        "four_rays": _case(_views, pixels=5000),
        "one_pixel_images": _case(_views, width=1, height=1),
        "wide_images": _case(_views, width=40_000, height=2),
        "non_contiguous": _with_gaps(_case(_views)),
    },
    "sample_images": {
        "typical": _case(_pixels),
        "empty": _case(_pixels, rays=0),
        "one_pixel": _case(_pixels, shape=(1, 1, 1), rays=1),
        "non_contiguous": _with_gaps(_case(_pixels)),
        **{f"channels_{c}": _case(_pixels, channels=c) for c in (1, 3, 4)},
    },
    "total_variation_grad": {
        "typical": _case(_variation),
        "empty": _case(_variation, shape=(0, 3, 5)),
        "touched_only": _case(_variation, touched_only=True),
        "rough": _case(_variation, span=1e6),
        "one_axis_single": _case(_variation, shape=(1, 4, 3)),
        "all_axes_single": _case(_variation, shape=(1, 1, 1)),
        "non_contiguous": _with_gaps(_case(_variation), first=1),
        **{f"channels_{c}": _case(_variation, channels=c) for c in CHANNELS},
        "tiles": _case(_variation, shape=(17, 9, 13), channels=12),
        "tiles_touched_only": _case(_variation, shape=(9, 17, 12), channels=12, touched_only=True),
        "some_rows": _case(_variation, touched_only=True, rows=[59, 0, 7, 30, 31]),
        "no_rows": _case(_variation, rows=[]),
        "many_rows": _case(_variation, shape=(9, 17, 12), channels=12, rows=list(range(1, 1836, 2))),
        "many_rows_touched_only": _case(
            _variation, shape=(9, 17, 12), channels=12, touched_only=True, rows=list(range(0, 1836, 3))
        ),
    },
    "adam_step": {
        "typical": _case(_adam),
        "empty": _case(_adam, shape=(0, 5)),
        "first_step": _case(_adam, step=1),
        "late_step": _case(_adam, step=20_000),
        "half_untouched": _case(_adam, shape=(40, 4), zeros=0.5),
        "rows_untouched": _case(_adam, shape=(5, 32), zeros=0.99),
        "all_untouched": _case(_adam, zeros=1.0),
        "rate_per_channel": _case(_adam, shape=(9, 3, 28), rates=28, zeros=0.3),
        "huge_gradient": _case(_adam, scale=1e10),
        "some_rows": _case(_adam, shape=(4, 5, 12), zeros=0.3, rates=12, rows=[17, 0, 5, 6]),
        "no_rows": _case(_adam, rows=[]),
        "non_contiguous": _with_gaps(_case(_adam, rates=5, rows=[4, 0, 3]), first=4),
        **{f"channels_{c}": _case(_adam, shape=(10, c), rates=c, zeros=0.3) for c in CHANNELS},
        "one_rate": _case(_adam, shape=(8, 7), zeros=0.3),
        "many_rows": _case(_adam, shape=(900, 12), zeros=0.8, rows=list(range(1, 900, 2))),
        "many_rows_one_channel": _case(_adam, shape=(3000, 1), zeros=0.8, rows=list(range(1, 3000, 2))),
    },
    "interpolate_cells": {
        "typical": _case(_cells),
        "empty": _case(_cells, points=0),
        "no_channels": _case(_cells, channels=0),
        "one_point": _case(_cells, points=1),
        "outside": _case(_cells, low=-3.0, high=3.0),
        "many_points": _case(_cells, points=300, channels=12),
        "wide_rows": _case(_cells, points=5, channels=256),
        "non_contiguous": _with_gaps(_case(_cells)),
        **{f"channels_{c}": _case(_cells, channels=c) for c in (*CHANNELS, 20, 132, 150)},
    },
    "index_add": {
        "typical": _case(_rows),
        "empty": _case(_rows, rows=0),
        "empty_slices": _case(_rows, shape=(6, 0)),
        "int32_index": _case(_rows, index_dtype=torch.int32),
        "one_dimension": _case(_rows, shape=(50,), rows=70),
        "dim_0": _case(_rows, shape=(5, 3, 4), rows=7),
        "middle_dim": _case(_rows, shape=(3, 5, 4), dim=1, rows=7),
        "last_dim": _case(_rows, shape=(3, 4, 5), dim=-1, rows=7),
        "one_row": _case(_rows, shape=(4, 3), rows=1),
        "single_target": _case(_rows, shape=(1, 6), rows=30),
        "crowded": _case(_rows, shape=(6, 2048), rows=200, targets=3),
        "crowded_odd": _case(_rows, shape=(2, 3, 1031), dim=1, rows=150, targets=2),
        "crowded_last_dim": _case(_rows, shape=(40, 7), dim=1, rows=300),
        "crowded_numbers": _case(_rows, shape=(9,), rows=5000),
        "crowded_short_rows": _case(_rows, shape=(9, 12), rows=1500, targets=5),
        "many_numbers": _case(_rows, shape=(30000,), rows=40000),
        "many_rows": _case(_rows, shape=(3000, 28), rows=1000),
        "non_contiguous": _with_gaps(_case(_rows, shape=(5, 3, 4), dim=1, rows=7)),
    },
    "distortion_loss": {
        "typical": _case(_weighted),
        "empty": _case(_weighted, counts=()),
        "zero_samples": _case(_weighted, counts=(0, 0, 0)),
        "long_rays": _case(_weighted, counts=LONG_RAYS),
        "far_away": _case(_weighted, counts=LONG_RAYS, near=1000.0),
        "zero_weights": _case(_weighted, scale=0.0),
        "huge_weights": _case(_weighted, scale=1e10),
        "capacity_tail": _case(_weighted, tail=6),
        "non_contiguous": _with_gaps(_case(_weighted)),
    },
}
_BACKWARD = {
    "interpolate_trilinear": _trilinear_backward,
    "composite_rays": _composite_backward,
    "contract_basis": _basis_backward,
    "interpolate_cells": _cells_backward,
    "distortion_loss": _distortion_backward,
}
CASES["interpolate_trilinear_grad"] = {
    case: partial(_trilinear_grad, make) for case, make in CASES["interpolate_trilinear"].items()
}
_into = CASES["interpolate_trilinear_grad"]
_into["non_contiguous"] = _with_gaps(_into["typical"], first=1)
for _name, _backward in _BACKWARD.items():
    _cases = {case: partial(_backward, make) for case, make in CASES[_name].items()}
    CASES[f"{_name}_backward"] = {**_cases, "non_contiguous": _with_gaps(_cases["typical"])}
