"""Pruning keeps what training rays see of a surface, and gives up air, hidden insides and haze."""

import math
from dataclasses import replace

import pytest
import torch
from tiny_runs import FAR_OFF, STEPS, run_to, tiny_config, tiny_images, tiny_state
from torch import Tensor

from nerf.fields.voxel_sh import VoxelSh, VoxelShConfig
from nerf.ops.backend import Backend, select
from nerf.rendering.sampler import RaySampler
from nerf.scene.box import SceneBox
from nerf.scene.occupancy import OccupancyGrid, uniform, with_neighbors
from nerf.training import pruning
from nerf.training.batches import RayBatches
from nerf.training.pruning import prune

RESOLUTION = (33, 33, 33)
BOX = SceneBox(torch.tensor([[-1.5, -1.5, -1.5], [1.5, 1.5, 1.5]]))
CELL = 3 / 32
ALPHA_THRESHOLD, MIN_WEIGHT = 0.02, 0.002


def sphere_field(backend: Backend, inside: float, outside: float = 0.001) -> VoxelSh:
    """A unit sphere: opacity of one voxel at the vertices inside, and outside of it."""
    field = VoxelSh(VoxelShConfig(sh_degree=0), BOX, RESOLUTION, CELL, backend)
    vertices = torch.cartesian_prod(*[torch.linspace(-1.5, 1.5, 33)] * 3).view(*RESOLUTION, 3)
    alpha = torch.where(vertices.norm(dim=-1) <= 1, inside, outside)
    with torch.no_grad():  # backwards through activation
        field.density_grid[..., 0] = torch.log(torch.expm1(-torch.log1p(-alpha))) - field.density_shift
    for limit, opaque in (
        (inside * 0.99, alpha == inside),
        (inside * 1.01, alpha > inside),
        (outside / 2, alpha > 0),
    ):
        assert torch.equal(field.vertices_above_alpha(limit), opaque)
    return field


def pruned(inside: float, outside: float = 0.001, **changes: float) -> Tensor:
    """Cells kept of the sphere, seen by the cameras of the tiny scene."""
    backend = select("native", "cpu")
    field = sphere_field(backend, inside, outside)
    config = replace(tiny_config().sampler, min_weight=0.0)
    sampler = RaySampler(backend, field.grid_map, uniform(RESOLUTION, backend.device), 0.5 * CELL, config)
    batches = RayBatches(tiny_images(), backend, 0)
    batches.find_valid_pixels(sampler)
    rule = {"alpha_threshold": ALPHA_THRESHOLD, "min_weight": MIN_WEIGHT, "rays_per_surface_cell": 12} | changes
    return prune(field, sampler, batches, **rule)


def radii() -> tuple[Tensor, Tensor]:
    """Distance of the cells' centers from the origin, and their height."""
    middles = torch.linspace(-1.5, 1.5, 33)[:-1] + CELL / 2
    centers = torch.cartesian_prod(middles, middles, middles).view(32, 32, 32, 3)
    return centers.norm(dim=-1), centers[..., 2]


def test_the_seen_shell_of_a_solid_stays_and_its_inside_goes() -> None:
    kept = pruned(inside=0.9)
    radius, height = radii()
    # The cameras stand half a radian above the horizon, so they see the upper half and more.
    seen_shell = ((radius - 1).abs() < 0.4 * CELL) & (height > -0.3)
    assert seen_shell.sum() > 500 and kept[seen_shell].double().mean() > 0.999
    assert not kept[radius < 0.5].any(), "cells that nobody sees"
    assert not kept[radius > 1 + 3 * CELL].any(), "air"
    # The lowest line of sight touches the sphere at -0.73; others reach a little lower through its blurred skin.
    underside = (radius < 1 + CELL) & (height < -0.95)
    assert underside.sum() > 50 and not kept[underside].any()


