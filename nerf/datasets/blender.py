"""Scenes in the Blender format (transforms_<split>.json), which Synthetic-NeRF uses: find, check and load.

Poses map camera to world in OpenGL axes, as Cameras does, so they are checked but not converted.
Optional keys beyond Synthetic-NeRF's: fl_x, fl_y, cx, cy, w, h (pixels), k1 to k4, p1, p2 (a lens, see
nerf/cameras/distortion.py) and, for depth maps, depth_scale with a depth_file_path in every frame.
"""

import math
import os
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nerf.cameras.cameras import Cameras, corner_radii, focal_from_fov
from nerf.cameras.distortion import PERSPECTIVE, Lenses, doubtful_lenses
from nerf.cameras.limits import (
    FARTHEST,
    LARGEST_COEFFICIENT,
    SMALLEST_ANGLE,
    rounded_positions,
    unusable_intrinsics,
)
from nerf.config.commands import program
from nerf.datasets.decoding import image_info, is_opaque, read_all, read_depth, read_images, read_pixels
from nerf.datasets.posed_images import PosedImages, names_of
from nerf.datasets.transforms_file import IMAGE_EXTENSIONS, frames_of, named_file, rigid_pose, with_extension
from nerf.errors import NoViews, UserError
from nerf.files import PACKED_SCENES
from nerf.reading import is_there, read_json, shown

SYNTHETIC_NERF = ("chair", "drums", "ficus", "hotdog", "lego", "materials", "mic", "ship")


def find_scene(root: str | None, scene: str, data_dir: Path) -> Path:
    """The folder that holds the scene's transforms_train.json.

    An explicit root is the only place searched: itself, then root/scene. Without one, in this order:
    data_dir/nerf_synthetic/scene, $NERF_DATA/scene, data_dir/scene, the scenes inside an installed package. Raises
    UserError listing the places.
    """
    unpacked = data_dir / "nerf_synthetic" / scene
    if root is not None:
        places = [Path(root).expanduser(), Path(root).expanduser() / scene]
    else:
        places = [unpacked, data_dir / scene]
        if os.environ.get("NERF_DATA"):
            places.insert(1, Path(os.environ["NERF_DATA"]).expanduser() / scene)
        if (PACKED_SCENES / scene).is_dir():
            places.append(PACKED_SCENES / scene)
    for place in places:
        if (place / "transforms_train.json").is_file():
            return place
    fetched = f"Fetch it with: {program('data/download.py', scene)}; or set" if scene in SYNTHETIC_NERF else "Set"
    raise UserError(
        f"Scene '{scene}' not found: no transforms_train.json in {', '.join(map(str, places))}. {fetched} "
        f"dataset.root=PATH, or export NERF_DATA=PATH with PATH/{scene} in it, or put the scene into {unpacked}."
    )


def available_splits(folder: Path) -> list[str]:
    """Names of the splits that have a transforms file in folder, sorted."""
    return sorted(path.stem.removeprefix("transforms_") for path in folder.glob("transforms_*.json"))


def check_blender_split(folder: Path, split: str, test_every: int = 0, setting: str = "split") -> None:
    """Raises UserError where a scene has no such split, naming those that it has.

    test_every: see load_blender. setting: by which another split is asked for.
    """
    path = folder / f"transforms_{split}.json"
    if path.exists() or (split == "test" and _holds_out(folder, test_every)):
        return
    splits = available_splits(folder)
    remedy = "add it"
    if splits:
        other = "val" if split == "test" and "val" in splits else splits[0]
        remedy = f"score another split ({setting}={other}), or add it"
        if splits == ["train"] and split == "test":
            remedy = f"train with dataset.test_every=8, which holds out every eighth image, {remedy}"
    found = ", ".join(splits) or "none"
    raise NoViews(f"{path}: no such file; splits found in its folder: {found}", f". Export the scene, or {remedy}.")


def _holds_out(folder: Path, test_every: int) -> bool:
    """Whether some of the training images are the scene's test views."""
    return test_every > 0 and available_splits(folder) == ["train"]


