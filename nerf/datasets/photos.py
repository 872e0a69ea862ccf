"""From a capture to posed images: which photos, whether they can be used, and their pixels.

Cameras take the size of the file as it is: where it is a scaled copy of what the intrinsics were found for (images_4
and the like), they are scaled; where EXIF says that a photo is shown turned and the intrinsics are for the turned
picture, it is turned. Lenses stay as they are: pixels are averaged where a smaller size is asked for, and never warped.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from nerf.cameras.cameras import Cameras, corner_radii
from nerf.cameras.distortion import Lenses
from nerf.cameras.limits import unusable_intrinsics
from nerf.datasets.capture import Capture, Frame
from nerf.datasets.decoding import (
    ImageInfo,
    image_info,
    is_opaque,
    mean_of_known,
    read_all,
    read_images,
    read_mask,
    read_pixels,
    read_whiteness,
    read_z,
)
from nerf.datasets.mask_use import LOOKED_AT, MaskUse, decide
from nerf.datasets.posed_images import PosedImages, names_of
from nerf.datasets.readers import missing_images
from nerf.datasets.scene_bounds import TRANSPARENT, describe_capture
from nerf.datasets.swept_depths import sweep_depths
from nerf.datasets.transforms_file import rigid_pose
from nerf.errors import UserError
from nerf.images.pixel_runs import PixelRuns
from nerf.scene.description import SceneDescription

SIZE_TOLERANCE = 1.0  # pixels by which rounding may change the proportions of a scaled copy
SMALLEST_COSINE = 1e-3  # of a ray to the camera's axis: beyond, camera z tells no distance
USUAL_DEPTH_WEIGHT = 0.1  # of loss.depth, for the note
OPAQUE = 128  # of 255: a pixel whose alpha is left out counts from there on
NAMED = 5  # files that a message names before it only counts


@dataclass(frozen=True)
class _Photo:
    """A frame whose file is there, and how it is read."""

    frame: Frame
    info: ImageInfo
    upright: bool  # turned as EXIF says

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the picture before any downscaling."""
        stored = self.info.width, self.info.height
        return stored[::-1] if self.upright else stored


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
    photos = [_photo(frame, info) for frame, info in zip(frames, infos)]
    cameras = _cameras(photos, downscale)
    alpha_use = _alpha_use(capture, masks)
    use = _mask_use(capture, masks, alpha_use)
    outlined = use is not None and use.use == "object"
    channels = 4 if outlined or (alpha_use and any(info.has_alpha for info in infos)) else 3

    def read(index: int) -> np.ndarray:
        photo = photos[index]
        alpha = _outline(photo) if outlined else None
        return read_pixels(photo.frame.image, channels, downscale, photo.upright, alpha)

    pixels = read_images(cameras, channels, read)
    opaque, notes = None, _notes(capture, photos, missing, split, use)
    if channels == 4 and not outlined and (alpha_use.use == "leave_out" or is_opaque(pixels)):
        opaque, pixels = pixels[:, 3] >= OPAQUE, pixels[:, :3].contiguous()
        if opaque.all():
            opaque = None
        else:
            notes = (
                *notes,
                f"The photos' alpha channels, as masks, are {alpha_use.why}: what is transparent, "
                f"{1 - opaque.float().mean().item():.2g} of the pixels, is neither trained on nor scored "
                "(dataset.masks=object: it is empty; none: it counts).",
            )
    files = tuple(frame.image for frame in frames)
    valid_pixels = None if outlined else _valid_pixels(photos, cameras, downscale, opaque)
    depths = _depths(photos, cameras, downscale)
    images = PosedImages(pixels, cameras, names_of(files), depths, valid_pixels, notes, files=files)
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

    images: of training, which are looked at where no depth is known; None: do without.
    """
    found = describe_capture(capture, has_alpha, None if images is None else lambda: sweep_depths(images))
    return replace(found, aabb=None if has_alpha and found.kind == "bounded" else found.aabb.float())


def split_frames(capture: Capture, split: str, test_every: int = 8) -> list[Frame]:
    """The frames of train, val or test whose photos are there.

    The format's own split, where it has one: a frame without a word about it is for training. Else every test_every-th
    of the photos, sorted by the names of their files, from the first on, is a test view and the others are for
    training; 0 holds none out. Raises UserError where there is no such view.
    """
    missing, there = set(missing_images(capture)), _frames_there(capture)
    if missing and not there:
        raise UserError(
            f"{capture.root}: all {len(missing)} photos are missing: {_some(missing)}. Restore them, or correct their "
            "names in the file of poses."
        )
    if any(frame.split is not None for frame in there):
        chosen = [frame for frame in there if (frame.split or "train") == split]
        counts = Counter(frame.split or "train" for frame in there)
        found = f"its own split has {', '.join(f'{counts[name]} {name}' for name in sorted(counts))} views"
        other = "val" if split == "test" and counts["val"] else "train"
        remedy = f"{found}; take these (evaluation.split={other}), or name files for {split}"
    else:
        frames = sorted(there, key=lambda frame: str(frame.image))
        splits = ["test" if test_every and index % test_every == 0 else "train" for index in range(len(frames))]
        chosen = [frame for frame, held in zip(frames, splits) if held == split]
        counts = {name: splits.count(name) for name in ("train", "test")}
        found = f"dataset.test_every={test_every} makes {counts['train']} train and {counts['test']} test views"
        remedy = f"{found}; score another split (evaluation.split=train), or set dataset.test_every=8"
    if not chosen:
        raise UserError(f"{capture.root}: there is no {split} view among {len(there)} photos; {remedy}.")
    return chosen


def _check_frames(frames: Sequence[Frame], where: str) -> None:
    twice = [path for path, count in Counter(frame.image for frame in frames).items() if count > 1]
    if twice:
        raise UserError(f"{where}: duplicate frames, {_some(twice)} are each named by several; remove all but one.")
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
    if missing and not skip:
        raise UserError(
            f"{len(missing)} of the {len(named)} photos of {capture.root} are missing: {_some(missing)}. Restore them, "
            "or go on without them: dataset.skip_missing=true."
        )
    return missing


def _photo(frame: Frame, info: ImageInfo) -> _Photo:
    stored, wanted = (info.width, info.height), (frame.width, frame.height)
    if _is_scaled(stored, wanted):
        return _Photo(frame, info, upright=False)
    if info.turns and _is_scaled(stored[::-1], wanted):
        return _Photo(frame, info, upright=True)
    turned = " (EXIF turns it)" if info.turns else ""
    raise UserError(
        f"{frame.image} is {info.width}x{info.height}{turned}, but its intrinsics are for "
        f"{frame.width}x{frame.height}, which has other proportions: it was cropped or turned, or belongs to another "
        "camera. Bring back the original."
    )


def _is_scaled(size: tuple[int, int], original: tuple[int, int]) -> bool:
    """Whether a picture of this size can be a scaled copy of the original, its sides rounded to whole pixels."""
    (width, height), (full_width, full_height) = size, original
    off = min(abs(width * full_height / full_width - height), abs(height * full_width / full_height - width))
    return off <= SIZE_TOLERANCE


def _cameras(photos: Sequence[_Photo], downscale: int) -> Cameras:
    """Cameras for the pictures as they will be, float32."""
    sizes = [(photo.size[0] // downscale, photo.size[1] // downscale) for photo in photos]
    for photo, size in zip(photos, sizes):
        if min(size) < 1:
            width, height = photo.size
            raise UserError(f"dataset.downscale={downscale} leaves nothing of {photo.frame.image}, {width}x{height}.")
    frames = [photo.frame for photo in photos]
    full = np.array([(frame.width, frame.height) for frame in frames], np.float64)
    scale = np.array([photo.size for photo in photos]) / full / downscale
    intrinsics = torch.from_numpy(np.array([frame.intrinsics for frame in frames]) * np.tile(scale, 2)).float()
    radii = corner_radii(intrinsics, torch.tensor(sizes))
    c2w = torch.from_numpy(np.stack([frame.c2w for frame in frames])).float()
    try:
        lenses = Lenses.of([frame.lens for frame in frames], [frame.distortion for frame in frames], radii)
    except ValueError as error:
        raise UserError(f"{frames[0].image.parent}: a lens cannot be used, {error}; correct its camera.") from error
    return Cameras.of_sizes(c2w, intrinsics, sizes, lenses)


def _alpha_use(capture: Capture, wanted: str) -> MaskUse | None:
    """What the photos' own alpha means, the same for all splits of a capture; None where it means nothing.

    wanted: as of masks. A photo without alpha is opaque.
    """
    there = _frames_there(capture)
    if wanted == "none" or not any(read_all(lambda i: image_info(there[i].image).has_alpha, len(there), "alpha found")):
        return None
    if wanted != "auto":
        return MaskUse(wanted, f"taken so as dataset.masks={wanted} says")
    photos = _looked_at(there)
    opaque = read_all(lambda i: _stored_alpha(photos[i]) >= OPAQUE, len(photos), "alpha looked at")
    return decide(opaque, _cameras(photos, 1))


def _mask_use(capture: Capture, wanted: str, alpha: MaskUse | None) -> MaskUse | None:
    """What the masks of a capture mean, the same for all of its splits; None where there are none.

    wanted: auto, object or leave_out. alpha: see _alpha_use. Raises UserError for object where a photo has neither
    mask nor alpha.
    """
    there = _frames_there(capture)
    masked = [frame for frame in there if frame.mask is not None]
    if wanted == "object" and len(masked) < len(there) and (masked or alpha is None):
        bare = _some({frame.image for frame in there if frame.mask is None})
        raise UserError(
            f"{capture.root}: dataset.masks=object takes masks for the outline of an object, but {bare} of "
            f"{len(there)} photos have none, so nothing would be known of what is empty there. Add these masks (docs/"
            "data.md says how they are named), drop the photos, or set dataset.masks=leave_out."
        )
    if not masked:
        return None
    if wanted != "auto":
        return MaskUse(wanted, f"taken so as dataset.masks={wanted} says")
    if len(masked) < len(there):
        return MaskUse("leave_out", f"there for {len(masked)} of {len(there)} photos alone")
    if alpha is not None and alpha.use == "object":
        return MaskUse("leave_out", "beside alpha of the photos' own")
    photos = _looked_at(masked)
    white = read_all(lambda i: _outline(photos[i]) >= 128, len(photos), "masks looked at")
    return decide(white, _cameras(photos, 1))


def _frames_there(capture: Capture) -> list[Frame]:
    """The frames whose photos are not missing."""
    missing = set(missing_images(capture))
    return [frame for frame in capture.frames if frame.image not in missing]


def _looked_at(frames: Sequence[Frame]) -> list[_Photo]:
    """A few of the photos, evenly spread, by whose masks or alpha it is decided what they mean."""
    chosen = [frames[i] for i in np.linspace(0, len(frames) - 1, min(len(frames), LOOKED_AT)).round().astype(int)]
    return [_photo(frame, image_info(frame.image)) for frame in chosen]


def _stored_alpha(photo: _Photo) -> np.ndarray:
    """A photo's own alpha at full size, [H,W] uint8; 255 where it has none."""
    if not photo.info.has_alpha:
        return np.full(photo.size[::-1], 255, np.uint8)
    return read_pixels(photo.frame.image, 4, 1, photo.upright)[..., 3]


