"""The folder of a run: a name that no other run has, one process that writes to it, and no run written over unasked."""

import contextlib
import errno
import fcntl
import itertools
import os
import socket
import sys
from pathlib import Path

from nerf.config.commands import assignment
from nerf.errors import UserError
from nerf.runs.checkpoint import MODEL_FILE, RESUME_FILE, SINGLE_FILE

LOCK_FILE = ".lock"
# File systems that have no locks: some network ones.
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


def new_folder(path: Path) -> Path:
    """Makes path, or where it exists path_2, path_3, ...: nobody else is given the same one. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        folder = path if number == 1 else path.with_name(f"{path.name}_{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise AssertionError("itertools.count has no end")


def holds_run(folder: Path) -> bool:
    """Whether a run was saved in the folder."""
    return any((folder / name).exists() for name in (MODEL_FILE, RESUME_FILE, SINGLE_FILE))


def refuse_to_write_over(folder: Path) -> None:
    """Raises UserError where a run was saved in the folder."""
    if holds_run(folder):
        raise UserError(
            f"{folder} holds a run, which would be written over. Go on with it by {assignment('resume', folder)}, give "
            "another folder as hydra.run.dir, or give overwrite=true to lose it."
        )


def forget_run(folder: Path) -> None:
    """Removes what would be taken for the new run's until that writes its own: the run's files and its scores."""
    for name in (MODEL_FILE, RESUME_FILE, SINGLE_FILE, "metrics.json"):
        (folder / name).unlink(missing_ok=True)


class RunLock:
    """Keeps other processes from writing to a run's folder.

    The system drops it when its process ends, however that ends; a file that is left, which names the process, says
    nothing.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_FILE
        self._file: int | None = None

    def acquire(self) -> None:
        """Takes the lock; once more where the folder was deleted and made again.

        Raises UserError where there is no such folder, or another process writes to it. A file system without locks is
        told of on stderr, and the run goes on without one.
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
            if _is(file, self._path):  # else its last owner removed it while this process waited
                self._file = file
                os.ftruncate(file, 0)
                os.write(file, f"process {os.getpid()} on {socket.gethostname()}".encode())
                return
            os.close(file)

    def in_place(self) -> bool:
        """Whether its file is still there; it goes with a folder that is deleted or moved."""
        return self._path.exists()

    def _locked(self, file: int) -> bool:
        """Whether the file is locked now; False where the file system has no locks. Raises UserError."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.read(file, 200).decode(errors="replace") or "a process that just began"
            os.close(file)
            raise UserError(
                f"{self._path.parent} is being written by another run: {owner}. Wait for its end, stop it, or give "
                "another folder as hydra.run.dir."
            ) from error
        except OSError as error:
            if error.errno not in NO_LOCKS:
                os.close(file)
                raise
            why = f"its file system has no locks ({error.strerror})"
            print(f"note: {self._path.parent} is not locked, {why}: let no second run write to it.", file=sys.stderr)
            return False
        return True

    def release(self) -> None:
        """Gives the lock back and removes its file."""
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
    """Whether the open file is what stands under that name."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
