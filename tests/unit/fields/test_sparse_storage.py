"""Sparse grids of a field: values, gradients and moments at the vertices that matter, and the same training."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from resumed_runs import MIDDLE, stop_and_restore
from tiny_runs import STEPS, run_to, tiny_config, tiny_images, tiny_state

from nerf.config.schema import Config
from nerf.fields import voxel_field
from nerf.fields.registry import build_field
from nerf.fields.voxel_field import VoxelField
from nerf.ops.backend import select
from nerf.runs import checkpoint
from nerf.scene.box import SceneBox
from nerf.scene.occupancy import OccupancyGrid
from nerf.training.state import TrainState

RESOLUTION = (9, 8, 40)


@pytest.fixture(autouse=True)
def sparse_however_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny grids are filled nearly everywhere."""
    monkeypatch.setattr(voxel_field, "SPARSE_FROM", 1)
    monkeypatch.setattr(voxel_field, "SPARSE_BELOW", 2.0)


@pytest.fixture(params=["native", "torch"])
def backend(request: pytest.FixtureRequest) -> Iterator[object]:
    return select(request.param, "cpu")


def sparse_config(field: str = "voxel_sh", **train_settings: object) -> Config:
    config = tiny_config(field, **train_settings)
    return replace(config, field=replace(config.field, sparse=True))


def some_field(backend: object) -> VoxelField:
    """A field with random values at every vertex."""
    box = SceneBox(torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 4.0]]))
    field = build_field(sparse_config().field, box, RESOLUTION, 0.1, backend)
    for grid in field.grids:
        torch.nn.init.normal_(grid)
    return field


def some_occupancy(seed: int = 0, resolution: tuple[int, int, int] = RESOLUTION) -> OccupancyGrid:
    generator = torch.Generator().manual_seed(seed)
    return OccupancyGrid(torch.rand([n - 1 for n in resolution], generator=generator) < 0.03)


def test_values_that_matter_are_kept_and_others_are_zero(backend: object) -> None:
    field, occupancy = some_field(backend), some_occupancy()
    before = [grid.detach().clone() for grid in field.grids]
    vertices = occupancy.stored_vertices()
    field.store_at(vertices)
    assert field.rows is not None and len(vertices) < 0.8 * math.prod(RESOLUTION)
    for grid, old in zip(field.grids, before, strict=True):
        assert grid.shape == (len(vertices), old.shape[-1])
        kept = torch.zeros(math.prod(RESOLUTION), dtype=torch.bool).index_fill_(0, vertices, True)
        assert torch.equal(field.dense(grid), old * kept.view(*RESOLUTION, 1))
        everywhere = torch.arange(len(kept))
        assert torch.equal(field.values_at(grid, everywhere), (old * kept.view(*RESOLUTION, 1)).flatten(0, 2))
    for alpha in (0.001, 0.02, 0.5, 1.0):
        assert torch.equal(field.vertices_above_alpha(alpha), VoxelField.__mro__[1].vertices_above_alpha(field, alpha))


def test_other_vertices_keep_what_both_have(backend: object, monkeypatch: pytest.MonkeyPatch) -> None:
    field, first, second = some_field(backend), some_occupancy(0), some_occupancy(1)
    field.store_at(first.stored_vertices())
    before = [field.dense(grid).detach().clone() for grid in field.grids]
    field.store_at(second.stored_vertices())
    kept = torch.zeros(math.prod(RESOLUTION), 1).index_fill_(0, second.stored_vertices(), 1.0).view(*RESOLUTION, 1)
    for grid, old in zip(field.grids, before, strict=True):
        assert torch.equal(field.dense(grid), old * kept)
    monkeypatch.setattr(voxel_field, "SPARSE_BELOW", 0.8)
    field.store_at(torch.arange(math.prod(RESOLUTION)))  # saves nothing any more
    assert field.rows is None
    for grid, old in zip(field.grids, before, strict=True):
        assert torch.equal(grid, old * kept)


