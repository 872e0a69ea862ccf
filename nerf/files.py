"""Files that appear whole or not at all, a full or read-only disk answered in words, and JSON."""

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from nerf.errors import UserError

_CHECKOUT = Path(__file__).resolve().parents[1]
# Where scenes lie that are looked for by their names: in the checkout, or for an installed package where one is.
DATA = _CHECKOUT / "data" if (_CHECKOUT / "configs").is_dir() else Path("data")
# Of an installed package: setup.py puts the bundled scene there.
PACKED_SCENES = Path(__file__).resolve().parent / "scenes"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside path that takes its place on success and is removed on failure.

    Missing folders are created. Raises UserError, naming path, where the disk is full or cannot be written.
    """
    partial = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")  # ffmpeg goes by the suffix
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield partial
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"{path} cannot be written ({reason}); free some space, or set hydra.run.dir to a folder on another disk."
        ) from error


@contextmanager
def partial_file(path: Path) -> Iterator[BinaryIO]:
    """A hidden file beside path, which takes its place on success, flushed to disk, and is removed on failure.

    What writers that are dead left of such files is removed first; those of living ones are locked, and stay.
    Raises OSError.
    """
    for left_over in path.parent.glob(f".{path.name}.*"):
        _remove_if_dead(left_over)
    partial, file = _open_locked(path)
    with file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException:
            with contextlib.suppress(OSError):  # as unwritable as before
                partial.unlink(missing_ok=True)
            raise


def _open_locked(path: Path) -> tuple[Path, BinaryIO]:
    """A new file beside path under a name that no other process has, on another machine neither."""
    while True:
        partial = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        file = os.fdopen(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), "wb")
        with contextlib.suppress(OSError):  # a file system without locks, where nobody can tell who is dead
            fcntl.flock(file, fcntl.LOCK_EX)
        if partial.exists():  # else another process took it for a dead one's before it was locked
            return partial, file
        file.close()


def _remove_if_dead(left_over: Path) -> None:
    with contextlib.suppress(OSError), left_over.open("rb") as file:  # another process has it, or was faster
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        left_over.unlink()


def read_json(path: Path) -> Any:
    """The parsed file, in which every number is a float. Raises UserError, naming the file, where it does not parse."""
    try:
        # parse_int: so that one test for float covers every number.
        return json.loads(path.read_text(encoding="utf-8"), parse_int=float)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{path}: not valid JSON at line {error.lineno}, column {error.colno} ({error.msg}). "
            "Correct it there or export the file again."
        ) from error
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read ({reason}), expected JSON in UTF-8; replace it.") from error


def shown(value: object) -> str:
    """What was found, short enough for an error message."""
    if value is None:  # an absent key, or null
        return "missing"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
