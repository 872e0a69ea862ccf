"""The commands that are tried on a failing disk, and what each case must leave: used by the tests and by tests/fuzz."""

import contextlib
import errno
import functools
import importlib.util
import io
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fault_checks import complaints, half_files, left_overs, memory_complaints, saved_step
from faulty_disk import EVERY_KIND, Commands, Fault, read_record
from power_loss import Disk
from textured_photos import write_textured_photos
from tiny_runs import write_tiny_scene

from nerf.runs import checkpoint

SCENE = ("dataset.root=scene", "dataset.downscale=1", "evaluation.every=8")
SMOKE = ("experiment=smoke", *SCENE, "device=cpu")
SHORT = (*SMOKE, "log=none")
OUT = "hydra.run.dir=out"
STEPS = 60  # of the run that the commands are given: from there on it has a surface
ROWS = (
    *("field.upsample_at=[]", "train.rays_per_step=64", "ablation.warm_steps=30", "ablation.timed_steps=1"),
    *("ablation.num_batches=1", "ablation.compile=false", "ablation.equal_steps=2"),
)
# By name: the words of the command. All but train, sweep, ablate and prepare are given a run of STEPS steps.
COMMANDS = {
    "train": ("train", *SHORT, "train.steps=4", "train.save_every=2", OUT),
    "resume": ("train", "resume=run", f"train.steps={STEPS + 4}", "train.save_every=2", "log=none"),
    "sweep": ("train", "-m", *SHORT, "train.steps=2", "seed=0,1", "hydra.sweep.dir=out"),
    "render": ("render", "run", "frames=2", "width=8", "floats=true", OUT),
    "evaluate": ("evaluate", "run", "every=8", OUT),
    "mesh": ("mesh", "run", "file=mesh.obj", OUT),
    "points": ("export", "run", "format=points", OUT),
    "volume": ("export", "run", "format=volume", OUT),
    "cameras": ("export", "run", "format=cameras", OUT),
    "colmap": ("export", "run", "format=colmap", OUT),
    "glb": ("export", "run", "format=mesh", OUT),
    "textured": ("mesh", "run", "file=mesh.obj", "triangles=80", "texture=true", "texture_size=64", OUT),
    "web": ("export", "run", "format=web", "web_steps=2", OUT),
    "vti": ("export", "run", "format=volume", "file=volume.vti", OUT),
    "spz": ("export", "run", "format=splats", "file=splats.spz", "splats_steps=1", "max_splats=50", OUT),
    "dry_run": ("train", *SHORT, "train.steps=4", "dry_run=true", OUT),
    "compare": ("evaluate", "runs=run,other", OUT),
    "step": ("benchmark", "mode=step", *SMOKE, "train.steps=30", OUT),
    "splats": ("export", "run", "format=splats", "splats_steps=0", "max_splats=50", OUT),
    "ablate": ("ablate", *SMOKE, *ROWS, OUT),
}
if importlib.util.find_spec("pycolmap"):
    COMMANDS["prepare"] = ("prepare", "photos", "out", "--size", "310", "--threads", "1")
ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EDQUOT, errno.EROFS)


@dataclass(frozen=True)
class Place:
    """A folder with the tiny scene and a trained run in it, of which each case gets a copy."""

    folder: Path
    commands: Commands

    @contextlib.contextmanager
    def copy(self) -> Iterator[Path]:
        case = self.folder.parent / "case"
        shutil.copytree(self.folder, case)
        try:
            yield case
        finally:
            shutil.rmtree(case)

    @functools.cache  # noqa: B019 - several tests ask, of one place
    def calls(self, name: str, kinds: tuple[str, ...] = EVERY_KIND) -> int:
        """How many calls a command makes that can fail."""
        with self.copy() as case:
            outcome = self.commands.run(case, COMMANDS[name], Fault(kinds=kinds))
            assert outcome.status == 0, outcome.said
        return outcome.calls


