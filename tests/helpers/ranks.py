"""Several ranks on this machine, each a process of one thread, for tests."""

import os
import socket
import sys
import tempfile
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from nerf.distributed.world import World


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def on_ranks(count: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What work(world, *arguments) returns on each rank. work: of a module that can be imported by its name.

    Ranks are forks of one process that has imported what all of them need and done nothing else.
    """
    multiprocessing.set_forkserver_preload(["nerf", "torch.distributed", "pytest", "tiny_runs", "nerf.cli.ranks"])
    with mock.patch.dict(os.environ, {"PYTHONPATH": os.pathsep.join(sys.path)}):  # it knows no other path yet
        forkserver.ensure_running()
    with tempfile.TemporaryDirectory() as folder:
        given = (count, folder, work, arguments, list(sys.path))
        multiprocessing.start_processes(_rank, given, nprocs=count, start_method="forkserver")
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=False) for rank in range(count)]


def _rank(rank: int, count: int, folder: str, work: Callable, arguments: tuple, path: list[str]) -> None:
    sys.path[:] = path
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=count)
    torch.manual_seed(0)
    torch.save(work(World(rank, count, rank), *arguments), Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()
