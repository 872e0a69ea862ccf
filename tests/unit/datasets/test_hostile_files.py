"""Damaged and forged files of every format end in a sentence that names the file, or in a scene that can be trained on.

FORGED holds what once ended otherwise; hypothesis looks for more, here a little and in tests/fuzz/readers.py at length.
"""

import io
import json
import os
import pickle
import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_scenes import SCENES, answer, files_of, hostile_file, write_with
from hypothesis import HealthCheck, given, settings
from PIL import Image

FEW = 50  # files for each format

Forge = Callable[[bytes], bytes]


def header(**values: Any) -> Forge:
    """A JSON file with other values at its top."""
    return lambda data: json.dumps(json.loads(data) | values).encode()


def frame(**values: Any) -> Forge:
    """A transforms file with other values in its second frame."""

    def forge(data: bytes) -> bytes:
        content = json.loads(data)
        content["frames"][1] |= values
        return json.dumps(content).encode()

    return forge


def moved_to(x: float) -> Forge:
    """A file of poses with the second camera elsewhere."""

    def forge(data: bytes) -> bytes:
        content = json.loads(data)
        if "frames" in content:
            content["frames"][1]["transform_matrix"][0][3] = x
        else:
            content["camera_path"][1]["camera_to_world"][3] = x
        return json.dumps(content).encode()

    return forge


def replaced(old: bytes, new: bytes) -> Forge:
    def forge(data: bytes) -> bytes:
        assert old in data
        return data.replace(old, new, 1)

    return forge


def image(mode: str, form: str, **options: Any) -> Forge:
    """A photo of another kind, of the size that the scene's photos have."""

    def forge(_: bytes) -> bytes:
        data = io.BytesIO()
        Image.new(mode, (24, 16), 90).save(data, form, **options)
        return data.getvalue()

    return forge


def png_of_chunks(*chunks: tuple[bytes, bytes]) -> Forge:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return lambda _: b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*one) for one in chunks)


def npz(_: bytes) -> bytes:
    data = io.BytesIO()
    np.savez(data, a=np.ones((4, 17)))
    return data.getvalue()


def npy_of_objects(_: bytes) -> bytes:
    data = io.BytesIO()
    np.save(data, np.array([{}], dtype=object), allow_pickle=True)
    return data.getvalue()


def head(width: int, height: int) -> tuple[bytes, bytes]:
    return b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)


