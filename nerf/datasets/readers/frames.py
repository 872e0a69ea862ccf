"""Making frames, and the checks that hold for every format."""

from pathlib import Path

import numpy as np

from nerf.datasets.capture import Capture, Frame
from nerf.datasets.readers.lenses import Lens
from nerf.datasets.readers.photos import photo_size
from nerf.datasets.transforms_file import rigid_pose
from nerf.errors import UserError

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
    lens = lens.fitted(*(photo_size(image) or (lens.width, lens.height)), str(image))
    return Frame(image, pose[:3], lens.width, lens.height, lens.intrinsics, lens.model, lens.distortion, mask, split)


def check_frames(capture: Capture) -> Capture:
    """The capture itself. Raises UserError where it is empty or names an image twice.

    An image may be in val and in test, which many scenes make equal, but not in training and in one of these.
    """
    if not capture.frames:
        raise UserError(f"{capture.root}: no frames in it, expected at least one posed image; make the poses again.")
    seen: dict[tuple[str, Path], int] = {}
    for index, frame in enumerate(capture.frames):
        for split in ("train", "val", "test"):
            other = seen.get((split, frame.image))
            if other is None:
                continue
            if split == (frame.split or "train"):
                raise UserError(
                    f"{capture.root}: frames {other} and {index} are duplicate, both name {frame.image}. Remove one."
                )
            if "train" in (split, frame.split):
                raise UserError(
                    f"{capture.root}: {frame.image} is in {split} and in {frame.split}, so the score would be of a view "
                    "that was trained on. Remove it from one of the two."
                )
        seen[(frame.split or "train", frame.image)] = index
    return capture


def missing_images(capture: Capture) -> list[Path]:
    """The images that the capture names and the disk lacks, in the order of the frames."""
    return [frame.image for frame in capture.frames if not frame.image.is_file()]
