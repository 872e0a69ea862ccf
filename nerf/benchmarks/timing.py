"""Timing of single calls with cold and warm caches, and the peak rates of the device (ceilings of the roofline model).

On a GPU a run is timed with two CUDA events. Before the first one, the stream sleeps for as long as the host needs to
queue the call. So the events enclose the work of the device without gaps in which it waits for Python.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from nerf.benchmarks.figures import Summary
from nerf.ops.library import load_library

LEAST_RUNS = 3
LONGEST_WAIT_MS = 20.0  # longest sleep of the stream
CPU_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def nothing() -> None:
    """The preparation of a call that needs none."""


@dataclass(frozen=True)
class Call:
    """Work to be timed: run(prepare()), where only run counts."""

    run: Callable[[Any], object]
    prepare: Callable[[], Any] = field(default=nothing)


class Stopwatch:
    """Times calls on one device."""

    def __init__(self, device: torch.device, repeats: int, seconds: float) -> None:
        """repeats: runs of a call. It ends earlier after `seconds`, but not before three runs."""
        self.device, self.repeats, self.seconds = device, repeats, seconds
        self.flush_bytes = flush_bytes(device)
        self._flush = torch.zeros(self.flush_bytes // 4, device=device)
        if device.type == "cuda":
            torch.cuda._sleep(10_000_000)  # loads the kernel and raises the GPU's clock rate before the calibration
            self._cycles_per_ms = 1e6 / self._between_events(lambda: torch.cuda._sleep(1_000_000))

    def times(self, call: Call, cold: bool) -> list[float]:
        """Milliseconds of each run. cold: before each run, a buffer larger than the caches is written."""
        self._run(call, cold, 0.0)  # warm-up
        queue_ms = self._run(call, cold, 0.0)[1]  # time the host needs to queue it
        result, began = [], time.perf_counter()
        while len(result) < self.repeats:
            result.append(self._run(call, cold, queue_ms)[0])
            if len(result) >= LEAST_RUNS and time.perf_counter() - began > self.seconds:
                break
        return result

    def _run(self, call: Call, cold: bool, queue_ms: float) -> tuple[float, float]:
        """Milliseconds of the run, and of the host for queueing it."""
        prepared = call.prepare()
        if cold:
            self._flush.add_(1)
        if self.device.type == "cpu":
            began = time.perf_counter()
            call.run(prepared)
            milliseconds = 1e3 * (time.perf_counter() - began)
            return milliseconds, milliseconds
        wait = min(LONGEST_WAIT_MS, 0.02 + 1.5 * queue_ms) if queue_ms else 0.0
        queued = 0.0

        def run() -> None:
            nonlocal queued
            began = time.perf_counter()
            call.run(prepared)
            queued = 1e3 * (time.perf_counter() - began)

        if wait:
            torch.cuda._sleep(int(wait * self._cycles_per_ms))
        return self._between_events(run), queued

    def _between_events(self, run: Callable[[], object]) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end)


def flush_bytes(device: torch.device) -> int:
    """Size of the buffer that flushes the caches: 4 x L2 of a GPU, 2 x the largest cache of a CPU, 64 to 512 MiB."""
    if device.type == "cuda":
        size = 4 * torch.cuda.get_device_properties(device).L2_cache_size
    else:
        sizes = [path.read_text().strip() for path in CPU_CACHES.glob("index*/size")]
        size = 2 * max((int(text[:-1]) << {"K": 10, "M": 20}[text[-1]] for text in sizes), default=32 << 20)
    return max(64 << 20, min(512 << 20, size))


def summary(values: list[float]) -> Summary:
    return {"median": statistics.median(values), "all": [round(value, 6) for value in values]}


@dataclass(frozen=True)
class Ceilings:
    """Peak rates of the device, per second, each with all measured values; None if not measured."""

    launch_ms: Summary  # the smallest possible operation
    lookup_ms: Summary  # the smallest operation with a dependent read, from cold caches: two memory latencies
    copy_bytes: Summary  # read plus written
    gather_bytes: Summary | None  # random lines of 128 bytes
    lookups: Summary | None  # random reads of four bytes
    scalar_reductions: Summary | None  # floats added one at a time at random addresses
    vector_reductions: Summary | None  # floats added four at a time

    def roofline_ms(self, num_bytes: int, lookups: int = 0) -> float:
        """The roofline: the smallest time of a call that moves num_bytes and makes this many dependent reads."""
        smallest = self.launch_ms["median"]
        if lookups:
            smallest = self.lookup_ms["median"]
            if self.lookups is not None:
                smallest += 1e3 * lookups / self.lookups["median"]
        return max(smallest, 1e3 * num_bytes / self.copy_bytes["median"])


def _rate(watch: Stopwatch, amount: int, run: Callable[[], object]) -> Summary:
    """The rate of a run that does `amount` of work, per second, from cold caches."""
    return summary([1e3 * amount / ms for ms in watch.times(Call(lambda _: run()), cold=True)])


def matmul_rate(watch: Stopwatch) -> Summary:
    """Multiplications and additions per second of a large matrix product, in the dtype of the MLP: bfloat16 on a GPU,
    float32 on a CPU.
    """
    on_gpu = watch.device.type == "cuda"
    side, dtype = (8192, torch.bfloat16) if on_gpu else (1024, torch.float32)
    a, b = (torch.rand(side, side, device=watch.device).to(dtype) for _ in range(2))
    return _rate(watch, 2 * side**3, lambda: a @ b)


def measure_ceilings(watch: Stopwatch, num_bytes: int) -> Ceilings:
    """Measures the ceilings with buffers of num_bytes, a power of two, from cold caches."""
    device, rate = watch.device, partial(_rate, watch)
    word = torch.zeros(1, device=device)
    launch = summary(watch.times(Call(lambda _: word.zero_()), cold=False))
    source, target = (torch.zeros(num_bytes // 4, device=device) for _ in range(2))
    index, found = torch.zeros(32, dtype=torch.int64, device=device), torch.zeros(32, device=device)
    lookup = summary(watch.times(Call(lambda _: torch.take(source, index, out=found)), cold=True))
    copy = rate(2 * num_bytes, lambda: target.copy_(source))
    if device.type == "cpu":
        return Ceilings(launch, lookup, copy, None, None, None, None)
    load_library()
    ops, sums = torch.ops.nerf_ceilings, source.new_zeros(1024)
    half, count = target[: num_bytes // 8], num_bytes // 16
    return Ceilings(
        launch,
        lookup,
        copy,
        rate(num_bytes, lambda: ops.gather_at_random(source, 32, num_bytes // 128, sums)),
        rate(count, lambda: ops.gather_at_random(source, 1, count, sums)),
        rate(count, lambda: ops.add_at_random(half, 1, count)),
        rate(4 * count, lambda: ops.add_at_random(half, 4, count)),
    )
