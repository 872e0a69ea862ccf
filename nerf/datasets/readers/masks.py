"""Finding the masks of a capture, in whatever layout, for all formats alike. No pixel is read.

In this order: files that the format names (nerfstudio's mask_path); files beside the photos (instant-ngp's
dynamic_mask_NAME.png, NAME_mask.png, NAME.mask.png, mask_NAME.png); a folder masks or mask beside the folder of photos,
or masks_4 beside images_4. In it a mask is named as its photo, with any suffix (IMG_1.png for IMG_1.JPG), with COLMAP's
second suffix (IMG_1.JPG.png), or with "mask" before or behind; else by the same number (000.png for 000000.png); else
as many masks as photos are matched in sorted order.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nerf.datasets.capture import Capture, Frame
from nerf.datasets.readers.photos import PHOTO_SUFFIXES, by_number, list_photos
from nerf.errors import UserError
from nerf.reading import is_file

FOLDERS = ("masks", "mask")
AFFIX = re.compile(r"^(?:mask|dynamic_mask)[_.-]|[_.-]mask$")
SIZE = re.compile(r"images?(_\d+(?:x\d+)?)$")  # the suffix of a folder of smaller copies
REMEDY = "Mend that, or go on without masks: dataset.masks=none"


def with_masks(capture: Capture, folder: str | None = None) -> Capture:
    """The capture with a mask for each photo that has one, said in Capture.format.

    folder: of the masks, relative to the capture's, or absolute; None: found. Masks that the format names stay. Raises
    UserError for masks that are named and missing, and for a folder of masks that belong to none of the photos.
    """
    named = [frame.mask for frame in capture.frames if frame.mask is not None]
    if folder is None and named:
        missing = [path for path in named if not is_file(path)]
        if missing:
            raise UserError(f"{missing[0]}: no such mask, and {len(missing)} of {len(named)} are missing. {REMEDY}.")
        return _said(capture, capture.frames, "that it names")
    if folder is None:
        beside = [_beside(frame) for frame in capture.frames]
        if any(frame.mask is not None for frame in beside):
            return _said(capture, beside, "beside the photos")
    found = _folder(capture, folder)
    if found is None:
        return capture
    masks, how = _matched(capture.frames, found, capture.root)
    frames = [replace(frame, mask=mask, mask_inverted=False) for frame, mask in zip(capture.frames, masks)]
    return _said(capture, frames, f"in {_relative(found, capture.root)}{how}")


def without_masks(capture: Capture) -> Capture:
    """The capture with all pixels of all photos."""
    return replace(capture, frames=[replace(frame, mask=None, mask_inverted=False) for frame in capture.frames])


def _said(capture: Capture, frames: list[Frame], where: str) -> Capture:
    count = sum(frame.mask is not None for frame in frames)
    rest = len(frames) - count
    aside = f", {rest} photos have none" if rest else ""
    return replace(capture, frames=frames, format=f"{capture.format}; {count} masks {where}{aside}")


def _beside(frame: Frame) -> Frame:
    """The frame with the mask that lies beside its photo; instant-ngp's says what does not count."""
    place, stem = frame.image.parent, frame.image.stem
    for name in (f"{stem}_mask", f"{stem}.mask", f"mask_{stem}"):
        for suffix in PHOTO_SUFFIXES:
            if is_file(place / f"{name}{suffix}"):
                return replace(frame, mask=place / f"{name}{suffix}")
    dynamic = place / f"dynamic_mask_{stem}.png"
    return replace(frame, mask=dynamic, mask_inverted=True) if is_file(dynamic) else frame


