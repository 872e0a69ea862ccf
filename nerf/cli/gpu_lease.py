"""One GPU per job, where several jobs of a sweep run on one machine.

A job holds the lock of a GPU's file in the temporary folder while it runs, and sees that GPU alone
(CUDA_VISIBLE_DEVICES). The operating system releases the lock when the process ends, however that happens. With more
jobs than GPUs, the others wait for the first GPU that becomes free.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from nerf.system import lock_file

VISIBLE = "CUDA_VISIBLE_DEVICES"
POLL_SECONDS = 0.5

_bound: list[str] = []  # the GPU that this process has begun to use: CUDA reads the variable once


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them: indices, or UUIDs."""
    given = os.environ.get(VISIBLE)
    count = torch.cuda.device_count()
    if given is None:
        return [str(index) for index in range(count)]
    return [part.strip() for part in given.split(",") if part.strip()][:count]


@contextmanager
def leased(
    gpus: Sequence[str],
    say: Callable[[str], None],
    folder: Path | None = None,
    wait: Callable[[], None] = lambda: time.sleep(POLL_SECONDS),
) -> Iterator[str]:
    """Holds one of the GPUs, the first that no other job holds, and makes it the only one that CUDA sees.

    A process keeps to the GPU of its first job, because CUDA cannot change it. say: is told once, in words, if all
    GPUs are taken. wait: is called between two looks. folder: of the locks; None: the temporary folder.
    """
    folder = folder or Path(tempfile.gettempdir())
    candidates, told = _bound or list(gpus), False
    while (lock := _first_free(candidates, folder)) is None:
        if not told:
            taken = f"GPU {candidates[0]} is" if len(candidates) == 1 else f"all {len(candidates)} GPUs are"
            say(f"{taken} taken by other jobs: this one waits until a GPU is free")
            told = True
        wait()
    gpu, number = lock
    try:
        _bound[:] = [gpu]
        os.environ[VISIBLE] = gpu
        yield gpu
    finally:
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # the process may live on, the memory is the next job's
        os.close(number)


def _first_free(gpus: Sequence[str], folder: Path) -> tuple[str, int] | None:
    """The first GPU whose lock is free, and the locked file; None if others hold them all."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    for gpu in gpus:
        name = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in gpu)
        number = os.open(folder / f"nerf-gpu-{user}-{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            lock_file(number, wait=False)
        except BlockingIOError:
            os.close(number)
            continue
        return gpu, number
    return None
