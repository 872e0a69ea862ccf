"""LLFF: poses_bounds.npy beside images, images_4, images_8.

Each row holds a 3x5 matrix, [rotation | center | height, width, focal], and the nearest and farthest depth; its camera
axes are down, right, backward (Mildenhall et al. 2019, github.com/Fyusion/LLFF). Rows follow the sorted image names.
"""

from pathlib import Path

import numpy as np

from nerf.cameras.limits import FARTHEST
from nerf.datasets.capture import Capture
from nerf.datasets.readers.arrays import read_npy
from nerf.datasets.readers.frames import make_frame
from nerf.datasets.readers.lenses import make_lens
from nerf.datasets.readers.photos import counted_photos
from nerf.errors import UserError

FILE = "poses_bounds.npy"


def recognize(root: Path) -> str | None:
    """What shows that this is an LLFF capture, in words; None if nothing does."""
    return FILE if (root / FILE).is_file() else None


def read(root: Path, images: str | None = None) -> Capture:
    """The capture, its frames in the order of the rows, with the depths as bounds.

    images: folder of the photos, else the choice of photos.choose_folder. Raises UserError for an array of another
    shape, poses that are not rigid, depths that are not 0 < near < far, and another number of photos than poses.
    """
    path = root / FILE
    rows = _rows(path)
    photos, said = counted_photos(root, images, len(rows), f"poses of {path}")
    frames = []
    for index, (photo, row) in enumerate(zip(photos, rows)):
        matrix = row[:15].reshape(3, 5)
        down, right, backward, center = matrix[:, :4].T
        pose = np.vstack([np.stack([right, -down, backward, center], axis=1), [0, 0, 0, 1]])
        height, width, focal = matrix[:, 4]
        where = f"{path}: row {index} ({photo.name})"
        lens = make_lens(width, height, (focal, focal, width / 2, height / 2), "perspective", {}, where)
        frames.append(make_frame(photo, pose.tolist(), lens, f"{where}: pose"))
    return Capture(f"{len(rows)} poses with depths; {said}", root, frames, bounds=rows[:, 15:].copy())


def _rows(path: Path) -> np.ndarray:
    """[I,17] float64, the depths checked."""
    rows = read_npy(path)
    if rows.ndim != 2 or rows.shape[1] != 17 or not len(rows) or rows.dtype.kind not in "fiu":
        raise UserError(
            f"{path}: {rows.dtype} of shape {list(rows.shape)}, expected real numbers of shape [images, 17]: 3x5 pose "
            "with height, width and focal length, then near and far. Make it again with LLFF's imgs2poses.py."
        )
    rows = rows.astype(np.float64)
    near, far = rows[:, 15], rows[:, 16]
    bad = np.flatnonzero(~((near > 0) & (near < far) & (far <= FARTHEST)))
    if len(bad):
        raise UserError(
            f"{path}: row {bad[0]} has the depths {near[bad[0]]:g} to {far[bad[0]]:g}, expected 0 < near < far "
            f"<= {FARTHEST:g}. Correct them or drop the row and its photo."
        )
    return rows