def _folder(capture: Capture, wanted: str | None) -> Path | None:
    """The folder of masks; None where there is none. Raises UserError where the one that is wanted has none."""
    if wanted is not None:
        folder = capture.root / Path(wanted).expanduser()
        if not list_photos(folder):
            raise UserError(
                f"{folder}: no masks there, as dataset.mask_folder={wanted} asks, expected images "
                f"({', '.join(PHOTO_SUFFIXES)}). Name their folder, relative to {capture.root}."
            )
        return folder
    places = Counter(_photo_folder(frame.image, capture.root) for frame in capture.frames)
    photos = places.most_common(1)[0][0]
    size = SIZE.fullmatch(photos.name)
    sized = [f"{name}{size[1]}" for name in FOLDERS] if size else []
    outside = [photos.parent] if capture.root not in (photos, *photos.parents) else []
    for place in dict.fromkeys((capture.root, *outside, photos)):
        for name in (*sized, *FOLDERS):
            if place / name != photos and list_photos(place / name):
                return place / name
    return None


def _photo_folder(photo: Path, root: Path) -> Path:
    """The folder right below the root that a photo lies in, however deep; its own where it lies elsewhere."""
    if root in photo.parents and photo.parent != root:
        return root / photo.relative_to(root).parts[0]
    return photo.parent


def _matched(frames: Sequence[Frame], folder: Path, root: Path) -> tuple[list[Path | None], str]:
    """The mask of each photo, and in words how they were matched unless by name."""
    masks, photos = list_photos(folder), [frame.image for frame in frames]
    by_name: dict[str, Path] = {}
    for mask in masks:
        for key in _keys_of_mask(mask.relative_to(folder)):
            by_name.setdefault(key, mask)
    found = [next((by_name[key] for key in _keys(frame, root) if key in by_name), None) for frame in frames]
    if any(found):
        _check_one_photo_each(found, photos, folder)
        return found, ""
    numbered = by_number(photos, masks)
    if numbered is not None:
        return numbered, ", matched by their numbers"
    everyone = list_photos(photos[0].parent)
    if len(masks) == len(everyone) and set(photos) <= set(everyone):
        in_order = dict(zip(everyone, masks))
        return [in_order[photo] for photo in photos], ", matched in sorted order"
    if len(masks) == len(photos):
        in_order = dict(zip(sorted(photos), masks))
        return [in_order[photo] for photo in photos], ", matched in sorted order"
    raise UserError(
        f"{folder}: none of its {len(masks)} masks is named as a photo (the first mask is {masks[0].name}, the first "
        f"photo {photos[0].name}), and they are not as many as the {len(photos)} photos, so they cannot be matched in "
        f"sorted order. Name each mask as its photo, {photos[0].stem}.png or {photos[0].name}.png. {REMEDY}."
    )


def _check_one_photo_each(masks: Sequence[Path | None], photos: Sequence[Path], folder: Path) -> None:
    """Raises UserError where one mask is found for several photos, as in folders that use the same names."""
    owner: dict[Path, Path] = {}
    for mask, photo in zip(masks, photos):
        if mask is not None and owner.setdefault(mask, photo) != photo:
            raise UserError(
                f"{mask} would be the mask of {owner[mask]} and of {photo}, which have one name in two folders; put "
                f"masks into folders as the photos are: {folder / photo.parent.name / mask.name}. {REMEDY}."
            )


def _keys(frame: Frame, root: Path) -> list[str]:
    """Names under which a photo's mask may be known, from the longest path below the scene to the bare name."""
    photo = frame.image
    below = photo.relative_to(root) if root in photo.parents else Path(photo.name)
    paths = [Path(*below.parts[start:]) for start in range(len(below.parts))]
    if frame.name is not None:
        paths.insert(0, Path(frame.name))
    return [_normal(key) for path in paths for key in (str(path), str(path.with_suffix("")))]


def _keys_of_mask(mask: Path) -> list[str]:
    stem = mask.with_suffix("")  # IMG_1.JPG of IMG_1.JPG.png, or IMG_1 of IMG_1.png
    bare = AFFIX.sub("", stem.name)
    return [_normal(str(key)) for key in (mask, stem, stem.with_name(bare) if bare else stem)]


def _normal(key: str) -> str:
    """Letters with accents are one code point or two, and file systems do not keep the choice."""
    return unicodedata.normalize("NFC", key)


def _relative(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if root in path.parents else str(path)
