"""NumPy's files .npy and .npz, in which a head may state any size: what it states is held to the bytes that are there.

Format: numpy.org, "A simple file format for NumPy arrays".
"""

import math
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np

from nerf.errors import UserError
from nerf.reading import opened, read_bytes, reason

HEADS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
# What NumPy and zipfile raise for damaged files.
DAMAGED = (
    OSError, EOFError, ValueError, TypeError, LookupError, OverflowError, SyntaxError, RuntimeError, RecursionError,
    MemoryError, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
LARGEST_MEMBER = 1 << 16  # bytes of an array in a .npz: a matrix has some hundred


def read_npy(path: Path) -> np.ndarray:
    """The array of a .npy file. Raises UserError where it is none, or holds Python's objects."""
    try:
        return _array(read_bytes(path))
    except DAMAGED as error:
        raise UserError(f"{path}: cannot be read as an array of NumPy ({reason(error)}); make it again.") from error


def read_npz(path: Path, wanted: Callable[[str], object]) -> dict[str, np.ndarray]:
    """The small arrays of a .npz file whose names are wanted. Raises UserError where it is none."""
    try:
        with opened(path) as file, zipfile.ZipFile(file) as archive:
            members = [info for info in archive.infolist() if wanted(info.filename.removesuffix(".npy"))]
            for info in members:
                if info.file_size > LARGEST_MEMBER:
                    raise ValueError(f"{info.filename[:80]} has {info.file_size} bytes, expected a matrix")
            return {info.filename.removesuffix(".npy"): _array(archive.read(info)) for info in members}
    except DAMAGED as error:
        raise UserError(f"{path}: cannot be read as arrays of NumPy ({reason(error)}); make it again.") from error


def _array(data: bytes) -> np.ndarray:
    file = BytesIO(data)
    version = np.lib.format.read_magic(file)
    if version not in HEADS:
        raise ValueError(f"version {version}, expected one of {', '.join(map(str, HEADS))}")
    shape, by_columns, dtype = HEADS[version](file)
    if dtype.hasobject:
        raise ValueError("it holds Python's objects, expected numbers")
    count, rest = math.prod(shape), len(data) - file.tell()
    if min(shape, default=0) < 0 or count * dtype.itemsize > rest:
        raise ValueError(f"{dtype} of shape {shape} in {rest} bytes")
    return np.frombuffer(data, dtype, count, file.tell()).reshape(shape, order="F" if by_columns else "C")
