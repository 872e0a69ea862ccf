"""The doctor: versions and hardware, what `auto` chooses and why, and a check of every operation."""

import importlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from nerf.diagnostics import self_check
from nerf.ops import backend, library
from nerf.system import host_memory, is_installed, version

NEEDED = {
    "numpy": "arrays: pip install numpy",
    "PIL": "reads and writes images: pip install pillow",
    "imageio": "writes videos: pip install imageio",
    "imageio_ffmpeg": "encodes videos: pip install imageio-ffmpeg",
    "tqdm": "progress bars: pip install tqdm",
    "hydra": "the scripts' command lines: pip install 'hydra-core>=1.3,<1.4'",
}
OPTIONAL = {
    "tensorboard": "training curves beside the metrics: pip install tensorboard",
    "wandb": "training curves by log=wandb: pip install wandb",
    "mlflow": "training curves by log=mlflow: pip install mlflow",
    "hydra_plugins.hydra_joblib_launcher": "runs of a sweep side by side: pip install 'nerf-voxel[sweep]'",
    "hydra_plugins.hydra_submitit_launcher": "runs of a sweep as jobs, of Slurm too: pip install 'nerf-voxel[sweep]'",
    "matplotlib": "the ablation as a picture: pip install matplotlib",
    "lpips": "the LPIPS score: pip install lpips",
    "viser": "the viewer: pip install 'nerf-voxel[view]'",
    "pycolmap": "poses for photos: pip install 'nerf-voxel[capture]'",
    "pillow_heif": "photos as HEIC: pip install 'nerf-voxel[capture]'",
    "xatlas": "textures of meshes: pip install 'nerf-voxel[export]'",
    "fast_simplification": "fewer triangles: pip install 'nerf-voxel[export]'",
    "gsply": "splats as SPZ: pip install 'nerf-voxel[export]'",
}
TOOL_TIMEOUT = 20  # seconds; nvidia-smi hangs where the driver does
GIB = 2**30


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    topic: str
    text: str
    problem: str | None = None  # a sentence if this is broken


def main() -> int:
    """Prints the report line by line; returns the exit status, 1 if something is broken. Problems go to stderr."""
    problems = []
    for finding in examine():
        print(f"{finding.topic:<36} {finding.text}", flush=True)
        problems += [finding.problem] if finding.problem else []
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if not problems:
        print("\nNothing is broken.")
    return 1 if problems else 0


def examine() -> Iterator[Finding]:
    """The findings in the order of the report."""
    yield Finding("nerf-voxel", version())
    yield Finding("Python", f"{platform.python_version()}, {sys.executable}")
    yield Finding("torch", f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}")
    yield from _gpus()
    yield from _tools()
    yield from _packages()
    yield from _room()
    yield from _operations()


def _gpus() -> Iterator[Finding]:
    table = _lines("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    if table is None:
        yield Finding("driver", "none: nvidia-smi is absent or fails")
    for line in table or ():
        name, _, driver = line.partition(", ")
        problem = None
        if not torch.cuda.is_available():
            problem = (
                f"{name} is there with driver {driver}, but PyTorch {torch.__version__} cannot use it; install a "
                "CUDA build of PyTorch that fits the driver (CUDA 13 needs driver 580 or newer, CUDA 12 needs 525)."
            )
        yield Finding("GPU", f"{name}, driver {driver}", problem)
    for index in range(torch.cuda.device_count()):
        try:
            free, total = torch.cuda.mem_get_info(index)
        except RuntimeError as error:  # the first call that needs the device itself
            problem = f"cuda:{index} does not answer ({str(error).splitlines()[0]}); check nvidia-smi."
            yield Finding(f"cuda:{index}", "BROKEN", problem)
            continue
        capability = "".join(map(str, torch.cuda.get_device_capability(index)))
        memory = f"{free / GIB:.1f} of {total / GIB:.1f} GiB free"
        yield Finding(f"cuda:{index}", f"{torch.cuda.get_device_name(index)}, sm {capability}, {memory}")


def _tools() -> Iterator[Finding]:
    builder = library.build_module()
    tools = {
        "nvcc": [str(builder.find_nvcc() if builder else shutil.which("nvcc"))],
        "g++": [os.environ.get("CXX", "g++")],
        "ninja": [sys.executable, "-m", "ninja"] if importlib.util.find_spec("ninja") else ["ninja"],
    }
    for name, command in tools.items():
        lines = _lines(*command, "--version")
        told = [line for line in lines or () if "release" in line] or lines  # nvcc prints its version in a later line
        absent = "absent; only building the library needs it"
        if name == "nvcc" and os.environ.get("NERF_CUDA") == "0":
            absent = "not looked for: NERF_CUDA=0 switches CUDA off"
        version = f"{told[0]} ({' '.join(command)})" if told else absent
        yield Finding(name, version)


def _packages() -> Iterator[Finding]:
    for module, purpose in (NEEDED | OPTIONAL).items():
        name = module.rpartition(".")[2]
        if is_installed(module):
            yield Finding(name, f"present ({purpose.partition(':')[0]})")
        elif name in NEEDED:
            use, _, remedy = purpose.partition(": ")
            problem = f"the package {name} is missing ({use}); get it with: {remedy}"  # a wheel has no checkout
            yield Finding(name, "MISSING", problem)
        else:
            yield Finding(name, f"absent, optional ({purpose})")


def _room() -> Iterator[Finding]:
    disk = shutil.disk_usage(Path.cwd())
    yield Finding("disk", f"{disk.free / GIB:.1f} of {disk.total / GIB:.1f} GiB free in {Path.cwd()}")
    free, total = ("?" if size is None else f"{size / GIB:.1f}" for size in host_memory())
    yield Finding("memory", f"{free} of {total} GiB free, {os.cpu_count()} cores")


def _operations() -> Iterator[Finding]:
    chosen = backend.select()
    yield Finding("auto chooses", str(chosen))
    try:
        stamp = library.library_stamp()
    except library.NativeUnavailable as error:
        yield Finding("library", "MISSING", f"the native library cannot be had here: {error}.")
        return
    native = importlib.import_module("nerf.ops.native")
    problem = None
    if chosen.device.type == "cuda" and not library.has_cuda_code():
        problem = f"a GPU is there, but {chosen.reason}."
    yield Finding("library", f"sources {stamp} ({library.LIBRARY})", problem)
    devices = ["cpu"] + ["cuda"] * (torch.cuda.is_available() and library.has_cuda_code())
    for device in devices:
        for name in self_check.registered():
            result = self_check.check(name, device, native)
            text = f"right, {1e3 * result.seconds:.0f} ms" if result.checked else "not checked"
            yield Finding(f"{name}, {device}", "WRONG" if result.problem else text, result.problem)


def _lines(*command: str) -> list[str] | None:
    """The output of a tool; None if it is absent or fails."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.splitlines()
