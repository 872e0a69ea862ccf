"""How the cameras of a capture stand: where they look, how far from it, how much they see. Geometry alone."""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from nerf.cameras.cameras import PANORAMA
from nerf.cameras.poses import estimate_target
from nerf.datasets.capture import Frame

# A fisheye sees past a right angle, where a pinhole's slope ends; steeper rays do not widen a box.
STEEPEST = math.radians(75)
# Cameras that look at something have it ahead, 1 to 9 degrees off their axes in the median; on a walk that looks
# outwards a third to a half of them have the point nearest to all axes behind them, and it lies far off the axes.
MOST_BEHIND = 0.2  # of the cameras
MOST_ASIDE = math.radians(30)  # the median of the cameras
AMID = 3.0  # times as far from their middle as the median of them


@dataclass(frozen=True)
class CameraRig:
    """I cameras in world space; all float64."""

    centers: np.ndarray  # [I,3]
    rotations: np.ndarray  # [I,3,3] camera to world, OpenGL axes
    slopes: np.ndarray  # [I,2] tangents from the middle of the image to its sides and to its top, the wider ones
    target: np.ndarray | None  # [3] what they look at: the point nearest to all axes; None where there is none
    panoramas: np.ndarray  # [I] bool: these see in all directions, and look in none

    @property
    def forward(self) -> np.ndarray:
        """Unit viewing directions [I,3]."""
        return -self.rotations[:, :, 2]

    @property
    def mean_forward(self) -> np.ndarray:
        """Unit direction [3] in which they look on average; any where they cancel out."""
        total = self.forward.sum(axis=0)
        length = np.linalg.norm(total)
        return total / length if length > 1e-9 else self.forward[0]

    @property
    def turns(self) -> np.ndarray:
        """Angles [I] in radians between each viewing direction and the mean one."""
        return np.arccos(np.clip(self.forward @ self.mean_forward, -1, 1))

    @property
    def distances(self) -> np.ndarray:
        """From each camera to the target, [I]."""
        return np.linalg.norm(self.centers - self.target, axis=1)

    @property
    def axis_misses(self) -> np.ndarray:
        """By how much each camera's axis misses the target, [I]."""
        return np.linalg.norm(np.cross(self.forward, self.target - self.centers), axis=1)

    @property
    def baseline(self) -> float:
        """Diagonal of the box around all cameras."""
        return float(np.linalg.norm(np.ptp(self.centers, axis=0)))

    def seen_around(self, point: np.ndarray) -> tuple[float, float]:
        """How far the median camera sees to each side of a point [3], and half the edge of the largest cube around it
        that no camera is in."""
        offsets = self.centers - point
        seen = np.median(np.linalg.norm(offsets, axis=1) * self.slopes.max(axis=1))
        return float(seen), float(np.abs(offsets).max(axis=1).min())

    def depths(self, points: np.ndarray) -> list[np.ndarray]:
        """Camera z of those of the points [P,3] that fall into each image, [M]; of panoramas distances."""
        found = []
        for center, rotation, slope, around in zip(self.centers, self.rotations, self.slopes, self.panoramas):
            if around:
                found.append(np.linalg.norm(points - center, axis=1))
                continue
            right, up, backward = ((points - center) @ rotation).T
            inside = (np.abs(right) < -slope[0] * backward) & (np.abs(up) < -slope[1] * backward)
            found.append(-backward[inside])
        return found

    def frusta_corners(self, near: float, far: float) -> np.ndarray:
        """Corners of all frusta between two depths, [I*8,3]."""
        signs = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
        across = self.slopes[:, None] * signs
        rays = np.concatenate([across, -np.ones_like(across[..., :1])], axis=-1)
        directions = np.einsum("ikc,ijc->ikj", rays, self.rotations)
        return np.concatenate([self.centers[:, None] + depth * directions for depth in (near, far)]).reshape(-1, 3)


def camera_rig(frames: Sequence[Frame]) -> CameraRig:
    """The cameras of at least one frame."""
    poses = np.stack([frame.c2w for frame in frames]).astype(np.float64)
    panoramas = np.array([frame.lens == PANORAMA for frame in frames])
    target = None
    if not panoramas.any():
        with contextlib.suppress(ValueError):  # parallel axes, or cameras that look outwards
            target = estimate_target(torch.from_numpy(poses)).numpy()
    if target is not None and _is_amid_a_walk(target, poses):
        target = None
    slopes = np.array([_slopes(frame) for frame in frames])
    return CameraRig(poses[:, :, 3], poses[:, :, :3], slopes, target, panoramas)


def _is_amid_a_walk(target: np.ndarray, poses: np.ndarray) -> bool:
    """Whether the point [3] lies amid the cameras [I,3,4], but behind many of them or far off most of their axes.

    One far from where they stand is the work of a camera in a wrong place, which is said elsewhere.
    """
    centers = poses[:, :, 3]
    middle = np.median(centers, axis=0)
    if np.linalg.norm(target - middle) > AMID * np.median(np.linalg.norm(centers - middle, axis=1)):
        return False
    offsets = target - centers
    ahead = -np.einsum("ij,ij->i", offsets, poses[:, :, 2])
    aside = np.linalg.norm(np.cross(offsets, poses[:, :, 2]), axis=1)
    angles = np.arctan2(aside, ahead)
    return bool((angles > math.pi / 2).mean() > MOST_BEHIND or np.median(angles) > MOST_ASIDE)


def _slopes(frame: Frame) -> tuple[float, float]:
    fx, fy, cx, cy = frame.intrinsics
    across, down = max(cx, frame.width - cx) / fx, max(cy, frame.height - cy) / fy
    if frame.lens != "perspective":  # an image radius is about the angle, not its tangent
        return math.tan(min(across, STEEPEST)), math.tan(min(down, STEEPEST))
    return across, down
