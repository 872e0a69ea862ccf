"""COLMAP: sparse/0 with cameras, images and points3D, binary or text, and the photos in images or images_N."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from nerf.cameras.limits import FARTHEST
from nerf.datasets.capture import FEWEST_POINTS, Capture, Frame
from nerf.datasets.readers import colmap_binary, colmap_text
from nerf.datasets.readers.colmap_model import NO_POINT, ColmapModel
from nerf.datasets.readers.frames import FLIP_YZ, make_frame
from nerf.datasets.readers.photos import choose_folder, list_photos, match_photos
from nerf.errors import UserError
from nerf.reading import is_path, shown

READERS = {".bin": colmap_binary, ".txt": colmap_text}  # in this order where a folder has both
FILES = ("cameras", "images", "points3D")  # the last may be missing
PLACES = (
    "sparse",
    ".",
    "colmap/sparse",
)  # nerfstudio uses the last; models lie there or in folders 0, 1, ... in it
DEPTH_QUANTILES = (0.001, 0.999)  # as LLFF's poses_bounds.npy has them
SUPPORT = 3  # images see a point that tells what is nearest: two match wrongly, and then often right before a camera
STRAYS = 0.02  # of an image's points match wrongly at most: more that two images see before all others are a surface


def find_models(root: Path) -> list[Path]:
    """The folders that hold cameras and images, of the first of PLACES that has any."""
    for place in PLACES:
        numbered = sorted(path for path in (root / place).glob("[0-9]*") if path.is_dir())
        models = [folder for folder in (root / place, *numbered) if _suffix(folder)]
        if models:
            return models
    return []


def recognize(root: Path) -> str | None:
    """What shows that this is a COLMAP capture, in words; None if nothing does."""
    models = find_models(root)
    if not models:
        return None
    suffix = _suffix(models[0])
    return f"{models[0].relative_to(root) / f'cameras{suffix}'} and images{suffix}"


def unusable_model(root: Path) -> str | None:
    """What a folder sparse has and what it lacks to be a model, in words; None where it has all, or nothing."""
    if find_models(root):
        return None
    for place in PLACES:
        folders = () if place == "." else (root / place, *sorted((root / place).glob("[0-9]*")))
        for folder in folders:
            kept = {suffix: [name for name in FILES if (folder / f"{name}{suffix}").is_file()] for suffix in READERS}
            suffix = max(READERS, key=lambda kind: len(kept[kind]))
            if kept[suffix]:
                has = " and ".join(f"{name}{kind}" for kind in READERS for name in kept[kind])
                lacks = " and no ".join(f"{name}{suffix}" for name in FILES[:2] if name not in kept[suffix])
                return f"{folder.relative_to(root)} has {has}, but no {lacks}"
    return None


def read(root: Path, images: str | None = None) -> Capture:
    """The capture of the model with the most images.

    images: folder of the photos, else the choice of photos.choose_folder. Raises UserError, naming the file, for
    truncated files, unknown camera models, poses that are not rigid, cameras and photos that are not there.
    """
    models = find_models(root)
    if not models:
        found = unusable_model(root) or "no sparse/0 with cameras and images, .bin or .txt"
        raise UserError(f"{root}: {found}; export COLMAP's model into it.")
    sizes = {folder: READERS[_suffix(folder)].count_images(_file(folder, "images")) for folder in models}
    folder = max(models, key=sizes.__getitem__)
    model = read_model(folder)
    names = [image.name for image in model.images]
    for name in names:
        if not is_path(name):
            raise UserError(f"{_file(folder, 'images')}: {shown(name)} names no file; export the model again.")
    if not names:
        raise UserError(f"{_file(folder, 'images')}: no registered images, expected at least one; reconstruct again.")
    photos, said = choose_folder(root, images)
    paths, how = match_photos(photos, names, root / "images")
    order = sorted(range(len(names)), key=names.__getitem__)  # COLMAP's own order is that of registration
    frames = [_frame(model, index, paths[index]) for index in order]
    points = None if model.points is None else np.array(list(model.points.values()), np.float64).reshape(-1, 3)
    notes = [said] if not how else [said, how]
    if len(models) > 1:
        others = ", ".join(f"{other.name} has {size}" for other, size in sizes.items() if other != folder)
        notes.insert(0, f"model {folder.name} with {len(frames)} images is the largest ({others})")
    unregistered = len(list_photos(photos)) - len(frames)
    if photos != root and unregistered > 0:
        notes.append(f"{unregistered} of its photos are not in the model")
    notes.append("no points3D file, so no sparse points" if points is None else f"{len(points)} points")
    usable = points is not None and bool((np.abs(points) <= FARTHEST).all())  # else check_frames says so
    bounds = _depth_bounds(model, order) if usable else None
    return Capture("; ".join(notes), root, frames, points, bounds)


def read_model(folder: Path) -> ColmapModel:
    """The model in a folder, as it is stored. Raises UserError, naming the file, for damaged ones."""
    reader = READERS[_suffix(folder)]
    points = _file(folder, "points3D")
    return ColmapModel(
        folder,
        reader.read_cameras(_file(folder, "cameras")),
        reader.read_images(_file(folder, "images")),
        reader.read_points(points) if points.is_file() else None,
    )


def _frame(model: ColmapModel, index: int, path: Path) -> Frame:
    image = model.images[index]
    source = _file(model.folder, "images")
    if image.camera_id not in model.cameras:
        raise UserError(
            f"{source}: {image.name} was taken with camera {image.camera_id}, which {_file(model.folder, 'cameras')} "
            f"lacks; it has {', '.join(map(str, sorted(model.cameras))) or 'none'}. Export both files together again."
        )
    pose = np.linalg.inv(image.world_to_camera(str(source))) @ FLIP_YZ
    where = f"{source}: pose of {image.name}"
    return replace(make_frame(path, pose.tolist(), model.cameras[image.camera_id], where), name=image.name)


def _depth_bounds(model: ColmapModel, order: list[int]) -> np.ndarray | None:
    """Nearest and farthest depth [I,2] of the points that each image saw, those of all where it saw none.

    The nearest is that of points which SUPPORT images saw, where an image saw enough of them, and leaves out STRAYS.
    """
    known = np.array(sorted(point for point in model.points if NO_POINT < point < 2**63), np.int64)
    if not len(known):
        return None
    places = np.array([model.points[point] for point in known.tolist()], np.float64)
    seen = []
    for image in model.images:
        ids = np.unique(image.point_ids)
        rows = np.searchsorted(known, ids).clip(max=len(known) - 1)
        seen.append(rows[known[rows] == ids])
    support = np.bincount(np.concatenate(seen), minlength=len(known))
    depths, supported = [], []
    for index in order:
        row = model.images[index].world_to_camera(str(model.folder))[2]
        depth = places[seen[index]] @ row[:3] + row[3]
        depths.append(depth[depth > 0])
        supported.append(depth[(depth > 0) & (support[seen[index]] >= SUPPORT)])
    seen_by_any = np.concatenate(depths)
    if not len(seen_by_any):
        return None
    bounds = np.stack([np.quantile(depth if len(depth) else seen_by_any, DEPTH_QUANTILES) for depth in depths])
    for row, depth, all_depths in zip(bounds, supported, depths):
        if len(depth) >= FEWEST_POINTS:
            row[0] = min(np.quantile(depth, DEPTH_QUANTILES[0]), np.quantile(all_depths, STRAYS))
    return bounds


def _suffix(folder: Path) -> str | None:
    """Of the files in a folder that holds a model; None where it does not."""
    for suffix in READERS:
        if all((folder / f"{name}{suffix}").is_file() for name in FILES[:2]):
            return suffix
    return None


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}{_suffix(folder)}"
