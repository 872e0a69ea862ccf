"""Batches of pixels from images in host memory: gathered ahead by threads, copied on a stream of their own.

One thread draws what is random, in order; others gather what follows from it into a ring of pinned buffers. They call
no CUDA function, so a step may be recorded as a CUDA graph meanwhile. Each copy to the device is queued while an
earlier step runs; a step begins with one copy on the device, into the memory that the recorded step reads. The device
never waits, unless gathering takes longer than training.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import torch
from torch import Tensor

NUM_SLOTS = 12  # batches drawn ahead or in use; some 40 bytes a ray each
NUM_THREADS = 4  # that gather: one takes some 3 ms for 32768 rays, longer than a step does
MAX_IN_FLIGHT = 4  # steps that the host may be ahead of the device
BYTES_PER_RAY = 8 + 16 + 4 + 12


@dataclass(frozen=True)
class PrefetchedBatch:
    """The pixels of R rays in one piece of memory, so that one copy moves them; the tensors are views of it."""

    memory: Tensor  # [R*40] uint8

    @property
    def pixels(self) -> Tensor:
        """[R] int64: (image * H + row) * W + column."""
        return self._view(0, 8, torch.int64).view(-1)

    @property
    def rgba(self) -> Tensor:
        """[R,4] float32 in [0,1], straight alpha."""
        return self._view(8, 16, torch.float32)

    @property
    def jitter(self) -> Tensor:
        """[R] float32 in [-0.5, 0.5)."""
        return self._view(24, 4, torch.float32).view(-1)

    @property
    def background(self) -> Tensor:
        """[R,3] float32 in [0,1]."""
        return self._view(28, 12, torch.float32)

    def _view(self, first: int, size: int, dtype: torch.dtype) -> Tensor:
        rays = len(self.memory) // BYTES_PER_RAY
        return self.memory[first * rays : (first + size) * rays].view(dtype).view(rays, -1)


Choose = Callable[[torch.Generator, PrefetchedBatch], None]  # writes what is random into a batch in host memory
Gather = Callable[[PrefetchedBatch], None]  # and what follows from it


@dataclass
class _Slot:
    host: PrefetchedBatch  # pinned where there is a GPU
    device: PrefetchedBatch  # the host's own where the device is the CPU
    copied: torch.cuda.Event | None  # to the device; then the host's memory may be written again
    taken: torch.cuda.Event | None  # from the device's copy
    state_after: Tensor | None = field(default=None)  # of the generator, after this batch


class Prefetcher:
    """Batches in the order in which generator draws them; after advance(), generator is where that batch left it.

    So what is saved of the generator belongs to the step, however far ahead batches have been drawn.
    """

    def __init__(
        self, choose: Choose, gather: Gather, generator: torch.Generator, num_rays: int, device: torch.device
    ) -> None:
        self.num_rays = num_rays
        self.current = self._allocate(device)  # [num_rays] on the device, always the same memory
        self._choose, self._gather, self._generator, self._device = choose, gather, generator, device
        self._ahead = torch.Generator()
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._slots = [self._make_slot() for _ in range(NUM_SLOTS)]
        self._threads: tuple[ThreadPoolExecutor, ThreadPoolExecutor] | None = None  # that chooses, that gather
        self._drawn: deque[tuple[Future[Future[None]], _Slot]] = deque()  # handed to the threads, in order
        self._copied: deque[_Slot] = deque()  # on their way to the device
        self._in_flight: deque[_Slot] = deque()  # taken by steps that may not have run yet

    def advance(self) -> None:
        """Makes the next batch the current one, for steps queued from now on."""
        if self._threads is None:
            self._start()
        while self._drawn and (_is_gathered(self._drawn[0][0]) or not self._copied):
            chosen, slot = self._drawn.popleft()
            chosen.result().result()
            self._copy(slot)
        slot = self._copied.popleft()
        if slot.copied is not None:
            torch.cuda.current_stream(self._device).wait_event(slot.copied)
        self.current.memory.copy_(slot.device.memory)
        if slot.taken is not None:
            slot.taken.record(torch.cuda.current_stream(self._device))
        self._generator.set_state(slot.state_after)
        self._in_flight.append(slot)
        if len(self._in_flight) > MAX_IN_FLIGHT:
            oldest = self._in_flight.popleft()
            if oldest.taken is not None:
                oldest.taken.synchronize()
            self._hand_over(oldest)

    def stop(self) -> None:
        """Ends the threads and forgets what it has drawn ahead; advance() starts anew from the generator."""
        if self._threads is None:
            return
        for threads in self._threads:
            threads.shutdown(cancel_futures=True)
        self._threads = None
        if self._stream is not None:
            self._stream.synchronize()
        for queue in (self._drawn, self._copied, self._in_flight):
            queue.clear()

    def _start(self) -> None:
        if self._stream is not None:
            torch.cuda.current_stream(self._device).synchronize()  # every slot is free
        self._ahead.set_state(self._generator.get_state())
        # Helpers within a batch would wait for each other longer than it takes where cores are busy.
        alone = {"initializer": torch.set_num_threads, "initargs": (1,)}
        self._threads = ThreadPoolExecutor(1, "choose", **alone), ThreadPoolExecutor(NUM_THREADS, "gather", **alone)
        for slot in self._slots:
            self._hand_over(slot)

    def _hand_over(self, slot: _Slot) -> None:
        choosing, gathering = self._threads
        self._drawn.append((choosing.submit(self._fill, slot, gathering), slot))

    def _fill(self, slot: _Slot, gathering: ThreadPoolExecutor) -> Future[None]:
        """On the thread that chooses."""
        self._choose(self._ahead, slot.host)
        slot.state_after = self._ahead.get_state()
        return gathering.submit(self._gather, slot.host)

    def _copy(self, slot: _Slot) -> None:
        if self._stream is not None:
            with torch.cuda.stream(self._stream):
                slot.device.memory.copy_(slot.host.memory, non_blocking=True)
                slot.copied.record(self._stream)
        self._copied.append(slot)

    def _make_slot(self) -> _Slot:
        if self._stream is None:
            batch = self._allocate(self._device)
            return _Slot(batch, batch, None, None)
        host = self._allocate(torch.device("cpu"), pinned=True)
        return _Slot(host, self._allocate(self._device), torch.cuda.Event(), torch.cuda.Event())

    def _allocate(self, device: torch.device, pinned: bool = False) -> PrefetchedBatch:
        size = self.num_rays * BYTES_PER_RAY
        return PrefetchedBatch(torch.empty(size, dtype=torch.uint8, device=device, pin_memory=pinned))


def _is_gathered(chosen: Future[Future[None]]) -> bool:
    """Whether a batch is ready, or has failed."""
    return chosen.done() and (chosen.exception() is not None or chosen.result().done())
