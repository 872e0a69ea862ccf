"""Scenes for the tests: small ones in the Blender format written into a folder, and the official ones."""

import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from nerf.cameras import Cameras, focal_from_fov
from nerf.rays import Rays

FOV = 0.8  # radians across the width
DEPTH_SCALE = 1e-4  # world units per step of a 16-bit depth map


def look_at_origin(azimuth: float, elevation: float, radius: float = 4.0) -> np.ndarray:
    """Camera-to-world matrix [4,4] of a camera on a sphere around the origin, z up; angles in radians."""
    backward = np.array(
        [
            math.cos(elevation) * math.cos(azimuth),
            math.cos(elevation) * math.sin(azimuth),
            math.sin(elevation),
        ]
    )
    right = np.array([-math.sin(azimuth), math.cos(azimuth), 0.0])
    pose = np.eye(4)
    pose[:3] = np.stack([right, np.cross(backward, right), backward, radius * backward], axis=1)
    return pose


POSES = (look_at_origin(0.3, 0.4), look_at_origin(2.0, -0.2))


def random_images(*shape: int) -> np.ndarray:
    """The same uint8 values at every call."""
    return np.random.default_rng(7).integers(0, 256, shape, dtype=np.uint8)


def write_split(
    folder: Path,
    split: str,
    images: np.ndarray,
    poses: Sequence[np.ndarray],
    depths: np.ndarray | None = None,
    **header: object,
) -> None:
    """Writes transforms_<split>.json and the images r_0, r_1, ... it names, as Synthetic-NeRF stores them.

    images [I,H,W,3] or [I,H,W,4] uint8; depths [I,H,W] in world units; header holds more top-level keys.
    """
    (folder / split).mkdir(parents=True, exist_ok=True)
    frames = []
    for index, (image, pose) in enumerate(zip(images, poses, strict=True)):
        frame = {"file_path": f"./{split}/r_{index}", "transform_matrix": np.asarray(pose).tolist()}
        Image.fromarray(image).save(folder / f"{frame['file_path']}.png")
        if depths is not None:
            frame["depth_file_path"] = f"./{split}/depth_{index}.png"
            steps = np.rint(depths[index] / DEPTH_SCALE).astype(np.uint16)
            Image.fromarray(steps).save(folder / frame["depth_file_path"])
        frames.append(frame)
    if depths is not None:
        header["depth_scale"] = DEPTH_SCALE
    transforms = {"camera_angle_x": FOV, **header, "frames": frames}
    (folder / f"transforms_{split}.json").write_text(json.dumps(transforms, indent=1))


def edit_transforms(folder: Path, change: Callable[[dict], object]) -> Path:
    """Applies change to the parsed transforms_train.json, in place; returns its path."""
    path = folder / "transforms_train.json"
    transforms = json.loads(path.read_text())
    change(transforms)
    path.write_text(json.dumps(transforms))
    return path


def write_sphere_scene(
    folder: Path,
    views: int = 4,
    size: int = 16,
    splits: Sequence[str] = ("train", "test"),
    with_depth: bool = False,
) -> None:
    """Writes square views of the unit sphere, coloured by its normal, on a transparent background.

    The views are consistent with each other, so that a few training steps on them lower the error.
    """
    for number, split in enumerate(splits):
        # Half a step of azimuth between the splits, so that no test view is a training view.
        azimuths = [(index + 0.5 * number) * math.tau / views for index in range(views)]
        poses = [look_at_origin(azimuth, elevation=0.5) for azimuth in azimuths]
        focal = focal_from_fov(size, FOV)
        cameras = Cameras(
            torch.tensor(np.stack(poses)[:, :3]),
            torch.tensor([[focal, focal, size / 2, size / 2]]).expand(views, 4),
            size,
            size,
        )
        images, depths = zip(*(_sphere_view(cameras.image_rays(view), size) for view in range(views)))
        write_split(folder, split, np.stack(images), poses, np.stack(depths) if with_depth else None)


def sphere_depth(rays: Rays) -> Tensor:
    """Distance [R] along each ray to the unit sphere around the origin, 0 where it misses."""
    nearest = -(rays.origins * rays.directions).sum(-1)
    half_chord_squared = 1 - (rays.origins.square().sum(-1) - nearest.square())
    return torch.where(half_chord_squared > 0, nearest - half_chord_squared.clamp(min=0).sqrt(), 0.0)


def _sphere_view(rays: Rays, size: int) -> tuple[np.ndarray, np.ndarray]:
    """RGBA [size,size,4] uint8 and depth [size,size]."""
    depth = sphere_depth(rays)
    hit = depth[:, None] > 0
    normal = rays.origins + depth[:, None] * rays.directions
    rgba = torch.cat([0.5 + 0.5 * normal, torch.ones_like(depth[:, None])], dim=-1) * hit
    image = (255 * rgba).round().to(torch.uint8)
    return image.reshape(size, size, 4).numpy(), depth.reshape(size, size).numpy()


def official_scene(name: str) -> Path:
    """Folder of a Synthetic-NeRF scene in $NERF_DATA or ../shared/scenes; skips the test where absent."""
    shared = Path(__file__).resolve().parents[2] / "shared" / "scenes"
    folder = Path(os.environ.get("NERF_DATA") or shared) / name
    if not (folder / "transforms_train.json").is_file():
        pytest.skip(f"official scene {name} is not in {folder.parent}; set NERF_DATA to the folder with it")
    return folder


def real_capture(name: str) -> Path:
    """Folder of a real capture in $NERF_DATA or ../shared/scenes; skips the test where absent."""
    shared = Path(__file__).resolve().parents[2] / "shared" / "scenes"
    folder = Path(os.environ.get("NERF_DATA") or shared) / name
    if not folder.is_dir():
        pytest.skip(f"real capture {name} is not in {folder.parent}; set NERF_DATA to the folder with it")
    return folder
