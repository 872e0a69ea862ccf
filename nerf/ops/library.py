"""Finds, builds if need be, and loads the native library into torch.ops.nerf.

An installed package brings libnerf.so beside this file. A checkout that was never installed, or whose sources have
changed since, builds it once (cuda_ext/build.py).
"""

import ctypes
import functools
import importlib.util
import struct
from pathlib import Path
from types import ModuleType

import torch

LIBRARY = Path(__file__).with_name("libnerf.so")
BUILD_SCRIPT = Path(__file__).parents[2] / "cuda_ext" / "build.py"


class NativeUnavailable(RuntimeError):
    """The native library cannot be had here; the message says why and what to do."""


def build_module() -> ModuleType | None:
    """cuda_ext/build.py as a module, None where the sources are not beside the package."""
    if not BUILD_SCRIPT.is_file():
        return None
    spec = importlib.util.spec_from_file_location("nerf_build", BUILD_SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_cut_short(library: Path) -> bool:
    """Whether a library ends before its ELF header (64 bits) says that it does: to load it would kill the process."""
    with library.open("rb") as file:
        header = file.read(64)
    if len(header) < 64 or header[:5] != b"\x7fELF\x02":
        return True
    (sections_at,), (size, count) = struct.unpack_from("<Q", header, 40), struct.unpack_from("<HH", header, 58)
    return library.stat().st_size < sections_at + size * count


@functools.cache
def load_library() -> None:
    """Loads the library, once. Raises NativeUnavailable with the reason and the remedy."""
    builder = build_module()
    if builder is not None:
        try:
            builder.build()
        except (builder.BuildError, OSError) as error:
            raise NativeUnavailable(str(error)) from error
    elif not LIBRARY.is_file():
        raise NativeUnavailable(
            f"{LIBRARY} is missing and the sources are not beside the package; reinstall with "
            "pip install --no-build-isolation ."
        )
    elif is_cut_short(LIBRARY):
        raise NativeUnavailable(
            f"{LIBRARY} has {LIBRARY.stat().st_size} bytes and ends before its header says; reinstall the package"
        )
    try:
        torch.ops.load_library(str(LIBRARY))
    except OSError as error:
        raise NativeUnavailable(f"{LIBRARY} does not load ({error}); PyTorch >= 2.10 is needed") from error


def has_cuda_code() -> bool:
    """Whether the loaded library brings CUDA kernels."""
    load_library()
    return torch._C._dispatch_has_kernel_for_dispatch_key("nerf::march_rays", "CUDA")


def gpu_generations() -> list[int]:
    """The generations of GPUs that the library has code for, such as 90; empty without CUDA code."""
    return [int(number) for number in library_stamp().partition("cuda=")[2].split()]


def library_stamp() -> str:
    """What the loaded library says of itself: the hash of its sources and its GPUs ("1f2e... cuda=75 80")."""
    load_library()
    text = ctypes.c_char.in_dll(ctypes.CDLL(str(LIBRARY)), "nerf_build_stamp")
    return ctypes.string_at(ctypes.addressof(text)).decode().partition(":")[2]
