"""What NerfBaselines hands to a method, its data sets and cameras, as ours.

Its data set is a dictionary in host memory: cameras with OpenCV's axes (x right, y down, z forward), images [H,W,3] or
[H,W,4] with straight alpha, padded to one size where sizes differ, masks that are white where a pixel counts, sparse
points of the training split, and metadata with the color behind transparent images.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nerf.cameras.cameras import Cameras, corner_radii
from nerf.cameras.distortion import Lenses
from nerf.cameras.poses import OPENCV_SIGNS
from nerf.datasets.capture import Capture, Frame
from nerf.datasets.photos import scene_of
from nerf.datasets.posed_images import PosedImages
from nerf.datasets.transforms_file import rigid_pose
from nerf.errors import UserError
from nerf.images.pixel_runs import PixelRuns

# Their names of camera models, in the order of their numbers, which of ours each is, and where its coefficients stand.
CAMERA_MODELS = ("pinhole", "opencv", "opencv_fisheye")
LENSES = {
    "pinhole": ("perspective", ()),
    "opencv": ("perspective", (0, 1, 2, 3)),
    "opencv_fisheye": ("fisheye", (0, 1, 4, 5)),
}
BACKGROUNDS = {255: "white", 0: "black"}


def cameras_of(given: Any) -> Cameras:
    """Cameras from theirs: poses [I,3,4], intrinsics [I,4], camera_models [I], distortion_parameters [I,K],
    image_sizes [I,2]; or one camera, without the I. Float32, on the CPU.

    Raises UserError for a pose that is not rigid and for a camera model other than CAMERA_MODELS.
    """
    return _cameras(_frames(given, ["camera"] * len(np.reshape(given.camera_models, -1)), Path()))


def posed_images(dataset: Mapping[str, Any]) -> PosedImages:
    """The images of a data set that is loaded, bytes on the CPU, with what its cameras and points tell of the scene.

    Raises UserError for colors that are not sRGB, images that are neither RGB nor RGBA, and as cameras_of does.
    """
    root = Path(dataset.get("image_paths_root") or os.path.commonpath(dataset["image_paths"]))
    names = [os.path.relpath(path, root).replace(os.sep, "_") for path in dataset["image_paths"]]
    space = dataset["metadata"].get("color_space", "srgb")
    if space != "srgb":
        raise UserError(f"{root}: its colors are {space}, expected srgb; convert the images before training.")
    frames = _frames(dataset["cameras"], dataset["image_paths"], root)
    cameras = _cameras(frames)
    sizes = cameras.image_sizes.tolist()
    cut = [_bytes(image)[:height, :width] for image, (width, height) in zip(dataset["images"], sizes)]
    channels = max(image.shape[-1] if image.ndim == 3 else 0 for image in cut)
    for name, image, (width, height) in zip(names, cut, sizes):
        if image.ndim != 3 or image.shape[-1] not in (3, 4) or image.shape[:2] != (height, width):
            found = "x".join(map(str, image.shape))
            raise UserError(f"{root}/{name}: its array is {found}, expected {height}x{width}x3 or {height}x{width}x4.")
    pixels = torch.cat([_with_channels(image, channels) for image in cut])
    points = dataset.get("points3D_xyz")
    capture = Capture("NerfBaselines", root, frames, None if points is None else np.asarray(points, np.float64))
    images = PosedImages(pixels, cameras, names, valid_pixels=_valid_pixels(dataset.get("masks"), sizes))
    if channels == 4:  # alpha shows where the scene ends
        return images
    return PosedImages(
        pixels, cameras, names, valid_pixels=images.valid_pixels, scene=scene_of(capture, images, has_alpha=False)
    )


def background_of(dataset: Mapping[str, Any]) -> str:
    """The setting dataset.background for the color behind transparent images; black where the metadata are silent,
    as NerfBaselines has it.

    Raises UserError for another color than white or black.
    """
    color = dataset["metadata"].get("background_color")
    levels = {0} if color is None else set(_bytes(np.asarray(color)).reshape(-1).tolist())
    known = BACKGROUNDS.get(levels.pop()) if len(levels) == 1 else None
    if known is None:
        raise UserError(f"the background color of the data set is {color}, expected white or black; change it there.")
    return known


def _frames(given: Any, paths: Sequence[str], root: Path) -> list[Frame]:
    """One frame a camera, in OpenGL's axes."""
    count = len(paths)
    poses = np.asarray(given.poses, np.float64).reshape(count, 3, 4)
    poses = np.concatenate([poses[:, :, :3] * np.array(OPENCV_SIGNS), poses[:, :, 3:]], axis=-1)
    intrinsics = np.asarray(given.intrinsics, np.float64).reshape(count, 4)
    sizes = np.asarray(given.image_sizes).reshape(count, 2)
    coefficients = np.asarray(given.distortion_parameters, np.float64).reshape(count, -1)
    frames = []
    for index, number in enumerate(np.asarray(given.camera_models).reshape(count).tolist()):
        if not 0 <= number < len(CAMERA_MODELS):
            raise UserError(f"camera model {number} of {paths[index]}, expected one of {', '.join(CAMERA_MODELS)}.")
        lens, places = LENSES[CAMERA_MODELS[number]]
        bent = tuple(coefficients[index, place] for place in places if place < coefficients.shape[1])
        c2w = rigid_pose([*poses[index].tolist(), [0.0, 0.0, 0.0, 1.0]], f"{paths[index]}: its pose")[:3]
        width, height = (int(side) for side in sizes[index])
        frames.append(Frame(root / paths[index], c2w, width, height, tuple(intrinsics[index]), lens, bent))
    return frames


def _cameras(frames: Sequence[Frame]) -> Cameras:
    sizes = [(frame.width, frame.height) for frame in frames]
    intrinsics = torch.tensor([frame.intrinsics for frame in frames], dtype=torch.float32)
    c2w = torch.from_numpy(np.stack([frame.c2w for frame in frames])).float()
    radii = corner_radii(intrinsics, torch.tensor(sizes))
    lenses = Lenses.of([frame.lens for frame in frames], [frame.distortion for frame in frames], radii)
    return Cameras.of_sizes(c2w, intrinsics, sizes, lenses)


def _bytes(values: np.ndarray) -> np.ndarray:
    """Colors as bytes: bytes as they are, numbers in [0,1] rounded."""
    if values.dtype == np.uint8:
        return values
    return (np.clip(values, 0, 1) * 255 + 0.5).astype(np.uint8)


def _with_channels(image: np.ndarray, channels: int) -> Tensor:
    """An image [H,W,3 or 4] as pixels [H*W,channels]; where alpha is added, it is opaque."""
    if image.shape[-1] < channels:
        image = np.concatenate([image, np.full_like(image[..., :1], 255)], axis=-1)
    return torch.from_numpy(np.ascontiguousarray(image)).reshape(-1, channels)


def _valid_pixels(masks: Sequence[np.ndarray] | None, sizes: Sequence[Sequence[int]]) -> PixelRuns | None:
    """The pixels that count, None where there are no masks, which are [H,W] bool, bytes or numbers in [0,1]."""
    if masks is None:
        return None
    counts = [_bytes(mask * 1.0 if mask.dtype == bool else mask) >= 128 for mask in masks]
    counts = [mask[:height, :width].reshape(-1) for mask, (width, height) in zip(counts, sizes)]
    return PixelRuns.of_mask(torch.from_numpy(np.concatenate(counts)))
