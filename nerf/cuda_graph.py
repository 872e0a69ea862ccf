"""Runs training steps: on a GPU as one CUDA graph, replayed; elsewhere as a plain call.

A step of some eighty small kernels costs the host more time to launch than the GPU to run. It has fixed shapes and
reads nothing back, so it can be recorded once and replayed by one call. The recording is valid until the grids, the
occupancy or the capacity change. A few plain steps, each as long as ten replayed ones, warm up what a recording must
not meet for the first time; what one recording has met need not be warmed up for the next.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from nerf.config import Config
    from nerf.training import TrainState

WARM_UP_STEPS = 2


@functools.cache
def _side_stream(gpu: int) -> torch.cuda.Stream:
    """A GPU's stream for recording, one for all runs of a process: cuBLAS keeps 32 MiB or more for each one."""
    return torch.cuda.Stream(gpu)


class StepRunner:
    """Calls step(config, state, monitor), through a CUDA graph where that is possible."""

    def __init__(
        self,
        config: "Config",
        state: "TrainState",
        monitor: Tensor,
        step: Callable[["Config", "TrainState", Tensor], None],
    ) -> None:
        self._arguments = (config, state, monitor)
        self._step = step
        self._graph: torch.cuda.CUDAGraph | None = None
        self._last: torch.cuda.CUDAGraph | None = None  # is not replayed any more; its memory serves the next one
        self._plain_steps_left = WARM_UP_STEPS
        backend = state.field.backend
        # The reference reads sizes back from the device, which a graph cannot.
        self._graphed = config.train.cuda_graph and backend.device.type == "cuda" and backend.name == "native"
        self._side_stream = _side_stream(torch.cuda.current_device()) if self._graphed else None

    def forget(self, new_kernels: bool = False) -> None:
        """Drops the recording: shapes, tensors or constants of the step have changed.

        new_kernels: the step does what it has not done before.
        """
        self._last, self._graph = self._graph or self._last, None
        if new_kernels:
            self._plain_steps_left = WARM_UP_STEPS

    def release(self) -> None:
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
                self._step(*self._arguments)
            torch.cuda.current_stream().wait_stream(self._side_stream)
        else:
            self._step(*self._arguments)
        self._plain_steps_left = max(0, self._plain_steps_left - 1)

    def _record(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        state = self._arguments[1]
        for generator in (state.batches.generator, state.field.noise):
            # A generator of the host draws batches outside of the step; without one nothing is drawn.
            if generator is not None and generator.device.type == "cuda":
                graph.register_generator_state(generator)
        # As torch.cuda.graph does it, but nothing is given back to the device, which would only be asked for it again.
        self._side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._side_stream):
            graph.capture_begin(pool=None if self._last is None else self._last.pool())
            try:
                self._step(*self._arguments)
            finally:
                graph.capture_end()
        self._last = None
        return graph
