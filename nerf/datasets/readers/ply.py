"""The points of a PLY file, ASCII or binary (Turk 1994): x, y and z of its vertices."""

import re
from pathlib import Path

import numpy as np

from nerf.errors import UserError
from nerf.reading import read_bytes, reason

TYPES = {
    "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "float": "f4",
    "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4",
    "float32": "f4", "float64": "f8",
}  # fmt: skip
BYTE_ORDERS = {"binary_little_endian": "<", "binary_big_endian": ">", "ascii": None}


def read_points(path: Path) -> np.ndarray:
    """[P,3] float64. Raises UserError for a damaged file, and vertices that do not come first or have lists."""
    try:
        data = read_bytes(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({reason(error)}); export the points again.") from error
    head, mark, body = data.partition(b"end_header")
    lines = [line.split() for line in head.decode("latin-1").splitlines()]
    if not mark or lines[:1] != [["ply"]]:
        raise UserError(f"{path}: no header of a PLY file in {len(data)} bytes; export the points again.")
    body = body[body.index(b"\n") + 1 :] if b"\n" in body else b""
    form = next((line[1] for line in lines if line[:1] == ["format"] and len(line) > 1), None)
    if form not in BYTE_ORDERS:
        raise UserError(f"{path}: format {form}, expected {', '.join(BYTE_ORDERS)}; export the points again.")
    count, properties = _vertices(path, lines)
    order = BYTE_ORDERS[form]
    try:
        if count > len(body):
            raise ValueError(f"{len(body)} bytes")
        if order is None:
            rows = np.array(body.split()[: count * len(properties)], np.float64).reshape(count, len(properties))
            axes = [rows[:, [name for name, _ in properties].index(axis)] for axis in "xyz"]
        else:
            rows = np.frombuffer(body, np.dtype([(name, order + code) for name, code in properties]), count)
            axes = [rows[axis] for axis in "xyz"]
    except ValueError as error:
        raise UserError(
            f"{path}: truncated or damaged, expected {count} vertices of {len(properties)} numbers ({error}); "
            "export the points again."
        ) from error
    with np.errstate(invalid="ignore"):  # what is no number stays none, and is refused by who looks at all points
        return np.stack(axes, axis=-1).astype(np.float64)


def _vertices(path: Path, lines: list[list[str]]) -> tuple[int, list[tuple[str, str]]]:
    """How many vertices there are, and the names and NumPy types of their properties."""
    starts = [index for index, line in enumerate(lines) if line[:1] == ["element"]] + [len(lines)]
    first = lines[starts[0]] if len(starts) > 1 else []
    properties = [line[1:] for line in lines[starts[0] + 1 : starts[1]] if line[:1] == ["property"]] if first else []
    plain = all(len(entry) == 2 and entry[0] in TYPES for entry in properties)
    names = [entry[-1] for entry in properties if entry]
    if (
        first[1:2] != ["vertex"]
        or not (len(first) > 2 and re.fullmatch("[0-9]{1,18}", first[2]))
        or not plain
        or not set("xyz") <= set(names)
    ):
        raise UserError(
            f"{path}: begins with {' '.join(first) or 'no element'} of {', '.join(names) or 'no properties'}, expected "
            "vertices first, with x, y, z and no lists; export the points again."
        )
    return int(first[2]), [(name, TYPES[entry[0]]) for name, entry in zip(names, properties)]
