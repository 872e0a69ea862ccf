"""Steps with features in host memory that find what the next one needs: the numbers of steps that find their own, but
for what is visible, which is seen in the density of one step before."""

import gc
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from resumed_runs import MIDDLE, stop_and_restore
from state_facts import differing, facts
from tiny_runs import STEPS, few_rays_to_prune, run_to, supersampled, tiny_config, tiny_state

from nerf.config.schema import Config, DatasetConfig, ExposureConfig, LossConfig, PosesConfig
from nerf.fields import voxel_field
from nerf.ops.backend import select
from nerf.optim.host_rows import MOST_RAYS_AHEAD
from nerf.training import prepared
from nerf.training.loop import step_runner
from nerf.training.prepared import _tensors, can_be_captured
from nerf.training.state import TrainState
from nerf.training.step import TrainStep


@pytest.fixture(autouse=True)
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps on a CPU do as captured ones on a GPU, with grids that are sparse however small."""
    monkeypatch.setattr(prepared, "can_be_captured", lambda config, state: True)
    monkeypatch.setattr(voxel_field, "SPARSE_FROM", 1)
    monkeypatch.setattr(voxel_field, "SPARSE_BELOW", 2.0)
    few_rays_to_prune(monkeypatch)


def in_host_memory(name: str = "voxel_deferred") -> Config:
    """All samples in occupied cells are visible, whatever the density."""
    config = tiny_config(name, features="host")
    return replace(
        config,
        field=replace(config.field, sparse=True),
        loss=replace(config.loss, tv_until=1.0),
        sampler=replace(config.sampler, min_weight=0.0, min_transmittance=0.0),
    )


def variants() -> dict[str, Config]:
    deferred = in_host_memory()
    unbounded = DatasetConfig(scene="sphere", background="learned", kind="unbounded", aabb=[-0.6] * 3 + [0.6] * 3)
    return {
        "voxel_sh": in_host_memory("voxel_sh"),
        "voxel_mlp": in_host_memory("voxel_mlp"),
        "voxel_deferred": deferred,
        "several rays a pixel": supersampled(deferred, 0.5),
        "pairs of pixels": replace(deferred, loss=LossConfig(pair_ssim=0.01, distortion=0.01, tv_until=1.0)),
        "contracted": replace(deferred, dataset=unbounded, exposure=ExposureConfig(learn=True, vignetting=True)),
    }


def ended(state: TrainState) -> dict[str, object]:
    """All of a run but what its windows took."""
    state.batches.stop_prefetch()
    return {name: fact for name, fact in facts(state).items() if not name.endswith(".most_bytes")}


def plainly(config: Config, monkeypatch: pytest.MonkeyPatch) -> TrainState:
    """A run whose steps find what they need themselves."""
    config, state = tiny_state(config)
    with monkeypatch.context() as ordinary:
        ordinary.setattr(prepared, "can_be_captured", can_be_captured)
        run_to(config, state, STEPS)
    return state


@pytest.mark.parametrize("name", variants())
def test_a_run_is_the_same_to_the_bit(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Through doublings and prunings, which draw between the steps; from a file of the middle too."""
    expected = ended(plainly(variants()[name], monkeypatch))
    config, state = tiny_state(variants()[name])
    run_to(config, state, MIDDLE)
    assert state.batches.drawn_ahead
    resumed, of_file = stop_and_restore(tmp_path, config, state)
    for settings, one in ((config, state), (resumed, of_file)):
        run_to(settings, one, STEPS)
        assert one.batches.drawn_ahead
        assert differing(expected, ended(one)) == []


def test_a_run_whose_images_are_in_host_memory_is_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    expected = ended(plainly(in_host_memory(), monkeypatch))
    config, state = tiny_state(in_host_memory())
    for step in (1, MIDDLE, STEPS):
        state.batches.prefetch()
        run_to(config, state, step)
        config, state = stop_and_restore(tmp_path, config, state)
    assert differing(expected, ended(state)) == []


def test_rows_that_a_step_changes_are_carried_to_the_next_one() -> None:
    """Brought before they go back, they would be those of the step before."""
    config, state = tiny_state(in_host_memory())
    run_to(config, state, MIDDLE)
    step, grid = TrainStep(config, state), state.field.appearance_grid
    changed = 0
    for _ in range(4):
        step.advance()
        before = grid.detach().clone()
        step()
        window = step.preparation._next.window
        assert torch.equal(window.values, grid.detach()[window.stored].float())
        changed += int((before != grid)[window.stored].any(dim=1).sum())
    assert changed > 100


