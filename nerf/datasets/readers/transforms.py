"""transforms.json of instant-ngp and nerfstudio; also what Blender's transforms_<split>.json hold.

A frame may override what the header says of the camera. Poses map camera to world in OpenGL axes. Sources:
docs.nerf.studio, "Data conventions"; instant-ngp, scripts/colmap2nerf.py and src/nerf_loader.cu.
"""

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nerf.cameras.cameras import PANORAMA
from nerf.cameras.limits import FARTHEST, SMALLEST_ANGLE, is_coordinate
from nerf.datasets.capture import Capture, Frame
from nerf.datasets.readers.frames import make_frame
from nerf.datasets.readers.lenses import COLMAP_MODELS, PANORAMA_MODEL, Lens, make_lens, panorama_lens
from nerf.datasets.readers.photos import find_photo, first_size, folders_with, photo_size
from nerf.datasets.readers.ply import read_points
from nerf.datasets.transforms_file import frames_of, named_file
from nerf.errors import UserError
from nerf.reading import is_file, read_json, shown

FILE = "transforms.json"
SPLITS = ("train", "val", "test")
DEPTH_UNIT = "depth_unit_scale_factor"
APPLIED_SCALE = "applied_scale"
MILLIMETER = 0.001  # what nerfstudio takes a stored 1 for where nothing is said
OTHER_PANORAMAS = ("equirectangular", "latlong")
ANGLE_TOLERANCE = 1e-3  # radians
MATRIX = "K"  # of intrinsics, where the focal length is not given otherwise
COEFFICIENT_KEYS = ("k1", "k2", "k3", "k4", "p1", "p2")
COEFFICIENT_LIST = "distortion_params"  # the same as a list, in this order: nerfstudio's
UNREAD_COEFFICIENTS = ("k5", "k6")  # of a rational lens


def recognize(root: Path) -> str | None:
    """What shows that this is a capture of instant-ngp or nerfstudio, in words; None if nothing does."""
    return FILE if (root / FILE).is_file() else None


def read(root: Path, images: str | None = None) -> Capture:
    """The capture, its frames in the order of the file.

    images: folder to take the photos of the same names from, instead of the one that the file names; None: where none
    is there, but all are in one other folder, that one (photos.folders_with). Raises UserError, naming the file, for
    JSON that does not parse, keys that are missing, camera models other than OpenCV's two and whole panoramas, and
    poses that are not rigid.
    """
    path = root / FILE
    header = read_json(path)
    notes = []
    if images is None:
        images, notes = _moved(path, header)
    frames = read_frames(path, header, images)
    notes.insert(0, f"{len(frames)} frames")
    lists = _split_lists(path, header)
    if lists:
        keys = [_key(frame["file_path"], root) for frame in header["frames"]]
        frames, said = _in_lists(path, frames, keys, lists)
        notes.append(said)
    points = None
    if header.get("ply_file_path") is not None:
        ply = root / _with_slashes(named_file(header["ply_file_path"], f"{path}: ply_file_path"))
        points = read_points(ply) if is_file(ply) else None
        notes.append(f"{len(points)} points of {ply.name}" if points is not None else f"{ply} is missing, so no points")
    if "aabb_scale" in header:
        notes.append(f"aabb_scale {shown(header['aabb_scale'])} is not used, the box is found from the data")
    applied = [key for key in ("applied_transform", APPLIED_SCALE) if key in header]
    if applied:
        notes.append(f"{' and '.join(applied)} were applied to the poses already, they stay as they are")
    if APPLIED_SCALE in header and any(frame.depth is not None for frame in frames):
        notes.append("depth files are in units from before applied_scale, so they are scaled by it")
    return Capture("; ".join(notes), root, frames, points)


def read_frames(path: Path, header: Any, images: str | None = None, split: str | None = None) -> list[Frame]:
    """The frames of a parsed transforms file. images: see read; errors: see read."""
    entries, cameras = frames_of(header, path), _cameras(path, header)
    photos = [_photo(path.parent, camera, images) for camera in cameras]
    frames = []
    fallback = None  # the size of photos that are missing, where the file states none
    for camera, photo, entry in zip(cameras, photos, entries):
        size = camera.size() or photo_size(photo)
        if size is None:
            fallback = fallback or first_size(photos, str(path), path.parent)
            size = fallback
        mask = path.parent / camera.text("mask_path") if entry.get("mask_path") is not None else None
        where = f"{camera.where}: transform_matrix"
        frame = make_frame(photo, entry.get("transform_matrix"), camera.lens(*size), where, mask, split)
        if entry.get("depth_file_path") is not None:
            depth = path.parent / camera.text("depth_file_path")
            frame = replace(frame, depth=depth, depth_unit=camera.depth_unit())
        frames.append(frame)
    return frames


