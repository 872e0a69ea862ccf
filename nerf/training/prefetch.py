"""Prefetching of batches from images in host memory: gathered ahead by threads, copied on a separate stream.

One thread draws the random numbers, in order. Others gather the pixels into a ring of pinned buffers. These threads
call no CUDA function, so a CUDA graph can be captured meanwhile. Each copy to the device is queued while an earlier
step runs. A step starts with a copy on the device, into the memory that the captured step reads. The device waits only
if gathering takes longer than training.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import torch
from torch import Tensor

NUM_SLOTS = 12  # batches prefetched or in use; 40 bytes per ray each
NUM_THREADS = 4  # for gathering; one takes about 3 ms for 32768 rays, longer than a step
MAX_IN_FLIGHT = 4  # number of steps that the host may be ahead of the device
BYTES_PER_RAY = 8 + 16 + 4 + 12


@dataclass(frozen=True)
class PrefetchedBatch:
    """The pixels of R rays in one buffer, so that one copy moves them; the tensors are views of the buffer."""

    memory: Tensor  # [R*40] uint8

    @property
    def pixels(self) -> Tensor:
        """[R] int64: pixels as Cameras.rays_through counts them.

        Until they are gathered, the random numbers of RayBatches._choose.
        """
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


Choose = Callable[[torch.Generator, PrefetchedBatch], None]  # writes the random numbers into a batch in host memory
Gather = Callable[[PrefetchedBatch], None]  # replaces them by the pixels they choose


@dataclass
class _Slot:
    host: PrefetchedBatch  # pinned if there is a GPU
    device: PrefetchedBatch  # the same object as host if the device is the CPU
    copied: torch.cuda.Event | None  # recorded after the copy from host to device
    taken: torch.cuda.Event | None  # recorded after the copy from device to the step's memory
    state_after: Tensor | None = field(default=None)  # state of the generator after this batch


class Prefetcher:
    """Batches in the order in which the generator draws them.

    After advance(), the generator has the state after the current batch, however many batches were drawn ahead. So a
    checkpoint of it belongs to the current step.
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
        self._threads: tuple[ThreadPoolExecutor, ThreadPoolExecutor] | None = None  # for choosing and for gathering
        self._drawn: deque[tuple[Future[Future[None]], _Slot]] = deque()  # submitted to the threads, in order
        self._copied: deque[_Slot] = deque()  # copy to the device is queued
        self._in_flight: deque[_Slot] = deque()  # used by steps that may not have run yet

    def advance(self) -> None:
        """Makes the next batch the current one, for steps that are queued afterwards."""
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
        """Ends the threads and drops the prefetched batches; advance() starts again from the generator's state."""
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
            torch.cuda.current_stream(self._device).synchronize()  # then every slot is free
        self._ahead.set_state(self._generator.get_state())
        # One PyTorch thread per worker: on busy cores, splitting a batch further costs more than it gains.
        alone = {"initializer": torch.set_num_threads, "initargs": (1,)}
        self._threads = ThreadPoolExecutor(1, "choose", **alone), ThreadPoolExecutor(NUM_THREADS, "gather", **alone)
        for slot in self._slots:
            self._hand_over(slot)

    def _hand_over(self, slot: _Slot) -> None:
        choosing, gathering = self._threads
        self._drawn.append((choosing.submit(self._fill, slot, gathering), slot))

    def _fill(self, slot: _Slot, gathering: ThreadPoolExecutor) -> Future[None]:
        """Runs on the choosing thread."""
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
    """Whether gathering a batch has ended, with success or with an exception."""
    return chosen.done() and (chosen.exception() is not None or chosen.result().done())
