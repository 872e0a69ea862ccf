"""From the settings of a data set to its images, and where a run's images are when it is opened again."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nerf.config.schema import DatasetConfig
from nerf.datasets.blender import check_blender_split, find_scene, load_blender, training_poses
from nerf.datasets.capture import Capture
from nerf.datasets.photos import load_photos, split_frames
from nerf.datasets.posed_images import PosedImages
from nerf.datasets.readers import read_capture
from nerf.datasets.readers.masks import FOLDERS
from nerf.datasets.readers.transforms import COEFFICIENT_KEYS, COEFFICIENT_LIST, MATRIX, UNREAD_COEFFICIENTS
from nerf.datasets.transforms_file import frames_of
from nerf.errors import UserError
from nerf.files import DATA
from nerf.reading import read_json

# Keys of a camera that the readers of captures know and load_blender does not: anywhere, and in a frame.
OF_HEADER = ("camera_angle_y", COEFFICIENT_LIST, *UNREAD_COEFFICIENTS)
OF_FRAMES = ("fl_x", "fl_y", "cx", "cy", "w", "h", "camera_angle_x", "camera_model", *COEFFICIENT_KEYS, *OF_HEADER)


def load_split(dataset: DatasetConfig, split: str) -> PosedImages:
    """The images of one split, as the config names them."""
    folder = None
    if _is_blender(dataset):
        folder = find_scene(dataset.root, dataset.scene, DATA)
        if not _is_capture(dataset, folder):
            return load_blender(folder, split, dataset.downscale, dataset.test_every)
    masks = dataset.masks
    if masks == "auto" and dataset.kind in ("forward_facing", "unbounded"):  # a scene that goes on behind any object
        masks = "leave_out"
    options = dataset.downscale, dataset.test_every, dataset.skip_missing, masks
    return load_photos(_capture(dataset, folder), split, *options)


def check_split(dataset: DatasetConfig, split: str) -> None:
    """Raises UserError where a scene has no view in the split that is to be scored (evaluation.split).

    Better said before training than after it.
    """
    options = split, dataset.test_every, "evaluation.split"
    if _is_blender(dataset):
        check_blender_split(find_scene(dataset.root, dataset.scene, DATA), *options)
    else:
        split_frames(_capture(dataset), *options)


def sparse_points(dataset: DatasetConfig) -> Tensor | None:
    """World points [P,3] float32 that the poses came with, None where the format has none."""
    points = None if _is_blender(dataset) else _capture(dataset).points
    return None if points is None else torch.from_numpy(points).float()


def scene_poses(dataset: DatasetConfig) -> Tensor:
    """Camera-to-world matrices [N,3,4] float32, the training views' among them. No image is read.

    Raises UserError where there is no such scene.
    """
    folder = None
    if _is_blender(dataset):
        folder = find_scene(dataset.root, dataset.scene, DATA)
        if not _is_capture(dataset, folder):
            return torch.from_numpy(training_poses(folder)[:, :3]).float()
    return torch.from_numpy(np.stack([frame.c2w for frame in _capture(dataset, folder).frames])).float()


def located(dataset: DatasetConfig) -> DatasetConfig:
    """The settings with the absolute folder of the scene: what a run keeps, to find it from any other folder.

    Raises UserError where there is no such scene.
    """
    if _is_blender(dataset):
        root = find_scene(dataset.root, dataset.scene, DATA)
    elif dataset.root is None:
        return dataset
    else:
        root = Path(dataset.root).expanduser()
    return replace(dataset, root=str(root.absolute()))


def found_again(dataset: DatasetConfig) -> DatasetConfig:
    """The settings that a run kept, with the folder where its scene is now.

    A scene that is not where it was is looked for by its name, as `dataset.scene` is; where that finds it, stderr says
    so. Raises UserError where it does not.
    """
    if dataset.root is None or Path(dataset.root).expanduser().exists():
        return dataset
    gone = f"the images of this run are not in {dataset.root} any more"
    try:
        if dataset.format not in ("auto", "blender"):
            raise UserError("captures have no names")
        root = find_scene(None, dataset.scene, DATA).absolute()
    except UserError as error:
        raise UserError(f"{gone}; give dataset.root=FOLDER, the folder where they are now.") from error
    print(f"note: {gone}, those in {root} are taken.", file=sys.stderr)
    return replace(dataset, root=str(root))


def _is_blender(dataset: DatasetConfig) -> bool:
    """Whether the scene is looked for by its name and loaded as Synthetic-NeRF's are, with depth where it has some."""
    if dataset.format != "auto" or dataset.root is None:
        return dataset.format in ("auto", "blender")
    return (Path(dataset.root).expanduser() / "transforms_train.json").is_file()


def _is_capture(dataset: DatasetConfig, folder: Path) -> bool:
    """Whether a scene in Blender's format has what load_blender knows nothing of: masks, photos that may be missing,
    and cameras that differ from frame to frame."""
    masked = dataset.mask_folder is not None or any((folder / name).is_dir() for name in FOLDERS)
    if dataset.skip_missing or (masked and dataset.masks != "none"):
        return True
    return any(_has_more_keys(dataset, path) for path in sorted(folder.glob("transforms_*.json")))


def _has_more_keys(dataset: DatasetConfig, path: Path) -> bool:
    """Whether a file of one split has keys that load_blender does not read."""
    try:
        header = read_json(path)
        frames = frames_of(header, path)
    except (OSError, UserError):  # whoever reads it is told
        return False
    if dataset.masks != "none" and any("mask_path" in frame for frame in frames):
        return True
    focal = any(key in header for key in ("fl_x", "camera_angle_x"))  # before which a matrix does not count
    if not focal and any(MATRIX in part for part in (header, *frames)):
        return True
    return any(key in header for key in OF_HEADER) or any(key in frame for frame in frames for key in OF_FRAMES)


def _capture(dataset: DatasetConfig, blender: Path | None = None) -> Capture:
    """The capture of the settings. blender: the folder of a scene that is in Blender's format, whatever else is there.

    Raises UserError where the settings name no folder, and what read_capture raises.
    """
    if blender is None and dataset.root is None:
        raise UserError(f"dataset.format={dataset.format} needs the folder of the capture; give dataset.root=FOLDER.")
    root = Path(dataset.root).expanduser() if blender is None else blender
    format, asked = dataset.format if blender is None else "blender", dataset.format != "auto"
    return read_capture(root, format, dataset.images, dataset.masks != "none", dataset.mask_folder, asked)
