"""How far a run has come: one number in [0, 1] on which every schedule hangs.

A run of a given number of steps advances by steps; a run of a given time advances by its clock, so that the schedule
fits whatever the machine can do in it.
"""

import time
from dataclasses import dataclass, field


@dataclass
class RunClock:
    """Counts steps and training seconds. Evaluation and disk writes happen while it is stopped."""

    steps: int | None
    max_seconds: float | None
    step: int = 0
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
    def elapsed(self) -> float:
        """Training seconds so far. True only after the device has been waited for."""
        return self._elapsed + (time.perf_counter() - self._started if self._started is not None else 0.0)

    def restore(self, step: int, elapsed: float) -> None:
        """Goes on where a stopped run was."""
        self.step, self._elapsed, self._reading = step, elapsed, elapsed

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
        """Share of the run that is done, in [0, 1]."""
        if self.max_seconds is not None:
            seconds = self._reading + self._steps_since_reading * self._seconds_per_step
            return min(1.0, seconds / self.max_seconds)
        return min(1.0, self.step / self.steps)

    @property
    def total_steps(self) -> int:
        """Steps of the whole run, an estimate where time decides."""
        if self.max_seconds is None:
            return self.steps
        left = max(0.0, self.max_seconds - self._reading)
        return self.step - self._steps_since_reading + int(left / max(self._seconds_per_step, 1e-6))

    @property
    def finished(self) -> bool:
        return self.progress >= 1.0
