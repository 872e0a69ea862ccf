"""Stages of structure from motion, with a stand-in for pycolmap: Ctrl-C, how COLMAP ends, what libraries print."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from script_runs import ROOT, TIMEOUT

from nerf.cli.prepare_poses import Run, failing_in_words, printed_to
from nerf.errors import UserError


class Token:
    """pycolmap's CancellationToken."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.cancel = self.event.set


@pytest.mark.skipif(os.name != "posix", reason="a process cannot send itself Ctrl-C here")
def test_an_interrupted_stage_has_ended(tmp_path: Path) -> None:
    """COLMAP at work while the interpreter ends crashes it."""
    database = SimpleNamespace(open=lambda path: contextlib.nullcontext())
    run = object.__new__(Run)
    run.pycolmap, run.folder, run.database = SimpleNamespace(Database=database, CancellationToken=Token), tmp_path, ""
    ended = []

    def work(token: Token) -> None:
        time.sleep(0.1)  # the main thread waits by now
        os.kill(os.getpid(), signal.SIGINT)
        assert token.event.wait(60)
        time.sleep(0.3)  # the photo in hand
        ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        run._stage("features", 1, lambda database: 0, work)
    assert ended


# A thread of C++ that ends by an exception does the same.
ABORTING = """
import ctypes, threading
from pathlib import Path
from nerf.cli.prepare_poses import failing_in_words
abort = threading.Thread(target=ctypes.CDLL(None).abort)
with failing_in_words("features", Path("out/colmap")):
    if {inside}:
        abort.start(), abort.join()
abort.start(), abort.join()
"""


@pytest.mark.skipif(os.name != "posix", reason="Windows tells no process of its abort()")
def test_colmap_aborts_in_words() -> None:
    """As it does where it cannot write, in a thread of its own: the process ends, but says why."""

    def run(inside: bool) -> subprocess.CompletedProcess:
        program = [sys.executable, "-c", ABORTING.format(inside=inside)]
        return subprocess.run(program, capture_output=True, text=True, timeout=TIMEOUT, cwd=ROOT, check=False)

    told = run(inside=True)
    assert told.returncode == 2 and told.stderr.count("error: ") == 1
    assert "COLMAP broke off while it computed features" in told.stderr and "out/colmap" in told.stderr
    assert run(inside=False).returncode == -signal.SIGABRT


def test_colmap_gives_up_in_words(tmp_path: Path) -> None:
    """Its exceptions, with words and without; those of the trainer stay as they are."""
    for raised, expected in (
        (RuntimeError("no factory\nat line 3"), r"stopped while it computed matches \(no factory\); its log is in"),
        (ValueError(), r"stopped while it computed matches \(ValueError\)"),
        (IndexError("Image with ID 1432 does not exist"), r"\(Image with ID 1432 does not exist\)"),
        (UserError("as it was"), "^as it was$"),
    ):
        with pytest.raises(UserError, match=expected), failing_in_words("matches", tmp_path):
            raise raised


@pytest.mark.parametrize("counts", [(4, 143, 1), (5, 142, 1), (5, 143, 2)])
def test_a_scene_that_colmap_wrote_in_part_is_no_scene(tmp_path: Path, counts: tuple[int, int, int]) -> None:
    """It goes on where the disk is full, without a word."""

    def model(images: int, points: int, cameras: int) -> SimpleNamespace:
        values = {"num_reg_images": images, "num_points3D": points, "num_cameras": cameras}
        return SimpleNamespace(**{name: lambda value=value: value for name, value in values.items()})

    run, solved = object.__new__(Run), model(5, 143, 1)
    run.folder, run.pycolmap = tmp_path, SimpleNamespace(Reconstruction=lambda folder: model(*counts))
    with pytest.raises(UserError, match="sparse was not written whole"):
        run._check_written(tmp_path / "sparse", solved)
    run.pycolmap.Reconstruction = lambda folder: solved
    (tmp_path / "sparse").mkdir()
    run._check_written(tmp_path / "sparse", solved)


def test_what_libraries_print_goes_to_a_file(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """C has a buffer of its own, which is written out late."""
    libc = ctypes.CDLL(None)
    print("before")
    with printed_to(tmp_path / "printed.txt"):
        libc.printf(b"BLAS : Bad memory unallocation!\n")
    print("after")
    libc.fflush(None)
    assert capfd.readouterr().out == "before\nafter\n"
    assert (tmp_path / "printed.txt").read_text() == "BLAS : Bad memory unallocation!\n"


# The whole
