"""The GPU's idle time in a step: overhead of PyTorch and Python between the kernels."""

from collections.abc import Callable, Iterable

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile


def idle_fraction(work: Callable[[], object], device: torch.device) -> float | None:
    """Fraction of the time between the start of the first and the end of the last kernel of `work` without a kernel.

    Copies and fills count as kernels. Measured with PyTorch's profiler, which adds a little time between kernels.
    Waits for the device. None if the profiler saw no kernel.
    """
    torch.cuda.synchronize(device)
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        work()
        torch.cuda.synchronize(device)
    spans = [
        (event.time_range.start, event.time_range.end)
        for event in recorded.events()
        if event.device_type == DeviceType.CUDA
    ]
    return 1 - covered(spans) / (max(end for _, end in spans) - min(start for start, _ in spans)) if spans else None


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Length of the union of spans (start, end), which may overlap."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
