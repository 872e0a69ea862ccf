"""Scenes for the tests: small ones in the Blender format written into a folder, and the official ones."""

import json
import math
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from nerf.cameras.cameras import Cameras, focal_from_fov
from nerf.cameras.poses import look_at
from nerf.cameras.rays import Rays
from nerf.datasets.posed_images import PosedImages
from nerf.scene.description import SceneDescription

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
    """Writes square views of the unit sphere, colored by its normal, on a transparent background.

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
    shared = Path(__file__).resolve().parents[3] / "shared" / "scenes"
    folder = Path(os.environ.get("NERF_DATA") or shared) / name
    if not (folder / "transforms_train.json").is_file():
        pytest.skip(f"official scene {name} is not in {folder.parent}; set NERF_DATA to the folder with it")
    return folder


def real_capture(name: str) -> Path:
    """Folder of a real capture in $NERF_DATA or ../shared/scenes; skips the test where absent."""
    shared = Path(__file__).resolve().parents[3] / "shared" / "scenes"
    folder = Path(os.environ.get("NERF_DATA") or shared) / name
    if not folder.is_dir():
        pytest.skip(f"real capture {name} is not in {folder.parent}; set NERF_DATA to the folder with it")
    return folder


UP = torch.tensor([0.0, 1.0, 0.0])
SMALL = 24  # pixels along each side of the photos of KIND_SCENES


def pattern(points: Tensor, scale: float) -> Tensor:
    """Colors [N,3] that vary smoothly, at a wavelength of about six over scale."""
    phases = torch.tensor([[1.0, 0.3, -0.5], [-0.4, 1.0, 0.6], [0.5, -0.7, 1.0]])
    return 0.5 + 0.5 * torch.sin(scale * points @ phases.T + torch.tensor([0.0, 1.0, 2.0]))


def ball_under_a_sky(rays: Rays) -> Tensor:
    """A ball of radius 0.7 in the middle, and a sky 30 away."""
    b = -(rays.origins * rays.directions).sum(-1)

    def hit(radius: float, sign: int) -> tuple[Tensor, Tensor]:
        root = radius**2 - (rays.origins.square().sum(-1) - b.square())
        t = b + sign * root.clamp(min=0).sqrt()
        return root > 0, rays.origins + t[:, None] * rays.directions

    near, ball = hit(0.7, -1)
    _, sky = hit(30.0, 1)
    return torch.where(near[:, None], pattern(ball, 4.0), pattern(sky / 30, 6.0))


def window_before_hills(rays: Rays) -> Tensor:
    """A wall at z = -2 with a window in it, and a plane at z = -20 behind."""

    def at(z: float) -> Tensor:
        return rays.origins + ((z - rays.origins[:, 2]) / rays.directions[:, 2])[:, None] * rays.directions

    wall, hills = at(-2.0), at(-20.0)
    window = (wall[:, :2].abs() < 0.45).all(-1)
    return torch.where(window[:, None], pattern(hills / 20, 15.0), pattern(wall, 6.0))


def photos_of(scene, poses: Tensor, focal: float, described: SceneDescription | None) -> PosedImages:
    cameras = Cameras(
        poses, torch.tensor([[focal * SMALL, focal * SMALL, SMALL / 2, SMALL / 2]]).repeat(len(poses), 1), SMALL, SMALL
    )
    colors = torch.stack([scene(cameras.image_rays(i)).view(SMALL, SMALL, 3) for i in range(len(poses))])
    pixels = (255 * colors).round().byte().view(-1, 3)
    return PosedImages(pixels, cameras, [str(i) for i in range(len(poses))], scene=described)


@cache
def all_around(split: str) -> PosedImages:
    """Views of the ball from all around, which see the sky behind it."""
    count, shift = (24, 0.0) if split == "train" else (5, 0.37)
    poses = []
    for index in range(count):
        turn, height = math.tau * (index + shift) / count, 0.6 * math.sin(2.4 * (index + shift))
        poses.append(look_at(torch.tensor([2 * math.cos(turn), height, 2 * math.sin(turn)]), torch.zeros(3), UP))
    return photos_of(ball_under_a_sky, torch.stack(poses), 0.8, SceneDescription("unbounded", near=1.0))


@cache
def forward_facing(split: str) -> PosedImages:
    """Views through the window, all in one direction."""
    across = torch.linspace(-0.5, 0.5, 5) if split == "train" else torch.tensor([-0.3, 0.1, 0.35])
    centers = torch.cartesian_prod(across, across, torch.zeros(1))
    rotation = torch.eye(3).expand(len(centers), 3, 3)
    poses = torch.cat([rotation, centers[:, :, None]], dim=-1)
    return photos_of(window_before_hills, poses, 0.9, SceneDescription("forward_facing", near=1.5))


KIND_SCENES = {"forward_facing": forward_facing, "unbounded": all_around}
