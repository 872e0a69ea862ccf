"""NeuS and IDR: cameras_sphere.npz (or cameras.npz) beside image/ and mask/.

world_mat_i projects points of the world to pixels of the i-th photo, 3x4 in a 4x4 matrix: K [R | t] with axes x right,
y down, z forward and pixel centers at whole numbers. scale_mat_i takes the unit sphere, in which the object lies, to
that world; the same for all photos. Cameras are given in units of that sphere. Photos are matched in sorted order
(Yariv et al. 2020, github.com/lioryariv/idr, DATA_CONVENTION.md; Wang et al. 2021, github.com/Totoro97/NeuS).
"""

import re
from pathlib import Path

import numpy as np

from nerf.cameras.limits import FARTHEST
from nerf.datasets.capture import Capture
from nerf.datasets.readers.arrays import read_npz
from nerf.datasets.readers.frames import FLIP_YZ, make_frame
from nerf.datasets.readers.lenses import make_lens
from nerf.datasets.readers.photos import counted_photos, first_size
from nerf.errors import UserError

FILES = ("cameras_sphere.npz", "cameras.npz")  # in this order where a folder has both
MATRIX = re.compile(r"(world|scale)_mat_(0|[1-9][0-9]{0,8})")
SKEW = 1e-2  # of the focal length: more cannot be rounding, and no lens here has any


def recognize(root: Path) -> str | None:
    """What shows that this is a scene of NeuS or IDR, in words; None if nothing does."""
    return next((name for name in FILES if (root / name).is_file()), None)


def read(root: Path, images: str | None = None) -> Capture:
    """The capture, its frames in the order of the matrices.

    images: folder of the photos, else the choice of photos.choose_folder. Raises UserError, naming file and matrix, for
    arrays that are none, matrices that are no camera, scales that differ, and another number of photos.
    """
    name = recognize(root)
    if name is None:
        raise UserError(f"{root}: no {' or '.join(FILES)}, expected it for a scene of NeuS; copy it there.")
    path = root / name
    world, scales = _matrices(path)
    photos, said = counted_photos(root, images, len(world), f"matrices world_mat of {path}")
    width, height = first_size(photos, str(path), root)
    frames = []
    for index, (photo, matrix) in enumerate(zip(photos, world)):
        where = f"{path}: world_mat_{index} ({photo.name})"
        intrinsics, pose = _camera(matrix @ scales[index], where)
        frames.append(make_frame(photo, pose, make_lens(width, height, intrinsics, "perspective", {}, where), where))
    return Capture(f"{len(frames)} cameras in units of the object's sphere; {said}", root, frames)


def _matrices(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """world_mat and scale_mat [I,4,4] float64; a scale_mat that is missing is the identity."""
    arrays = read_npz(path, MATRIX.fullmatch)
    numbers = sorted(int(found[2]) for found in map(MATRIX.fullmatch, arrays) if found[1] == "world")
    if not numbers or numbers != list(range(len(numbers))):
        raise UserError(
            f"{path}: found world_mat for {f'{len(numbers)} photos' if numbers else 'no photo'}, expected world_mat_0, "
            "world_mat_1 and so on without a gap; make it again."
        )
    stacks = []
    for kind in ("world_mat", "scale_mat"):
        stack = [_square(arrays.get(f"{kind}_{index}"), kind, f"{path}: {kind}_{index}") for index in numbers]
        stacks.append(np.stack(stack))
    world, scale = stacks
    if not np.allclose(scale, scale[:1], rtol=1e-4, atol=1e-4 * np.abs(scale[0]).max()):
        raise UserError(f"{path}: the matrices scale_mat differ, expected one sphere for all photos; make it again.")
    return world, scale


def _square(matrix: np.ndarray | None, kind: str, where: str) -> np.ndarray:
    if matrix is None and kind == "scale_mat":
        return np.eye(4)
    if matrix is None or matrix.dtype.kind not in "fiu" or matrix.shape not in ((4, 4), (3, 4)):
        found = "missing" if matrix is None else f"{matrix.dtype} of shape {list(matrix.shape)}"
        raise UserError(f"{where} is {found}, expected real numbers of shape [4, 4]; make it again.")
    matrix = matrix.astype(np.float64)
    if not (np.abs(matrix) <= FARTHEST).all():
        raise UserError(f"{where} holds numbers that are not finite or above {FARTHEST:g}; make it again.")
    return matrix if len(matrix) == 4 else np.vstack([matrix, [0, 0, 0, 1]])


def _camera(projection: np.ndarray, where: str) -> tuple[tuple[float, float, float, float], list[list[float]]]:
    """fx, fy, cx, cy and the pose in OpenGL axes of K [R | t], by an RQ decomposition of its left 3x3 block."""
    left, last = projection[:3, :3], projection[:3, 3]
    if abs(np.linalg.det(left)) <= 1e-12 * np.abs(left).max() ** 3:
        raise UserError(f"{where} projects onto a line, expected K [R | t] with an invertible K R; make it again.")
    # RQ by QR of the rows in reverse: with E the exchange matrix, (E left)^T = q r, so left = (E r^T E) (E q^T).
    q, r = np.linalg.qr(left[::-1].T)
    upper, rotation = r.T[::-1, ::-1], q.T[::-1]
    signs = np.sign(np.diag(upper))
    upper, rotation = upper * signs, signs[:, None] * rotation
    if np.linalg.det(rotation) < 0:  # the whole matrix may be negated: a projection has no sign
        rotation = -rotation
    center = -np.linalg.solve(left, last)
    upper = upper / upper[2, 2]
    if abs(upper[0, 1]) > SKEW * upper[0, 0]:
        raise UserError(
            f"{where} has a skew of {upper[0, 1]:.3g} pixels beside a focal length of {upper[0, 0]:.3g}, expected "
            "none: it is no matrix K [R | t] of a camera without skew; make it again."
        )
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = rotation.T, center
    intrinsics = (upper[0, 0], upper[1, 1], upper[0, 2] + 0.5, upper[1, 2] + 0.5)
    return tuple(map(float, intrinsics)), (pose @ FLIP_YZ).tolist()
