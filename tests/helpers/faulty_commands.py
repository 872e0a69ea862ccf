"""The process that faulty_disk.py starts: for each line on standard input, JSON, it runs a command in a fork."""

import contextlib
import ctypes
import functools
import gc
import json
import os
import resource
import sys
import tempfile
import traceback
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parent)]
import nerf  # noqa: E402, F401 - before torch, as the commands do

# isort: split
from faulty_disk import KINDS  # noqa: E402
from tiny_runs import write_tiny_scene  # noqa: E402

from nerf.cli import scored_views  # noqa: E402
from nerf.cli.main import command  # noqa: E402
from nerf.runs import checkpoint  # noqa: E402

DISK = ctypes.CDLL(None)
DISK.faulty_failed.restype = ctypes.c_char_p
DISK.faulty_mark.argtypes = [ctypes.c_int64]
SETTINGS = ("experiment=smoke", "dataset.downscale=1", "dataset.root=scene", "device=cpu", "train.steps=60", "log=none")
WARM_UP = (
    ("train", *SETTINGS, "hydra.run.dir=run"),
    ("render", "run", "frames=2", "width=8", "floats=true"),
    ("evaluate", "run"),
    *(("export", "run", f"format={name}") for name in ("points", "volume", "cameras", "colmap")),
    ("export", "run", "format=web", "web_steps=2"),
    ("export", "run", "format=splats", "file=splats.spz", "splats_steps=1", "max_splats=50"),
    ("mesh", "run", "file=mesh.obj", "triangles=80", "texture=true", "texture_size=64"),
    ("train", *SETTINGS, "dry_run=true"),
)


def main() -> None:
    scored_views.ORBIT_VIEWS = 2
    with contextlib.suppress(ImportError):
        import pycolmap  # noqa: F401 - optional; its threads are those of each fork
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_tiny_scene(Path("scene"))
        for words in WARM_UP:
            assert _status(words) == 0, words
    gc.collect()
    gc.freeze()  # else each fork would look through all of it for garbage, and copy it by that
    for line in sys.stdin:
        answers.write(json.dumps(_in_a_fork(json.loads(line))) + "\n")


def _in_a_fork(job: dict) -> dict:
    temporary = functools.partial(tempfile.TemporaryFile, "w+")
    with temporary() as out, temporary() as err, temporary() as facts, tempfile.TemporaryDirectory() as other:
        job["other"] = other  # where what cannot be saved in its own folder is saved
        child = os.fork()
        if not child:
            os.dup2(out.fileno(), 1), os.dup2(err.fileno(), 2)
            status = _child(job)
            failed = (DISK.faulty_failed() or b"").decode().partition(" ")
            json.dump({"calls": DISK.faulty_count(), "kind": failed[0], "failed": failed[2]}, facts)
            facts.flush()
            os._exit(status)
        _, ended = os.waitpid(child, 0)
        for file in (out, err, facts):
            file.seek(0)
        found = json.loads(facts.read() or '{"calls": 0, "kind": "", "failed": ""}')
        kind = next((word for word, number in KINDS.items() if str(number) == found["kind"]), None)
        status = os.waitstatus_to_exitcode(ended)
        return {
            "status": status, "out": out.read(), "err": err.read(),
            "calls": found["calls"], "kind": kind, "failed": found["failed"] or None,
        }  # fmt: skip


def _child(job: dict) -> int:
    os.chdir(job["folder"])
    tempfile.tempdir = job["other"]
    if job["record"]:
        DISK.faulty_record(os.open(job["record"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        save = checkpoint.save

        def marked(folder: Path, config: object, state: object, cameras: object) -> None:
            save(folder, config, state, cameras)
            DISK.faulty_mark(state.clock.step)

        checkpoint.save = marked
    _print_to(job["output"])
    if job["room"] is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + (job["room"] << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    fault = job["fault"]
    kinds = sum(KINDS[kind] for kind in fault["kinds"])
    DISK.faulty_arm(job["folder"].encode(), kinds, ctypes.c_long(fault["at"]), fault["error"], fault["lasting"])
    status = _status(job["words"])
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    return status


def _print_to(place: str) -> None:
    """Makes the standard streams what they are for a process that is started with `>place`, or with `>&-`."""
    if place == "closed":
        os.close(1), os.close(2)
        sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = None
    elif place:
        reader, writer = os.pipe() if place == "pipe" else (os.dup(0), os.open(place, os.O_WRONLY))
        os.close(reader)
        os.dup2(writer, 1), os.dup2(writer, 2), os.close(writer)


def _status(words: list[str]) -> int:
    """The exit status of a command, as Python would give it; an error of the program shows its traceback."""
    sys.argv = [f"-m nerf {words[0]}", *words[1:]]
    try:
        return command(words[0])
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:  # noqa: BLE001 - as at the end of a process
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    main()
