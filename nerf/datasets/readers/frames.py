"""Making frames, and the checks that hold for every format."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from nerf.cameras.limits import FARTHEST
from nerf.datasets.capture import Capture, Frame
from nerf.datasets.readers.lenses import Lens
from nerf.datasets.readers.photos import is_turned, photo_size
from nerf.datasets.transforms_file import rigid_pose
from nerf.errors import UserError
from nerf.reading import is_file

# Camera axes x right, y down, z forward (OpenCV, COLMAP, NSVF) to x right, y up, z backward, and back again.
FLIP_YZ = np.diag([1.0, -1.0, -1.0, 1.0])


def make_frame(
    image: Path, c2w: object, lens: Lens, where: str, mask: Path | None = None, split: str | None = None
) -> Frame:
    """A frame of an image and its pose.

    c2w: 4 rows of 4 numbers in OpenGL axes; lens: for the image at any size, it is fitted to the file's. where names
    the pose in messages. Raises UserError for a pose that is not rigid and an image of another shape than the lens.
    """
    pose = rigid_pose(c2w, where)
    # Files hold rounded numbers: the nearest rotation is U V^T of R = U S V^T.
    u, _, vh = np.linalg.svd(pose[:3, :3])
    pose[:3, :3] = u @ vh
    width, height = photo_size(image) or (lens.width, lens.height)
    if (width > height) != (lens.width > lens.height) and is_turned(image):
        width, height = height, width  # the poses were made from the image as it is shown
    given = lens.width, lens.height
    lens = lens.fitted(width, height, str(image))
    size = lens.width, lens.height
    frame = Frame(image, pose[:3], *size, lens.intrinsics, lens.model, lens.distortion, mask, split)
    return frame if given == size else replace(frame, given_size=given)


def check_frames(capture: Capture) -> Capture:
    """The capture itself. Raises UserError where it is empty, names an image twice or has points that are not finite.

    An image may be in val and in test, which many scenes make equal, but not in training and in one of these.
    """
    if not capture.frames:
        raise UserError(f"{capture.root}: no frames in it, expected at least one posed image; make the poses again.")
    if capture.points is not None and not (np.abs(capture.points) <= FARTHEST).all():
        bad = np.count_nonzero(~(np.abs(capture.points) <= FARTHEST).all(axis=1))
        raise UserError(
            f"{capture.root}: {bad} of its {len(capture.points)} sparse points are not finite or farther than "
            f"{FARTHEST:g}; export the points again without them."
        )
    seen: dict[tuple[str, str], int] = {}
    for index, frame in enumerate(capture.frames):
        image = os.path.normpath(frame.image)  # ./a.png and a.png are one
        for split in ("train", "val", "test"):
            other = seen.get((split, image))
            if other is None:
                continue
            if split == (frame.split or "train"):
                raise UserError(
                    f"{capture.root}: frames {other} and {index} are duplicate, both name {frame.image}. Remove one."
                )
            if "train" in (split, frame.split):
                raise UserError(
                    f"{capture.root}: {frame.image} is in {split} and in {frame.split}, so its score would be that of "
                    "a training view. Remove it from one of the two."
                )
        seen[(frame.split or "train", image)] = index
    return capture


def missing_images(capture: Capture) -> list[Path]:
    """The images that the capture names and the disk lacks, in the order of the frames.

    A pipe or a device in a photo's place is one that the disk lacks.
    """
    return [frame.image for frame in capture.frames if not is_file(frame.image)]
