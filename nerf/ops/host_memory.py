"""Tensors in host memory that the device's operations read and write: slower than its own memory, and much larger.

On a GPU the pages are pinned and mapped, so a kernel reaches them over the bus at the same address (unified virtual
addressing), and to PyTorch they are a tensor on the GPU. On a CPU they are an ordinary tensor.
"""

import ctypes
import weakref

import torch
from torch import Tensor

PAGE = 4096  # bytes; a page is pinned once, so no two tensors may share one
PORTABLE_AND_MAPPED = 1 | 2  # cudaHostRegisterPortable, cudaHostRegisterMapped
# How PyTorch takes over numbers of each size.
TYPES = {2: "<i2", 4: "<i4", 8: "<i8"}


class _Mapped:
    """Pinned pages as an object that PyTorch makes a tensor on the GPU of, and which lives as long as that does."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        size = -(-torch.Size(shape).numel() * dtype.itemsize // PAGE) * PAGE
        memory = torch.zeros(size + PAGE, dtype=torch.uint8)
        address = -(-memory.data_ptr() // PAGE) * PAGE
        error = int(torch.cuda.cudart().cudaHostRegister(address, size, PORTABLE_AND_MAPPED))
        if error:
            raise RuntimeError(
                f"{size / 2**30:.2f} GiB of host memory could not be pinned (CUDA error {error}); close programs that "
                "use it, or give fewer voxels with field.num_voxels"
            )
        known = {"shape": shape, "typestr": TYPES[dtype.itemsize], "data": (address, False), "version": 2}
        self.__cuda_array_interface__ = known
        weakref.finalize(self, _release, memory, address).atexit = False  # the driver is gone by then


def _release(memory: Tensor, address: int) -> None:
    torch.cuda.synchronize()  # kernels may still read it
    torch.cuda.cudart().cudaHostUnregister(address)
    del memory  # kept until here


def host_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros of a shape, of a dtype of 2, 4 or 8 bytes, in host memory, for operations on the device.

    Raises RuntimeError where host memory is too small, or may not be pinned.
    """
    if device.type == "cpu" or torch.Size(shape).numel() == 0:
        return torch.zeros(shape, dtype=dtype, device=device)
    mapped = _Mapped(tuple(shape), dtype)
    tensor = torch.as_tensor(mapped, device=torch.device("cuda", torch.cuda.current_device()))
    if tensor.data_ptr() != mapped.__cuda_array_interface__["data"][0]:
        raise RuntimeError("this GPU does not reach host memory at its own address; use train.features=device")
    return tensor.view(dtype)


class HostCounts:
    """Counts that operations on the device write to host memory, and that the host reads without waiting for it."""

    def __init__(self, count: int, device: torch.device) -> None:
        self._counts = host_zeros((count,), torch.int64, device)
        self._seen = (ctypes.c_int64 * count).from_address(self._counts.data_ptr())  # at the same address

    def keep_larger(self, counts: Tensor) -> None:
        """Keeps the larger one of each count so far and of counts, int64."""
        torch.maximum(self._counts, counts, out=self._counts)

    def read(self) -> list[int]:
        return list(self._seen)

    def clear(self) -> None:
        """All are 0. Nothing that writes them may be queued."""
        for i in range(len(self._seen)):
            self._seen[i] = 0
