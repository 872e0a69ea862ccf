"""The training before the training: it does all that a run does, and leaves no trace."""

import time
from dataclasses import asdict

import pytest
import torch
from tiny_runs import few_rays_to_prune, tiny_config, tiny_images

from nerf.config.recipes import resolve_config
from nerf.fields.voxel_field import VoxelField
from nerf.ops.backend import select
from nerf.training import grid_schedule
from nerf.training import loop as training
from nerf.training import warmup as warm_up
from nerf.training.grid_schedule import EmptyGrid
from nerf.training.initial_state import init_state


@pytest.mark.slow
@pytest.mark.parametrize("field", ["voxel_sh", "voxel_mlp", "voxel_deferred"])
@pytest.mark.parametrize("backend", ["native", "torch"])
def test_a_brief_training_does_everything_and_leaves_the_random_numbers_alone(
    field: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_rays_to_prune(monkeypatch)
    doublings, prunings, chosen = [], [], select(backend, "cpu")
    config = resolve_config(tiny_config(field, steps=None, max_seconds=5.0), chosen.device.type)
    before = asdict(config)
    prune = grid_schedule.prune
    monkeypatch.setattr(grid_schedule, "prune", lambda *arguments: prunings.append(1) or prune(*arguments))
    upsample = VoxelField.upsample
    monkeypatch.setattr(VoxelField, "upsample", lambda *arguments: doublings.append(1) or upsample(*arguments))
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    assert warm_up.train_briefly(config, chosen) == warm_up.STEPS
    assert torch.equal(torch.rand(3), expected)
    assert doublings and prunings and asdict(config) == before


def test_batches_keep_their_size_so_that_the_same_kernels_are_loaded() -> None:
    config = resolve_config(tiny_config(rays_per_step=77), "cpu")
    assert warm_up.shortened(config).train.rays_per_step == 77
    assert warm_up.shortened(config).field.__class__ is config.field.__class__


@pytest.mark.parametrize("kind", ["bounded", "forward_facing", "unbounded"])
def test_every_kind_of_scene_is_warmed_up_as_what_it_is(kind: str) -> None:
    chosen = select("native", "cpu")
    config = resolve_config(tiny_config(steps=None, max_seconds=5.0), chosen.device.type, kind)
    assert warm_up.shortened(config).dataset.kind == kind
    assert warm_up.train_briefly(config, chosen) == warm_up.STEPS


@pytest.mark.parametrize("kind", ["bounded", "forward_facing"])
def test_the_scene_has_a_ball_in_the_middle_of_every_view(kind: str) -> None:
    scene = warm_up.synthetic_scene(kind)
    alpha = scene.pixels[:, 3].view(-1, warm_up.SIZE, warm_up.SIZE)
    assert (alpha[:, warm_up.SIZE // 2, warm_up.SIZE // 2] == 255).all() and not alpha[:, 0].any()
    assert 0.1 < (alpha > 0).double().mean() < 0.6


def test_training_that_stops_is_not_the_users_business(monkeypatch: pytest.MonkeyPatch) -> None:
    config = resolve_config(tiny_config(), "cpu")

    def stopped(*_: object) -> None:
        raise EmptyGrid("nothing")

    monkeypatch.setattr(training, "advance_schedule", stopped)
    assert warm_up.train_briefly(config, select("native", "cpu")) == 0


def test_on_a_cpu_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_up, "train_briefly", lambda *_: pytest.fail("there is nothing to warm up"))
    assert warm_up.warm_up(resolve_config(tiny_config(), "cpu"), select("native", "cpu")) == 0


def test_on_a_gpu_memory_and_random_numbers_are_as_before(cuda: str) -> None:
    backend = select("native", cuda)
    config = resolve_config(tiny_config("voxel_mlp", rays_per_step=4096), backend.device.type)
    before = torch.cuda.memory_allocated()
    torch.manual_seed(3)
    expected = torch.rand(3), torch.rand(3, device=cuda)
    torch.manual_seed(3)
    assert warm_up.warm_up(config, backend) > 0
    allocated, peak = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    assert torch.equal(torch.rand(3), expected[0]) and torch.equal(torch.rand(3, device=cuda), expected[1])
    # cuBLAS keeps workspaces for each stream that it meets, which a run would allocate too.
    assert allocated <= before + 2**28
    assert peak == allocated
    warm_up.warm_up(config, backend)
    assert torch.cuda.memory_allocated() <= allocated + 2**20


def test_on_a_gpu_the_first_steps_are_as_fast_as_later_ones(quiet_cuda: str) -> None:
    backend = select("native", quiet_cuda)
    config = resolve_config(tiny_config("voxel_deferred"), backend.device.type)
    warm_up.warm_up(config, backend)
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        for _ in training.train(config, init_state(config, tiny_images(), backend)):
            pass
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    assert seconds[0] < 2 * seconds[1] + 0.1
