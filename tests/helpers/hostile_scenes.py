"""Small valid scenes of every format, whose files are then damaged or forged, and what has to hold of the answer."""

import functools
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from capture_files import (
    HEIGHT,
    WIDTH,
    ring,
    write_colmap,
    write_llff,
    write_neus,
    write_nsvf,
    write_photos,
    write_transforms,
)
from hypothesis import strategies as st
from mutations import damaged, forged_json, limited
from PIL import Image
from tiny_runs import tiny_config

from nerf.cameras.key_frame_file import read_key_frames
from nerf.cameras.path_file import read_camera_path
from nerf.config.schema import DatasetConfig
from nerf.datasets.load import load_split
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.ops.backend import select
from nerf.runs.run import start
from nerf.training.state import TrainState

VIEWS = ring(4)
BACKEND = select("native", "cpu")
TINY = tiny_config("voxel_sh", steps=20)
LARGEST_MESSAGE = 10_000  # characters; a path may have four thousand


def _transforms(folder: Path) -> None:
    header = {
        "ply_file_path": "points.ply", "camera_model": "OPENCV", "k1": 0.01, "p2": -0.001, "aabb_scale": 4,
        "train_filenames": [f"images/{name}" for name in VIEWS.names[1:]],
        "test_filenames": [f"images/{VIEWS.names[0]}"],
    }  # fmt: skip
    path = write_transforms(folder, VIEWS, **header)
    content = json.loads(path.read_text())
    for frame in content["frames"]:
        frame["mask_path"] = frame["file_path"].replace("images", "masks")
    path.write_text(json.dumps(content))
    (folder / "masks").mkdir()
    for name in VIEWS.names:
        Image.new("L", (WIDTH, HEIGHT), 255).save(folder / "masks" / name)
    rows = np.random.default_rng(0).normal(size=(40, 3)).astype("<f4")
    head = "ply\nformat binary_little_endian 1.0\nelement vertex 40\n" + "".join(f"property float {a}\n" for a in "xyz")
    (folder / "points.ply").write_bytes(head.encode() + b"end_header\n" + rows.tobytes())


def _blender(folder: Path) -> None:
    for split in ("train", "test"):
        names = [f"{split}{index}.png" for index in range(len(VIEWS.names))]
        frames = [
            {"file_path": f"./{name[:-4]}", "depth_file_path": f"depth_{name}", "transform_matrix": pose.tolist()}
            for name, pose in zip(names, VIEWS.poses)
        ]
        content = {"camera_angle_x": 0.7, "depth_scale": 0.001, "k1": 0.01, "frames": frames}
        (folder / f"transforms_{split}.json").write_text(json.dumps(content))
        for name in names:
            Image.new("RGBA", (WIDTH, HEIGHT), (90, 90, 90, 200)).save(folder / name)
            Image.fromarray(np.full((HEIGHT, WIDTH), 4000, np.uint16)).save(folder / f"depth_{name}")


def _colmap(folder: Path, binary: bool) -> None:
    points = np.random.default_rng(0).normal(size=(40, 3))
    parameters = (30.0, 31.0, 12.5, 7.5, 0.01, 0.0, 0.001, 0.0)
    write_colmap(folder, VIEWS, binary, "OPENCV", parameters, points)
    write_photos(folder / "images", VIEWS.names)


def _exif(folder: Path) -> None:
    write_llff(folder, ring(4, name="view{}.jpg"))
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 3, "maker"
    exif.get_ifd(0x8769)[0x920A] = 35.0
    for path in (folder / "images").iterdir():
        Image.new("RGB", (WIDTH, HEIGHT), (9, 90, 90)).save(path, exif=exif)


def _camera_path(folder: Path) -> None:
    entries = [{"camera_to_world": pose.reshape(-1).tolist(), "fov": 50, "aspect": 1.5} for pose in VIEWS.poses]
    content = {"camera_type": "perspective", "render_width": 24, "render_height": 16, "fps": 24, "seconds": 2}
    timed = {"override_transition_enabled": True, "override_transition_sec": 2}
    keys = [{"matrix": pose.reshape(-1).tolist(), "fov": 50} | timed for pose in VIEWS.poses]
    more = {"camera_path": entries, "keyframes": keys, "default_transition_sec": 2, "is_cycle": False}
    (folder / "path.json").write_text(json.dumps(content | more))


@dataclass(frozen=True)
class Scene:
    """A valid scene: who writes it and which of its files are damaged (patterns of glob)."""

    write: Callable[[Path], None]
    hostile: tuple[str, ...]
    format: str = "auto"


