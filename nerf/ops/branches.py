"""Branches of a CUDA graph: small kernels run beside large ones, which leave processors idle at their ends."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

Beside = Callable[..., AbstractContextManager[None]]  # Branch.beside, or at_once


def at_once(*reads: Tensor | None) -> AbstractContextManager[None]:
    """In place of Branch.beside: no branch."""
    return nullcontext()


class Branch:
    """A second branch of a CUDA graph; of a step that is not captured, the same stream."""

    def __init__(self, device: torch.device, first: bool = False) -> None:
        """first: its kernels start before others that wait for a processor too: for small ones beside large ones."""
        self._stream = torch.cuda.Stream(device, priority=-int(first)) if device.type == "cuda" else None
        self._forked = False
        self._kept: list[Tensor | None] = []

    @contextmanager
    def beside(self, *reads: Tensor | None) -> Iterator[None]:
        """What is queued within, and its part of a backward pass, may run beside what is queued afterwards, until
        join().

        reads: tensors of before that it reads. They are kept until join(): memory that is free is handed out again to
        the stream that it came from, which does not wait for this one.
        """
        if self._stream is None or not torch.cuda.is_current_stream_capturing():
            yield
            return
        self._kept.extend(reads)
        self._stream.wait_stream(torch.cuda.current_stream())
        self._forked = True
        with torch.cuda.stream(self._stream):
            yield

    def wait(self) -> None:
        """What is queued from now on waits for what is on the branch so far."""
        if self._forked:
            torch.cuda.current_stream().wait_stream(self._stream)

    def join(self) -> None:
        """Like wait(), and the end of the branch: what it reads is not kept any longer."""
        self.wait()
        self._forked = False
        self._kept.clear()
