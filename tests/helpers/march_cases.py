"""Named inputs of the operations that march: see cases.py."""

import math

import torch
from case_tools import CHANNELS, Case, numbers
from case_tools import as_case as _case
from case_tools import with_gaps as _with_gaps

from nerf.ops import reference


def _march(
    rays: int = 40,
    cells: tuple[int, int, int] = (9, 6, 5),
    filled: float = 0.3,
    step: float = 0.23,
    far: float = 100.0,
    capacity: int = 0,
    away: bool = False,
    inside: bool = False,
    contraction: float = 0.0,
) -> tuple:
    """Rays from around the grid, or inside it, to points in it, or away from it. Directions are not unit."""
    size = torch.tensor(cells, dtype=torch.float64)
    targets, lengths = size * numbers(rays, 3, seed=1), numbers(rays, 1, low=0.5, high=2.0)
    around = size / 2 + numbers(rays, 3, low=-20, high=20, seed=3)
    origins = size * numbers(rays, 3, seed=2) if inside else around
    directions = lengths * torch.nn.functional.normalize(targets - origins, dim=-1)
    near, jitter = numbers(rays, high=0.1, seed=5), numbers(rays, low=-0.5, high=0.5, seed=6)
    origins = size / 2 + 100 * directions if away else origins
    return origins, directions, jitter, numbers(*cells, seed=4) < filled, near, near + far, step, capacity, contraction


