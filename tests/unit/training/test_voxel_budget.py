"""Sparse grids of a scene that fills little of its box have more voxels: as many as the budget allows, and no more."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from resumed_runs import MIDDLE, stop_and_restore
from tiny_runs import STEPS, UPSAMPLE_STEPS, run_to, tiny_config, tiny_images, tiny_state
from torch.nn import functional

from nerf.cli.report import MoreVoxels
from nerf.config.recipes import resolve_config
from nerf.config.schema import Config
from nerf.fields import voxel_field
from nerf.runs import checkpoint
from nerf.scene.box import SceneBox
from nerf.scene.contraction import ContractedSpace
from nerf.scene.occupancy import OccupancyGrid, with_neighbors
from nerf.training import voxel_budget
from nerf.training.loop import train
from nerf.training.memory import most_that_fits, plan_memory
from nerf.training.voxel_budget import BUDGET, EXPONENT, MOST_VERTICES, most_voxels, pixel_size, refined

UNIT = SceneBox(torch.tensor([[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]]))


def block(edge: int, cells: int = 40) -> OccupancyGrid:
    """A cube of occupied cells in the middle of a grid."""
    occupied = torch.zeros(cells, cells, cells, dtype=torch.bool)
    first = (cells - edge) // 2
    occupied[first : first + edge, first : first + edge, first : first + edge] = True
    return OccupancyGrid(occupied)


def test_inner_cells_have_six_occupied_neighbors() -> None:
    occupied = torch.rand(12, 7, 9, generator=torch.Generator().manual_seed(0)) < 0.9
    neighbors = torch.zeros(3, 3, 3)
    neighbors[1, 1, :] = neighbors[1, :, 1] = neighbors[:, 1, 1] = 1
    around = functional.conv3d(occupied.float()[None, None], neighbors[None, None], padding=1)[0, 0]
    assert OccupancyGrid(occupied).inner_cells() == int((around == 7).sum()) > 100
    core = torch.zeros(12, 12, 12, dtype=torch.bool)
    core[5, 5, 2:10] = True  # a wire; pruning keeps its neighbors, too
    assert OccupancyGrid(with_neighbors(core)).inner_cells() == 8
    assert OccupancyGrid(torch.ones(1, 5, 5, dtype=torch.bool)).inner_cells() == 0


@pytest.mark.parametrize("edge", [40, 30, 26])
def test_a_scene_that_fills_its_box_as_usual_keeps_its_voxels_to_the_digit(edge: int) -> None:
    assert refined(131072.0, block(edge), 1e9) == 131072.0


@pytest.mark.parametrize("edge", [20, 10])
def test_a_thinner_scene_has_as_many_as_the_budget_allows(edge: int) -> None:
    voxels = refined(131072.0, block(edge), 1e9)
    expected = (edge - 2) ** 3 * (voxels / 64000) ** EXPONENT  # inner cells, as they grow with the voxels
    assert voxels > 131072 and expected == pytest.approx(BUDGET * 131072**EXPONENT, rel=1e-6)
    assert refined(131072.0, block(edge), 180000.0) == 180000.0
    assert refined(131072.0, block(edge), 140000.0) == 131072.0  # too little to matter


def test_an_empty_grid_and_one_that_is_finer_already_are_no_errors() -> None:
    assert refined(131072.0, block(0), 5e5) == 5e5
    assert refined(32000.0, block(10), 50000.0) == 64000  # not coarser than before
    assert refined(50000.0, block(40), 1e9) == 64000  # nor where the scene fills its box, after it was thinner


def sparse_config(sparse_gain: float = 8.0) -> Config:
    config = tiny_config("voxel_deferred")
    field = replace(config.field, sparse=True, min_voxel_pixels=0.01, sparse_gain=sparse_gain)
    return resolve_config(replace(config, field=field), "cpu", "bounded")


def test_the_most_voxels_are_those_of_the_setting_of_pixels_and_of_32_bits() -> None:
    cameras = tiny_images().cameras
    pixel = pixel_size(cameras, UNIT)
    of_pixels = int(8 / pixel**3)
    assert most_voxels(sparse_config(), cameras, UNIT, of_pixels / 100) == int(8 * (of_pixels / 100))
    assert most_voxels(sparse_config(sparse_gain=20.0), cameras, UNIT, of_pixels / 100) == int(20 * (of_pixels / 100))
    assert most_voxels(sparse_config(), cameras, UNIT, of_pixels / 2) == of_pixels
    assert most_voxels(sparse_config(), cameras, UNIT, of_pixels) == 0
    coarse = replace(sparse_config().field, min_voxel_pixels=2.0)
    assert most_voxels(replace(sparse_config(), field=coarse), cameras, UNIT, 100) == min(800, of_pixels // 8)
    sharp = replace(cameras, intrinsics=1e4 * cameras.intrinsics)
    assert most_voxels(sparse_config(), sharp, UNIT, 1e9) == MOST_VERTICES


def test_dense_grids_learned_poses_and_scenes_without_a_box_keep_their_voxels() -> None:
    cameras, config = tiny_images().cameras, sparse_config()
    assert most_voxels(config, cameras, UNIT, 100) == 800
    assert most_voxels(sparse_config(sparse_gain=1.0), cameras, UNIT, 100) == 0
    assert most_voxels(replace(config, field=replace(config.field, sparse=False)), cameras, UNIT, 100) == 0
    assert most_voxels(replace(config, deterministic=True), cameras, UNIT, 100) == 0
    learned = replace(config.poses, mode="refine")
    assert most_voxels(replace(config, poses=learned), cameras, UNIT, 100) == 0
    everywhere = SceneBox(UNIT.aabb, ContractedSpace(torch.zeros(3), torch.ones(3), 2.0, 0.1))
    assert most_voxels(config, cameras, everywhere, 100) == 0


def test_the_plan_counts_a_larger_lattice_and_what_fits_is_taken() -> None:
    config, images, finest = sparse_config(), tiny_images(), (65, 65, 65)
    usual, larger = plan_memory(config, finest, images), plan_memory(config, finest, images, 10 * 65**3)
    assert larger.total - usual.total == int(9 * 65**3 * 5.25)
    for most, free in ((10 * 65**3, larger.total), (5 * 65**3, usual.total + int(4 * 65**3 * 5.25)), (0, usual.total)):
        assert most_that_fits(config, finest, images, 10 * 65**3, free) == pytest.approx(most, abs=1)
    assert most_that_fits(config, finest, images, 0, 2**40) == 0


def overlaps(before: int, cells: int) -> torch.Tensor:
    """Which of so many cells before each of the cells after overlaps, [cells, before] bool."""
    ends = torch.arange(max(before, cells) + 1, dtype=torch.float64)
    old, new = ends[: before + 1] / before, ends[: cells + 1] / cells
    shared = torch.minimum(new[1:, None], old[1:]) - torch.maximum(new[:-1, None], old[:-1])
    return shared > 1e-9


def test_occupancy_is_carried_to_all_cells_that_overlap_and_by_the_nearest_cell() -> None:
    """The second as interpolation of numbers does it, which takes eight times the memory."""
    occupied = torch.rand(9, 20, 33, generator=torch.Generator().manual_seed(0)) < 0.05
    for finer in ((12, 26, 42), (10, 21, 34), (31, 70, 100)):
        grid, cells = OccupancyGrid(occupied), [n - 1 for n in finer]
        grid.resample(finer)
        near = functional.interpolate(with_neighbors(occupied).float()[None, None], size=cells, mode="nearest")[0, 0]
        axes = [overlaps(before, after).double() for before, after in zip(occupied.shape, cells, strict=True)]
        overlapping = torch.einsum("xyz,ax,by,cz->abc", occupied.double(), *axes)
        assert torch.equal(grid.occupied, (near > 0) | (overlapping > 0))


@pytest.fixture
def thin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Config]:
    """The settings of a tiny run that is taken for thin."""
    monkeypatch.setattr(voxel_field, "SPARSE_FROM", 1)
    monkeypatch.setattr(voxel_field, "SPARSE_BELOW", 2.0)
    monkeypatch.setattr(voxel_budget, "BUDGET", 100.0)
    monkeypatch.setattr(voxel_budget, "PIXELS", 0.01)
    return sparse_config(sparse_gain=4.0)


def test_a_thin_scene_has_more_voxels_from_its_first_doubling_on_and_the_run_says_so(thin: Config) -> None:
    config, state = tiny_state(thin)
    said: list[str] = []
    list(train(config, state, [MoreVoxels(config, said.append)]))
    cells = math.prod(n - 1 for n in state.field.resolution)
    assert state.num_upsamplings == len(UPSAMPLE_STEPS) and cells == pytest.approx(4 * 12**3, rel=0.1)
    assert cells == state.occupancy.occupied.numel() and state.field.rows is not None
    (words,) = said
    assert "times as many as field.num_voxels says: the scene occupies only" in words
    config, state = tiny_state(replace(thin, field=replace(thin.field, sparse_gain=1.0)))
    list(train(config, state, [MoreVoxels(config, said.append)]))
    assert math.prod(n - 1 for n in state.field.resolution) == pytest.approx(12**3, rel=0.1) and len(said) == 1


@pytest.mark.parametrize("stop", [4, MIDDLE])
def test_a_resumed_run_has_the_voxels_of_one_that_never_stopped(thin: Config, tmp_path: Path, stop: int) -> None:
    config, state = tiny_state(thin)
    run_to(config, state, stop)
    config, restored = stop_and_restore(tmp_path, config, state)
    for one in (state, restored):
        run_to(config, one, STEPS)
    assert restored.occupancy.occupied.numel() > 3 * 12**3
    for name, values in state.field.state_dict().items():
        assert torch.equal(values, restored.field.state_dict()[name]), name


def test_a_run_of_before_goes_on_with_its_own_voxels(thin: Config, tmp_path: Path) -> None:
    config, state = tiny_state(thin)
    run_to(config, state, 4)
    checkpoint.save(tmp_path, config, state, tiny_images().cameras)
    content = checkpoint.load_resume(tmp_path)
    del content["most_voxels"]
    restored = checkpoint.restore_run(content, config, tiny_images(), state.field.backend)
    run_to(config, restored, STEPS)
    assert restored.occupancy.occupied.numel() == pytest.approx(12**3, rel=0.1)