SCENES = {
    "transforms": Scene(_transforms, ("transforms.json", "transforms.json", "points.ply", "masks/*", "images/*")),
    "blender": Scene(_blender, ("transforms_train.json", "transforms_train.json", "train0.png", "depth_train0.png")),
    "blender capture": Scene(_blender, ("transforms_train.json", "train0.png"), "blender"),
    "colmap binary": Scene(functools.partial(_colmap, binary=True), ("sparse/0/*",)),
    "colmap text": Scene(functools.partial(_colmap, binary=False), ("sparse/0/*",)),
    "llff": Scene(lambda folder: write_llff(folder, VIEWS), ("poses_bounds.npy",)),
    "nsvf": Scene(lambda folder: write_nsvf(folder, VIEWS), ("pose/*", "intrinsics.txt", "bbox.txt")),
    "neus": Scene(lambda folder: write_neus(folder, VIEWS), ("cameras_sphere.npz",)),
    "exif": Scene(_exif, ("images/*",)),
    "camera path": Scene(_camera_path, ("path.json",)),
}


@functools.cache
def files_of(name: str) -> dict[str, bytes]:
    """The files of a scene by their paths below its folder."""
    with tempfile.TemporaryDirectory() as folder:
        SCENES[name].write(Path(folder))
        paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@st.composite
def hostile_file(draw: st.DrawFn, name: str) -> tuple[str, bytes]:
    """One file of a scene, damaged: its path and its bytes."""
    files = files_of(name)
    pattern = draw(st.sampled_from(SCENES[name].hostile))
    path = draw(st.sampled_from([path for path in files if Path(path).match(pattern)]))
    mutate = forged_json if path.endswith(".json") else damaged
    return path, mutate(draw, files[path])


def write_with(folder: Path, name: str, changed: dict[str, bytes]) -> None:
    """The scene in an empty folder, some of its files with other bytes."""
    for path, data in (files_of(name) | changed).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


@functools.cache
def _warm(name: str) -> None:
    """Begins a run on the undamaged scene: what PyTorch allocates once is not the damaged file's."""
    if name != "camera path":
        with tempfile.TemporaryDirectory() as folder:
            write_with(Path(folder), name, {})
            dataset = DatasetConfig(scene="s", root=folder, format=SCENES[name].format)
            start(TINY, load_split(dataset, "train"), BACKEND)


def answer(folder: Path, name: str, begin: bool = False) -> str | None:
    """How the readers answer: with a sentence, which is returned, or with a scene that can be trained on.

    begin: whether a run is begun on it, up to its first step.
    """
    _warm(name)
    try:
        with limited(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())):
            if name == "camera path":
                check_cameras(read_camera_path(folder / "path.json").cameras)
                edited = read_key_frames(folder / "path.json")
                check_cameras(edited.path.cameras(4, edited.width, edited.height))
                return None
            dataset = DatasetConfig(scene="s", root=str(folder), format=SCENES[name].format)
            for split in ("test", "train"):
                images = load_split(dataset, split)
                check(images)
        if begin:
            with limited(None):  # a run takes what it needs
                check_state(start(TINY, images, BACKEND).state)
    except UserError as error:
        assert len(str(error)) < LARGEST_MESSAGE, f"a message of {len(str(error))} characters"
        return str(error)
    return None


def answer_to(name: str, folder: Path, path: str, data: bytes) -> str | None:
    """The answer to a scene in which one file has other bytes; a run is begun on it."""
    write_with(folder, name, {path: data})
    return answer(folder, name, begin=name != "camera path")


def check(images: PosedImages) -> None:
    """Asserts that images can be trained on: no number is beyond float32, none is there twice."""
    check_cameras(images.cameras)
    assert len(set(images.names)) == len(images) == len(images.cameras) > 0
    assert len(images.pixels) == images.cameras.first_pixel(len(images))
    assert images.depths is None or (images.depths.isfinite().all() and len(images.depths) == len(images.pixels))
    if images.scene is not None:
        box = images.scene.aabb
        assert box is None or (box.isfinite().all() and (box[0] < box[1]).all()), box
        assert 0 <= images.scene.near < float("inf") and 0 <= images.scene.far < float("inf"), images.scene


def check_state(state: TrainState) -> None:
    """Asserts that a step can be taken."""
    box = state.field.box.aabb
    assert box.isfinite().all() and (box[0] < box[1]).all(), box
    rays = state.batches.draw(16).rays
    assert rays.origins.isfinite().all() and rays.directions.isfinite().all()
    assert 0 < state.finest_voxel < float("inf")


def check_cameras(cameras) -> None:
    """Asserts that every pixel has a ray."""
    assert cameras.c2w.isfinite().all() and cameras.intrinsics.isfinite().all()
    assert (cameras.intrinsics[:, :2] > 0).all()
    for index in range(len(cameras)):
        width, height = cameras.size(index)
        rays = cameras.pixel_range_rays(index, 0, min(width * height, 512))
        assert rays.origins.isfinite().all() and rays.directions.isfinite().all()
        lengths = rays.directions.norm(dim=-1)
        assert ((lengths - 1).abs() < 1e-3).all(), lengths
