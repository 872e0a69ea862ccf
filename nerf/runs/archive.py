"""The files of a run as archives: their names, marks and versions, and reading them without executing code.

What an archive holds is checked by nerf/runs/contents.py.
"""

import pickle
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch

from nerf.config.commands import program
from nerf.errors import UserError, is_out_of_memory

MODEL_FILE = "model.pt"
RESUME_FILE = "resume.pt"
PREVIOUS_FILE = "resume.previous.pt"
SINGLE_FILE = "checkpoint.pt"  # the only file of version 1
FORMATS = {MODEL_FILE: "nerf-voxel-model", RESUME_FILE: "nerf-voxel-resume"}
VERSION = 6
# In models of version 4 the grids are not compressed; up to version 5 settings have their old names.
READABLE_VERSIONS = (4, 5, 6)
# Exceptions from reading a damaged, truncated or foreign file.
UNREADABLE = (
    OSError, EOFError, RuntimeError, ValueError, TypeError, AttributeError, AssertionError, LookupError,
    ArithmeticError, MemoryError, pickle.UnpicklingError, struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
REMEDY = "Train again, or name another run."


def read_archive(path: Path, expected: str) -> dict[str, Any]:
    """The content of a file with that mark, tensors in host memory. Raises UserError for all that is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            _refuse_compressed(archive, path.stat().st_size)
            broken = archive.testzip()  # torch.load does not verify checksums
        if broken is not None:
            raise zipfile.BadZipFile(f"wrong checksum of {broken}")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except UNREADABLE as error:
        raise damaged(path, error) from error
    found, version = (content.get(key) if isinstance(content, dict) else None for key in ("format", "version"))
    found = found if isinstance(found, str) else None
    readable = type(version) is int and version in READABLE_VERSIONS
    if found == "nerf-voxel-checkpoint" or (found in FORMATS.values() and not readable):
        said = version if isinstance(version, int) else "none"
        raise UserError(
            f"{path} has version {said}, this program reads versions 4 to {VERSION}; use the program that wrote it. "
            f"{REMEDY}"
        )
    if found != expected:
        what = f"it is a {found}, expected a {expected}" if found in FORMATS.values() else "its format mark is missing"
        raise UserError(f"{path} is the wrong file, or not of this program: {what}. {REMEDY}")
    return content


def _refuse_compressed(archive: zipfile.ZipFile, size: int) -> None:
    """Refuses an archive that becomes larger when it is read: torch.save compresses nothing."""
    entries = archive.infolist()
    if any(e.compress_type != zipfile.ZIP_STORED for e in entries) or sum(e.file_size for e in entries) > size:
        raise zipfile.BadZipFile(f"compressed, or larger inside than its {size} bytes")


def is_intact(path: Path) -> bool:
    """Whether the file can be read to its end and its checksums are right."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except UNREADABLE:
        return False


def missing(path: Path, name: str) -> str:
    """The error message for a missing file, which depends on the other files in its folder."""
    folder = path.parent
    if path.name == RESUME_FILE and (folder / MODEL_FILE).is_file():
        return (
            f"{path} does not exist: the run in {folder} can be rendered but not resumed, because its resume state was "
            "removed. Train again."
        )
    if path.name == MODEL_FILE and (folder / RESUME_FILE).is_file():
        return (
            f"{path} does not exist: the run in {folder} was stopped before its model was written. Resume it: "
            f"{program('scripts/train.py', f'resume={folder}')}"
        )
    if (folder / SINGLE_FILE).is_file():
        return (
            f"{path} does not exist; {folder / SINGLE_FILE} was written by version 1, this program reads versions "
            f"4 to {VERSION}; use the program that wrote it. {REMEDY}"
        )
    return f"{path} does not exist; expected the folder of a training run with a {name} in it."


def damaged(path: Path, error: Exception) -> UserError:
    """The message for a file that cannot be read. Raises MemoryError where memory was short: then it may be whole."""
    if is_out_of_memory(error):
        raise MemoryError(f"out of memory while {path} was read: {first_line(error)}") from error
    return UserError(f"{path} is damaged or no checkpoint of this program ({first_line(error)}). {REMEDY}")


def first_line(error: BaseException) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