POINTS = b"element vertex 40"
# Scene, file, what is done to it, and what the sentence says; None: it is read.
FORGED: dict[str, tuple[str, str, Forge, str | None]] = {
    "deep JSON": ("transforms", "transforms.json", lambda _: b"[" * 100_000, "transforms.json: cannot be read"),
    "BOM": ("transforms", "transforms.json", lambda data: b"\xef\xbb\xbf" + data, None),
    "null is as absent": ("transforms", "transforms.json", header(p2=None, k1=None), None),
    "model that is a list": ("transforms", "transforms.json", header(camera_model=[]), "camera_model is []"),
    "width of nothing": ("transforms", "transforms.json", header(w=1e-30), "width is 1e-30, expected 1 to"),
    "focal beyond float32": (
        "transforms", "transforms.json", header(fl_x=1e39),
        "fx is 1e+39, expected a focal length",
    ),
    "center beyond float32": (
        "transforms", "transforms.json", header(cx=1e39),
        "cx is 1e+39, expected a principal point",
    ),
    "coefficient beyond float32": ("transforms", "transforms.json", header(k1=1e39), "k1 is 1e+39, expected at most"),
    "angle of nothing": ("blender", "transforms_train.json", header(camera_angle_x=5e-324), "camera_angle_x is 4.94"),
    "focal of Blender beyond float32": ("blender", "transforms_train.json", header(fl_x=1e39), "fl_x is 1e+39"),
    "position beyond float32": (
        "transforms", "transforms.json", moved_to(1e39),
        "holds 1e+39, expected finite numbers up to",
    ),
    "position of Blender beyond float32": ("blender", "transforms_train.json", moved_to(-1e39), "holds -1e+39"),
    "position on a path beyond float32": (
        "camera path", "path.json", moved_to(1e39),
        "camera_path[1]: camera_to_world holds 1e+39",
    ),
    "angle on a path of nothing": ("camera path", "path.json", replaced(b'"fov": 50', b'"fov": 1e-30'), "fov is 1e-30"),
    "rate beyond all": ("camera path", "path.json", header(fps=None, seconds=1e-320), "seconds is"),
    "camera far beyond the scene": (
        "transforms", "transforms.json", moved_to(2.0**31), "times as far from the scene's box"
    ),
    "point at infinity": (
        "colmap text", "sparse/0/points3D.txt", replaced(b"\n5 ", b"\n5 inf "), "sparse points are not finite"
    ),
    "long name": ("transforms", "transforms.json", frame(file_path="x" * 300), "file_path is"),
    "name with a zero byte": ("transforms", "transforms.json", frame(file_path="a\0b"), "file_path is"),
    "half a character": ("transforms", "transforms.json", frame(mask_path="\ud800"), "mask_path is"),
    "long name in Blender": ("blender", "transforms_train.json", frame(file_path="x" * 300), "file_path of frame 1 is"),
    "long name of points": ("transforms", "transforms.json", header(ply_file_path="x" * 300), "ply_file_path is"),
    "frame that is there twice": ("transforms", "transforms.json", frame(file_path="images/./view 2.png"), "duplicate"),
    "frame of Blender that is there twice": (
        "blender", "transforms_train.json", frame(file_path="./train0"),
        "duplicate",
    ),
    "device as photo": (
        "transforms", "transforms.json", frame(file_path="/dev/zero"),
        "it is a device, expected a file",
    ),
    "device as photo of Blender": (
        "blender", "transforms_train.json", frame(file_path="/dev/zero"),
        "it is a device, expected a file",
    ),
    "no image outside": (
        "transforms", "transforms.json", frame(file_path="/etc/passwd"),
        "found no PNG, JPEG or WebP image",
    ),
    "count beyond the file": (
        "transforms", "points.ply", replaced(POINTS, b"element vertex 4" + b"0" * 16),
        "truncated or damaged",
    ),
    "count beyond integers": (
        "transforms", "points.ply", replaced(POINTS, b"element vertex 1" + b"0" * 20),
        "begins with element vertex",
    ),
    "property without a name": (
        "transforms", "points.ply", replaced(b"float z", b"\n"),
        "begins with element vertex",
    ),
    "count in powers": (
        "transforms", "points.ply", replaced(POINTS, b"element vertex \xb2"),
        "begins with element vertex",
    ),
    "no count": ("transforms", "points.ply", replaced(POINTS, b"element vertex"), "begins with element vertex"),
    "npz as npy": ("llff", "poses_bounds.npy", npz, "poses_bounds.npy: cannot be read as an array"),
    "pickle": ("llff", "poses_bounds.npy", lambda _: pickle.dumps([1]), "poses_bounds.npy: cannot be read as an array"),
    "objects": ("llff", "poses_bounds.npy", npy_of_objects, "Python's objects"),
    "shape beyond the file": (
        "llff", "poses_bounds.npy", replaced(b"(4, 17), ", b"(4000000000, 17), "),
        "cannot be read as an array",
    ),
    "head that does not end": (
        "llff", "poses_bounds.npy", replaced(b"(4, 17), }", b"(4, 17), ("),
        "cannot be read as an array",
    ),
    "box beyond float32": (
        "nsvf", "bbox.txt", lambda _: b"-1 -1 -1 1e39 1 1 0.4",
        "bbox.txt: [-1.0, -1.0, -1.0, 1e+39",
    ),
    "line as name": ("colmap text", "sparse/0/images.txt", replaced(b"view 0.png", b"x" * 300), "names no file"),
    "name in binary": ("colmap binary", "sparse/0/images.bin", replaced(b"view 0.png", b"x" * 300), "names no file"),
    "coefficient of nothing": ("colmap text", "sparse/0/cameras.txt", replaced(b"0.01", b"1e-320"), None),
    "no pixels": (
        "transforms", "images/view 1.png", png_of_chunks(head(24, 16), (b"IEND", b"")),
        "view 1.png: cannot be read as an image",
    ),
    "pixels without end": (
        "transforms", "images/view 1.png", png_of_chunks(head(60000, 60000), (b"IDAT", b"")),
        "view 1.png: cannot be read as an image",
    ),
    "palette": ("transforms", "images/view 1.png", image("P", "PNG"), None),
    "palette with transparency": ("transforms", "images/view 1.png", image("P", "PNG", transparency=b"\0\x80"), None),
    "16 bits": ("transforms", "images/view 1.png", image("I;16", "PNG"), None),
    "one bit": ("transforms", "images/view 1.png", image("1", "PNG"), None),
    "four inks": ("transforms", "images/view 1.png", image("CMYK", "JPEG"), None),
    "EXIF of nothing": (
        "transforms", "images/view 1.png", image("RGB", "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff"),
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FORGED)
def test_what_once_ended_otherwise(tmp_path: Path, case: str) -> None:
    scene, file, forge, expected = FORGED[case]
    write_with(tmp_path, scene, {file: forge(files_of(scene)[file])})
    found = answer(tmp_path, scene, begin=scene != "camera path")
    if expected is None:
        assert found is None
    else:
        assert found is not None and expected in found, found


@pytest.mark.parametrize("scene", SCENES)
def test_any_damage_is_answered(scene: str) -> None:
    @settings(max_examples=FEW, deadline=None, database=None, derandomize=True, suppress_health_check=HealthCheck)
    @given(hostile_file(scene))
    def read(changed: tuple[str, bytes]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            write_with(Path(folder), scene, dict([changed]))
            answer(Path(folder), scene)

    read()


@pytest.mark.parametrize("scene", [name for name in SCENES if name != "camera path"])
def test_a_pipe_in_a_photos_place_is_not_waited_for(tmp_path: Path, scene: str) -> None:
    write_with(tmp_path, scene, {})
    photo = next(path for path in sorted(tmp_path.rglob("*")) if path.suffix in (".png", ".jpg"))
    photo.unlink()
    os.mkfifo(photo)
    found = answer(tmp_path, scene)
    assert found is not None and (str(photo) in found or "photos" in found)


@pytest.mark.parametrize("scene", SCENES)
def test_a_pipe_in_a_files_place_is_not_waited_for(tmp_path: Path, scene: str) -> None:
    pattern = SCENES[scene].hostile[0]
    path = next(path for path in files_of(scene) if Path(path).match(pattern))
    write_with(tmp_path, scene, {})
    (tmp_path / path).unlink()
    os.mkfifo(tmp_path / path)
    assert answer(tmp_path, scene) is not None
