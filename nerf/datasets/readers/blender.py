"""Blender's transforms_train.json, transforms_val.json and transforms_test.json: one scene in splits."""

from pathlib import Path

from nerf.datasets.capture import Capture
from nerf.datasets.readers.transforms import SPLITS, read_frames
from nerf.errors import UserError
from nerf.reading import read_json


def recognise(root: Path) -> str | None:
    """What shows that this is a Blender scene, in words; None if nothing does."""
    return ", ".join(path.name for path in _files(root).values()) or None


def read(root: Path, images: str | None = None) -> Capture:
    """The capture: training frames, then val, then test, each in the order of its file.

    images: folder to take the photos of the same names from. Errors: see transforms.read.
    """
    files = _files(root)
    if not files:
        raise UserError(f"{root}: no transforms_train.json, expected it for a Blender scene; export it there.")
    frames = [frame for split, path in files.items() for frame in read_frames(path, read_json(path), images, split)]
    counts = [f"{sum(frame.split == split for frame in frames)} {split}" for split in files]
    return Capture(", ".join(counts), root, frames)


def _files(root: Path) -> dict[str, Path]:
    paths = {split: root / f"transforms_{split}.json" for split in SPLITS}
    return {split: path for split, path in paths.items() if path.is_file()}
