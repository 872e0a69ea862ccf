"""Runs training steps: on a GPU as one CUDA graph, replayed; elsewhere as a plain call.

A step of some eighty small kernels costs the host more time to launch than the GPU to run. It has fixed shapes and
reads nothing back, so it can be recorded once and replayed by one call. The recording is valid until the grids, the
occupancy or the capacity change. A few plain steps, each as long as ten replayed ones, warm up what a recording must
not meet for the first time; what one recording has met need not be warmed up for the next.
"""

import functools
from collections.abc import Callable, Sequence

import torch

WARM_UP_STEPS = 2


@functools.cache
def _side_stream(gpu: int) -> torch.cuda.Stream:
    """A GPU's stream for recording, one for all runs of a process: cuBLAS keeps 32 MiB or more for each one."""
    return torch.cuda.Stream(gpu)


class StepRunner:
    """Calls a step, through a CUDA graph where it is told to."""

    def __init__(
        self, step: Callable[[], None], generators: Sequence[torch.Generator] = (), graphed: bool = False
    ) -> None:
        """step reads nothing back from the device where it is graphed; generators: all from which it draws."""
        self._step, self._generators, self._graphed = step, tuple(generators), graphed
        self._graph: torch.cuda.CUDAGraph | None = None
        self._last: torch.cuda.CUDAGraph | None = None  # is not replayed any more; its memory serves the next one
        self._plain_steps_left = WARM_UP_STEPS
        self._side_stream = _side_stream(torch.cuda.current_device()) if graphed else None

    def invalidate(self, rewarm: bool = False) -> None:
        """Drops the recording: shapes, tensors or constants of the step have changed.

        rewarm: the step launches kernels that it has not launched before.
        """
        self._last, self._graph = self._graph or self._last, None
        if rewarm:
            self._plain_steps_left = WARM_UP_STEPS

    def reset(self) -> None:
        """Drops the recording with its memory, which is wanted for something else."""
        self._graph = self._last = None

    def step(self) -> None:
        """Queues one step."""
        if self._graph is None and self._graphed and self._plain_steps_left == 0:
            self._graph = self._record()
        if self._graph is not None:
            self._graph.replay()
            return
        if self._graphed:  # where it will be recorded, so that recording meets nothing for the first time
            self._side_stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._side_stream):
                self._step()
            torch.cuda.current_stream().wait_stream(self._side_stream)
        else:
            self._step()
        self._plain_steps_left = max(0, self._plain_steps_left - 1)

    def _record(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            if generator.device.type == "cuda":  # one of the host draws batches outside of the step
                graph.register_generator_state(generator)
        # As torch.cuda.graph does it, but nothing is given back to the device, which would only be asked for it again.
        self._side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._side_stream):
            graph.capture_begin(pool=None if self._last is None else self._last.pool())
            try:
                self._step()
            finally:
                graph.capture_end()
        self._last = None
        return graph