def _outline(photo: _Photo) -> np.ndarray:
    """A photo's mask as alpha, [H,W] uint8. Raises UserError where its proportions differ from the photo's."""
    return read_whiteness(photo.frame.mask, photo.size, photo.frame.mask_inverted)


def _valid_pixels(
    photos: Sequence[_Photo], cameras: Cameras, downscale: int, opaque: torch.Tensor | None
) -> PixelRuns | None:
    """The pixels that no mask excludes and that are opaque, [P] bool (None: all are); None where these are all."""
    if opaque is None and all(photo.frame.mask is None for photo in photos):
        return None

    def read(index: int) -> PixelRuns:
        first, end = cameras.first_pixel(index), cameras.first_pixel(index + 1)
        path, inverted = photos[index].frame.mask, photos[index].frame.mask_inverted
        counted = torch.ones(end - first, dtype=torch.bool) if opaque is None else opaque[first:end]
        if not counted.any():
            raise UserError(f"{photos[index].frame.image}: the photo is transparent everywhere; drop the frame.")
        if path is not None:
            white = torch.from_numpy(read_mask(path, photos[index].size, downscale, inverted)).reshape(-1)
            counted = counted & white
            if not counted.any():
                counts = "black" if inverted else "white"
                remedy = f"{counts} counts. Invert it, or drop the frame"
                raise UserError(f"{path}: the mask excludes every pixel; {remedy}.")
        return PixelRuns.of_mask(counted, first)

    return PixelRuns.join(read_all(read, len(photos), "masks"))


