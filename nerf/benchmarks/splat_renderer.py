"""A renderer of 3D Gaussian Splatting's files that shares no code with the exporter: NumPy, from Kerbl et al. 2023.

Each Gaussian is projected by the local affine approximation of Zwicker et al.
2001, all are sorted by depth exactly, and each is composited over the pixels that it covers. gsplat, which has no
rasterizer for a CPU, is asked for its projection and its colors where it is installed (tests/unit/export).
"""

import multiprocessing
import re
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
# Constants of the harmonics as the file format's own code has them, degree by degree.
C0, C1 = 0.28209479177387814, 0.4886025119029199
C2 = (1.0925484305920792, -1.0925484305920792, 0.31539156525252005, -1.0925484305920792, 0.5462742152960396)
C3 = (
    -0.5900435899266435, 2.890611442640554, -0.4570457994644658, 0.3731763325901154, -0.4570457994644658,
    1.445305721320277, -0.5900435899266435,
)  # fmt: skip


@dataclass(frozen=True)
class Splats:
    """N Gaussians as a viewer has them: activated."""

    means: Array  # [N,3]
    scales: Array  # [N,3]
    rotations: Array  # [N,4] w x y z
    opacities: Array  # [N]
    harmonics: Array  # [N,16,3]


@dataclass(frozen=True)
class PinholeCamera:
    """world_to_camera [4,4]: x right, y down, z forwards; intrinsics: fx, fy, cx, cy in pixels."""

    world_to_camera: Array
    intrinsics: tuple[float, float, float, float]
    width: int
    height: int

    @staticmethod
    def of_opengl(c2w: Array, intrinsics: list[float], width: int, height: int) -> "PinholeCamera":
        pose = np.eye(4)
        pose[:3] = c2w
        pose[:, 1:3] *= -1
        return PinholeCamera(np.linalg.inv(pose), tuple(intrinsics), width, height)


def read_splats(path: Path) -> Splats:
    """Of a binary little-endian PLY with harmonics up to degree 3."""
    head, _, body = path.read_bytes().partition(b"end_header\n")
    names = re.findall(r"^property float (\w+)$", head.decode(), re.MULTILINE)
    rows = np.frombuffer(body, np.dtype([(name, "<f4") for name in names]))

    def columns(*names: str) -> Array:
        return np.stack([np.asarray(rows[name], np.float64) for name in names], axis=-1)

    rest = columns(*(f"f_rest_{i}" for i in range(45))).reshape(-1, 3, 15).transpose(0, 2, 1)
    base = columns("f_dc_0", "f_dc_1", "f_dc_2")[:, None]
    return Splats(
        columns("x", "y", "z"),
        np.exp(columns("scale_0", "scale_1", "scale_2")),
        columns("rot_0", "rot_1", "rot_2", "rot_3"),
        1 / (1 + np.exp(-columns("opacity")[:, 0])),
        np.concatenate([base, rest], axis=1),
    )


def colors(splats: Splats, center: Array) -> Array:
    """Colors [N,3] seen from a center."""
    towards = splats.means - center
    x, y, z = (towards / np.linalg.norm(towards, axis=1, keepdims=True)).T
    xx, yy, zz = x * x, y * y, z * z
    basis = [
        np.full_like(x, C0), -C1 * y, C1 * z, -C1 * x,
        C2[0] * x * y, C2[1] * y * z, C2[2] * (2 * zz - xx - yy), C2[3] * x * z, C2[4] * (xx - yy),
        C3[0] * y * (3 * xx - yy), C3[1] * x * y * z, C3[2] * y * (4 * zz - xx - yy),
        C3[3] * z * (2 * zz - 3 * xx - 3 * yy), C3[4] * x * (4 * zz - xx - yy), C3[5] * z * (xx - yy),
        C3[6] * x * (xx - 3 * yy),
    ]  # fmt: skip
    return np.maximum(0.5 + np.einsum("kn,nkc->nc", np.stack(basis), splats.harmonics), 0)


