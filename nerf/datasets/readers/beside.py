"""What another format beside a capture knows of its depths, where its own knows none.

A folder often holds its poses twice: COLMAP's model and LLFF's poses_bounds.npy, or transforms.json and the model it
was made from. Where both place the same photos alike, up to a similarity, the depths of one are those of the other.
"""

from dataclasses import dataclass, replace

import numpy as np

from nerf.datasets.capture import Capture, Frame

FEWEST_FRAMES = 3  # that both have
# Two sets of poses are one and the same if no camera is farther off than this: shares of the cameras' spread, radians.
MOST_OFF, MOST_TURNED = 0.01, 0.01
AGREEING = 0.95  # of the frames have to


@dataclass(frozen=True)
class Similarity:
    """x' = scale * rotation @ x + shift."""

    scale: float
    rotation: np.ndarray  # [3,3]
    shift: np.ndarray  # [3]

    def applied(self, points: np.ndarray) -> np.ndarray:
        """Points [P,3] moved."""
        return self.scale * points @ self.rotation.T + self.shift


def with_depths_of(capture: Capture, other: Capture) -> Capture | None:
    """The capture with the points and the depth bounds of another one of the same photos.

    None where the other knows no depths either, or has other poses.
    """
    if not other.has_depths:
        return None
    rows = _matches(capture.frames, other.frames)
    found = similarity([other.frames[j] for _, j in rows], [capture.frames[i] for i, _ in rows])
    if found is None:
        return None
    points = found.applied(other.points) if other.has_points else None
    if other.bounds is None:
        return replace(capture, points=points, bounds=None)
    bounds = np.tile(np.median(other.bounds, axis=0), (len(capture.frames), 1))
    for i, j in rows:
        bounds[i] = other.bounds[j]
    return replace(capture, points=points, bounds=found.scale * bounds)


def same_poses(capture: Capture, other: Capture) -> bool:
    """Whether both place the photos that they share alike, up to a similarity."""
    rows = _matches(capture.frames, other.frames)
    return similarity([other.frames[j] for _, j in rows], [capture.frames[i] for i, _ in rows]) is not None


def similarity(source: list[Frame], target: list[Frame]) -> Similarity | None:
    """What takes the world of source frames to that of target frames, or None where nothing does (Umeyama 1991)."""
    if len(source) < FEWEST_FRAMES:
        return None
    (from_axes, from_centers), (to_axes, to_centers) = _poses(source), _poses(target)
    u, _, vh = np.linalg.svd(np.einsum("iac,ibc->ab", to_axes, from_axes))
    rotation = u @ np.diag([1.0, 1.0, np.linalg.det(u @ vh)]) @ vh
    before, after = from_centers - from_centers.mean(0), to_centers - to_centers.mean(0)
    spread, new_spread = (float(np.sqrt(np.square(x).sum(1).mean())) for x in (before, after))
    if spread == 0 or new_spread == 0:
        return None
    found = Similarity(new_spread / spread, rotation, np.zeros(3))
    found = replace(found, shift=to_centers.mean(0) - found.applied(from_centers.mean(0)[None])[0])
    off = np.linalg.norm(found.applied(from_centers) - to_centers, axis=1) / new_spread
    turned = np.linalg.norm(rotation @ from_axes - to_axes, axis=(1, 2)) / np.sqrt(2)
    alike = (off <= MOST_OFF) & (turned <= MOST_TURNED)
    return found if alike.mean() >= AGREEING else None


def _poses(frames: list[Frame]) -> tuple[np.ndarray, np.ndarray]:
    c2w = np.stack([frame.c2w for frame in frames])
    return c2w[:, :, :3], c2w[:, :, 3]


def _matches(frames: list[Frame], others: list[Frame]) -> list[tuple[int, int]]:
    """Which frames show the same photo, by the names of their files; copies at other sizes have other suffixes."""
    by_name: dict[str, list[int]] = {}
    for index, frame in enumerate(others):
        by_name.setdefault(frame.image.stem, []).append(index)
    named = [(index, by_name.get(frame.image.stem, [])) for index, frame in enumerate(frames)]
    return [(index, found[0]) for index, found in named if len(found) == 1]
