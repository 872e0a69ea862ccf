"""The choice of code and device, made once and passed down with its reason.

backend=native: torch.ops.nerf, where PyTorch's dispatcher picks C++ or CUDA by the tensor's device.
backend=torch: the reference in pure PyTorch. auto takes the best that runs here. Nothing falls back quietly: what was
asked for by name and cannot run raises UserError with the remedy.
"""

import ctypes
import functools
import importlib
import os
import platform
from dataclasses import dataclass, replace
from types import ModuleType

import torch

from nerf.errors import UserError
from nerf.ops.driver import find_driver, no_gpu_reason
from nerf.ops.library import NativeUnavailable, gpu_generations, has_cuda_code
from nerf.ops.mkl import multiplies_in_one_order

BACKENDS = ("auto", "native", "torch")
DEVICES = ("auto", "cuda", "cpu")


@dataclass(frozen=True)
class Backend:
    """Which operations run, where, and why these."""

    name: str  # native or torch
    device: torch.device
    reason: str
    ops: ModuleType  # nerf.ops.native or nerf.ops.reference: the same functions with the same arguments
    deterministic: bool = False  # backward passes add in one order

    @property
    def adds_to_gradients(self) -> bool:
        """Whether interpolation adds to a grid's gradient in place (reference.interpolate_trilinear, grad)."""
        return self.name == "native"

    @property
    def adds_bfloat16(self) -> bool:
        """Whether a run may store gradients of features as bfloat16, and then their values as float16."""
        return self.adds_to_gradients and adds_bfloat16(self.device, self.deterministic)

    @property
    def smooths_in_adam(self) -> bool:
        """Whether adam_step adds total variation (variation): on CUDA one pass instead of two, in no fixed order."""
        return self.name == "native" and self.device.type == "cuda" and not self.deterministic

    def __str__(self) -> str:
        return f"backend {self.name} on {device_name(self.device)} ({self.reason})"


def device_name(device: torch.device) -> str:
    """The GPU's own name, or how many cores PyTorch uses on the CPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"


def synchronize(device: torch.device) -> None:
    """Waits until a GPU has finished all work that is queued; a CPU has nothing queued."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def adds_bfloat16(device: torch.device, deterministic: bool) -> bool:
    """Whether gradients of grids can be bfloat16 there: additions are one instruction, and may come in any order.

    On a CPU, which has no such instructions, float32 is faster.
    """
    if not hasattr(torch.Tensor, "grad_dtype"):  # a PyTorch that wants a gradient of the parameter's own dtype
        return False
    fast = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
    return fast and not deterministic


def _choose_device(device: str) -> tuple[torch.device, str]:
    if device == "cpu":
        return torch.device("cpu"), "as asked"
    if torch.cuda.is_available():
        return torch.device("cuda"), "as asked" if device == "cuda" else "a GPU is there"
    why = no_gpu_reason(find_driver(), torch.__version__, torch.version.cuda)
    if device == "cuda":
        raise UserError(f"device=cuda cannot run here: {why}, or use device=cpu.")
    return torch.device("cpu"), f"no GPU: {why}"


def select(backend: str = "auto", device: str = "auto", deterministic: bool = False) -> Backend:
    """Chooses backend and device.

    deterministic: the same bits in every run. On a CPU PyTorch works with one thread from then on where its sums or
    products round differently for each number of threads: with backend=torch, or without MKL's strict mode.

    Raises UserError where a name is unknown or what was asked for cannot run here.
    """
    chosen = replace(_select(backend, device), deterministic=deterministic)
    if deterministic and chosen.device.type == "cpu":
        if chosen.name == "torch" or not multiplies_in_one_order():
            torch.set_num_threads(1)
    elif deterministic and chosen.name == "torch":
        raise UserError(
            f"deterministic=true cannot run with backend=torch on a GPU ({chosen.reason}): PyTorch adds the gradients "
            "of a grid in no fixed order there; use backend=native, or device=cpu."
        )
    elif deterministic:
        # cuBLAS reads it with its first product: else what it computes may depend on the streams at work.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    return chosen


def _select(backend: str, device: str) -> Backend:
    for setting, value, choices in (("backend", backend, BACKENDS), ("device", device, DEVICES)):
        if value not in choices:
            raise UserError(f"{setting}={value} is unknown; choose one of {', '.join(choices)}.")
    chosen, reason = _choose_device(device)
    if chosen.type == "cpu":
        _keep_freed_memory()
    if backend == "torch":
        return Backend("torch", chosen, f"backend as asked, device {reason}", _reference())
    try:
        if chosen.type == "cpu" or has_cuda_code():
            native = importlib.import_module("nerf.ops.native")
            problem = None if chosen.type == "cpu" else _gpu_problem(native, chosen)
            if problem is None:
                return Backend("native", chosen, reason + _through_ptx(chosen), native)
        else:
            problem = f"the native library was built without CUDA code, {_why_without_cuda()}"
    except NativeUnavailable as error:
        problem = str(error)
    if backend == "native":
        first, *more = problem.splitlines()
        remedy = f"backend=native cannot run here: {first}. backend=torch needs no compiler."
        raise UserError("\n".join([remedy, *more]))
    return Backend("torch", chosen, f"native is missing: {problem.splitlines()[0]}", _reference())


def _through_ptx(device: torch.device) -> str:
    """What to say of a library that was built for other GPUs, and whose code the driver translates: it is slower."""
    if device.type == "cpu":
        return ""
    major, minor = torch.cuda.get_device_capability(device)
    generations = gpu_generations()
    if any(number // 10 == major and number % 10 <= minor for number in generations):
        return ""
    built = " ".join(map(str, generations))
    remedy = "python cuda_ext/build.py --force"
    return f"; slower than it could be, as the library was built for sm {built}, not {major}{minor}: {remedy}"


def _why_without_cuda() -> str:
    if os.environ.get("NERF_CUDA") == "0":
        return "because NERF_CUDA=0 switches it off; unset NERF_CUDA and start again"
    return (
        "because no nvcc was found; get it with pip install 'cuda-toolkit[nvcc]' (it holds nvidia-cuda-nvcc), or set "
        "CUDA_HOME, and start again"
    )


def _gpu_problem(native: ModuleType, device: torch.device) -> str | None:
    """Why the library's CUDA code does not run on this GPU, None if it does: PyTorch may come with another CUDA."""
    grid, coords = torch.zeros(2, 2, 2, 1, device=device), torch.zeros(1, 3, device=device)
    try:
        native.interpolate_trilinear(grid, coords)
    except RuntimeError as error:
        return (
            f"the native library's CUDA code does not run on this GPU ({str(error).splitlines()[0]}; {find_driver()}); "
            "update the driver, or build the library with an nvcc of the driver's CUDA (CUDA_HOME) and for this GPU's "
            "generation (NERF_CUDA_ARCHS): python cuda_ext/build.py --force"
        )
    return None


@functools.cache
def _keep_freed_memory() -> None:
    """Tells glibc to keep freed blocks: a grid's gradient that is mapped anew in each step costs more than the step."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        m_trim_threshold, m_mmap_max = -1, -4
        libc.mallopt(m_mmap_max, 0)
        libc.mallopt(m_trim_threshold, 1 << 30)


def _reference() -> ModuleType:
    return importlib.import_module("nerf.ops.reference")
