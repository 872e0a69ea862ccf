"""Ranks that would not compute the same are told apart before the first step."""

import platform
import socket
from collections.abc import Mapping

import torch

from nerf.distributed.world import World
from nerf.errors import UserError

REMEDY = "every rank needs the same command line, the same files, the same versions and the same kind of GPU"


def versions() -> dict[str, object]:
    """What can make the same settings give other numbers."""
    return {"Python": platform.python_version().rpartition(".")[0], "PyTorch": torch.__version__}


def check_agreed(world: World, facts: Mapping[str, object]) -> None:
    """Raises UserError on every rank, naming the first fact that differs from rank 0's, its values and the rank."""
    told = world.all_gather_objects((socket.gethostname(), {name: repr(value) for name, value in facts.items()}))
    _, expected = told[0]
    for rank, (host, found) in enumerate(told):
        for name in [*expected, *(found.keys() - expected.keys())]:
            here, there = found.get(name, "none"), expected.get(name, "none")
            if here != there:
                raise UserError(
                    f"{world.named(rank, host)} has {name}={here}, and rank 0 has {name}={there}; {REMEDY}."
                )