def load_blender(folder: Path, split: str, downscale: int = 1, test_every: int = 0) -> PosedImages:
    """Loads one split in the order of its frames, at 1/downscale of the stored size.

    test_every: where the scene has transforms_train.json alone, every k-th of its images, from the first on, is a test
    view and not a training view; 0 holds none out. Images and camera tensors are on the CPU. Raises UserError, naming
    the file, for a missing folder, split, key or image, a damaged file, images of different sizes, a pose that is not
    rigid, unusable intrinsics.
    """
    held_out = split in ("train", "test") and _holds_out(folder, test_every)
    transforms = _read_transforms(folder, "train" if held_out else split)
    transforms.check_model()
    notes: tuple[str, ...] = ()
    if held_out:
        transforms.poses()  # all are checked, by their number in the file
        chosen = [(index % test_every == 0) == (split == "test") for index in range(len(transforms.frames))]
        kept = [frame for frame, its in zip(transforms.frames, chosen) if its]
        if not kept:
            raise UserError(
                f"{transforms.path}: of its {len(transforms.frames)} images dataset.test_every={test_every} leaves no "
                f"{split} view; train on all with dataset.test_every=0 evaluation.split=train, or add images."
            )
        notes = (
            f"There is {transforms.path.name} alone: one image in {test_every} is a test view (dataset.test_every).",
        )
        transforms = replace(transforms, frames=kept)
    poses = transforms.poses()
    paths = transforms.files("file_path")
    twice = [path for path, count in Counter(os.path.normpath(path) for path in paths).items() if count > 1]
    if twice:
        raise UserError(f"{transforms.path}: duplicate frames, {twice[0]} is named by several; remove all but one.")
    infos = [image_info(path) for path in paths]
    width, height = infos[0].width, infos[0].height
    for path, info in zip(paths, infos):
        if (info.width, info.height) != (width, height):
            raise UserError(
                f"{path} is {info.width}x{info.height} but {paths[0]} is {width}x{height}. All images of a split must "
                "have one size: resize them, or leave the odd ones out of the transforms file."
            )
    intrinsics = torch.tensor([transforms.intrinsics(width, height)] * len(paths), dtype=torch.float32)
    if downscale < 1 or width % downscale or height % downscale:
        raise UserError(
            f"dataset.downscale={downscale} does not divide the image size {width}x{height}; "
            f"use one of {_smallest_divisors(math.gcd(width, height))}."
        )
    c2w = torch.tensor(poses, dtype=torch.float32)[:, :3]
    radii = corner_radii(intrinsics, torch.tensor([[width, height]] * len(paths)))
    lenses = Lenses.of(["perspective"] * len(paths), [transforms.distortion()] * len(paths), radii)
    cameras = Cameras(c2w, intrinsics / downscale, width // downscale, height // downscale, lenses=lenses)
    depths = None
    if any("depth_file_path" in frame for frame in transforms.frames):
        scale, files = transforms.positive("depth_scale"), transforms.files("depth_file_path")
        maps = read_all(lambda i: read_depth(files[i], scale, (width, height), downscale), len(files), "depth maps")
        depths = torch.from_numpy(np.concatenate(maps, axis=None))
    channels = 4 if any(info.has_alpha for info in infos) else 3
    pixels = read_images(cameras, channels, lambda i: read_pixels(paths[i], channels, downscale))
    if channels == 4 and is_opaque(pixels):
        pixels = pixels[:, :3].contiguous()
    if split == "train":
        notes = (*notes, *rounded_positions(torch.from_numpy(poses[:, :3, 3])))
        notes += doubtful_lenses(lenses, cameras.intrinsics, cameras.image_sizes)
    return PosedImages(pixels, cameras, names_of(paths), depths, notes=notes, files=tuple(paths))


@dataclass(frozen=True)
class _Transforms:
    """A parsed transforms file. Its methods check what they return; all numbers in it are floats."""

    path: Path
    header: dict[str, Any]
    frames: list[dict[str, Any]]

    def positive(self, key: str, default: float | None = None) -> float:
        """The number under a key of the header, which must be finite and > 0."""
        value = self.header.get(key, default)
        if value is None:
            raise UserError(f"{self.path}: key '{key}' is missing, expected a positive number; add it.")
        if not isinstance(value, float) or not 0 < value <= FARTHEST:
            raise UserError(
                f"{self.path}: {key} is {shown(value)}, expected a positive number up to {FARTHEST:g}; correct it."
            )
        return value

    def intrinsics(self, width: int, height: int) -> list[float]:
        """fx, fy, cx, cy in pixels for images of the given size."""
        stated = self.positive("w", float(width)), self.positive("h", float(height))
        if stated != (width, height):
            raise UserError(
                f"{self.path}: w, h say {stated[0]:g}x{stated[1]:g} but the images are {width}x{height}. "
                "Correct w and h, and with them fl_x, fl_y, cx and cy."
            )
        if "fl_x" in self.header:
            fx = self.positive("fl_x")
        else:
            fx = focal_from_fov(width, self._horizontal_fov())
        fy = self.positive("fl_y", fx)
        found = [fx, fy, self.positive("cx", width / 2), self.positive("cy", height / 2)]
        problem = unusable_intrinsics(*found)
        if problem is not None:
            raise UserError(f"{self.path}: {problem}; correct it.")
        return found

    def check_model(self) -> None:
        """Raises UserError for a fisheye or a panorama."""
        for part in (self.header, *self.frames):
            model = "OPENCV_FISHEYE" if part.get("is_fisheye") else part.get("camera_model")
            if isinstance(model, str) and ("FISHEYE" in model or model == "EQUIRECTANGULAR"):
                raise UserError(
                    f"{self.path}: camera_model is {shown(model)}, but dataset=blender has perspective cameras alone; "
                    "dataset=capture reads the others."
                )

    def distortion(self) -> list[float]:
        """The coefficients of the lens, as cameras.distortion.PERSPECTIVE lists them, 0 where the file is silent."""
        values = [self.header.get(key, 0.0) for key in PERSPECTIVE]
        for key, value in zip(PERSPECTIVE, values):
            if not isinstance(value, float) or not abs(value) <= LARGEST_COEFFICIENT:
                limits = f"a finite number up to {LARGEST_COEFFICIENT:g}"
                raise UserError(f"{self.path}: {key} is {shown(value)}, expected {limits}; correct it.")
        return values

    def _horizontal_fov(self) -> float:
        fov = self.positive("camera_angle_x")
        if not SMALLEST_ANGLE < fov < math.pi:
            raise UserError(
                f"{self.path}: camera_angle_x is {fov:g}, expected radians between 0 and pi. "
                f"If these are degrees, write {math.radians(fov):.6g}."
            )
        return fov

    def files(self, key: str) -> list[Path]:
        """The files that the frames name under a key, all of which exist."""
        found = [self._file(index, key) for index in range(len(self.frames))]
        missing = [index for index, path in enumerate(found) if not is_there(path)]
        if missing:
            raise UserError(
                f"{found[missing[0]]}: no such file, nor with {', '.join(filter(None, IMAGE_EXTENSIONS))}; "
                f"{len(missing)} of the {len(found)} files that {self.path} names under {key} are missing. "
                "Restore them or remove their frames."
            )
        return found

    def _file(self, index: int, key: str) -> Path:
        name = named_file(self.frames[index].get(key), f"{self.path}: {key} of frame {index}")
        return with_extension(self.path.parent / name)

    def poses(self) -> np.ndarray:
        """Camera-to-world matrices [I,4,4] float64, each a rotation and a translation."""
        place = f"{self.path}: transform_matrix of frame"
        matrices = [frame.get("transform_matrix") for frame in self.frames]
        return np.stack([rigid_pose(matrix, f"{place} {index}") for index, matrix in enumerate(matrices)])


def _read_transforms(folder: Path, split: str) -> _Transforms:
    path = folder / f"transforms_{split}.json"
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder, expected a scene folder with {path.name}; correct dataset.root.")
    check_blender_split(folder, split)
    header = read_json(path)
    return _Transforms(path, header, frames_of(header, path))


def training_poses(folder: Path) -> np.ndarray:
    """Camera-to-world matrices [I,4,4] float64 of transforms_train.json. No image is read."""
    return _read_transforms(folder, "train").poses()


def _smallest_divisors(number: int) -> str:
    """For error messages: the first divisors are the ones that a user may want."""
    divisors = [str(divisor) for divisor in range(1, number + 1) if number % divisor == 0]
    return ", ".join(divisors[:8])
