"""Runs training steps: on a GPU as one CUDA graph, replayed; elsewhere as a plain call.

A step of some eighty small kernels costs the host more time to launch than the GPU to run. It has fixed shapes and
reads nothing back, so it can be recorded once and replayed by one call. The recording is valid until the grids, the
occupancy or the capacity change; a few plain steps then warm up what a recording must not meet for the first time.
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
        self._plain_steps = 0
        backend = state.field.backend
        # The reference reads sizes back from the device, which a graph cannot.
        self._graphed = config.train.cuda_graph and backend.device.type == "cuda" and backend.name == "native"
        self._side_stream = _side_stream(torch.cuda.current_device()) if self._graphed else None

    def forget(self) -> None:
        """Drops the recording: shapes, tensors or constants of the step have changed."""
        self._graph, self._plain_steps = None, 0
        if self._graphed:  # the blocks of the old shapes would stay reserved beside those of the new ones
            torch.cuda.empty_cache()

    def step(self) -> None:
        """Queues one step."""
        if self._graph is None and self._graphed and self._plain_steps >= WARM_UP_STEPS:
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
        self._plain_steps += 1

    def _record(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        state = self._arguments[1]
        for generator in (state.batches.generator, state.field.noise):
            # A generator of the host draws batches outside of the step; without one nothing is drawn.
            if generator is not None and generator.device.type == "cuda":
                graph.register_generator_state(generator)
        with torch.cuda.graph(graph, stream=self._side_stream):
            self._step(*self._arguments)
        return graph
