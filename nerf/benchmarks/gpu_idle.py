"""How much of the time a GPU waits: what PyTorch and Python cost a step that the kernels do not."""

from collections.abc import Callable, Iterable

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile


def idle_share(work: Callable[[], object], device: torch.device) -> float | None:
    """Share of the time between the first kernel of some work and the end of its last in which none runs.

    Copies and fills count as kernels. By PyTorch's profiler, which itself takes a little between kernels. Waits for
    the device. None where the profiler saw no kernel.
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
    """Length of the union of spans (start, end), which may overlap, as kernels of two streams do."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
