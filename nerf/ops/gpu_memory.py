"""How PyTorch keeps a GPU's memory.

By default it keeps freed blocks as they were cut, of which larger tensors cannot be made: a run on photos reserved 5.6
GiB where 2.9 were in use at most. With expandable segments freed memory is joined again, whatever was cut from it.
"""

import os

from nerf.system import maps_gpu_memory

SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")  # PyTorch reads both


def join_freed_memory() -> None:
    """Sets the variable that PyTorch reads before it first uses a GPU; what the user has set stays.

    Not where the system cannot do it, nor for one of several ranks, with which it was never run.
    """
    alone = os.environ.get("WORLD_SIZE", "1") == "1"
    if alone and maps_gpu_memory() and not any(name in os.environ for name in SETTINGS):
        os.environ[SETTINGS[0]] = "expandable_segments:True"