def test_upsampling_is_that_of_the_dense_grid_at_the_vertices(backend: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voxel_field, "POINTS_AT_A_TIME", 100)
    occupancy, finer = some_occupancy(), (13, 11, 57)
    sparse, dense = some_field(backend), some_field(backend)
    sparse.store_at(occupancy.stored_vertices())
    for name in ("density_grid", "sh_grid"):
        getattr(dense, name).data = sparse.dense(getattr(sparse, name)).detach().clone()
    occupancy.resample(finer)
    vertices = occupancy.active_vertices()
    sparse.upsample(finer, vertices)
    monkeypatch.setattr(voxel_field, "SPARSE_FROM", 2**60)
    dense.upsample(finer, vertices)
    assert sparse.rows is not None and dense.rows is None and sparse.resolution == finer
    for one, other in zip(sparse.grids, dense.grids, strict=True):
        assert torch.equal(one, other.flatten(0, 2)[vertices])


def trained(field: str, steps: int, monkeypatch: pytest.MonkeyPatch, sparse: bool) -> tuple[list[float], TrainState]:
    monkeypatch.setattr(voxel_field, "SPARSE_FROM", 1 if sparse else 2**60)
    config, state = tiny_state(sparse_config(field, log_every=1))
    return [look.psnr for look in run_to(config, state, steps)], state


@pytest.mark.parametrize("field", ["voxel_sh", "voxel_deferred"])
def test_training_is_that_of_dense_grids(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits up to the first doubling, whose new vertices have coarse ones that are not stored."""
    sparse, state = trained(field, STEPS, monkeypatch, True)
    dense, other = trained(field, STEPS, monkeypatch, False)
    assert state.field.rows is not None and other.field.rows is None
    assert sparse[:8] == dense[:8]
    assert sparse == pytest.approx(dense, abs=0.5)


@pytest.mark.parametrize("field", ["voxel_sh", "voxel_deferred"])
def test_nothing_is_as_large_as_a_dense_grid(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, state = trained(field, STEPS, monkeypatch, True)
    stored, active = state.occupancy.stored_vertices(), state.occupancy.active_vertices()
    for group in state.optimizer.groups:
        if group.on_vertices:
            assert len(group.parameter) == len(group.parameter.grad) == len(stored)
            assert all(len(moment) == len(active) for moment in state.optimizer.moments[group.name])
    assert len(active) < len(stored) < math.prod(state.field.resolution)
    assert torch.equal(stored[state.optimizer.active_rows], active)


@pytest.mark.parametrize("field", ["voxel_sh", "voxel_deferred"])
def test_a_resumed_run_equals_one_that_never_stopped(field: str, tmp_path: Path) -> None:
    config, state = tiny_state(sparse_config(field))
    run_to(config, state, MIDDLE)
    config, restored = stop_and_restore(tmp_path, config, state)
    assert restored.field.rows is not None
    for one in (state, restored):
        run_to(config, one, STEPS)
    for name, values in state.field.state_dict().items():
        assert torch.equal(values, restored.field.state_dict()[name]), name
    for name, values in state.optimizer.state_dict().items():
        assert torch.equal(values, restored.optimizer.state_dict()[name]), name


@pytest.mark.parametrize("written_sparse", [False, True])
def test_a_file_of_the_other_storage_can_be_read(
    written_sparse: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of versions before sparse grids have dense ones."""
    _, state = trained("voxel_deferred", MIDDLE, monkeypatch, written_sparse)
    config, cameras = sparse_config("voxel_deferred"), tiny_images().cameras
    checkpoint.save(tmp_path, tiny_state(config)[0], state, cameras)
    monkeypatch.setattr(voxel_field, "SPARSE_FROM", 2**60 if written_sparse else 1)
    for content in (checkpoint.load_resume(tmp_path), checkpoint.load(tmp_path)):
        config = checkpoint.restore_config(content)
        field, occupancy = checkpoint.restore_field(content, config, select("native", "cpu"))
        assert (field.rows is None) == written_sparse
        active = occupancy.active_vertices()
        for one, other in zip(field.grids, state.field.grids, strict=True):
            values = state.field.values_at(other.detach(), active)
            torch.testing.assert_close(field.values_at(one.detach(), active), values, rtol=1e-3, atol=1e-3)
