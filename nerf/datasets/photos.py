"""From a capture to posed images: which photos, whether they can be used, and their pixels.

Cameras take the size of the file as it is: where it is a scaled copy of what the intrinsics were found for (images_4
and the like), they are scaled; where EXIF says that a photo is shown turned and the intrinsics are for the turned
picture, it is turned. Lenses stay as they are: pixels are averaged where a smaller size is asked for, and never warped.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from nerf.cameras.cameras import Cameras
from nerf.cameras.distortion import doubtful_lenses
from nerf.cameras.limits import rounded_positions, unusable_intrinsics
from nerf.datasets.capture import Capture, Frame
from nerf.datasets.decoding import (
    image_info,
    is_opaque,
    mean_of_known,
    read_all,
    read_images,
    read_pixels,
    read_z,
)
from nerf.datasets.mask_use import MaskUse
from nerf.datasets.photo import Photo, cameras_of, checked_photo, some_of, turned_alike
from nerf.datasets.photo_masks import frames_there, outline, use_of_alpha, use_of_masks, valid_pixels, without_alpha
from nerf.datasets.posed_images import PosedImages, names_of
from nerf.datasets.readers import missing_images
from nerf.datasets.readers.photos import lie_elsewhere
from nerf.datasets.rims import object_alone
from nerf.datasets.scene_bounds import TRANSPARENT, describe_capture
from nerf.datasets.swept_depths import sweep_depths
from nerf.datasets.transforms_file import rigid_pose
from nerf.errors import NoViews, UserError
from nerf.scene.description import SceneDescription

SMALLEST_COSINE = 1e-3  # of a ray to the camera's axis: beyond, camera z tells no distance
USUAL_DEPTH_WEIGHT = 0.1  # of loss.depth, for the note


def load_photos(
    capture: Capture,
    split: str,
    downscale: int = 1,
    test_every: int = 8,
    skip_missing: bool = False,
    masks: str = "auto",
) -> PosedImages:
    """The photos of one split (see split_frames), at 1/downscale of the stored size; on the CPU.

    Blocks of downscale x downscale pixels are averaged; up to downscale - 1 columns at the right and rows at the bottom
    are cut off. test_every: every k-th photo is a test view where the format has no split. skip_missing: goes on
    without the files that are not there. masks: what they mean, object (they are alpha), leave_out (black pixels do
    not count), none (nothing), or auto (see mask_use).

    At any time only a few photos are decoded; beyond the pixels that are returned, memory does not grow with their
    number. Alpha of the photos' own is taken as masks are: it is kept where it outlines an object; else what is
    transparent does not count, and masks=none ignores it too. Raises UserError, naming the file, for poses and
    intrinsics that are none, frames that are there twice, missing and damaged files, photos and masks that do not fit
    their intrinsics, masks=object where photos have neither masks nor alpha, and a split without a view.
    """
    missing = _missing(capture, skip_missing)
    frames = split_frames(capture, split, test_every)
    _check_frames(frames, str(capture.root))
    infos = read_all(lambda index: image_info(frames[index].image), len(frames), "photos found")
    photos = [checked_photo(frame, info) for frame, info in zip(frames, infos)]
    photos = turned_alike(photos, frames_there(capture))
    cameras = cameras_of(photos, downscale)
    of_alpha = use_of_alpha(capture, masks)
    use = use_of_masks(capture, masks, of_alpha)
    outlined = use is not None and use.use == "object"
    channels = 4 if outlined or (of_alpha and any(info.has_alpha for info in infos)) else 3

    def read(index: int) -> np.ndarray:
        photo = photos[index]
        alpha = outline(photo) if outlined else None
        return read_pixels(photo.frame.image, channels, downscale, photo.upright, alpha)

    pixels = read_images(cameras, channels, read)
    opaque, notes = None, _notes(capture, photos, missing, split, use)
    if split == "train":
        notes += doubtful_lenses(cameras.lenses, cameras.intrinsics, cameras.image_sizes)
    if channels == 4 and not outlined and (of_alpha.use == "leave_out" or is_opaque(pixels)):
        pixels, opaque = without_alpha(pixels)
    if opaque is not None:
        notes = (
            *notes,
            f"The photos' alpha channels, as masks, are {of_alpha.why}: what is transparent, "
            f"{1 - opaque.float().mean().item():.2g} of the pixels, is neither trained on nor scored "
            "(dataset.masks=object: it is empty; none: it counts).",
        )
    files = tuple(frame.image for frame in frames)
    valid = None if outlined else valid_pixels(photos, cameras, downscale, opaque)
    depths = _depths(photos, cameras, downscale)
    images = PosedImages(pixels, cameras, names_of(files), depths, valid, notes, files=files)
    try:
        scene = scene_of(capture, images if split == "train" else None, pixels.shape[1] == 4)
        if outlined:  # the masks are why there is alpha
            said = f"The masks are {use.why}: it is alone in a box."
            scene = replace(scene, reasons=tuple(said if why == TRANSPARENT else why for why in scene.reasons))
        return replace(images, scene=scene)
    except UserError as error:  # settings may tell; whoever trains on the images hears of it
        return replace(images, notes=(f"kind and extent of the scene are not known: {error}", *notes))


def scene_of(capture: Capture, images: PosedImages | None, has_alpha: bool) -> SceneDescription:
    """Kind and extent of the scene, as cameras, points and depths tell; alpha shows a box better than they do.

    images: of training, which are looked at where no depth is known, and for what is around an object; None: do
    without.
    """
    looked = () if images is None else (lambda: sweep_depths(images), lambda: object_alone(images))
    found = describe_capture(capture, has_alpha, *looked)
    return replace(found, aabb=None if has_alpha and found.kind == "bounded" else found.aabb.float())


def split_frames(capture: Capture, split: str, test_every: int = 8, setting: str = "split") -> list[Frame]:
    """The frames of train, val or test whose photos are there.

    The format's own split, where it has one: a frame without a word about it is for training. Else every test_every-th
    of the photos, sorted by the names of their files, from the first on, is a test view and the others are for
    training; 0 holds none out. setting: by which another split is asked for. Raises UserError where there is no such
    view.
    """
    missing, there = set(missing_images(capture)), frames_there(capture)
    if missing and not there:
        raise UserError(
            f"{capture.root}: all {len(missing)} photos are missing: {some_of(missing)}. Restore them, or correct "
            f"their names in the file of poses.{_elsewhere(capture)}"
        )
    if any(frame.split is not None for frame in there):
        chosen = [frame for frame in there if (frame.split or "train") == split]
        counts = Counter(frame.split or "train" for frame in there)
        found = f"its own split has {', '.join(f'{counts[name]} {name}' for name in sorted(counts))} views"
        other = "val" if split == "test" and counts["val"] else "train"
        named = f"name files for {split} that are there"
        remedy = f"{found}; {named}" if split == "train" else f"{found}; take these ({setting}={other}), or {named}"
    else:
        frames = sorted(there, key=lambda frame: str(frame.image))
        splits = ["test" if test_every and index % test_every == 0 else "train" for index in range(len(frames))]
        chosen = [frame for frame, held in zip(frames, splits) if held == split]
        counts = {name: splits.count(name) for name in ("train", "test")}
        found = f"dataset.test_every={test_every} makes {counts['train']} train and {counts['test']} test views"
        remedy = f"{found}; score the training views ({setting}=train), or train with dataset.test_every=8"
        if split == "train":
            remedy = f"{found}; train on all photos with dataset.test_every=0 evaluation.split=train, or add photos"
    if not chosen:
        raise NoViews(f"{capture.root}: there is no {split} view among {len(there)} photos", f"; {remedy}.")
    return chosen


def _check_frames(frames: Sequence[Frame], where: str) -> None:
    twice = [path for path, count in Counter(frame.image for frame in frames).items() if count > 1]
    if twice:
        raise UserError(f"{where}: duplicate frames, {some_of(twice)} are each named by several; remove all but one.")
    for frame in frames:
        rigid_pose([*frame.c2w.tolist(), [0.0, 0.0, 0.0, 1.0]], f"{frame.image}: its pose")
        problem = unusable_intrinsics(*frame.intrinsics)
        if problem is None and min(frame.width, frame.height) < 1:
            problem = f"they are for {frame.width}x{frame.height} pixels"
        if problem is not None:
            raise UserError(f"{frame.image}: its intrinsics cannot be used, {problem}; correct them.")


def _missing(capture: Capture, skip: bool) -> set[Path]:
    """Photos that are not there. Raises UserError where there are any, unless they are to be skipped."""
    missing, named = set(missing_images(capture)), {frame.image for frame in capture.frames}
    if missing and not skip and len(missing) < len(named):  # of all, split_frames says more
        raise UserError(
            f"{len(missing)} of the {len(named)} photos of {capture.root} are missing: {some_of(missing)}. Restore "
            "them, or go on without them: dataset.skip_missing=true."
            f"{_elsewhere(capture)}"
        )
    return missing


def _elsewhere(capture: Capture) -> str:
    """How the photos are taken from another folder, if all are there, for messages."""
    if any(Path(frame.name or "").parent != Path() for frame in capture.frames):
        return ""  # COLMAP's names have folders, which dataset.images keeps
    return lie_elsewhere(capture.root, [frame.image for frame in capture.frames])


def _depths(photos: Sequence[Photo], cameras: Cameras, downscale: int) -> torch.Tensor | None:
    """World distance along each pixel's ray, [P] float32, 0 where no depth map has a value; None without depth maps.

    Depth maps hold camera z, as nerfstudio's do; its ratio to the distance follows from the ray, with its lens.
    Those of panoramas hold the distance.
    """
    if all(photo.frame.depth is None for photo in photos):
        return None

    def read(index: int) -> torch.Tensor:
        first, end = cameras.first_pixel(index), cameras.first_pixel(index + 1)
        frame = photos[index].frame
        if frame.depth is None:
            return torch.zeros(end - first)
        z = read_z(frame.depth, frame.depth_unit, photos[index].size)
        z = torch.from_numpy(mean_of_known(z, downscale)).reshape(-1)
        along = cameras.z_along(index, cameras.rays_through(torch.arange(first, end)).directions)
        return torch.where(along > SMALLEST_COSINE, z / along.clamp(min=SMALLEST_COSINE), 0.0)

    return torch.cat(read_all(read, len(photos), "depth maps"))


def _notes(
    capture: Capture, photos: Sequence[Photo], missing: set[Path], split: str, masks: MaskUse | None
) -> tuple[str, ...]:
    """What to tell about how the photos were read, a sentence each."""
    notes = [f"{capture.root}: {capture.format}; {len(photos)} photos for {split}."]
    if masks is not None:
        does = {
            "object": "they are alpha, and all around it is empty (dataset.masks=leave_out: nothing is known of it)",
            "leave_out": "what is black is neither trained on nor scored (dataset.masks=object: it is empty)",
        }
        notes.append(f"The masks are {masks.why}: {does[masks.use]}.")
    if split == "train":
        notes += rounded_positions(torch.from_numpy(np.stack([frame.c2w[:, 3] for frame in capture.frames])))
    deep = sum(photo.frame.depth is not None for photo in photos)
    if deep and split == "train":
        notes.append(
            f"{deep} photos have depth files; loss.depth={USUAL_DEPTH_WEIGHT:g} trains on them, 0 leaves them aside."
        )
    if missing:
        notes.append(f"{len(missing)} photos are missing and left out.")
    given = [photo.frame.given_size or (photo.frame.width, photo.frame.height) for photo in photos]
    scaled = [(photo.size, size) for photo, size in zip(photos, given) if photo.size != size]
    if scaled:
        (width, height), (given_width, given_height) = scaled[0]
        notes.append(
            f"{len(scaled)} photos are scaled copies ({width}x{height}) of what their intrinsics are for "
            f"({given_width}x{given_height}); the intrinsics are scaled with them."
        )
    turned = sum(photo.upright for photo in photos)
    if turned:
        notes.append(f"{turned} photos are turned as their EXIF orientation says: their intrinsics are for that.")
    unturned = sum((photo.info.turns or photo.info.flips) and not photo.upright for photo in photos)
    if unturned:
        why = "their intrinsics are for that"
        if any(photo.info.flips for photo in photos):
            why = "nothing shows whether their poses are for the turned picture"
        notes.append(f"{unturned} photos are read as stored, though EXIF turns them: {why}.")
    return tuple(notes)
