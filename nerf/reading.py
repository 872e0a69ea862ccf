"""Files that a user hands in: regular files, read whole, and JSON. What is no file is answered, not waited for."""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from nerf.errors import UserError

LONGEST_NAME, LONGEST_PATH = 255, 4096  # bytes, of Linux
# Windows has no pipes among its files, and reads bytes only if asked to.
AT_ONCE = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


def opened(path: Path) -> BinaryIO:
    """The file, open for reading. Raises OSError for what is no regular file, for names that no file can have too.

    A pipe that nobody writes to would otherwise be waited for without end, and a device may never end.
    """
    try:
        number = os.open(path, AT_ONCE)
    except ValueError as error:  # a zero byte, or half of a character
        raise OSError(errno.EINVAL, "no file can have such a name") from error
    kind = stat.S_IFMT(os.fstat(number).st_mode)
    if kind != stat.S_IFREG:
        os.close(number)
        if kind == stat.S_IFDIR:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        raise OSError(errno.EINVAL, f"it is {KINDS.get(kind, 'a special file')}, expected a file")
    return os.fdopen(number, "rb")


def read_bytes(path: Path) -> bytes:
    """The bytes of a file. Raises OSError as opened() does."""
    with opened(path) as file:
        return file.read()


def is_there(path: Path) -> bool:
    """Whether there is such a file or folder; False, not an error, for names that none can have."""
    try:
        return path.exists()
    except OSError:  # a name of more than 255 bytes
        return False


def is_file(path: Path) -> bool:
    """Whether there is such a file; see is_there."""
    return is_there(path) and path.is_file()


def is_path(value: object) -> bool:
    """Whether a value from a file can name a file."""
    if not isinstance(value, str) or not value or "\0" in value:
        return False
    try:
        name = os.fsencode(value)
    except UnicodeEncodeError:  # half of a character
        return False
    return len(name) < LONGEST_PATH and all(len(part) <= LONGEST_NAME for part in name.split(b"/"))


def reason(error: Exception) -> str:
    """Why a file cannot be read, for messages: a system's error without its number and path; one line."""
    text = getattr(error, "strerror", None) or str(error)
    return text.splitlines()[0][:200] if text else type(error).__name__


def read_json(path: Path) -> Any:
    """The parsed file, in which every number is a float. Raises UserError, naming the file, where it does not parse."""
    try:
        # parse_int: so that one test for float covers every number. utf-8-sig: some editors of Windows begin with it.
        return json.loads(read_bytes(path).decode("utf-8-sig"), parse_int=float)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{path}: not valid JSON at line {error.lineno}, column {error.colno} ({error.msg}). "
            "Correct it there or export the file again."
        ) from error
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read ({reason(error)}), expected JSON in UTF-8; replace it.") from error


def shown(value: object) -> str:
    """What was found, short enough for an error message."""
    if value is None:  # an absent key, or null
        return "missing"
    try:
        text = json.dumps(value)
    except RecursionError:
        return "nested deeper than anything here"
    return text if len(text) <= 60 else f"{text[:57]}..."
