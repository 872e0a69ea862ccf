"""Runs training steps: on a GPU as a replayed CUDA graph, elsewhere as plain calls.

A step launches about eighty small kernels, which takes the host longer than they take the GPU. The step has fixed
shapes and reads nothing back, so it is captured once and replayed with one call. A graph is valid until the grids, the
occupancy or the capacity change. Before a capture, a few plain steps (each as slow as ten replayed ones) load the
kernels and libraries. They are repeated only if the step uses new kernels.
"""

from collections.abc import Callable, Sequence

import torch

from nerf.ops.cuda_graphs import record, run_on, side_stream

WARM_UP_STEPS = 2


class StepRunner:
    """Runs a step, plainly or through a CUDA graph."""

    def __init__(
        self,
        step: Callable[[], None],
        generators: Sequence[torch.Generator] = (),
        graphed: bool = False,
        changed: Callable[[], bool] = lambda: False,
    ) -> None:
        """step: must not read from the device if graphed. generators: all random generators that the step uses.

        changed: asked before each step whether shapes of it have changed, so that a graph is not valid any more.
        """
        self._step, self._generators, self._graphed = step, tuple(generators), graphed
        self._changed = changed
        self._graph: torch.cuda.CUDAGraph | None = None
        self._last: torch.cuda.CUDAGraph | None = None  # an invalid graph, kept because the next one reuses its memory
        self._plain_steps_left = WARM_UP_STEPS
        self._plain_since_record = False
        self._side_stream = side_stream(torch.cuda.current_device()) if graphed else None

    def invalidate(self, rewarm: bool = False) -> None:
        """Drops the graph, because shapes, tensors or constants of the step have changed.

        rewarm: the step also uses kernels that it has not used before.
        """
        self._last, self._graph = self._graph or self._last, None
        if rewarm:
            self._plain_steps_left = WARM_UP_STEPS

    def reset(self) -> None:
        """Drops the graph and frees its memory."""
        self._graph = self._last = None

    def step(self) -> None:
        """Queues one step."""
        if self._changed():
            self.invalidate()
        if self._graph is None and self._graphed and self._plain_steps_left == 0:
            self._graph = self._record()
        if self._graph is not None:
            self._graph.replay()
            return
        self._plain_since_record = True
        if self._graphed:
            run_on(self._side_stream, self._step)
        else:
            self._step()
        self._plain_steps_left = max(0, self._plain_steps_left - 1)

    def _record(self) -> torch.cuda.CUDAGraph:
        # Like torch.cuda.graph, but the memory cache is emptied only after plain steps: what they have freed would be
        # kept beside the memory of the graph, which is as much.
        if self._plain_since_record:
            torch.cuda.empty_cache()
            self._plain_since_record = False
        pool = None if self._last is None else self._last.pool()
        graph = record(self._step, self._side_stream, self._generators, pool)
        self._last = None
        return graph
