"""What the loop does when a budget, a capacity or the scene's box is too small."""

import pytest
import torch
from fake_time import FakeTime
from tiny_runs import run_to, tiny_config, tiny_state

from nerf.errors import UserError
from nerf.training.capacity import CAPACITY_STEP
from nerf.training.loop import train


def test_a_budget_too_small_for_a_step_is_refused_with_one_that_is_not() -> None:
    with pytest.raises(UserError, match="over before the first step: images, box and first occupancy took .* s; give"):
        tiny_state(tiny_config(steps=None, max_seconds=1e-4))


def test_a_budget_of_a_few_steps_is_a_run_with_a_look_at_each_end(fake_time: FakeTime) -> None:
    fake_time.every_step_takes(0.125)
    config, state = tiny_state(tiny_config(steps=None, max_seconds=0.375))
    reports = list(train(config, state))
    assert reports[0].step == 1 and reports[-1].progress == 1 and reports[-1].step == state.clock.step == 3


# Capacity. On a CPU nothing plans one, but a step takes it.


def overflowing(**settings: object):
    config, state = tiny_state(tiny_config(**settings))
    state.capacity = 100
    return config, state


def test_dropped_rays_are_reported_and_the_capacity_is_raised_without_waiting_for_a_pruning() -> None:
    config, state = overflowing(log_every=2)
    config.occupancy.start = 1.0
    config.field.upsample_at = []
    reports = list(train(config, state))
    assert reports[0].step == 1 and reports[0].dropped_rays > 0
    assert state.capacity >= CAPACITY_STEP
    assert all(look.dropped_rays == 0 for look in reports[1:])


def test_a_capacity_that_suffices_stays() -> None:
    config, state = tiny_state(tiny_config())
    state.capacity = 10 * CAPACITY_STEP
    reports = run_to(config, state, 40)
    assert sum(look.dropped_rays for look in reports) == 0
    assert state.capacity == 10 * CAPACITY_STEP


def test_a_recording_is_made_anew_with_the_new_capacity(cuda: str) -> None:
    from nerf.ops.backend import select

    config, state = tiny_state(tiny_config(steps=60, log_every=5), select("native", cuda))
    config.occupancy.start, config.field.upsample_at = 1.0, []
    state.capacity = 64
    reports = list(train(config, state))
    assert reports[0].dropped_rays > 0 and reports[-1].dropped_rays == 0
    assert state.capacity >= CAPACITY_STEP and torch.isfinite(torch.tensor(reports[-1].psnr))