@dataclass(frozen=True)
class _CameraKeys:
    """The camera that a frame and, for keys that it lacks, the header describe."""

    header: dict[str, Any]
    frame: dict[str, Any]
    where: str  # begins the messages

    def number(self, key: str, default: float | None = None) -> float | None:
        value = next((s[key] for s in (self.frame, self.header) if s.get(key) is not None), default)  # null: as absent
        if value is not None and not (isinstance(value, float) and math.isfinite(value)):
            raise UserError(f"{self.where}: {key} is {shown(value)}, expected a finite number; correct it.")
        return value

    def text(self, key: str) -> str:
        """The path of a file."""
        return _with_slashes(named_file(self.frame.get(key), f"{self.where}: {key}"))

    def depth_unit(self) -> float:
        unit = self.number(DEPTH_UNIT, MILLIMETER)
        if not 0 < unit <= FARTHEST:
            raise UserError(
                f"{self.where}: {DEPTH_UNIT} is {unit:g}, expected world units of a stored 1, a positive number up to "
                f"{FARTHEST:g}; correct it."
            )
        scale = self.number(APPLIED_SCALE, 1.0)  # of poses; depths are as they were before it
        if not 0 < scale * unit <= FARTHEST:
            raise UserError(
                f"{self.where}: {APPLIED_SCALE} is {scale:g} and {DEPTH_UNIT} {unit:g}, expected positive numbers "
                f"whose product is at most {FARTHEST:g}; correct them."
            )
        return scale * unit

    def size(self) -> tuple[float, float] | None:
        width, height = self.number("w"), self.number("h")
        return None if width is None or height is None else (width, height)

    def lens(self, width: float, height: float) -> Lens:
        model = self._model()
        if model == PANORAMA:
            return self._panorama(width, height)
        focal = self._focal("fl_x", "camera_angle_x", width)
        if focal is None:
            intrinsics = self._matrix()
            if intrinsics is not None:
                return make_lens(width, height, intrinsics, model, self._coefficients(), self.where)
            raise UserError(
                f"{self.where}: neither fl_x nor camera_angle_x is given, nor {MATRIX} as [[fl_x, 0, cx], [0, fl_y, "
                "cy], [0, 0, 1]], expected one of them, in the frame or at the top of the file; add it."
            )
        focal_y = self._focal("fl_y", "camera_angle_y", height) or focal
        intrinsics = (focal, focal_y, self.number("cx", width / 2), self.number("cy", height / 2))
        return make_lens(width, height, intrinsics, model, self._coefficients(), self.where)

    def _matrix(self) -> tuple[float, float, float, float] | None:
        """fl_x, fl_y, cx, cy of a matrix without skew, the frame's before the header's; None where there is none."""
        rows = next((s[MATRIX] for s in (self.frame, self.header) if s.get(MATRIX) is not None), None)
        if not isinstance(rows, list) or [len(row) if isinstance(row, list) else 0 for row in rows] != [3] * 3:
            return None
        (fx, skew, cx), (below, fy, cy), last = rows
        if not all(map(is_coordinate, (fx, fy, cx, cy))) or (skew, below, last) != (0.0, 0.0, [0.0, 0.0, 1.0]):
            return None
        return fx, fy, cx, cy

    def _coefficients(self) -> dict[str, float]:
        """Those of the lens: the frame's list before the keys, as nerfstudio takes them, and the header's behind."""
        unread = [key for key in UNREAD_COEFFICIENTS if self.number(key)]
        if unread:
            raise UserError(
                f"{self.where}: {', '.join(unread)} belong to a rational lens, which is not read, expected "
                f"{', '.join(COEFFICIENT_KEYS)} alone. Undistort the images, or calibrate with OpenCV's plain model."
            )
        keys = any(source.get(key) is not None for source in (self.frame, self.header) for key in COEFFICIENT_KEYS)
        values = self.frame.get(COEFFICIENT_LIST)
        if values is None and not keys:
            values = self.header.get(COEFFICIENT_LIST)
        if values is None:
            return {key: self.number(key, 0.0) for key in COEFFICIENT_KEYS}
        numbers = isinstance(values, list) and all(isinstance(x, float) and math.isfinite(x) for x in values)
        if not numbers or len(values) != len(COEFFICIENT_KEYS):
            raise UserError(
                f"{self.where}: {COEFFICIENT_LIST} is {shown(values)}, expected six finite numbers, "
                f"{', '.join(COEFFICIENT_KEYS)}; correct it."
            )
        return dict(zip(COEFFICIENT_KEYS, values))

    def _panorama(self, width: float, height: float) -> Lens:
        bent = [key for key, value in self._coefficients().items() if value]
        angles = {key: self.number(key) for key in ("camera_angle_x", "camera_angle_y")}
        whole = (2 * math.pi, math.pi)
        bent += [key for key, turn in zip(angles, whole) if angles[key] and abs(angles[key] - turn) > ANGLE_TOLERANCE]
        if bent:
            raise UserError(
                f"{self.where}: {', '.join(bent)} and camera_model {PANORAMA_MODEL}, whose size alone says what it "
                "shows: 360 by 180 degrees; correct camera_model, or remove them."
            )
        focal, center = ([self.number(key) for key in keys] for keys in (("fl_x", "fl_y"), ("cx", "cy")))
        return panorama_lens(width, height, focal, center, self.where)

    def _focal(self, length_key: str, angle_key: str, size: float) -> float | None:
        """From a focal length or else an angle in radians; what the frame says goes before the header."""
        for source in (self.frame, self.header):
            if source.get(length_key) is not None:
                return self.number(length_key)
            if source.get(angle_key) is not None:
                angle = self.number(angle_key)
                if not SMALLEST_ANGLE < angle < math.pi:
                    raise UserError(
                        f"{self.where}: {angle_key} is {angle:g}, expected radians between 0 and pi. "
                        f"If these are degrees, write {math.radians(angle):.6g}."
                    )
                return 0.5 * size / math.tan(0.5 * angle)
        return None

    def _model(self) -> str:
        fisheye = self.frame.get("is_fisheye", self.header.get("is_fisheye", False))
        name = self.frame.get("camera_model", self.header.get("camera_model"))
        other = next((key for key in OTHER_PANORAMAS if self.frame.get(key, self.header.get(key, False))), None)
        if other is not None:  # instant-ngp's
            raise UserError(
                f"{self.where}: {other} is no key that is read here; write camera_model {PANORAMA_MODEL} where each "
                "row has one latitude and rows are evenly apart in it, or cut perspective views out of the pictures."
            )
        if name is None:
            return "fisheye" if fisheye else "perspective"
        if name == PANORAMA_MODEL:
            return PANORAMA
        if not isinstance(name, str) or name not in COLMAP_MODELS:
            raise UserError(
                f"{self.where}: camera_model is {shown(name)}, expected one of {', '.join(COLMAP_MODELS)}, "
                f"{PANORAMA_MODEL}. Undistort the images, or export them with the model OPENCV."
            )
        return COLMAP_MODELS[name][0]


