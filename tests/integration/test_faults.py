"""Commands on a disk that fails, without power or output, and killed: nothing is lost, half or left behind.

A drawn part of what tests/fuzz/faults.py tries; each case is a fork of one warm process.
"""

import errno
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fault_cases import (
    COMMANDS,
    OUT,
    SHORT,
    Place,
    drawn,
    fault_problems,
    kill_problems,
    power_losses,
    prepare,
    room_problems,
)
from fault_checks import half_files, left_overs, saved_step
from faulty_disk import Fault, commands

from nerf.runs import checkpoint

FAULTS = ("train", "train", "train", "resume", "resume", "sweep", "render", "colmap")
LARGE_GRID = ("field.num_voxels=1000000", "field.min_voxel_pixels=0.01", "field.upsample_at=[]")
TOO_LARGE = {  # for 8 MiB
    "train": ("train", *SHORT, "train.steps=4", *LARGE_GRID, OUT),
    "render": ("render", "run", "frames=2", "width=1200", OUT),
    "mesh": ("mesh", "run", "file=mesh.obj", "triangles=80", "texture=true", "texture_size=2048", OUT),
    "splats": ("export", "run", "format=splats", "file=a.spz", "splats_steps=1", "max_splats=1000000", OUT),
}
KILLS = ("train", "resume", "render", "splats", "prepare")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with commands() as runner:
        yield prepare(tmp_path_factory.mktemp("faults"), runner)


def test_a_call_that_fails_is_answered_and_costs_nothing_saved(place: Place) -> None:
    dice = random.Random(0)
    calls = {name: place.calls(name) for name in dict.fromkeys(FAULTS)}
    problems = [problem for name in FAULTS for problem in fault_problems(place, name, drawn(dice, calls[name]))]
    assert not problems, "\n".join(problems)


def test_an_allocation_that_fails_is_answered_and_costs_nothing_saved(place: Place) -> None:
    """Once while Hydra reads the settings, and from a place near the end on: there a run has been saved."""
    dice, problems = random.Random(3), []
    for name in ("train", "render", "points"):
        calls = place.calls(name, ("memory",))
        for at, lasting in ((dice.randint(1, 100), False), (calls * 9 // 10, True)):
            problems += fault_problems(place, name, Fault(at, errno.ENOMEM, lasting, ("memory",)))
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_command_with_too_little_memory_says_what_to_lower(place: Place, name: str) -> None:
    """RLIMIT_AS, as batch systems set it: nothing is half, and the run that was there loads."""
    assert not room_problems(place, TOO_LARGE[name], room=8)


def test_a_killed_command_loses_nothing_and_leaves_nothing(place: Place) -> None:
    dice, problems = random.Random(1), []
    for name in filter(COMMANDS.__contains__, KILLS):  # prepare where pycolmap is
        problems += kill_problems(place, name, dice.randint(1, place.calls(name)))
    assert not problems, "\n".join(problems)


def test_a_loss_of_power_leaves_the_last_checkpoint_that_was_saved(place: Place, tmp_path: Path) -> None:
    """Whatever was not flushed by then: in no state of the disk is a saved step lost or a file half."""
    cases, promised = 0, 0
    words = ("train", *SHORT, "train.steps=3", "train.save_every=1", OUT)
    with place.copy() as case:
        outcome = place.commands.run(case, words, record=tmp_path / "record")
        assert outcome.status == 0, outcome.said
    for promised, left in power_losses(tmp_path / "record", tmp_path, "out", random.Random(2)):
        cases += 1
        assert saved_step(left) >= promised
        if promised:
            assert checkpoint.load(left)["step"] >= promised
        assert not half_files(left)
    assert cases >= 10 and promised == 3


def test_a_run_is_read_whole_while_it_is_trained_and_saved(place: Place) -> None:
    words = ("train", "resume=run", "train.steps=80", "train.save_every=1", "log=none")
    with place.copy() as case, ThreadPoolExecutor(1) as trainer:
        training, steps = trainer.submit(place.commands.run, case, words), []
        while not training.done():
            steps.append((checkpoint.load(case / "run" / "model.pt")["step"], saved_step(case / "run" / "resume.pt")))
        assert training.result().status == 0, training.result().err
        assert steps == sorted(steps) and len(set(steps)) > 3
        assert saved_step(case / "run") == 80 and not left_overs(case)


@pytest.mark.parametrize("output", ["/dev/full", "closed", "pipe"])
def test_a_run_outlasts_what_it_prints_to(place: Place, output: str) -> None:
    with place.copy() as case:
        ended = place.commands.run(case, COMMANDS["train"], output=output)
        assert ended.status == {"/dev/full": 2, "closed": 0, "pipe": 141}[output]
        assert {"metrics.json", "orbit.mp4", "model.pt"} <= {path.name for path in (case / "out").iterdir()}
        assert not half_files(case)


def test_what_a_fault_is_told_by_is_seen_by_the_checks(place: Place) -> None:
    """The disk does fail: with the first file of a run that cannot be opened there is no run."""
    with place.copy() as case:
        failed = place.commands.run(case, COMMANDS["train"], Fault(at=1, error=28, lasting=True))
        assert failed.status == 2 and failed.failed is not None and not (case / "out" / "model.pt").exists()
