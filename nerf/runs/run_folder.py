"""The folder of a run: unique names, a lock for one writing process, protection against overwriting."""

import contextlib
import errno
import itertools
import json
import os
import socket
import sys
from pathlib import Path

from nerf.config.commands import assignment
from nerf.errors import UserError
from nerf.files import METRICS, clear_left_overs, flush_folder, make_folder
from nerf.runs.archive import MODEL_FILE, PREVIOUS_FILE, RESUME_FILE, SINGLE_FILE
from nerf.system import lock_file

CHECKPOINTS = (MODEL_FILE, RESUME_FILE, PREVIOUS_FILE, SINGLE_FILE)
LOCK_FILE = ".lock"
TRACKED_FILE = "tracker.json"  # the runs of trackers that this one goes on in: nerf/cli/trackers.py
PICTURES = ("contact_sheet.png", "orbit.mp4")
SPLITS = ("train", "val", "test")
CURVES = "events.out.tfevents.*"  # of TensorBoard, which shows all that a folder holds as one run
OWN_SECTIONS = {"dataset:", "field:", "train:"}  # lines of a config.yaml that is ours
# Errors of file systems without locks, as some network file systems.
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


def new_folder(path: Path) -> Path:
    """Creates path, or path_2, path_3, ... if it exists. Two callers never get the same folder. Raises OSError.

    Temporary files that dead writers left in the folders beside it are removed.
    """
    make_folder(path.parent)
    clear_left_overs(path.parent)
    for number in itertools.count(1):
        folder = path if number == 1 else path.with_name(f"{path.name}_{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            flush_folder(folder.parent)
            return folder
    raise AssertionError("itertools.count has no end")


def holds_run(folder: Path) -> bool:
    """Whether the folder contains a saved run."""
    return any((folder / name).exists() for name in CHECKPOINTS)


def refuse_to_write_over(folder: Path) -> None:
    """Raises UserError if the folder contains a saved run."""
    if holds_run(folder):
        raise UserError(
            f"{folder} contains a run, which would be overwritten. Resume it with {assignment('resume', folder)}, set "
            "hydra.run.dir to another folder, or set overwrite=true to lose it."
        )


def forget_run(folder: Path, lose_it: bool = False) -> None:
    """Removes the files of the folder's old run, which could be mistaken for those of the new one.

    lose_it: its pictures and curves too, where the folder is known as a run's: those that it names or that any run
    writes. Other files are somebody's.
    """
    if lose_it and (holds_run(folder) or _has_own_settings(folder)):
        scored = _scored_pictures(folder)
        for path in (*scored, *(folder / name for name in PICTURES), *folder.glob(CURVES)):
            if path.is_file():
                path.unlink()
        for split in {path.parent for path in scored}:
            with contextlib.suppress(OSError):  # goes only if it is empty
                split.rmdir()
    for name in (*CHECKPOINTS, METRICS, TRACKED_FILE):
        (folder / name).unlink(missing_ok=True)


def _has_own_settings(folder: Path) -> bool:
    """Whether a run began here, though it may have been killed before it was saved."""
    try:
        return set((folder / "config.yaml").read_text(encoding="utf-8").splitlines()) >= OWN_SECTIONS
    except (OSError, UnicodeDecodeError):
        return False


def _scored_pictures(folder: Path) -> list[Path]:
    """The pictures of the views that the folder's metrics.json names; none where it names nothing that can be read."""
    try:
        found = json.loads((folder / METRICS).read_text(encoding="utf-8"))
        split, views = found["split"], [f"{view}.png" for view in found["views"]]
    except (OSError, ValueError, LookupError, TypeError):
        return []
    own = split in SPLITS and not (folder / split).is_symlink()
    return [folder / split / name for name in views if Path(name).name == name] if own else []


class RunLock:
    """A lock against other processes that write to a run's folder.

    The operating system releases it when the process ends. The lock file names the process; a leftover file alone does
    not lock.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_FILE
        self._file: int | None = None

    def acquire(self) -> None:
        """Acquires the lock, or acquires it anew after the folder was deleted and created again.

        Raises UserError if the folder does not exist or another process holds the lock. On a file system without locks
        it prints a note on stderr, and the run continues without a lock.
        """
        self.release()
        while True:
            try:
                file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            except (FileNotFoundError, NotADirectoryError) as error:
                raise UserError(
                    f"{self._path.parent} does not exist; expected the folder of a training run."
                ) from error
            if not self._locked(file):
                os.close(file)
                return
            if _is(file, self._path):  # else the previous owner removed the file meanwhile
                self._file = file
                with contextlib.suppress(OSError):  # on a full disk the lock has no name, and locks
                    os.ftruncate(file, 0)
                    os.write(file, f"process {os.getpid()} on {socket.gethostname()}".encode())
                return
            os.close(file)

    def in_place(self) -> bool:
        """Whether the lock file still exists; it is lost if the folder is deleted or moved."""
        return self._path.exists()

    def _locked(self, file: int) -> bool:
        """Locks the file; returns False if the file system has no locks. Raises UserError if it is locked already."""
        try:
            lock_file(file, wait=False)
        except BlockingIOError as error:
            owner = os.read(file, 200).decode(errors="replace") or "a process that just began"
            os.close(file)
            raise UserError(
                f"{self._path.parent} is used by another run: {owner}. Wait for its end, stop it, or set hydra.run.dir "
                "to another folder."
            ) from error
        except OSError as error:
            if error.errno not in NO_LOCKS:
                os.close(file)
                raise
            why = f"its file system has no locks ({error.strerror})"
            print(f"note: {self._path.parent} is not locked, {why}: do not start a second run in it.", file=sys.stderr)
            return False
        return True

    def release(self) -> None:
        """Releases the lock and removes its file."""
        if self._file is None:
            return
        with contextlib.suppress(OSError):  # the folder may be gone
            if _is(self._file, self._path):
                self._path.unlink()
        os.close(self._file)
        self._file = None

    def __enter__(self) -> "RunLock":
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def _is(file: int, path: Path) -> bool:
    """Whether the open file is the file at that path."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
