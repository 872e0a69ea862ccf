"""The training clock: progress of a run as one number in [0, 1], from which every schedule reads.

The progress of a run with a given number of steps is its fraction of steps. The progress of a run with a given time is
its fraction of seconds, so its schedule fits the speed of the machine. With both limits, the larger fraction counts.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

EXTENDED_FROM = 0.5  # progress at which an extended run continues: after the last doubling


@dataclass
class RunClock:
    """Counts steps and training seconds. It is stopped during evaluation and disk writes."""

    steps: int | None
    max_seconds: float | None
    step: int = 0
    # Where this budget began; not zero in a finished run that is extended.
    first_step: int = 0
    first_second: float = 0.0
    first_progress: float = 0.0
    shared: Callable[[float], float] | None = field(default=None, repr=False)  # to the seconds that all ranks count
    _elapsed: float = 0.0
    _started: float | None = field(default=None, repr=False)
    seconds_per_step: float = field(default=0.0, repr=False)  # as last measured
    _steps_since_reading: int = field(default=0, repr=False)
    _reading: float = field(default=0.0, repr=False)

    def start(self) -> None:
        self._started = time.perf_counter()

    def stop(self) -> None:
        self._elapsed, self._started = self.elapsed, None

    @property
    def running(self) -> bool:
        return self._started is not None

    @property
    def elapsed(self) -> float:
        """Training seconds so far. Exact only after waiting for the device."""
        return self._elapsed + (time.perf_counter() - self._started if self._started is not None else 0.0)

    def state_dict(self) -> dict[str, float]:
        """The state of the clock, for a resumed run."""
        names = ("step", "elapsed", "first_step", "first_second", "first_progress", "seconds_per_step")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, saved: dict[str, float]) -> None:
        """Restores the content of state_dict. Older files lack the beginning of the budget and what a step takes: 0."""
        self.step, self._elapsed, self._reading = int(saved["step"]), saved["elapsed"], saved["elapsed"]
        self.first_step = int(saved.get("first_step", 0))
        self.first_second, self.first_progress = saved.get("first_second", 0.0), saved.get("first_progress", 0.0)
        self.seconds_per_step = saved.get("seconds_per_step", 0.0)

    def extend(self, steps: int | None, max_seconds: float | None) -> None:
        """Extends a finished run to a larger total budget, with the second half of a schedule: progress continues at
        EXTENDED_FROM and reaches 1 at the new limits.
        """
        self.steps, self.max_seconds = steps, max_seconds
        self.first_step, self.first_second, self.first_progress = self.step, self.elapsed, EXTENDED_FROM

    def read(self) -> float:
        """Reads the clock. Call it after waiting for the device; between two readings, time is extrapolated."""
        now = self.elapsed if self.shared is None else self.shared(self.elapsed)
        if self._steps_since_reading:
            self.seconds_per_step = (now - self._reading) / self._steps_since_reading
        self._reading, self._steps_since_reading = now, 0
        return now

    def tick(self) -> None:
        """Counts one queued step."""
        self.step += 1
        self._steps_since_reading += 1

    @property
    def progress(self) -> float:
        """The completed fraction of the run, in [0, 1]."""
        parts = []
        if self.max_seconds is not None:
            seconds = self._reading + self._steps_since_reading * self.seconds_per_step
            parts.append((seconds - self.first_second) / (self.max_seconds - self.first_second))
        if self.steps is not None:
            parts.append((self.step - self.first_step) / (self.steps - self.first_step))
        return min(1.0, self.first_progress + (1 - self.first_progress) * max(parts))

    @property
    def total_steps(self) -> int:
        """Number of steps of the whole run; an estimate if the run has a time limit."""
        if self.max_seconds is None:
            return self.steps
        left = max(0.0, self.max_seconds - self._reading)
        in_time = self.step - self._steps_since_reading + int(left / max(self.seconds_per_step, 1e-6))
        return in_time if self.steps is None else min(self.steps, in_time)

    @property
    def finished(self) -> bool:
        return self.progress >= 1.0
