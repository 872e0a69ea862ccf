"""StageClock: which time belongs to which stage, on a clock that the test turns."""

from types import SimpleNamespace

import pytest
import torch

from nerf.benchmarks import stage_clock
from nerf.benchmarks.stage_clock import GraphClock, StageClock, timed_ops


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """hands.seconds is what the host's clock shows."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(stage_clock, "time", SimpleNamespace(perf_counter=lambda: now.seconds))
    return now


def test_time_goes_to_the_stage_that_ends(hands: SimpleNamespace) -> None:
    clock = StageClock(torch.device("cpu"))

    def takes(seconds: float) -> object:
        def operation(argument: int) -> int:
            hands.seconds += seconds
            return argument + 1

        return operation

    ops = SimpleNamespace(march_rays=takes(1), interpolate_trilinear=takes(2), composite_rays=takes(4))
    ops.adam_step = takes(8)
    timed = timed_ops(ops, clock)
    assert timed.march_rays(5) == 6  # the clock does not run yet
    clock.running = True
    for _ in range(2):
        hands.seconds += 100  # between two steps
        clock.start()
        timed.march_rays(0)
        hands.seconds += 0.5
        clock.mark("rest")
        with clock.as_one("look"):
            timed.interpolate_trilinear(0)
            timed.composite_rays(0)
            hands.seconds += 0.25
        timed.interpolate_trilinear(0)
        timed.composite_rays(0)
        timed.composite_rays(0)
        timed.adam_step(0)
        clock.mark("adam")
    expected = {"march": 1, "look": 6.25, "interpolate": 2, "composite": 8, "adam": 8, "rest": 0.5}
    assert clock.steps() == [{stage: pytest.approx(1e3 * s) for stage, s in expected.items()}] * 2


def test_events_add_up_to_the_whole_on_a_gpu(cuda: str) -> None:
    clock, x = StageClock(torch.device(cuda)), torch.ones(1000, 1000, device=cuda)
    clock.running = True
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    clock.start()
    for stage in ("march", "composite", "march"):
        x = x @ x
        clock.mark(stage)
    end.record()
    (step,) = clock.steps()
    assert list(step) == ["march", "composite"]
    assert 0 < sum(step.values()) <= begin.elapsed_time(end)


def test_stages_of_a_recorded_step_add_up_to_the_whole(quiet_cuda: str) -> None:
    """Kernels that count cycles take known shares of every replay: two of march, three of composite."""
    clock = GraphClock(torch.device(quiet_cuda))

    def step() -> None:
        clock.start()
        for stage, cycles in (("march", 1_000_000), ("composite", 3_000_000), ("march", 1_000_000)):
            torch.cuda._sleep(cycles)
            clock.mark(stage)

    step()
    assert clock.steps() == [], "what is not recorded has no marks"
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def undisturbed() -> bool:
        begin.record()
        graph.replay()
        end.record()
        (stages,) = clock.steps()
        whole = begin.elapsed_time(end)
        assert list(stages) == ["march", "composite"] and min(stages.values()) > 0
        share, ratio = sum(stages.values()) / whole, stages["composite"] / stages["march"]
        assert share <= 1.001
        return share >= 0.8 and ratio == pytest.approx(1.5, rel=0.1)

    # Another process may take its turn on the GPU between two kernels; not in each of many replays.
    assert any(undisturbed() for _ in range(100))
