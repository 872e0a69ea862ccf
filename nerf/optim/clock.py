"""How far a run has come: one number in [0, 1] on which every schedule hangs.

A run of a given number of steps advances by steps; a run of a given time advances by its clock, so that the schedule
fits whatever the machine can do in it. With both, whatever is nearer to its end decides.
"""

import time
from dataclasses import dataclass, field

EXTENDED_FROM = 0.5  # progress from which a finished run goes on: all grids are there, all stages have begun


@dataclass
class RunClock:
    """Counts steps and training seconds. Evaluation and disk writes happen while it is stopped."""

    steps: int | None
    max_seconds: float | None
    step: int = 0
    # Where the schedule was when these budgets were given: not zero in a run that was finished and trains further.
    first_step: int = 0
    first_second: float = 0.0
    first_progress: float = 0.0
    _elapsed: float = 0.0
    _started: float | None = field(default=None, repr=False)
    _seconds_per_step: float = field(default=0.0, repr=False)
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
        """Training seconds so far. True only after the device has been waited for."""
        return self._elapsed + (time.perf_counter() - self._started if self._started is not None else 0.0)

    def state_dict(self) -> dict[str, float]:
        """What a resumed run's clock needs to go on."""
        names = ("step", "elapsed", "first_step", "first_second", "first_progress")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, saved: dict[str, float]) -> None:
        """Goes on where a stopped run was; the beginning of the schedule is 0 where it is not told."""
        self.step, self._elapsed, self._reading = int(saved["step"]), saved["elapsed"], saved["elapsed"]
        self.first_step = int(saved.get("first_step", 0))
        self.first_second, self.first_progress = saved.get("first_second", 0.0), saved.get("first_progress", 0.0)

    def extend(self, steps: int | None, max_seconds: float | None) -> None:
        """Gives a finished run a larger budget, all of its steps or seconds counted: the second half of a schedule
        begins here and ends there.
        """
        self.steps, self.max_seconds = steps, max_seconds
        self.first_step, self.first_second, self.first_progress = self.step, self.elapsed, EXTENDED_FROM

    def read(self) -> float:
        """Reads the clock; call it when the device has finished. Between two readings time is extrapolated."""
        now = self.elapsed
        if self._steps_since_reading:
            self._seconds_per_step = (now - self._reading) / self._steps_since_reading
        self._reading, self._steps_since_reading = now, 0
        return now

    def tick(self) -> None:
        """One step has been queued."""
        self.step += 1
        self._steps_since_reading += 1

    @property
    def progress(self) -> float:
        """Fraction of the run that is done, in [0, 1]."""
        parts = []
        if self.max_seconds is not None:
            seconds = self._reading + self._steps_since_reading * self._seconds_per_step
            parts.append((seconds - self.first_second) / (self.max_seconds - self.first_second))
        if self.steps is not None:
            parts.append((self.step - self.first_step) / (self.steps - self.first_step))
        return min(1.0, self.first_progress + (1 - self.first_progress) * max(parts))

    @property
    def total_steps(self) -> int:
        """Steps of the whole run, an estimate where time decides."""
        if self.max_seconds is None:
            return self.steps
        left = max(0.0, self.max_seconds - self._reading)
        in_time = self.step - self._steps_since_reading + int(left / max(self._seconds_per_step, 1e-6))
        return in_time if self.steps is None else min(self.steps, in_time)

    @property
    def finished(self) -> bool:
        return self.progress >= 1.0
