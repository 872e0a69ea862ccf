"""Arguments of the operations that march."""

import torch
from case_tools import as_sparse, numbers

from nerf.ops import reference
from nerf.scene.occupancy import OccupancyGrid


def march(
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


def in_scene_space(*arguments: object) -> tuple:
    """The same number of rays in the units of a scene, four to a jitter, with one near and far for all.

    Behind the arguments, where they are and what is known of the cells: lower, scale, words, clear.
    """
    origins, directions, jitter, occupied, near, far, *rest = arguments
    lower, scale = torch.tensor([[-1.1, 0.3, 2.7], [3.1, 2.9, 3.3]], dtype=torch.float64)
    known = OccupancyGrid(occupied)
    rays = origins / scale + lower, directions / scale, jitter[::4].contiguous()
    return *rays, occupied, near[:1], far[:1], *rest, lower, scale, known.words, known.clear


def march_in_scene_space(**options: object) -> tuple:
    return in_scene_space(*march(**options))[:-1]


def march_scene_through_density(**options: object) -> tuple:
    return in_scene_space(*march_through_density(**options), None)


def render_scene(**options: object) -> tuple:
    return in_scene_space(*render(**options), None)


def march_along_axes() -> tuple:
    """Directions with zeros, origins before, on and behind the faces; midpoints lie on walls of cells."""
    cells = (9, 5, 13)
    origins = torch.cartesian_prod(*(torch.tensor([-1.0, 0.0, 1.5, n, n + 1.0]).double() for n in cells))
    directions = [[1.0, 0.0, 0.0], [0.0, -0.5, 0.0], [0.0, 0.0, 2.0], [-1.0, 0.0, 1.0], [0.0, 0.0, -1.0]]
    near = torch.zeros(len(origins)).double()
    directions = torch.tensor(directions).double().repeat(len(origins) // 5, 1)
    return origins, directions, near - 0.5, numbers(*cells, seed=4) < 0.1, near, near + 9, 0.25, 0, 0.0


def march_standing() -> tuple:
    """Rays inside the grid without a direction: they stay in their cell, from near to far or for ever."""
    origins, directions, jitter, occupied, near, _, step, *rest = march(rays=20, inside=True, filled=0.7)
    far = torch.where(torch.arange(20) % 2 == 0, torch.inf, near + 3)
    directions = directions * (torch.arange(20) % 4 == 3)[:, None]
    return origins, directions, jitter, occupied, near, far, step, *rest


def march_through_density(
    low: float = -4.0, high: float = 6.0, min_transmittance: float = 1e-3, min_weight: float = 0.01, **options: object
) -> tuple:
    """The rays of a march through raw density from low to high."""
    *rays, capacity, contraction = march(**options)
    vertices = (n + 1 for n in rays[3].shape)
    grid = numbers(*vertices, 1, low=low, high=high, seed=34)
    return *rays, grid, -2.0, 1.5, min_transmittance, min_weight, capacity, contraction


def march_through_empty_space(**options: object) -> tuple:
    """Rays that meet a thin ball, far from where they start and end: most words around their points are empty."""
    arguments = list(march_through_density(low=-6.0, high=2.0, rays=300, cells=(60, 52, 71), step=0.5, **options))
    cells = torch.stack(torch.meshgrid(*(torch.arange(n) + 0.5 for n in arguments[3].shape), indexing="ij"), dim=-1)
    distances = (cells - torch.tensor(arguments[3].shape) / 2).norm(dim=-1)
    arguments[3] = (distances - 14).abs() < 1
    return tuple(arguments)


def march_through_sparse_density() -> tuple:
    """Some vertices of occupied cells have no row, some of others have one."""
    arguments = list(march_through_density())
    arguments[7], table, _ = as_sparse(arguments[7])
    return *arguments, table


def render_sparse(channels: int, rays_per_pixel: int = 1) -> tuple:
    arguments = list(render(channels, rays_per_pixel))
    for place in (7, 12):
        arguments[place], table, _ = as_sparse(arguments[place])
    return *arguments, table


def render(channels: int = 12, rays_per_pixel: int = 1, **options: object) -> tuple:
    *arguments, _, contraction = march_through_density(**options)
    return *arguments, numbers(*arguments[7].shape[:3], channels, low=-1, seed=35), contraction, rays_per_pixel


TOTAL = len(reference.march_rays(*march())[1])  # samples of march_rays' typical case
# Many samples that each weigh little, more than one and two rounds of a warp.
THIN_AIR = {"rays": 6, "filled": 0.8, "step": 0.03, "low": -3.0, "high": 2.0, "min_weight": 1e-3}


def assert_samples(found: tuple, expected: list[tuple[int, float, float]]) -> None:
    """What march_rays yields is these samples: ray, begin, end; there are some, else it would show nothing."""
    offsets, indices, t_starts, t_ends, _ = found
    assert list(zip(indices.tolist(), t_starts.tolist(), t_ends.tolist(), strict=True)) == expected
    assert offsets.diff().tolist() == [sum(s[0] == ray for s in expected) for ray in range(len(offsets) - 1)]
    assert expected
