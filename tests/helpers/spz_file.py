"""A reader of SPZ files that shares no code with the package that writes them: NumPy, from the format's description."""

import gzip
import struct
from pathlib import Path

import numpy as np

from nerf.benchmarks.splat_renderer import Array, Splats

COEFFICIENTS = (0, 3, 8, 15)  # per color beside the constant, by degree


def read_spz(path: Path) -> Splats:
    """The Gaussians of a file of version 3, activated."""
    raw = gzip.decompress(path.read_bytes())
    magic, version, count, degree, bits, _, _ = struct.unpack("<4sIIBBBB", raw[:16])
    assert magic == b"NGSP" and version == 3
    sections = np.split(
        np.frombuffer(raw, np.uint8, offset=16), np.cumsum([9 * count, count, 3 * count, 3 * count, 4 * count])
    )
    positions, alphas, colors, scales, rotations, rest = (part.astype(np.int64) for part in sections)
    positions = positions.reshape(count, 3, 3) @ (1, 1 << 8, 1 << 16)
    harmonics = np.zeros((count, 16, 3))
    harmonics[:, 0] = (colors.reshape(count, 3) / 255 - 0.5) / 0.15
    kept = COEFFICIENTS[degree]
    harmonics[:, 1 : 1 + kept] = (rest.reshape(count, kept, 3) - 128) / 128
    return Splats(
        (positions - (positions >= 1 << 23) * (1 << 24)) / 2**bits,
        np.exp(scales.reshape(count, 3) / 16 - 10),
        _quaternions(rotations.reshape(count, 4) @ (1, 1 << 8, 1 << 16, 1 << 24)),
        alphas / 255,
        harmonics,
    )


def _quaternions(packed: np.ndarray) -> Array:
    """w x y z [N,4]: two bits name the largest of x y z w, the others have a sign and nine bits, the last lowest."""
    xyzw, largest = np.zeros((len(packed), 4)), packed >> 30
    for axis in (3, 2, 1, 0):
        here = largest != axis
        size = (packed & 511) / 511 / np.sqrt(2) * (1 - 2 * (packed >> 9 & 1))
        xyzw[here, axis] = size[here]
        packed = np.where(here, packed >> 10, packed)
    rest = np.sqrt(np.maximum(0, 1 - np.square(xyzw).sum(1)))
    xyzw[np.arange(len(xyzw)), largest] = rest
    return xyzw[:, [3, 0, 1, 2]]
