"""The run's clock, and what happens when it has come far enough: doubling, pruning, the decay of the learning rates."""

from dataclasses import replace

import pytest
import torch
from fake_time import FakeTime
from state_facts import facts
from tiny_runs import PRUNE_STEPS, STEPS, UPSAMPLE_STEPS, run_to, tiny_config, tiny_state, watch

from nerf.config.schema import Config
from nerf.optim.clock import RunClock
from nerf.training.loop import StopWhen, train
from nerf.training.state import TrainState

# The clock


def test_a_run_of_steps_advances_by_steps(fake_time: FakeTime) -> None:
    clock = RunClock(steps=4, max_seconds=None)
    clock.start()
    seen = []
    while not clock.finished:
        seen.append(clock.progress)
        clock.tick()
        fake_time.now += 100
    assert seen == [0, 0.25, 0.5, 0.75] and clock.progress == 1 and clock.total_steps == 4


def test_a_resumed_clock_goes_on_between_two_readings(fake_time: FakeTime) -> None:
    """On a GPU it is read at a log: until the first one it knows by what it was saved with how long a step takes."""
    clock, again = RunClock(steps=None, max_seconds=20.0), RunClock(steps=None, max_seconds=20.0)
    clock.start()
    for _ in range(4):
        fake_time.now += 2
        clock.tick()
    clock.read()
    again.load_state_dict(clock.state_dict())
    assert again.progress == 0.4
    for _ in range(6):
        again.tick()
    assert again.finished and again.total_steps == 10


@pytest.mark.parametrize(("seconds_per_step", "last_step"), [(1, 8), (5, 4)])
def test_a_run_of_both_ends_with_the_first_that_is_reached(
    fake_time: FakeTime, seconds_per_step: float, last_step: int
) -> None:
    clock = RunClock(steps=8, max_seconds=20.0)
    clock.start()
    while not clock.finished:
        fake_time.now += seconds_per_step
        clock.tick()
        clock.read()
        assert clock.total_steps == last_step
    assert clock.step == last_step


def test_a_run_of_time_advances_by_its_clock(fake_time: FakeTime) -> None:
    clock = RunClock(steps=None, max_seconds=20.0)
    clock.start()
    for step in range(1, 11):
        fake_time.now += 2
        clock.tick()
        assert clock.read() == 2 * step
        assert clock.progress == pytest.approx(step / 10) and clock.total_steps == 10
    assert clock.finished


def test_between_two_readings_time_is_extrapolated(fake_time: FakeTime) -> None:
    clock = RunClock(steps=None, max_seconds=100.0)
    clock.start()
    for _ in range(5):
        fake_time.now += 2
        clock.tick()
    assert clock.progress == 0  # nothing is known before the first reading
    clock.read()
    assert clock.progress == pytest.approx(0.1)
    for ahead in range(1, 4):
        clock.tick()  # queued on a GPU; nobody waits for it
        assert clock.progress == pytest.approx(0.1 + 0.02 * ahead)
        assert clock.total_steps == 50
    fake_time.now += 30  # the machine has become slower
    clock.read()
    assert clock.progress == pytest.approx(0.4) and clock.total_steps == 8 + 6


def test_time_does_not_pass_while_the_clock_is_stopped(fake_time: FakeTime) -> None:
    clock = RunClock(steps=None, max_seconds=10.0)
    clock.start()
    fake_time.now += 3
    clock.stop()
    fake_time.now += 50  # evaluation, disk
    assert clock.elapsed == 3
    clock.start()
    fake_time.now += 4
    assert clock.read() == clock.elapsed == 7 and clock.progress == pytest.approx(0.7)


def test_the_clock_of_several_ranks_goes_by_the_seconds_that_they_share(fake_time: FakeTime) -> None:
    clock = RunClock(steps=None, max_seconds=20.0, shared=lambda own: own + 2)  # those of the slowest
    clock.start()
    fake_time.now += 3
    clock.tick()
    assert clock.read() == 5 and clock.elapsed == 3 and clock.progress == pytest.approx(0.25)


def test_an_extended_run_has_the_second_half_of_a_schedule(fake_time: FakeTime) -> None:
    in_time, in_steps = RunClock(steps=None, max_seconds=10.0), RunClock(steps=4, max_seconds=None)
    seen = []
    for clock in (in_time, in_steps):
        clock.start()
    for step in range(12):
        if step == 4:
            assert in_time.finished and in_steps.finished
            in_time.extend(None, 30.0), in_steps.extend(12, None)
        seen.append((in_time.progress, in_steps.progress))
        fake_time.now += 2.5
        for clock in (in_time, in_steps):
            clock.tick()
            clock.read()
    expected = [0, 0.25, 0.5, 0.75, *(0.5 + step / 16 for step in range(8))]
    assert [a for a, _ in seen] == [b for _, b in seen] == pytest.approx(expected)
    assert in_time.finished and in_steps.finished


def test_a_restored_clock_goes_on(fake_time: FakeTime) -> None:
    clock = RunClock(steps=None, max_seconds=10.0)
    clock.load_state_dict({"step": 6, "elapsed": 3.0})
    assert clock.progress == pytest.approx(0.3) and clock.elapsed == 3
    clock.start()
    fake_time.now += 0.5
    clock.tick()
    assert clock.read() == 3.5 and clock.step == 7 and clock.total_steps == 7 + 13


