"""NVIDIA's driver by name and number, and whether it is new enough: PyTorch only says that it finds no GPU."""

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path

KERNEL_MODULE = Path("/proc/driver/nvidia/version")
# CUDA Toolkit Release Notes, table 3: the oldest Linux driver that runs any minor version of a major one.
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}


@dataclass(frozen=True)
class Driver:
    """What is known of the driver of this machine."""

    release: str | None  # of the kernel module, for example 535.104.05; None where it cannot be read
    cuda: tuple[int, int] | None  # the newest CUDA that the driver's library runs; None where there is no such library

    def __str__(self) -> str:
        if self.release is None and self.cuda is None:
            return "no NVIDIA driver"
        runs = "" if self.cuda is None else f" (CUDA {self.cuda[0]}.{self.cuda[1]} at most)"
        return f"NVIDIA driver {self.release or 'of unknown release'}{runs}"

    def runs(self, cuda: str) -> bool | None:
        """Whether it runs programs of a CUDA version, for example 13.0; None where that is not known."""
        major = int(cuda.split(".")[0])
        if self.cuda is not None:
            return self.cuda[0] >= major
        if self.release is not None and major in OLDEST_DRIVER:
            return int(self.release.split(".")[0]) >= OLDEST_DRIVER[major]
        return None


def find_driver(kernel_module: Path = KERNEL_MODULE) -> Driver:
    """Asks the kernel module and the driver's library, neither of which touches a GPU."""
    release = None
    if kernel_module.is_file():
        match = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)", kernel_module.read_text())
        release = match[1] if match else None
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Driver(release, None)
    number = ctypes.c_int()
    failed = library.cuDriverGetVersion(ctypes.byref(number))
    return Driver(release, None if failed else (number.value // 1000, number.value % 1000 // 10))


def no_gpu_reason(driver: Driver, torch_version: str, torch_cuda: str | None) -> str:
    """Why PyTorch of that version, built for that CUDA, finds no GPU here, with the remedy."""
    if torch_cuda is None:
        return f"PyTorch {torch_version} was built without CUDA; install a CUDA build of PyTorch"
    oldest = OLDEST_DRIVER.get(int(torch_cuda.split(".")[0]))
    needs = f"PyTorch {torch_version} was built for CUDA {torch_cuda}" + (
        f", which needs driver {oldest} or newer" if oldest else ""
    )
    if driver.release is None and driver.cuda is None:
        return f"{needs}; found no NVIDIA driver. Install one, and check nvidia-smi"
    if driver.runs(torch_cuda) is False:
        return f"{needs}; found {driver}, which is too old. Update the driver, or install PyTorch for its CUDA"
    return f"{needs}; found {driver} but no usable GPU. Check nvidia-smi and CUDA_VISIBLE_DEVICES"