def project(splats: Splats, camera: PinholeCamera) -> tuple[Array, Array, Array]:
    """Centers [N,2] in pixels, covariances [N,2,2] with the blur of 0.3 pixels, depths [N]."""
    fx, fy, cx, cy = camera.intrinsics
    turn = camera.world_to_camera[:3, :3]
    x, y, z = (splats.means @ turn.T + camera.world_to_camera[:3, 3]).T
    w, i, j, k = (splats.rotations / np.linalg.norm(splats.rotations, axis=1, keepdims=True)).T
    rotation = np.stack([
        1 - 2 * (j * j + k * k), 2 * (i * j - w * k), 2 * (i * k + w * j),
        2 * (i * j + w * k), 1 - 2 * (i * i + k * k), 2 * (j * k - w * i),
        2 * (i * k - w * j), 2 * (j * k + w * i), 1 - 2 * (i * i + j * j),
    ], axis=-1).reshape(-1, 3, 3)  # fmt: skip
    stretched = rotation * splats.scales[:, None, :]
    covariance = stretched @ stretched.transpose(0, 2, 1)
    nothing = np.zeros_like(z)
    with np.errstate(divide="ignore", invalid="ignore"):
        jacobian = np.stack([fx / z, nothing, -fx * x / z**2, nothing, fy / z, -fy * y / z**2], axis=-1)
        centers = np.stack([fx * x / z + cx, fy * y / z + cy], axis=-1)
    jacobian = jacobian.reshape(-1, 2, 3) @ turn
    return centers, jacobian @ covariance @ jacobian.transpose(0, 2, 1) + 0.3 * np.eye(2), z


def render_file(path: Path, cameras: list[PinholeCamera], background: float, processes: int) -> list[Array]:
    """The pictures of a file, so many at a time: one of half a million Gaussians takes half a minute."""
    if processes == 1:
        return [render(read_splats(path), camera, background) for camera in cameras]
    context = multiprocessing.get_context("spawn")  # a fork of a process that uses a GPU may hang
    with ProcessPoolExecutor(min(processes, len(cameras)), mp_context=context) as pool:
        return list(pool.map(_render_file, [(path, camera, background) for camera in cameras]))


def _render_file(job: tuple[Path, PinholeCamera, float]) -> Array:
    path, camera, background = job
    return render(read_splats(path), camera, background)


def render(splats: Splats, camera: PinholeCamera, background: float) -> Array:
    """The picture [H,W,3] in [0,1]."""
    centers, covariances, depths = project(splats, camera)
    shades = colors(splats, np.linalg.inv(camera.world_to_camera)[:3, 3])
    picture, through = np.zeros((camera.height, camera.width, 3)), np.ones((camera.height, camera.width))
    inverses = np.linalg.inv(covariances)
    reach = 3 * np.sqrt(np.linalg.eigvalsh(covariances)[:, 1])
    first = np.floor(centers - reach[:, None]).clip(0, 1 << 20).astype(int)
    last = np.ceil(centers + reach[:, None]).clip(-1, (camera.width, camera.height)).astype(int)
    drawn = (depths > 0.01) & (first < last).all(1)
    for n in np.argsort(depths, kind="stable"):
        if not drawn[n]:
            continue
        (left, top), (right, bottom) = first[n], last[n]
        dx = np.arange(left, right) + 0.5 - centers[n, 0]
        dy = (np.arange(top, bottom) + 0.5 - centers[n, 1])[:, None]
        (a, b), (_, c) = inverses[n]
        alpha = splats.opacities[n] * np.exp(-0.5 * (a * dx * dx + c * dy * dy) - b * dx * dy)
        alpha = np.where(alpha < 1 / 255, 0, np.minimum(alpha, 0.99))
        window = slice(top, bottom), slice(left, right)
        picture[window] += (through[window] * alpha)[..., None] * shades[n]
        through[window] *= 1 - alpha
    return (picture + background * through[..., None]).clip(0, 1)
