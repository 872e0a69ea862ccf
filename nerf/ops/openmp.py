"""OpenMP's threads wait asleep, so that training keeps its speed where cores are shared with other processes.

By default a thread of PyTorch's OpenMP spins for some milliseconds after each parallel loop, in wait for the next one.
On a busy machine that is time which the threads with work do not get: training takes ten times as long. `import nerf`
calls sleep_while_waiting(); what the user has set by OMP_WAIT_POLICY or GOMP_SPINCOUNT stays.
"""

import ctypes
import importlib
import os
import sys
import threading
from pathlib import Path

from nerf.system import usable_cores

POLICY, SPINS = "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"


def sleep_while_waiting() -> None:
    """Before PyTorch is imported, sets the variable that OpenMP reads then; after it, outnumbers the cores."""
    if POLICY in os.environ or SPINS in os.environ:
        return
    os.environ[POLICY] = "PASSIVE"
    if "torch" in sys.modules and importlib.import_module("torch").get_num_threads() > 1:
        _outnumber_cores()


def _outnumber_cores() -> None:
    """Makes GNU OpenMP (libgomp), which has read its variables, spin for a moment only.

    It spins a thousandth as long while it manages more threads than there are cores (GCC's libgomp, config/linux/wait.h
    and team.c), whatever these do. So one thread of ours opens a parallel region in which nothing happens, one wider
    than the cores, and lives on: its team sleeps from then on. Without libgomp nothing is done.
    """
    library = Path(sys.modules["torch"].__file__).with_name("lib") / "libtorch_cpu.so"
    if not library.is_file() or "libgomp" not in Path("/proc/self/maps").read_text():
        return
    run_region = getattr(ctypes.CDLL(str(library)), "GOMP_parallel", None)  # of the OpenMP that PyTorch uses
    if run_region is None:
        return
    run_region.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    nothing = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)  # a function of one pointer, which may be null
    width, done = usable_cores() + 1, threading.Event()

    def own_a_team() -> None:
        run_region(nothing, None, width, 0)
        done.set()
        threading.Event().wait()

    threading.Thread(target=own_a_team, name="nerf-openmp", daemon=True).start()
    done.wait()
