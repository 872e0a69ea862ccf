"""Recording of what a call queues as a CUDA graph, which is replayed with one call instead of one per kernel."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch


@functools.cache
def side_stream(gpu: int) -> torch.cuda.Stream:
    """The stream for recording, one per GPU and process: cuBLAS keeps 32 MiB or more per stream."""
    return torch.cuda.Stream(gpu)


def run_on(stream: torch.cuda.Stream, call: Callable[[], None]) -> None:
    """Queues a plain call on a stream, between what the current one has and will get.

    On the stream of the recording, it sets up the libraries for that.
    """
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)


def record(
    call: Callable[[], None],
    stream: torch.cuda.Stream,
    generators: Sequence[torch.Generator] = (),
    pool: Any = None,
    errors: str = "global",
) -> torch.cuda.CUDAGraph:
    """The graph of what a call queues, which must not read from the device. The call has run plainly before.

    generators: all random generators that it uses. pool: of a graph that is not replayed any more, whose memory is
    used again. errors: whose calls that wait for the device fail meanwhile (CUDAGraph.capture_begin), those of all
    threads or, with "thread_local", of this one.
    """
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        if generator.device.type == "cuda":  # a host generator is used outside of the call
            graph.register_generator_state(generator)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph.capture_begin(pool=pool, capture_error_mode=errors)
        try:
            call()
        finally:
            graph.capture_end()
    # capture_begin has queued zeros into the generators' offsets, on this stream. A replay writes the true ones
    # on its own stream, and would be overtaken.
    torch.cuda.current_stream().wait_stream(stream)
    return graph