# Events of a run


def look(state: TrainState) -> tuple:
    return state.field.resolution, state.num_upsamplings, state.num_occupancy_updates, state.occupancy.occupied.shape


def changes(seen: list[tuple], index: int) -> list[int]:
    """Steps that were done when a part of the look changed."""
    return [step for step in range(len(seen) - 1) if seen[step][index] != seen[step + 1][index]]


def with_field(config: Config, **settings: object) -> Config:
    return replace(config, field=replace(config.field, **settings))


def test_doubling_and_pruning_happen_at_their_shares_of_the_run() -> None:
    config, state = tiny_state(tiny_config())
    seen = watch(state, config, look)
    assert len(seen) == STEPS + 1
    assert changes(seen, 0) == changes(seen, 1) == list(UPSAMPLE_STEPS)
    assert changes(seen, 2) == list(PRUNE_STEPS)
    voxels = [(x - 1) * (y - 1) * (z - 1) for x, y, z in (s[0] for s in seen)]
    ratios = [voxels[step + 1] / voxels[step] for step in UPSAMPLE_STEPS]
    assert ratios == pytest.approx([2, 2], rel=0.2)  # whole cells along each axis
    assert all(cells == tuple(n - 1 for n in resolution) for resolution, _, _, cells in seen)


@pytest.mark.parametrize(("least", "expected"), [(12, [12, 24]), (15, [15, 30]), (25, [25])])
def test_a_level_lasts_some_steps_at_least(least: int, expected: list[int]) -> None:
    config, state = tiny_state(with_field(tiny_config(), min_level_steps=least))
    assert changes(watch(state, config, look), 1) == expected


def test_pruning_waits_for_its_first_steps() -> None:
    config = tiny_config()
    config, state = tiny_state(replace(config, occupancy=replace(config.occupancy, min_steps=20)))
    assert changes(watch(state, config, look), 2)[0] == 20


@pytest.mark.parametrize("seconds_per_step", [1.0, 0.5])
def test_a_schedule_stretches_to_the_time_given(fake_time: FakeTime, seconds_per_step: float) -> None:
    fake_time.every_step_takes(seconds_per_step)
    config, state = tiny_state(tiny_config(steps=None, max_seconds=float(STEPS)))
    seen = watch(state, config, look)
    factor = round(1 / seconds_per_step)
    assert len(seen) == factor * STEPS + 1
    assert changes(seen, 1) == [factor * step for step in UPSAMPLE_STEPS]
    assert changes(seen, 2) == [factor * step for step in PRUNE_STEPS]
    assert state.clock.elapsed == STEPS


def test_learning_rates_decay_over_the_run_and_moments_begin_anew_at_a_doubling() -> None:
    config, state = tiny_state(tiny_config(lr_decay=0.01))
    seen = watch(state, config, lambda state: (state.optimizer.decay.item(), facts(state)))
    rates = [rate for rate, _ in seen]
    assert rates[1:] == pytest.approx([0.01 ** (step / STEPS) for step in range(STEPS)], rel=1e-5)
    numbers = [found[".optimizer.step_number"].item() for _, found in seen]
    assert numbers == list(range(STEPS + 1))
    moments = [found[".optimizer.moments.density_grid[1]"] for _, found in seen]
    doubled = UPSAMPLE_STEPS[0] + 1
    kept = 0.99 ** UPSAMPLE_STEPS[0]  # had the moments been kept, most of what was in them would still be there
    assert moments[doubled].sum() < kept * moments[doubled - 1].sum()


def test_nothing_dense_yet_is_no_reason_to_give_up_everything() -> None:
    config = tiny_config()
    config, state = tiny_state(replace(config, occupancy=replace(config.occupancy, alpha_threshold=1.0)))
    last = run_to(config, state, STEPS // 2 - 1)[-1]  # from the middle on it is one: test_bad_input.py
    looks = sum(step < STEPS // 2 for step in PRUNE_STEPS)
    assert state.num_occupancy_updates == looks > 1 and state.occupancy.occupied.any() and last.samples_per_ray > 1


def test_every_run_ends_with_a_look_whenever_it_is_stopped() -> None:
    """The question is asked several times around a step; what was answered between two of them must not be lost."""
    for questions in range(1, 8):
        answers = iter([False] * questions + [True] * 50)
        config, state = tiny_state(tiny_config(log_every=1000))
        reports = list(train(config, state, [StopWhen(lambda answers=answers: next(answers))]))
        assert reports[-1].step == state.clock.step < STEPS


def test_reports_add_up() -> None:
    config, state = tiny_state(tiny_config())
    reports = run_to(config, state, STEPS)
    assert [r.step for r in reports] == [1, 10, 20, 30, 40]
    assert [r.progress for r in reports] == [r.step / STEPS for r in reports]
    assert reports[-1].total_steps == STEPS and reports[-1].dropped_rays == 0
    assert reports[-1].psnr > reports[0].psnr + 3
    seconds = torch.tensor([0.0] + [r.seconds for r in reports]).diff()
    assert (seconds > 0).all()