def test_a_transparent_ball_is_seen_through_and_stays_whole() -> None:
    kept = pruned(inside=0.05)
    radius, _ = radii()
    assert kept[radius < 0.9].all() and not kept[radius > 1 + 3 * CELL].any()


def test_smoke_stays_whole_where_more_weight_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of its samples has that weight but the first ones of a ray, and its rays are opaque all the same."""
    radius, _ = radii()
    assert pruned(inside=0.05, min_weight=0.02)[radius < 0.9].all()
    assert not pruned(inside=0.03, min_weight=0.02).any(), "one that is not so opaque"
    monkeypatch.setattr(pruning, "SMOKE", 2.0)
    assert pruned(inside=0.05, min_weight=0.02)[radius < 0.9].double().mean() < 0.8


@pytest.mark.parametrize("outside", [0.018, 0.022])
def test_haze_goes_where_it_is_thinner_than_the_threshold(outside: float) -> None:
    kept = pruned(inside=0.9, outside=outside)
    radius, height = radii()
    air = (radius > 1.2) & (radius < 1.45) & (height > -0.3)
    assert kept[air].double().mean().item() == (outside > ALPHA_THRESHOLD)


def test_what_weighs_too_little_goes() -> None:
    assert not pruned(inside=0.9, min_weight=1.0).any()
    assert pruned(inside=0.9, min_weight=0.0).sum() > pruned(inside=0.9).sum()


def test_more_rays_find_what_is_in_sight_of_few_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a higher weight, with them, still leaves nothing of the haze that they meet."""
    monkeypatch.setitem(pruning.RAYS_PER_CHUNK, "cpu", 64)
    radius, height = radii()
    seen_shell = ((radius - 1).abs() < 0.4 * CELL) & (height > -0.3)
    air = (radius > 1.2) & (radius < 1.45) & (height > -0.3)
    by_one, by_many = (pruned(inside=0.9, outside=0.022, rays_per_surface_cell=rays) for rays in (1, 24))
    assert by_one[seen_shell].double().mean() < 0.98 and by_many[seen_shell].double().mean() > 0.999
    assert by_many[air].all()
    monkeypatch.setattr(pruning, "SMOKE", 0.9)  # this haze fills the box, and is as opaque as smoke along its diagonal
    clear = pruned(inside=0.9, outside=0.022, rays_per_surface_cell=24, min_weight=0.03)
    assert clear[seen_shell].double().mean() > 0.999 and clear[air].double().mean() < 0.1


def test_kept_cells_bring_their_neighbors() -> None:
    occupied = torch.zeros(5, 5, 5, dtype=torch.bool)
    occupied[2, 2, 2] = occupied[0, 0, 4] = True
    expected = {(2, 2, 2), (1, 2, 2), (3, 2, 2), (2, 1, 2), (2, 3, 2), (2, 2, 1), (2, 2, 3)}
    expected |= {(0, 0, 4), (1, 0, 4), (0, 1, 4), (0, 0, 3)}
    assert {tuple(cell) for cell in with_neighbors(occupied).nonzero().tolist()} == expected
    assert occupied.sum() == 2  # the argument is left alone


def test_occupancy_follows_the_grid_to_another_resolution() -> None:
    """A cell is occupied if it touches one that was."""
    grid = OccupancyGrid(torch.zeros(8, 8, 8, dtype=torch.bool))
    grid.occupied[3, 4, 5] = True
    grid.resample((17, 17, 17))
    assert grid.occupied.shape == (16, 16, 16)
    assert grid.occupied[6:8, 8:10, 10:12].all() and 8 < grid.occupied.sum() < 16**3 / 8
    grid.resample((12, 12, 12))
    assert grid.occupied[4, 6, 7] and grid.occupied_fraction == pytest.approx(grid.occupied.double().mean().item())