def _cameras(path: Path, header: Any) -> list[_CameraKeys]:
    entries = frames_of(header, path)
    return [_CameraKeys(header, frame, f"{path}: frame {index}") for index, frame in enumerate(entries)]


def _moved(path: Path, header: Any) -> tuple[str | None, list[str]]:
    """The one folder that has all photos where none is where the file says, else None; and what is said about it."""
    cameras = _cameras(path, header)
    if any(is_file(_photo(path.parent, camera, None)) for camera in cameras):
        return None, []
    _, folder = folders_with(path.parent, [path.parent / camera.text("file_path") for camera in cameras])
    if folder is None:
        return None, []
    named = cameras[0].text("file_path")
    where = "the scene's own folder" if folder == "." else folder
    return folder, [f"the photos are taken from {where}, since none is where the file says ({named})"]


def _photo(root: Path, camera: _CameraKeys, images: str | None) -> Path:
    name = camera.text("file_path")
    return find_photo(root, name) if images is None else find_photo(root / images, Path(name).name)


def _split_lists(path: Path, header: dict[str, Any]) -> dict[str, list[str]]:
    """By split, the file names that train_filenames, val_filenames or test_filenames list."""
    lists: dict[str, list[str]] = {}
    for split in SPLITS:
        names = header.get(f"{split}_filenames")
        names = [] if names is None else names  # null: as absent
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UserError(f"{path}: {split}_filenames is {shown(names)}, expected a list of file_path; correct it.")
        if names:
            lists[split] = names
    return lists


def _in_lists(path: Path, frames: list[Frame], keys: list[str], lists: dict[str, list[str]]) -> tuple[list[Frame], str]:
    """The frames that are in a list, once for each split that they are in, and how many these are, in words.

    keys: of each frame's file_path. Raises UserError where a list names none of the frames.
    """
    found, counts, listed = [], [], set()
    without_suffix = {str(Path(key).with_suffix("")): key for key in keys}
    for split, names in lists.items():
        wanted = {_key(name, path.parent) for name in names}
        wanted |= {without_suffix[name] for name in wanted if name in without_suffix}
        chosen = [index for index, key in enumerate(keys) if key in wanted]
        if not chosen:
            raise UserError(
                f"{path}: none of the {len(names)} names in {split}_filenames is the file_path of a frame (the first "
                f"is {names[0]}, that of the first frame {keys[0]}); correct the list, or remove it."
            )
        found += [replace(frames[index], split=split) for index in chosen]
        counts.append(f"{len(chosen)} {split}")
        listed |= set(chosen)
    left = f", {len(frames) - len(listed)} in none and left out" if len(listed) < len(frames) else ""
    return found, f"splits by its lists of file names: {', '.join(counts)}{left}"


def _key(name: str, root: Path) -> str:
    """A file's path below the scene's folder, in one form."""
    absolute = os.path.normpath(root.absolute() / _with_slashes(name))
    return Path(os.path.relpath(absolute, root.absolute())).as_posix()


def _with_slashes(name: str) -> str:
    """A path that Windows may have written."""
    return name.replace("\\", "/")