def _depths(photos: Sequence[_Photo], cameras: Cameras, downscale: int) -> torch.Tensor | None:
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
    capture: Capture, photos: Sequence[_Photo], missing: set[Path], split: str, masks: MaskUse | None
) -> tuple[str, ...]:
    """What to tell about how the photos were read, a sentence each."""
    notes = [f"{capture.root}: {capture.format}; {len(photos)} photos for {split}."]
    if masks is not None:
        does = {
            "object": "they are alpha, and all around it is empty (dataset.masks=leave_out: nothing is known of it)",
            "leave_out": "what is black is neither trained on nor scored (dataset.masks=object: it is empty)",
        }
        notes.append(f"The masks are {masks.why}: {does[masks.use]}.")
    deep = sum(photo.frame.depth is not None for photo in photos)
    if deep and split == "train":
        notes.append(
            f"{deep} photos have depth files; loss.depth={USUAL_DEPTH_WEIGHT:g} trains on them, 0 leaves them aside."
        )
    if missing:
        notes.append(f"{len(missing)} photos are missing and left out.")
    scaled = [photo for photo in photos if photo.size != (photo.frame.width, photo.frame.height)]
    if scaled:
        (width, height), frame = scaled[0].size, scaled[0].frame
        notes.append(
            f"{len(scaled)} photos are scaled copies ({width}x{height}) of what their intrinsics are for "
            f"({frame.width}x{frame.height}); the intrinsics are scaled with them."
        )
    turned = sum(photo.upright for photo in photos)
    if turned:
        notes.append(f"{turned} photos are turned as their EXIF orientation says: their intrinsics are for that.")
    unturned = sum(photo.info.turns and not photo.upright for photo in photos)
    if unturned:
        notes.append(f"{unturned} photos are read as stored, though EXIF turns them: their intrinsics are for that.")
    return tuple(notes)


def _some(paths: Collection[Path]) -> str:
    paths = sorted(map(str, paths))
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return ", ".join(paths[:NAMED]) + more
