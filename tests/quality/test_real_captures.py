"""The readers on real captures: do their poses explain what the photos show?"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from capture_files import FLIP_YZ, Ring, write_colmap
from fixtures import official_scene, real_capture
from PIL import Image

from nerf.datasets.capture import Capture, Frame
from nerf.datasets.readers import colmap, missing_images, read_capture
from nerf.datasets.readers.colmap_model import NO_POINT

PATCH = 5  # pixels from the middle of a patch to its edge
DEPTHS = 96  # steps of inverse depth that are tried


def project(frame: Frame, points: np.ndarray) -> np.ndarray:
    """World points [P,3] to pixels [P,2] of a pinhole camera with OpenGL axes, centers at +0.5."""
    right, up, backward = ((points - frame.c2w[:, 3]) @ frame.c2w[:, :3]).T
    fx, fy, cx, cy = frame.intrinsics
    return np.stack([cx - fx * right / backward, cy + fy * up / backward], axis=-1)


def test_points_of_cup_fall_on_the_pixels_that_saw_them() -> None:
    folder = real_capture("cup")
    capture = read_capture(folder)
    assert len(capture.frames) == 77 and missing_images(capture) == []
    assert capture.format.startswith("COLMAP, since there is sparse/0/cameras.bin and images.bin; poses_bounds.npy")
    frames = {frame.image.name: frame for frame in capture.frames}
    model = colmap.read_model(folder / "sparse" / "0")
    errors = []
    for image in model.images:
        seen = image.point_ids != NO_POINT
        points = np.array([model.points[point] for point in image.point_ids[seen].tolist()])
        errors.append(np.linalg.norm(project(frames[image.name], points) - image.pixels[seen], axis=1))
    errors = np.concatenate(errors)
    assert len(errors) > 30_000 and np.median(errors) < 0.5 and errors.mean() < 1


def test_cup_is_the_same_in_llffs_format() -> None:
    """After the similarity that fits the centers (Umeyama 1991), rotations and depths agree.

    Focal lengths do not: LLFF wrote that of the first camera into every row, COLMAP has 77 of them.
    """
    folder = real_capture("cup")
    ours, theirs = read_capture(folder), read_capture(folder, "llff")
    assert [frame.image for frame in ours.frames] == [frame.image for frame in theirs.frames]
    poses, others = (np.stack([frame.c2w for frame in capture.frames]) for capture in (ours, theirs))
    centers, targets = poses[:, :, 3], others[:, :, 3]
    spread, target_spread = centers - centers.mean(0), targets - targets.mean(0)
    u, singular, vh = np.linalg.svd(target_spread.T @ spread)
    rotation = u @ np.diag([1, 1, np.linalg.det(u @ vh)]) @ vh
    scale = singular.sum() / np.square(spread).sum()
    np.testing.assert_allclose(scale * spread @ rotation.T, target_spread, atol=1e-6)
    np.testing.assert_allclose(rotation @ poses[:, :, :3], others[:, :, :3], atol=1e-6)
    assert {frame.intrinsics for frame in theirs.frames} == {ours.frames[0].intrinsics}
    # Both are quantiles of the points that an image saw; LLFF takes them at 0.1% and 99.9% too.
    np.testing.assert_allclose(np.median(scale * ours.bounds / theirs.bounds, axis=0), 1, atol=0.02)


@pytest.mark.parametrize("layout", ["nsvf", "colmap", "colmap text"])
def test_lego_is_the_same_in_other_layouts(tmp_path: Path, layout: str) -> None:
    capture = read_capture(official_scene("lego"))
    frames = [frame for frame in capture.frames if frame.split == "train"]
    write = write_as_nsvf if layout == "nsvf" else write_as_colmap
    write(tmp_path, frames, layout == "colmap")
    other = read_capture(tmp_path)
    by_name = {frame.image.name.removeprefix("0_"): frame for frame in other.frames}
    for frame in frames:
        twin = by_name[frame.image.name]
        np.testing.assert_allclose(twin.c2w, frame.c2w, atol=1e-5)
        np.testing.assert_allclose(twin.intrinsics, frame.intrinsics, rtol=1e-7)
        assert (twin.width, twin.height) == (800, 800) and twin.image.samefile(frame.image)


def write_as_nsvf(folder: Path, frames: list[Frame], _: bool) -> None:
    (folder / "rgb").mkdir()
    (folder / "pose").mkdir()
    for frame in frames:
        (folder / "rgb" / f"0_{frame.image.name}").symlink_to(frame.image)
        pose = np.vstack([frame.c2w, [0, 0, 0, 1]]) @ FLIP_YZ
        np.savetxt(folder / "pose" / f"0_{frame.image.stem}.txt", pose)
    fx, _, cx, cy = frames[0].intrinsics
    (folder / "intrinsics.txt").write_text(f"{fx} {cx} {cy} 0.\n")


def write_as_colmap(folder: Path, frames: list[Frame], binary: bool) -> None:
    (folder / "images").mkdir()
    for frame in frames:
        (folder / "images" / frame.image.name).symlink_to(frame.image)
    poses = [np.vstack([frame.c2w, [0, 0, 0, 1]]) for frame in frames]
    ring = Ring([frame.image.name for frame in frames], poses)
    write_colmap(folder, ring, binary, parameters=frames[0].intrinsics, size=(800, 800))


def test_fox_has_a_lens_and_lacks_photos() -> None:
    capture = read_capture(real_capture("fox"))
    assert len(capture.frames) == 67 and len(missing_images(capture)) == 17
    assert capture.frames[0].intrinsics == (1375.52, 1374.49, 554.558, 965.268)
    assert capture.frames[0].distortion == (0.0578421, -0.0805099, -0.000980296, 0.00015575)


def test_fern_takes_images_4_at_the_published_size() -> None:
    frame = read_capture(real_capture("fern")).frames[0]
    assert frame.image.parent.name == "images_4" and (frame.width, frame.height) == (1008, 756)
    assert frame.intrinsics == pytest.approx((815.1316, 815.1316, 504, 378), abs=1e-3)


# Triangulation: the depth at which a patch is found again in one neighbor is the depth at which it is in another.


@pytest.mark.parametrize("name", ["fern", "fox", "cup"])
def test_neighbors_agree_on_depth(name: str) -> None:
    capture = read_capture(real_capture(name))
    assert agreement(capture, np.eye(3)) > 0.6


@pytest.mark.parametrize("axes", [(1, -1, -1), (-1, 1, -1), (-1, -1, 1)])
def test_neighbors_do_not_agree_with_other_axes(axes: tuple[int, int, int]) -> None:
    assert agreement(read_capture(real_capture("fern")), np.diag(axes)) < 0.35


def agreement(capture: Capture, axes: np.ndarray) -> float:
    """Share of patches whose depths from two neighbors lie within 4 of DEPTHS steps of each other."""
    frames = [frame for frame in capture.frames if frame.image.is_file()]
    centers = np.stack([frame.c2w[:, 3] for frame in frames])
    near, far = (1.5, 30.0) if capture.bounds is None else (0.8 * capture.bounds.min(), 1.5 * capture.bounds.max())
    inverse = np.linspace(1 / far, 1 / near, DEPTHS)
    agreeing = []
    for index in (2, len(frames) // 2):
        neighbors = np.argsort(np.linalg.norm(centers - centers[index], axis=1))[[1, 2]]
        source, pixels = textured_patches(frames[index])
        best = [sweep(frames[index], source, pixels, frames[other], inverse, axes) for other in neighbors]
        agreeing.append(np.abs(best[0] - best[1]) <= 4)
    return float(np.concatenate(agreeing).mean())


def gray(frame: Frame) -> tuple[np.ndarray, float]:
    """The photo at about 500 pixels, [H,W], and how many of its pixels make one of these."""
    image = Image.open(frame.image).convert("L")
    factor = max(image.size) / 500
    image = image.resize((round(image.width / factor), round(image.height / factor)), Image.Resampling.BOX)
    return np.asarray(image, np.float64), factor


def textured_patches(frame: Frame) -> tuple[np.ndarray, np.ndarray]:
    """The gray photo and the middles [P,2] (u, v, whole pixels) of its 60 patches of the most contrast on a grid."""
    image, _ = gray(frame)
    height, width = image.shape
    grid = [(u, v) for u in range(30, width - 30, 20) for v in range(30, height - 30, 20)]
    contrast = [image[v - PATCH : v + PATCH + 1, u - PATCH : u + PATCH + 1].std() for u, v in grid]
    return image, np.array(grid)[np.argsort(contrast)[-60:]]


def sweep(
    frame: Frame, source: np.ndarray, pixels: np.ndarray, other: Frame, inverse: np.ndarray, axes: np.ndarray
) -> np.ndarray:
    """Index [P] of the inverse depth at which each patch correlates best with the other photo."""
    target, factor = gray(other)
    offsets = np.stack(np.meshgrid(*[np.arange(-PATCH, PATCH + 1)] * 2, indexing="xy"), axis=-1).reshape(-1, 2)
    around = pixels[:, None] + offsets
    patch = source[around[..., 1], around[..., 0]]
    fx, fy, cx, cy = frame.intrinsics
    u, v = np.moveaxis((around + 0.5) * factor, -1, 0)
    rays = np.stack([(u - cx) / fx, -(v - cy) / fy, -np.ones_like(u)], axis=-1) @ (frame.c2w[:, :3] @ axes).T
    turned = replace(other, c2w=np.concatenate([other.c2w[:, :3] @ axes, other.c2w[:, 3:]], axis=1))
    scores = []
    for step in inverse:
        found = project(turned, (frame.c2w[:, 3] + rays / step).reshape(-1, 3)) / factor
        column, row = np.nan_to_num(np.floor(found), nan=-1).clip(-1, 10_000).astype(int).T
        inside = (column >= 0) & (row >= 0) & (column < target.shape[1]) & (row < target.shape[0])
        value = np.where(inside, target[row.clip(0, len(target) - 1), column.clip(0, target.shape[1] - 1)], 0.0)
        value, whole = value.reshape(patch.shape), inside.reshape(patch.shape).all(axis=1)
        scores.append(np.where(whole, correlation(patch, value), -1.0))
    return np.argmax(scores, axis=0)


def correlation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of the rows of two arrays [P,N]."""
    a, b = (rows - rows.mean(axis=1, keepdims=True) for rows in (a, b))
    return (a * b).sum(axis=1) / np.maximum(np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1), 1e-9)