def prepare(folder: Path, commands: Commands) -> Place:
    place = Place(folder / "place", commands)
    write_tiny_scene(place.folder / "scene")
    trained = commands.run(place.folder, ("train", *SHORT, f"train.steps={STEPS}", "hydra.run.dir=run"))
    assert trained.status == 0, trained.said
    shutil.copytree(place.folder / "run", place.folder / "other")
    write_textured_photos(place.folder / "photos", 5)
    return place


def fault_problems(place: Place, name: str, fault: Fault) -> list[str]:
    """What goes wrong where one call of a command fails."""
    with place.copy() as case:
        before = saved_step(case / "run")
        outcome = place.commands.run(case, COMMANDS[name], fault)
        found = complaints(outcome, case, fault.lasting)
        found += _lost(case, before)
        return [f"{name}, {fault}: {problem}\n{outcome.err[-600:]}" for problem in found]


def room_problems(place: Place, words: Sequence[str], room: int) -> list[str]:
    """What goes wrong where a command has so many MiB of memory, which are too few for it."""
    with place.copy() as case:
        before = saved_step(case / "run")
        outcome = place.commands.run(case, words, room=room)
        found = memory_complaints(outcome, case) + _lost(case, before)
        if outcome.status != 2:
            found.append(f"it ends with {outcome.status}")
        if " lower " not in outcome.said:
            found.append("it names no setting to lower")
        return [f"{' '.join(words)} in {room} MiB: {problem}\n{outcome.err[-600:]}" for problem in found]


def kill_problems(place: Place, name: str, at: int) -> list[str]:
    """What goes wrong where a command is killed before one call, and is started again."""
    fault = Fault(at=at)
    with place.copy() as case:
        before = saved_step(case / "run")
        killed = place.commands.run(case, COMMANDS[name], fault)
        assert killed.status == -9, killed
        found = half_files(case) + _lost(case, before)
        words = COMMANDS[name]
        if name == "train" and saved_step(case / "out"):
            words = ("train", "resume=out")
        again = place.commands.run(case, words)
        if again.status:
            found.append(f"started again it ends with {again.status}: {again.err[-600:]}")
        found += [f"{path} is left" for path in left_overs(case)] + half_files(case)
        return [f"{name}, killed before call {at}: {problem}" for problem in found]


def _lost(case: Path, before: int) -> list[str]:
    """Whether the run lost a step that was saved before the command, or its model."""
    with contextlib.redirect_stderr(io.StringIO()):
        model = checkpoint.load(case / "run")["step"]
    after = saved_step(case / "run")
    return (
        [] if min(after, model) >= before else [f"the run was at step {before}, and is at {after}, its model {model}"]
    )


def drawn(dice: random.Random, calls: int) -> Fault:
    """A fault at a random call: the disk fails once, or is full from then on."""
    return Fault(at=dice.randint(1, calls), error=dice.choice(ERRORS), lasting=dice.random() < 0.3)


def power_losses(record: Path, folder: Path, run: str, dice: random.Random) -> Iterator[tuple[int, Path]]:
    """What a loss of power may leave of a recorded command, after each of its calls, with the step promised by then.

    Each is a copy below folder, of the run alone. What was not flushed is lost, may be there, or is there in part.
    """
    disk, promised, seen = Disk(), 0, set()
    for call in read_record(record):
        promised = call.offset if call.kind == "mark" else promised
        disk.apply(call)
        for chance in (0.0, 1.0, 0.5):
            files = disk.after_power_loss(chance, dice)
            files = {name: content for name, content in files.items() if f"/{run}/" in name}
            state = (promised, *sorted((name, hash(content)) for name, content in files.items()))
            if state in seen:
                continue
            seen.add(state)
            place = folder / str(len(seen))
            place.mkdir()
            for name, content in files.items():
                if name.endswith(".pt"):
                    (place / Path(name).name).write_bytes(content)
            yield promised, place
            shutil.rmtree(place)
