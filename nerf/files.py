"""Files that appear whole or not at all and outlast a loss of power; a full or read-only disk answered in words.

Every file of a run and of a command is written here: under a temporary name in its own folder, flushed to disk,
renamed, and the folder flushed. Temporary files are locked while their writer lives, so those of the dead are known.
"""

import contextlib
import errno
import json
import math
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from nerf.errors import UserError
from nerf.system import lock_file

_CHECKOUT = Path(__file__).resolve().parents[1]
# Where scenes lie that are looked for by their names: in the checkout, or for an installed package where one is.
DATA = _CHECKOUT / "data" if (_CHECKOUT / "configs").is_dir() else Path("data")
# Of an installed package: setup.py puts the bundled scene and the config files there.
PACKED_SCENES = Path(__file__).resolve().parent / "scenes"
_PACKED_CONFIGS = PACKED_SCENES.with_name("configs")
CONFIGS = _PACKED_CONFIGS if _PACKED_CONFIGS.is_dir() else _CHECKOUT / "configs"

# Names of temporary files: .NAME.PROCESS-RANDOM.partial.SUFFIX; ffmpeg goes by the suffix.
_PARTIAL = re.compile(r"\..*\.\d+-[0-9a-f]{8}\.partial(\.\w+)?")
_STEM_LENGTH = 40  # characters of the file's own name in that of its temporary file: a name may have 255 bytes
METRICS = "metrics.json"  # of a run or of an evaluation: the scores, and how they came about
# Errors of a full disk, of a used-up quota, and of a file that is larger than its file system or its user may have.
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Errors of file systems that cannot flush a folder, or of folders that may be written but not read.
_NO_FOLDER_FLUSH = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EACCES, errno.EPERM}
# Errors of file systems without hard links.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside path that takes its place on success, flushed to disk, and is removed on failure.

    It is there, empty, to be written over by its name. Missing folders are created. Raises UserError, naming path,
    where the disk is full or cannot be written.
    """
    try:
        make_folder(path.parent)
        with _partial(path) as (partial, _):
            yield partial
    except OSError as error:
        reason = error.strerror or (str(error).splitlines() or [type(error).__name__])[0]
        remedy = "free some space, or set hydra.run.dir to a folder on another disk"
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            remedy = "set hydra.run.dir to a folder that you may write"
        raise UserError(f"{path} cannot be written ({reason}); {remedy}.") from error


def write_json(path: Path, content: object) -> None:
    """Writes plain values as JSON, as write_text() does. A number that is not finite, which JSON has not, is null."""
    write_text(path, json.dumps(_finite(content), indent=2) + "\n")


def _finite(content: object) -> object:
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    return [_finite(value) for value in content] if isinstance(content, list | tuple) else content


def write_text(path: Path, text: str) -> None:
    """Writes a text file in UTF-8 as replacing() does."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def partial_file(path: Path, previous: Path | None = None) -> Iterator[BinaryIO]:
    """As replacing(), but the file is open for writing, its folder must be there, and errors are OSError.

    previous: a second name that the file which stood at path so far is kept under. There is always a whole file at
    path. A file system without hard links keeps none.
    """
    with _partial(path, previous) as (_, file):
        yield file


@contextmanager
def _partial(path: Path, previous: Path | None = None) -> Iterator[tuple[Path, BinaryIO]]:
    partial, file = _open_locked(path)
    try:
        with file:
            yield partial, file
            file.flush()
            _flush(partial, os.O_RDONLY)  # by its name: a library may have put another file there
            if previous is not None:
                _keep(path, previous)
            os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):  # as unwritable as before
            partial.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def _keep(path: Path, previous: Path) -> None:
    """Gives the file at path, if there is one, a second name in the place of the file that had it."""
    second = _partial_name(previous)
    try:
        os.link(path, second)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return
    try:
        os.replace(second, previous)
    finally:
        second.unlink(missing_ok=True)


def _partial_name(path: Path) -> Path:
    """A name beside path that no other process has, on another machine neither."""
    return path.with_name(f".{path.stem[:_STEM_LENGTH]}.{os.getpid()}-{secrets.token_hex(4)}.partial{path.suffix}")


def _open_locked(path: Path) -> tuple[Path, BinaryIO]:
    while True:
        partial = _partial_name(path)
        file = os.fdopen(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), "wb")
        with contextlib.suppress(OSError):  # a file system without locks, where nobody can tell who is dead
            lock_file(file)
        if partial.exists():  # else another process took it for a dead one's before it was locked
            return partial, file
        file.close()


def clear_left_overs(folder: Path, depth: int = 2) -> None:
    """Removes temporary files of dead writers from the folder and from the folders in it, depth levels down.

    Files of living writers are locked and stay. What cannot be read or removed stays without an error.
    """
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                if depth and not entry.name.startswith("."):
                    clear_left_overs(Path(entry.path), depth - 1)
            elif _PARTIAL.fullmatch(entry.name):
                _remove_if_dead(Path(entry.path))


def _remove_if_dead(left_over: Path) -> None:
    with contextlib.suppress(OSError), left_over.open("rb") as file:  # another process has it, or was faster
        lock_file(file, wait=False)
        left_over.unlink()


def make_folder(folder: Path) -> None:
    """Creates a folder and those above it, where they are missing, and flushes their names to disk. Raises OSError."""
    missing = []
    for above in (folder, *folder.parents):
        if above.exists():
            break
        missing.append(above)
    folder.mkdir(parents=True, exist_ok=True)
    for new in missing:
        flush_folder(new.parent)


def flush_files(folder: Path) -> None:
    """Flushes the files of a folder, which another program wrote, and their names to disk. Raises OSError."""
    for path in sorted(folder.iterdir()):
        if path.is_file():
            _flush(path, os.O_RDONLY)
    flush_folder(folder)


def flush_folder(folder: Path) -> None:
    """Flushes a folder's names to disk, which renames and new files need to outlast a loss of power. Raises OSError."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows opens no folders
        return
    try:
        _flush(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except OSError as error:
        if error.errno not in _NO_FOLDER_FLUSH:
            raise


def _flush(path: Path, flags: int) -> None:
    opened = os.open(path, flags)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
