"""What operating systems do each in their own way: locks of files, cores, memory. And which packages are installed.

The tests run on Linux, and try the other ways with stand-ins.
"""

import importlib.metadata
import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None
    import msvcrt
try:
    import resource
except ImportError:  # Windows
    resource = None

MEMORY = Path("/proc/meminfo")
KERNEL = Path("/proc/sys/kernel/osrelease")  # its name; under Windows it ends in "microsoft-standard-WSL2"
JETSON = Path("/etc/nv_tegra_release")
LOCKED_BYTE = 1 << 30  # Windows keeps others from reading what is locked: a byte behind all that a file of ours holds


def version() -> str:
    """The version of this package: that of its checkout, or of what is installed."""
    project = Path(__file__).resolve().parents[1] / "pyproject.toml"
    if project.is_file():
        return re.search(r'^version = "(.+)"$', project.read_text(encoding="utf-8"), re.MULTILINE)[1]
    return importlib.metadata.version("nerf-voxel")


def lock_file(file: IO | int, wait: bool = True) -> None:
    """Locks an open file for this process until it is closed or the process ends, however that happens.

    Raises BlockingIOError where another process has the lock and wait is false, OSError where the file system has no
    locks.
    """
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return
    number = file if isinstance(file, int) else file.fileno()
    place = os.lseek(number, 0, os.SEEK_CUR)
    os.lseek(number, LOCKED_BYTE, os.SEEK_SET)
    try:
        _lock_byte(number, wait)
    finally:
        os.lseek(number, place, os.SEEK_SET)


def _lock_byte(number: int, wait: bool) -> None:
    while True:
        try:
            msvcrt.locking(number, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
            return
        except OSError as error:  # LK_LOCK gives up after ten seconds
            if not wait:
                raise BlockingIOError(error.errno, "another process has the lock") from error


def usable_cores() -> int:
    """Cores that this process may use; those of the machine where the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def maps_gpu_memory() -> bool:
    """Whether a GPU's memory can be mapped piece by piece: on Linux, if it is the machine's own.

    In Linux under Windows the first allocation fails (pytorch/pytorch#192330); a Jetson has no such memory.
    """
    own = KERNEL.is_file() and "microsoft" not in KERNEL.read_text().lower()
    return sys.platform == "linux" and own and not JETSON.exists()


def host_memory() -> tuple[int | None, int | None]:
    """Bytes of host memory, free and in all; None where the system does not say: macOS the free ones, Windows both."""
    if MEMORY.is_file():
        rows = dict(line.split(":", 1) for line in MEMORY.read_text().splitlines())
        free, total = (int(rows[name].split()[0]) * 1024 for name in ("MemAvailable", "MemTotal"))
        return free, total
    if hasattr(os, "sysconf"):
        return None, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None, None


def is_installed(module: str) -> bool:
    """Whether a module, package.module too, can be imported, so far as that is known without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even its package is there
        return False


def peak_memory() -> int:
    """The most bytes of host memory that this process had at once; 0 where the system does not say."""
    if resource is None:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes
