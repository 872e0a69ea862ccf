"""Messages for failures of the machine: too little memory, a full disk, a folder that cannot be written."""

import errno
import re
from pathlib import Path

import torch

from nerf.errors import is_out_of_memory
from nerf.files import DISK_FULL

# EREMOTEIO and EUCLEAN are Linux's.
FAILING = {errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.ETIMEDOUT}
FAILING |= {getattr(errno, name) for name in ("EREMOTEIO", "EUCLEAN") if hasattr(errno, name)}
FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR}
# The settings with the largest effect on memory, and their remedy; a command names those that it has.
MEMORY_REMEDIES = {
    "train.rays_per_step": "lower train.rays_per_step",
    "field.num_voxels": "lower field.num_voxels",
    "dataset.downscale": "raise dataset.downscale",
    "width": "lower width",
    "max_splats": "of splats lower max_splats",
    "texture_size": "lower texture_size",
    "ensemble": "of an ensemble name fewer runs",
    "device": "use device=cpu",
}


def explain(error: Exception, folder: Path | str, settings: list[str]) -> str | None:
    """The message for a failure of the machine; None for an error of the program.

    folder: of the run. settings: names of the script's settings.
    """
    if isinstance(error, OSError) and not is_out_of_memory(error):
        return _disk(error, folder)
    needed = _memory(error)
    if needed is None:
        return None
    remedies = [remedy for name, remedy in MEMORY_REMEDIES.items() if name in settings]
    if not needed.startswith("the GPU"):
        remedies = [remedy for remedy in remedies if "device" not in remedy]
    return f"{needed}; {', '.join([*remedies, 'or close other programs that use it'])}.{_kept(folder)}"


def _memory(error: Exception) -> str | None:
    """Which memory was exhausted, how much was needed and how much was free; None for other errors."""
    message = str(error)
    if isinstance(error, torch.OutOfMemoryError):
        needed = re.search(r"Tried to allocate ([\d.]+ \w+)", message)
        free = re.search(r"total capacity of ([\d.]+ \w+) of which ([\d.]+ \w+) is free", message)
        if not needed or not free:
            return f"the GPU is out of memory ({message.splitlines()[0]})"
        return f"the GPU is out of memory: {needed[1]} more were needed, {free[2]} of its {free[1]} are free"
    if message.startswith(("out of memory: ", "CUDA out of memory")):  # from an operation of ours, on either device
        return _out_of_memory_in_an_operation(message.splitlines()[0])
    needed = re.search(r"DefaultCPUAllocator: .*you tried to allocate (\d+) bytes", message)
    if needed:
        return f"this machine is out of memory: {int(needed[1]) / 2**30:.2f} GiB more were needed"
    if not is_out_of_memory(error):
        return None
    return f"this machine is out of memory ({message.splitlines()[0]})" if message else "this machine is out of memory"


def _out_of_memory_in_an_operation(message: str) -> str:
    if not torch.cuda.is_initialized():
        return f"this machine is {message}"
    free, total = (f"{size / 2**30:.2f} GiB" for size in torch.cuda.mem_get_info())
    return f"the GPU is {message}; {free} of its {total} are free"


def _disk(error: OSError, folder: Path | str) -> str | None:
    where = error.filename2 or error.filename or folder  # of a rename, what the file was to be called
    if error.errno in DISK_FULL:
        return (
            f"{where} cannot be written ({error.strerror}): the disk or what you may use of it is full; free some "
            f"space, or set hydra.run.dir to another disk.{_kept(folder)}"
        )
    if error.errno in FAILING:
        return (
            f"{where} cannot be read or written ({error.strerror}): its disk fails, or the connection to it; check "
            f"that, or set hydra.run.dir to another disk.{_kept(folder)}"
        )
    if error.errno in FORBIDDEN:
        return forbidden(error, folder)
    return None


def forbidden(error: OSError, folder: Path | str) -> str:
    """The message for a folder that cannot be created or written."""
    where = error.filename2 or error.filename or folder
    return f"{where} cannot be made or written ({error.strerror}); set hydra.run.dir to a folder that you may write."


def _kept(folder: Path | str) -> str:
    try:
        found = Path(folder).is_dir() and any(Path(folder).iterdir())
    except OSError:  # a look takes memory, too
        found = True
    return f" What was written before is kept in {folder}." if found else ""
