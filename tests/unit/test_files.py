"""Files appear whole or not at all; a disk that takes no more is answered in words."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from script_runs import ROOT

from nerf.errors import UserError
from nerf.files import replacing
from nerf.images.write import save_floats

LIMIT = 20 * 1024  # bytes a file may have in a process that stands for a full disk

WRITE_A_VIDEO = """
import sys, torch
from pathlib import Path
from nerf.errors import UserError
from nerf.images.write import write_video
try:
    write_video(Path("video.mp4"), (torch.rand(64, 64, 3) for _ in range(20)), fps=10)
except UserError as error:
    print(error)
    sys.exit(2)
"""


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))


def test_a_file_takes_its_place_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.txt"
    with replacing(path) as partial:
        partial.write_text("whole")
        assert not path.exists() and partial.suffix == ".txt" and partial.parent == path.parent
    assert path.read_text() == "whole" and [x.name for x in path.parent.iterdir()] == ["a.txt"]


def test_an_interrupted_write_leaves_the_older_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("older")
    with pytest.raises(KeyboardInterrupt), replacing(path) as partial:
        partial.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "older" and [x.name for x in tmp_path.iterdir()] == ["a.txt"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"file/a.npy cannot be written \(.*\); free some space, or set hydra.run.dir"):
        save_floats(tmp_path / "file" / "a.npy", torch.zeros(3))


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    program = "import torch; from nerf.images.write import save_floats; save_floats('a.npy', torch.zeros(100, 100))"
    found = run_limited(program, tmp_path)
    assert "UserError: a.npy cannot be written (File too large); free some space" in found.stderr
    assert not any(tmp_path.iterdir())


def test_a_video_that_the_disk_cuts_off_is_no_video(tmp_path: Path) -> None:
    """ffmpeg meets the end of the disk by itself, after its last frame has been taken."""
    found = run_limited(WRITE_A_VIDEO, tmp_path)
    assert found.returncode == 2, found.stderr
    assert found.stdout.startswith("video.mp4 cannot be written (") and "; free some space" in found.stdout
    assert not any(tmp_path.iterdir())


def run_limited(program: str, folder: Path) -> subprocess.CompletedProcess:
    """Runs Python in a process whose files may not grow beyond LIMIT."""
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        preexec_fn=limit_files,
        capture_output=True,
        text=True,
        check=False,
    )
