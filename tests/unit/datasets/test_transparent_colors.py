"""PNGs without an alpha channel in which one color, or some of a palette, are transparent (tRNS), at every depth."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nerf.cli.prepare_photos import store_photos
from nerf.datasets.decoding import image_info, read_mask, read_pixels

GRAY, RGB, PALETTE = 0, 2, 3
# Bits, kind, a row of pixels, tRNS, and the alpha of the row. A third of the RGB values is shown for each pixel.
ROWS = {
    "1-bit gray": (1, GRAY, b"\x50", struct.pack(">H", 1), [255, 0, 255, 0]),
    "2-bit gray": (2, GRAY, b"\x1b", struct.pack(">H", 2), [255, 255, 0, 255]),
    "4-bit gray": (4, GRAY, b"\x01\x2f", struct.pack(">H", 2), [255, 255, 0, 255]),
    "8-bit gray": (8, GRAY, b"\x00\x01\x02\xff", struct.pack(">H", 2), [255, 255, 0, 255]),
    "16-bit gray": (16, GRAY, struct.pack(">4H", 0, 258, 259, 65535), struct.pack(">H", 258), [255, 0, 255, 255]),
    "8-bit RGB": (8, RGB, bytes([1, 2, 3, 1, 2, 4, 1, 2, 3, 0, 0, 0]), struct.pack(">3H", 1, 2, 3), [0, 255, 0, 255]),
    "16-bit RGB": (
        16, RGB, struct.pack(">12H", *[257, 514, 771], *[257, 514, 1028], *[257, 514, 771], *[0, 0, 0]),
        struct.pack(">3H", 257, 514, 771), [0, 255, 0, 255],
    ),
    "1-bit palette": (1, PALETTE, b"\x50", b"\xff\x00", [255, 0, 255, 0]),
    "2-bit palette": (2, PALETTE, b"\x1b", b"\x09\xff\x00", [9, 255, 0, 255]),
    "4-bit palette": (4, PALETTE, b"\x01\x23", b"\x09\xff\x00", [9, 255, 0, 255]),
    "8-bit palette": (8, PALETTE, b"\x00\x01\x02\x03", b"\xff\x00", [255, 0, 255, 255]),
}  # fmt: skip


def png(bits: int, kind: int, row: bytes, transparent: bytes) -> bytes:
    """A picture of 4x2 pixels, both rows alike."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    parts = [chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 2, bits, kind, 0, 0, 0))]
    parts += [chunk(b"PLTE", bytes(range(100, 112)))] if kind == PALETTE else []
    parts += [chunk(b"tRNS", transparent), chunk(b"IDAT", zlib.compress((b"\0" + row) * 2)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize("name", ROWS)
def test_the_transparent_color_is_transparent(tmp_path: Path, name: str) -> None:
    *content, alpha = ROWS[name]
    path = tmp_path / "a.png"
    path.write_bytes(png(*content))
    assert image_info(path).has_alpha
    assert read_pixels(path, 4)[..., 3].tolist() == [alpha, alpha]
    opaque = read_pixels(path, 3)
    assert (read_pixels(path, 4)[..., :3] == opaque).all()


@pytest.mark.parametrize("name", ROWS)
def test_a_mask_is_black_where_it_is_transparent(tmp_path: Path, name: str) -> None:
    bits, kind, row, transparent, _ = ROWS[name]
    if kind == PALETTE:
        pytest.skip("its colors are dark")
    white = {1: b"\xff", 2: b"\xff", 4: b"\xff\xff"}.get(bits, b"\xff" * len(row))
    path = tmp_path / "a.png"
    path.write_bytes(
        png(bits, kind, white, struct.pack(f">{len(transparent) // 2}H", *[2**bits - 1] * (len(transparent) // 2)))
    )
    assert not read_mask(path, (4, 2)).any()


@pytest.mark.parametrize("name", ROWS)
def test_prepare_keeps_it_where_it_shrinks_a_photo(tmp_path: Path, name: str) -> None:
    *content, alpha = ROWS[name]
    photo = tmp_path / "a.png"
    photo.write_bytes(png(*content))
    store_photos([photo], tmp_path / "same", None, 1, False)
    assert (tmp_path / "same" / "a.png").read_bytes() == photo.read_bytes()
    store_photos([photo], tmp_path / "small", 2, 1, False)
    small = Image.open(tmp_path / "small" / "a.png")
    assert small.size == (2, 1) and small.mode == "RGBA"
    found = np.asarray(small.getchannel("A"), int)[0]
    assert np.abs(found - np.reshape(alpha, (2, 2)).mean(1)).max() <= 1