def _march_axis_parallel() -> tuple:
    """Directions with zeros, origins before, on and behind the faces; midpoints lie on walls of cells."""
    cells = (9, 5, 13)
    origins = torch.cartesian_prod(*(torch.tensor([-1.0, 0.0, 1.5, n, n + 1.0]).double() for n in cells))
    directions = [[1.0, 0.0, 0.0], [0.0, -0.5, 0.0], [0.0, 0.0, 2.0], [-1.0, 0.0, 1.0], [0.0, 0.0, -1.0]]
    near = torch.zeros(len(origins)).double()
    directions = torch.tensor(directions).double().repeat(len(origins) // 5, 1)
    return origins, directions, near - 0.5, numbers(*cells, seed=4) < 0.1, near, near + 9, 0.25, 0, 0.0


def _march_standing() -> tuple:
    """Rays inside the grid without a direction: they stay in their cell, from near to far or for ever."""
    origins, directions, jitter, occupied, near, _, step, *rest = _march(rays=20, inside=True, filled=0.7)
    far = torch.where(torch.arange(20) % 2 == 0, torch.inf, near + 3)
    directions = directions * (torch.arange(20) % 4 == 3)[:, None]
    return origins, directions, jitter, occupied, near, far, step, *rest


def _march_visible(
    low: float = -4.0, high: float = 6.0, min_transmittance: float = 1e-3, min_weight: float = 0.01, **march: object
) -> tuple:
    """The rays of a march through raw density from low to high."""
    *rays, capacity, contraction = _march(**march)
    vertices = (n + 1 for n in rays[3].shape)
    grid = numbers(*vertices, 1, low=low, high=high, seed=34)
    return *rays, grid, -2.0, 1.5, min_transmittance, min_weight, capacity, contraction


def _render_rays(channels: int = 12, rays_per_pixel: int = 1, **options: object) -> tuple:
    *arguments, _, contraction = _march_visible(**options)
    return *arguments, numbers(*arguments[7].shape[:3], channels, low=-1, seed=35), contraction, rays_per_pixel


TOTAL = len(reference.march_rays(*_march())[1])  # samples of march_rays' typical case
# Many samples that each weigh little, more than one and two rounds of a warp.
THIN_AIR = {"rays": 6, "filled": 0.8, "step": 0.03, "low": -3.0, "high": 2.0, "min_weight": 1e-3}

MARCH_CASES: dict[str, dict[str, Case]] = {
    "march_rays": {
        "typical": _case(_march),
        "empty": _case(_march, rays=0),
        "all_miss": _case(_march, away=True),
        "nothing_occupied": _case(_march, filled=0.0),
        "long_rays": _case(_march, rays=6, filled=1.0, step=0.03),
        "far_skips": _case(_march, rays=30, cells=(37, 41, 29), filled=0.004, step=0.06),
        "from_inside": _case(_march, inside=True),
        "ends_inside": _case(_march, inside=True, far=1.5),
        "axis_parallel": _case(_march_axis_parallel),
        "single_cell": _case(_march, cells=(1, 1, 1), filled=1.0),
        "standing": _case(_march_standing),
        "step_beyond_grid": _case(_march, step=30.0),
        "capacity_fits": _case(_march, capacity=1000),
        "capacity_exact": _case(_march, capacity=TOTAL),
        "capacity_one_short": _case(_march, capacity=TOTAL - 1),
        "capacity_overflows": _case(_march, capacity=70),
        "capacity_one": _case(_march, capacity=1),
        "capacity_empty": _case(_march, rays=0, capacity=5),
        "contracted": _case(_march, contraction=0.7, far=1e4),
        "contracted_from_inside": _case(_march, inside=True, contraction=1.0, far=math.inf),
        "contracted_far_skips": _case(
            _march, rays=30, cells=(37, 41, 29), filled=0.004, step=0.06, inside=True, contraction=0.5, far=1e4
        ),
        "contracted_ends": _case(_march, contraction=0.7, far=3.0),
        "capacity_contracted": _case(_march, contraction=0.7, far=1e4, capacity=70),
        "many_rays": _case(_march, rays=2500, cells=(3, 3, 3), step=1.1, capacity=1000),
        "non_contiguous": _with_gaps(_case(_march, inside=True, far=1.5)),
    },
    "march_visible": {
        "typical": _case(_march_visible),
        "empty": _case(_march_visible, rays=0),
        "all_miss": _case(_march_visible, away=True),
        "all_transparent": _case(_march_visible, low=-40.0, high=-30.0),
        "huge_density": _case(_march_visible, low=1e3, high=1e9),
        "long_rays": _case(_march_visible, **THIN_AIR),
        "no_limits": _case(_march_visible, min_transmittance=0.0, min_weight=0.0),
        "no_weight_limit": _case(_march_visible, min_transmittance=0.3, min_weight=0.0),
        "no_transmittance_limit": _case(_march_visible, min_transmittance=0.0, **THIN_AIR),
        "contracted": _case(_march_visible, contraction=0.7, far=1e4),
        "axis_of_one_cell": _case(_march_visible, cells=(1, 7, 4)),
        "capacity_fits": _case(_march_visible, capacity=1000),
        "capacity_overflows": _case(_march_visible, capacity=25),
        "capacity_empty": _case(_march_visible, rays=0, capacity=5),
        "non_contiguous": _with_gaps(_case(_march_visible, inside=True, far=1.5)),
    },
    "render_rays": {
        "typical": _case(_render_rays),
        "empty": _case(_render_rays, rays=0),
        "all_miss": _case(_render_rays, away=True),
        "huge_density": _case(_render_rays, low=1e3, high=1e9),
        "long_rays": _case(_render_rays, **THIN_AIR),
        "no_limits": _case(_render_rays, min_transmittance=0.0, min_weight=0.0),
        "contracted": _case(_render_rays, contraction=0.7, far=1e4),
        "no_channels": _case(_render_rays, channels=0),
        "two_rays_a_pixel": _case(_render_rays, rays_per_pixel=2),
        "four_rays_a_pixel": _case(_render_rays, rays_per_pixel=4, channels=16),
        "four_long_rays": _case(_render_rays, rays_per_pixel=4, **THIN_AIR | {"rays": 8}),
        "four_contracted": _case(_render_rays, rays_per_pixel=4, contraction=0.7, far=1e4),
        "non_contiguous": _with_gaps(_case(_render_rays, inside=True, far=1.5)),
        **{f"channels_{c}": _case(_render_rays, channels=c) for c in (*CHANNELS, 8, 16)},
    },
}