def test_only_rows_that_the_last_window_lacks_are_as_they_were_brought(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken on purpose, those of both windows are whole again."""
    config, state = tiny_state(in_host_memory())
    run_to(config, state, MIDDLE)
    step, host = TrainStep(config, state), state.field.host_rows
    step.advance()
    make_window, host_window = host.make_window, step.preparation._next.window

    def half_way(*arguments: object) -> object:
        window = make_window(*arguments)
        last = host_window.stored
        known = torch.isin(window.stored, last[last >= 0])
        assert known.any() and not known.all()
        return replace(window, values=torch.where(known[:, None], torch.nan, window.values))

    monkeypatch.setattr(host, "make_window", half_way)
    step()
    window = step.preparation._next.window
    assert torch.equal(window.values, state.field.appearance_grid.detach()[window.stored].float())


def test_only_captured_steps_of_few_rays_without_learned_poses_are_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rays of learned poses have a gradient."""
    config, state = tiny_state(in_host_memory())
    run_to(config, state, MIDDLE)
    assert TrainStep(config, state).preparation.is_ahead
    monkeypatch.setattr(prepared, "can_be_captured", can_be_captured)
    assert not TrainStep(config, state).preparation.is_ahead
    monkeypatch.setattr(prepared, "can_be_captured", lambda config, state: True)
    config, state = tiny_state(tiny_config())
    run_to(config, state, MIDDLE)
    assert not TrainStep(config, state).preparation.is_ahead
    config, state = tiny_state(in_host_memory())
    run_to(config, state, MIDDLE)
    for rays, ahead in ((MOST_RAYS_AHEAD, True), (MOST_RAYS_AHEAD + 1, False)):
        many = replace(config, train=replace(config.train, rays_per_step=rays))
        assert TrainStep(many, state).preparation.is_ahead == ahead
    config, state = tiny_state(replace(in_host_memory(), poses=PosesConfig(mode="refine")))
    run_to(config, state, MIDDLE)
    assert state.field.host_rows is not None and not TrainStep(config, state).preparation.is_ahead


def test_what_was_found_is_found_again_when_the_grid_or_the_generator_has_changed() -> None:
    config, state = tiny_state(in_host_memory())
    run_to(config, state, MIDDLE)
    step = TrainStep(config, state)
    preparation = step.preparation
    step.advance()
    step()
    first = [x.clone() for x in _tensors(preparation._next)]
    state.batches.stop_prefetch()
    for tensor in _tensors(preparation._next):
        tensor.zero_()
    step.advance()
    assert all(torch.equal(x, y) for x, y in zip(_tensors(preparation._next), first, strict=True))
    step()
    found = preparation._next
    step.advance()
    assert preparation._next is found and preparation.has_changed() and not preparation.has_changed()
    step()
    found = preparation._next
    preparation.has_changed()
    state.occupancy.occupied = torch.zeros_like(state.occupancy.occupied)
    step.advance()
    assert int(found.samples.ray_offsets[-1]) > 0 and int(preparation._next.samples.ray_offsets[-1]) == 0
    assert torch.equal(preparation._next.batch.pixels, found.batch.pixels)
    assert preparation.has_changed()


@pytest.mark.parametrize("field", ["voxel_sh", "voxel_deferred"])
def test_captured_steps_bring_the_next_rows_while_theirs_go_back(
    field: str, cuda: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is carried over is what host memory has, after every step."""
    monkeypatch.setattr(prepared, "can_be_captured", can_be_captured)
    config = in_host_memory(field)
    config = replace(config, train=replace(config.train, rays_per_step=1024))
    config, state = tiny_state(config, select("native", cuda))
    run_to(config, state, MIDDLE)
    step, grid = TrainStep(config, state), state.field.appearance_grid
    runner, seen = step_runner(config, state, step), 0
    for _ in range(30):
        step.advance()
        before = grid.detach().clone()
        runner.step()
        window = step.preparation._next.window
        there = window.stored >= 0
        now = grid.detach()[window.stored[there]].float()
        assert torch.equal(window.values[there], now) and (window.values[~there] == 0).all()
        seen += int((before != grid)[window.stored[there]].any(dim=1).sum())
    assert seen > 1000 and runner._graph is not None
    sums = step.read()
    assert sums.skipped == sums.without_room == sums.dropped_rays == 0


def test_it_is_kept_in_one_place_and_shares_what_it_shared() -> None:
    config, state = tiny_state(in_host_memory())
    run_to(config, state, MIDDLE)
    step = TrainStep(config, state)
    step.advance()
    kept, keep = step.preparation._next, step.preparation._keep
    assert kept.samples.rays.origins is kept.batch.rays.origins is kept.samples.path.origins
    places, moved = [x.data_ptr() for x in _tensors(kept)], kept.samples.t_starts + 1
    keep(replace(kept, samples=replace(kept.samples, t_starts=moved, ray_offsets=kept.samples.ray_offsets.flip(0))))
    assert step.preparation._next is kept and [x.data_ptr() for x in _tensors(kept)] == places
    assert torch.equal(kept.samples.t_starts, moved)
    keep(replace(kept, samples=replace(kept.samples, t_starts=moved.repeat(2))))
    assert torch.equal(step.preparation._next.samples.t_starts, moved.repeat(2))
    assert len(kept.samples.t_starts) == len(moved)


def test_what_was_ready_is_freed_with_the_step_that_had_it() -> None:
    """At once, not when the garbage collector comes: it is as large as a window."""
    config, state = tiny_state(in_host_memory())
    run_to(config, state, MIDDLE)
    step = TrainStep(config, state)
    gc.disable()
    try:
        for _ in range(3):
            step.advance()
            step()
        kept = [weakref.ref(x) for x in _tensors(step.preparation._next)]
        del step
        assert not any(x() is not None for x in kept)
    finally:
        gc.enable()


def test_it_learns_as_much_as_steps_that_see_the_newest_density(monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(in_host_memory(), sampler=tiny_config().sampler)
    resolved, state = tiny_state(config)
    with monkeypatch.context() as ordinary:
        ordinary.setattr(prepared, "can_be_captured", can_be_captured)
        expected = run_to(resolved, state, 3 * STEPS)[-1].psnr
    resolved, state = tiny_state(config)
    assert run_to(resolved, state, 3 * STEPS)[-1].psnr == pytest.approx(expected, abs=0.1)
    assert state.batches.drawn_ahead
