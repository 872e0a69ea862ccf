"""Every numeric setting at the end of its range: a run begins and steps, or a sentence names what is wrong."""

import dataclasses
import gc
import os
import subprocess
import sys
import threading
import typing
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mutations import collect, limited
from tiny_runs import run_to, tiny_config, tiny_images

from nerf.cli.failures import explain
from nerf.config.schema import Config, build
from nerf.errors import TrainingStopped, UserError
from nerf.ops.backend import select
from nerf.runs.run import start

LARGEST = {int: 2**62, float: 1e30}  # where a setting has no end
BACKEND = select("native", "cpu")


def ends(settings: object, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Names of numeric settings with their largest values."""
    hints = typing.get_type_hints(type(settings))
    for field in dataclasses.fields(settings):
        value, name = getattr(settings, field.name), f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from ends(value, f"{name}.")
            continue
        options = typing.get_args(hints[field.name]) or (hints[field.name],)
        for kind in (int, float):
            if kind in options and not field.metadata.get("choices"):
                high = field.metadata.get("high")
                yield name, kind(LARGEST[kind] if high is None else high)


@pytest.mark.parametrize(("name", "value"), list(ends(Config(field=tiny_config("voxel_sh").field))))
def test_the_largest_value_of_a_setting(name: str, value: object) -> None:
    values = dataclasses.asdict(tiny_config("voxel_sh", steps=2))
    group, _, leaf = name.rpartition(".")
    (values[group] if group else values)[leaf] = value
    if group == "poses":
        values["poses"]["mode"] = "refine"
    try:
        with limited(None):
            run = start(build(Config, values), tiny_images(), BACKEND)
            run_to(run.config, run.state, 1)
    except (UserError, TrainingStopped) as error:
        assert str(error)
    except (RuntimeError, MemoryError) as error:  # more than the machine has, which commands say so
        assert explain(error, "outputs/run", [name]) is not None, error


GARBAGE = """
import gc
import torch
from mutations import ROOM, limited

garbage = [torch.empty(3 * ROOM // 4, dtype=torch.uint8)]
garbage.append(garbage)
del garbage
with limited(None):
    gc.collect()
    torch.empty(3 * ROOM // 2, dtype=torch.uint8)
"""


def test_garbage_gives_no_room() -> None:
    """Once a gigabyte that a test before had left was collected within the limits, and gave what followed its room.

    In a process of its own: what others leave free in the heap of this one is room that no limit takes away.
    """
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "helpers")}
    done = subprocess.run([sys.executable, "-c", GARBAGE], env=env, capture_output=True, text=True)
    assert done.returncode == 1 and "can't allocate memory" in done.stderr, done.stderr


class Waiting:
    """Garbage whose collection waits for an event."""

    def __init__(self, begun: threading.Event, go_on: threading.Event) -> None:
        self.own, self.begun, self.go_on = self, begun, go_on

    def __del__(self) -> None:
        self.begun.set()
        self.go_on.wait()


def test_garbage_goes_though_another_thread_collects() -> None:
    """gc.collect() does nothing meanwhile: the test above failed once, where a thread of pytest-xdist was at it."""
    begun, go_on = threading.Event(), threading.Event()
    other = threading.Thread(target=gc.collect)
    gc.disable()  # no collection but those that are asked for
    try:
        Waiting(begun, go_on)
        other.start()
        begun.wait()
        garbage = Waiting(threading.Event(), go_on)
        there = weakref.ref(garbage)
        del garbage
        gc.collect()
        assert there() is not None
        threading.Timer(0.1, go_on.set).start()
        collect()
        assert there() is None
    finally:
        go_on.set()
        gc.enable()
    other.join()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("train.rays_per_step", 2**62),
        ("poses.mask_dilation_degrees", 1e30),
        ("poses.perturb_translation", 1e30),
        ("seed", sys.maxsize + 1),
    ],
)
def test_what_once_ended_otherwise(name: str, value: object) -> None:
    group, _, leaf = name.rpartition(".")
    with pytest.raises(UserError, match=f"{name}=.* is out of range"):
        build(Config, {group: {leaf: value}} if group else {leaf: value})
