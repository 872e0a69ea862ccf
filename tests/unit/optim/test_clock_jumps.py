"""A clock that jumps: runs of so many steps do not look at it, runs of so many seconds end in order."""

import math
import re
from pathlib import Path

import pytest
import torch
from fake_time import FakeTime
from tiny_runs import STEPS, tiny_config, tiny_state

from nerf.training.loop import Callback, train
from nerf.training.state import TrainState

NERF = Path(__file__).resolve().parents[3] / "nerf"
DAY = 86400.0


class Jumps(Callback):
    """Moves the clock by a day after some step."""

    def __init__(self, time: FakeTime, step: int) -> None:
        self.time, self.step = time, step

    def on_step(self, state: TrainState) -> None:
        if state.clock.step == self.step:
            self.time.now += DAY


def parameters(state: TrainState) -> list[torch.Tensor]:
    return [p.detach().clone() for p in state.field.parameters()]


def test_seconds_are_those_of_clocks_that_nobody_sets():
    """Another time zone, summer time and a time server move time.time() alone."""
    sources = list(NERF.rglob("*.py"))
    assert sources and [path for path in sources if re.search(r"\btime\.time\(", path.read_text())] == []


@pytest.mark.parametrize("step", [1, 9, 20])
def test_a_jump_changes_nothing_of_a_run_of_so_many_steps(step, monkeypatch):
    config, undisturbed = tiny_state(tiny_config())
    list(train(config, undisturbed))
    time = FakeTime(monkeypatch)
    time.every_step_takes(0.1)
    config, state = tiny_state(tiny_config())
    list(train(config, state, [Jumps(time, step)]))
    assert state.clock.step == STEPS and state.clock.elapsed > DAY
    assert all(map(torch.equal, parameters(state), parameters(undisturbed)))


@pytest.mark.parametrize("step", [1, 9, 20])
def test_a_run_of_so_many_seconds_ends_with_the_step_of_the_jump(step, monkeypatch):
    time = FakeTime(monkeypatch)
    time.every_step_takes(0.1)
    config, state = tiny_state(tiny_config(steps=None, max_seconds=0.1 * STEPS))
    metrics = list(train(config, state, [Jumps(time, step)]))
    assert state.clock.step == step and state.clock.progress == 1.0 and metrics[-1].step == step
    assert all(math.isfinite(x) for m in metrics for x in (m.psnr, m.seconds, m.rays_per_second))
    assert all(p.isfinite().all() for p in parameters(state))