def test_a_cell_is_touched_by_its_eight_vertices() -> None:
    grid = OccupancyGrid(torch.zeros(3, 4, 5, dtype=torch.bool))
    assert len(grid.active_vertices()) == 0
    grid.occupied[2, 0, 4] = True  # vertices (2..3, 0..1, 4..5) of 4 x 5 x 6
    assert grid.active_vertices().tolist() == [(x * 5 + y) * 6 + z for x in (2, 3) for y in (0, 1) for z in (4, 5)]


@pytest.mark.parametrize("cells", [(8, 4, 12), (9, 6, 5), (1, 1, 1), (3, 17, 2)])
def test_words_hold_each_cell_and_those_far_from_all_are_clear(cells: tuple[int, int, int]) -> None:
    occupied = torch.rand(cells, generator=torch.Generator().manual_seed(1)) < 0.02
    occupied[0, -1, 0] = True
    grid = OccupancyGrid(occupied)
    words = torch.zeros([-(-n // 4) for n in cells], dtype=torch.int64)
    for x, y, z in occupied.nonzero().tolist():
        bit = 16 * (x % 4) + 4 * (y % 4) + z % 4
        words[x // 4, y // 4, z // 4] |= 1 << bit if bit < 63 else -(1 << 63)
    assert torch.equal(grid.words, words) and grid.words.dtype == torch.int64
    far = [
        all((torch.tensor(at) - torch.tensor(other)).abs().max() > 1 for other in words.nonzero().tolist())
        for at in torch.ones_like(words).nonzero().tolist()
    ]
    assert grid.clear.flatten().tolist() == far


def test_words_follow_the_cells() -> None:
    """They are kept from step to step, and made anew when cells change in place or are replaced."""
    grid = OccupancyGrid(torch.zeros(8, 8, 8, dtype=torch.bool))
    assert grid.words is grid.words and not grid.words.any() and grid.clear.all()
    grid.occupied[5, 0, 0] = True
    assert grid.words[1, 0, 0] == 1 << 16 and not grid.clear.any()
    grid.occupied = torch.zeros(4, 4, 4, dtype=torch.bool)
    assert grid.words.shape == (1, 1, 1) and not grid.words.any()


def test_visiting_the_vertices_near_samples_is_visiting_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run through an upsampling and a pruning ends the same, roundings aside: no gradient lies anywhere else.

    But for the few vertices that pruning gives up and brings back, whose moments begin anew.
    """
    grids, shares = [], []
    some = OccupancyGrid.active_vertices

    def every(grid: OccupancyGrid) -> Tensor:
        return torch.arange(math.prod(n + 1 for n in grid.occupied.shape))

    for rows in (some, every):
        monkeypatch.setattr(OccupancyGrid, "active_vertices", rows)
        config, state = tiny_state(tiny_config())
        run_to(config, state, 16)
        grids.append((state.field.density_grid.detach(), state.field.sh_grid.detach()))
        shares.append(len(state.optimizer.active_vertices) / state.field.density_grid.numel())
        assert state.num_upsamplings and state.num_occupancy_updates
    assert shares[0] < 0.98 and shares[1] == 1  # some vertices are left out, or there is nothing to compare
    for near, everywhere in zip(*grids, strict=True):
        assert ((near - everywhere).abs() > 1e-4 * everywhere.abs() + 1e-5).double().mean() < 0.01


@pytest.mark.parametrize(("start", "searches"), [(0.9, 0), (0.0, 1)])
def test_valid_pixels_are_looked_for_at_doublings_once_poses_move(
    start: float, searches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, state = tiny_state(replace(tiny_config(), poses=replace(FAR_OFF, start=start)))
    found = RayBatches.find_valid_pixels
    asked: list[int] = []

    def find(batches: RayBatches, sampler: RaySampler) -> None:
        asked.append(state.num_upsamplings)
        found(batches, sampler)

    monkeypatch.setattr(RayBatches, "find_valid_pixels", find)
    run_to(config, state, STEPS)
    assert state.num_upsamplings == 1 and len(asked) == searches
