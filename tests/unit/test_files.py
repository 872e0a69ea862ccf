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
from nerf.files import clear_left_overs, partial_file, replacing, write_text
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


def test_a_file_is_flushed_before_it_takes_its_place_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fsync(file), rename, fsync(folder); a new folder is flushed into the one above."""
    calls, fsync, rename = [], os.fsync, os.replace

    def noted_fsync(file: int) -> None:
        calls.append(("fsync", Path(f"/proc/self/fd/{file}").readlink().relative_to(tmp_path).as_posix()))
        fsync(file)

    def noted_rename(source: Path, target: Path) -> None:
        calls.append(("rename", target.relative_to(tmp_path).as_posix()))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_rename)
    write_text(tmp_path / "new" / "a.txt", "whole")
    partial = calls.pop(1)
    assert partial[0] == "fsync" and partial[1].startswith("new/.a.")
    assert calls == [("fsync", "."), ("rename", "new/a.txt"), ("fsync", "new")]


def test_the_file_before_is_kept_under_a_second_name_and_the_first_name_is_never_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, previous, rename = tmp_path / "a", tmp_path / "before", os.replace

    def checked(source: Path, target: Path) -> None:
        assert path.exists() or not previous.exists()
        rename(source, target)

    monkeypatch.setattr(os, "replace", checked)
    for content in (b"1", b"2", b"3"):
        with partial_file(path, previous) as file:
            file.write(content)
    assert (path.read_bytes(), previous.read_bytes()) == (b"3", b"2") and len(list(tmp_path.iterdir())) == 2


def test_left_overs_of_dead_writers_go_and_files_of_living_ones_stay(tmp_path: Path) -> None:
    program = "import os, sys; from pathlib import Path; from nerf.files import replacing\n"
    program += "with replacing(Path(sys.argv[1])) as partial: partial.write_text('half'); os.kill(os.getpid(), 9)"
    where = os.environ | {"PYTHONPATH": str(ROOT)}
    video, mine = tmp_path / "rgb" / "orbit.mp4", tmp_path / ".orbit.mine.mp4"
    subprocess.run([sys.executable, "-c", program, str(video)], env=where, check=False)
    assert len(list(video.parent.iterdir())) == 1
    mine.write_text("not ours")
    with replacing(tmp_path / "b.txt") as living:
        clear_left_overs(tmp_path)
        assert living.exists()
    assert not list(video.parent.iterdir()) and mine.exists()


def test_two_writers_of_one_file_and_a_reader_see_whole_files(tmp_path: Path) -> None:
    path, size = tmp_path / "a", 200_000
    program = "import sys; from pathlib import Path; from nerf.files import replacing\nfor _ in range(20):\n"
    program += "  with replacing(Path(sys.argv[1])) as partial: partial.write_text(sys.argv[2] * int(sys.argv[3]))"
    where = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, str(path)]
    writers = [subprocess.Popen([*command, letter, str(size)], env=where) for letter in "xy"]
    while any(writer.poll() is None for writer in writers):
        assert not path.exists() or path.read_text() in ("x" * size, "y" * size)
    assert [writer.wait() for writer in writers] == [0, 0] and [file.name for file in tmp_path.iterdir()] == ["a"]


def test_a_name_may_be_as_long_as_a_file_system_takes_it(tmp_path: Path) -> None:
    write_text(tmp_path / ("n" * 250 + ".txt"), "")


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
