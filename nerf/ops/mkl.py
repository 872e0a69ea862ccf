"""Matrix products on a CPU that give the same bits for any number of threads.

MKL, which multiplies matrices for PyTorch on x86, adds in an order that depends on the number of threads, from three
on. In its strict mode of reproducibility it does not (oneMKL developer guide, "Reproducibility Conditions"). MKL reads
the variable that sets it at its first product.
"""

import ctypes
import importlib
import os
from pathlib import Path

MODE = "MKL_CBWR"  # conditional bitwise reproducibility
STRICT, AUTO, AVX2 = 1 << 16, 2, 10  # of mkl_cbwr_get: a flag, and instructions; older ones have no strict mode


def multiply_in_one_order() -> None:
    """Sets the mode for the best instructions that the CPU has; what the user has set stays.

    On a processor that is not Intel's, MKL chooses the instructions itself, and is as strict.
    """
    if MODE not in os.environ:
        os.environ[MODE] = f"{'AVX512' if _has_avx512() else 'AVX2'},STRICT"


def multiplies_in_one_order() -> bool:
    """Whether MKL is there and in that mode: products before `import nerf` leave it as it was. False if unknown."""
    libraries = Path(importlib.import_module("torch").__file__).parent / "lib"
    try:
        mode = ctypes.CDLL(str(libraries / "libtorch_cpu.so")).mkl_serv_cbwr_get(-1)
    except (OSError, AttributeError):  # another system, another library
        return False
    instructions = mode & ~STRICT
    return bool(mode & STRICT) and (instructions == AUTO or instructions >= AVX2)


def _has_avx512() -> bool:
    try:
        with Path("/proc/cpuinfo").open() as file:
            return "avx512f" in next((line for line in file if line.startswith("flags")), "").split()
    except OSError:  # not Linux
        return False
