"""Blender's transforms_train.json, transforms_val.json and transforms_test.json: one scene in splits."""

from dataclasses import replace
from pathlib import Path

from nerf.datasets.capture import Capture
from nerf.datasets.readers.transforms import SPLITS, read_frames
from nerf.errors import UserError
from nerf.reading import read_json

DEPTH_SCALE = "depth_scale"  # of load_blender


def recognize(root: Path) -> str | None:
    """What shows that this is a Blender scene, in words; None if nothing does."""
    return ", ".join(path.name for path in _files(root).values()) or None


def read(root: Path, images: str | None = None) -> Capture:
    """The capture: training frames, then val, then test, each in the order of its file.

    images: folder to take the photos of the same names from. Errors: see transforms.read.
    """
    files = _files(root)
    if not files:
        raise UserError(f"{root}: no transforms_train.json, expected it for a Blender scene; export it there.")
    headers = {split: read_json(path) for split, path in files.items()}
    each = {split: read_frames(path, headers[split], images, split) for split, path in files.items()}
    frames = [frame for found in each.values() for frame in found]
    said = [f"{len(found)} {split}" for split, found in each.items()]
    if list(files) == ["train"]:  # then dataset.test_every holds out test views
        frames = [replace(frame, split=None) for frame in frames]
    if any(DEPTH_SCALE in header for header in headers.values()):  # distances, not camera z
        frames = [replace(frame, depth=None) for frame in frames]
        said.append(f"depth files of {DEPTH_SCALE} left aside, which go with plain cameras and no masks alone")
    return Capture(", ".join(said), root, frames)


def _files(root: Path) -> dict[str, Path]:
    paths = {split: root / f"transforms_{split}.json" for split in SPLITS}
    return {split: path for split, path in paths.items() if path.is_file()}
