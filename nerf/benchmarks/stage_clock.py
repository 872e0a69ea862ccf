"""Times the stages of a step: with CUDA events, without waiting, or on a CPU with the host's clock."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch

from nerf.ops.backend import synchronize

START = "start"
STAGE_OF_OP = {"march_rays": "march", "interpolate_trilinear": "interpolate", "composite_rays": "composite"}


class StageClock:
    """A list of time marks, each with the name of the stage that ends there. Ignores marks while not running."""

    def __init__(self, device: torch.device) -> None:
        self.running = False
        self._device = device
        self._inside: str | None = None
        self._marks: list[tuple[str, torch.cuda.Event | float]] = []

    def mark(self, stage: str) -> None:
        """Attributes the time since the previous mark to this stage."""
        if self.running:
            self._marks.append((self._inside or stage, self._now()))

    def start(self) -> None:
        """Marks the beginning of a step; the time before it belongs to no stage."""
        self.mark(START)

    @contextmanager
    def as_one(self, stage: str) -> Iterator[None]:
        """Attributes all time inside the context to one stage, whatever is marked there."""
        self._inside = stage
        yield
        self.mark(stage)
        self._inside = None

    def steps(self) -> list[dict[str, float]]:
        """Milliseconds of every stage, for each step. Waits for the device."""
        synchronize(self._device)
        result: list[dict[str, float]] = []
        for (_, before), (stage, now) in zip([self._marks[0], *self._marks], self._marks, strict=False):
            if stage == START:
                result.append({})
            else:
                elapsed = before.elapsed_time(now) if self._device.type == "cuda" else 1e3 * (now - before)
                result[-1][stage] = result[-1].get(stage, 0.0) + elapsed
        return result

    def _now(self) -> torch.cuda.Event | float:
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


class GraphClock(StageClock):
    """The marks of a step that is recorded as a CUDA graph; every replay sets them anew."""

    def mark(self, stage: str) -> None:
        if torch.cuda.is_current_stream_capturing():
            event = torch.cuda.Event(enable_timing=True, external=True)  # a node of the graph, not of the recording
            event.record()
            self._marks.append((self._inside or stage, event))

    def steps(self) -> list[dict[str, float]]:
        """Milliseconds of every stage of the replay before. Waits for the device."""
        return super().steps() if self._marks else []


def timed_ops(ops: Any, clock: StageClock) -> SimpleNamespace:
    """The operations, the three of them writing their time to the clock; what lies between is 'rest'."""

    def timed(operation: Callable[..., Any], stage: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            clock.mark("rest")
            result = operation(*arguments)
            clock.mark(stage)
            return result

        return call

    return SimpleNamespace(**vars(ops) | {name: timed(getattr(ops, name), s) for name, s in STAGE_OF_OP.items()})
