"""A clock that tests move by hand, so that what depends on time comes out alike on every machine, however busy."""

from types import ModuleType, SimpleNamespace

import pytest

from nerf.optim import clock as schedule
from nerf.training.step import TrainStep


class FakeTime:
    """Seconds that stand still until `now` is moved; run clocks go by them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.now = 1000.0
        self.rule(schedule)

    def rule(self, module: ModuleType) -> None:
        """Lets another module read this clock too: its `time.perf_counter` and `time.sleep`."""
        fake = SimpleNamespace(perf_counter=lambda: self.now, sleep=self.wait)
        self._monkeypatch.setattr(module, "time", fake)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def every_step_takes(self, seconds: float) -> None:
        """From now on, each training step moves the clock by so much, and nothing else does."""
        plain_step = TrainStep.__call__

        def timed_step(step: TrainStep) -> None:
            plain_step(step)
            self.now += seconds

        self._monkeypatch.setattr(TrainStep, "__call__", timed_step)
