"""Which format a folder is in, and reading it: the entrance to all readers."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from nerf.config.commands import assignment, program
from nerf.datasets.capture import Capture
from nerf.datasets.readers import blender, colmap, llff, neus, nsvf, transforms
from nerf.datasets.readers.beside import same_poses, with_depths_of
from nerf.datasets.readers.frames import check_frames, missing_images
from nerf.datasets.readers.masks import with_masks, without_masks
from nerf.datasets.readers.photos import list_photos
from nerf.errors import UserError

MOST_FOLDERS = 6  # of photos are named


@dataclass(frozen=True)
class Format:
    """A format and its reader."""

    title: str
    looks_for: str  # what recognizes it, for messages
    recognize: Callable[[Path], str | None]
    read: Callable[[Path, str | None], Capture]


FORMATS = {
    "colmap": Format("COLMAP", "sparse/0 with cameras and images, .bin or .txt", colmap.recognize, colmap.read),
    "transforms": Format("instant-ngp or nerfstudio", "transforms.json", transforms.recognize, transforms.read),
    "blender": Format("Blender", "transforms_train.json", blender.recognize, blender.read),
    "nsvf": Format("NSVF", "intrinsics.txt and pose/", nsvf.recognize, nsvf.read),
    "neus": Format("NeuS or IDR", "cameras_sphere.npz or cameras.npz", neus.recognize, neus.read),
    "llff": Format("LLFF", "poses_bounds.npy", llff.recognize, llff.read),
}


def read_capture(
    root: Path,
    format: str = "auto",
    images: str | None = None,
    masks: bool = True,
    mask_folder: str | None = None,
    asked: bool = True,
) -> Capture:
    """The scene in a folder: frames, cameras and what else the format knows. No pixel is decoded.

    format: one of FORMATS, or auto, which recognizes it; Capture.format says what it found and why. images: the folder
    of the photos where there are several sizes, relative to root. Images that are missing stay in the list, see
    missing_images. Where it is in several formats that have the same poses, the one that knows more is taken, and
    depths that it lacks are another one's. masks: whether they are looked for, in mask_folder or wherever they usually
    are (readers/masks.py). asked: whether the user chose the format, for the words. Raises UserError for a folder in no
    format or in several with other poses, and for whatever its reader cannot take.
    """
    if format != "auto" and format not in FORMATS:
        raise UserError(f"dataset.format={format}: expected auto or one of {', '.join(FORMATS)}; choose one.")
    if not root.is_dir():
        found = "a file" if root.exists() else "no such folder"
        raise UserError(f"{root}: {found}, expected the folder of a capture; correct dataset.root.")
    if format == "auto":
        capture = _read_recognized(root, images)
    else:
        capture = FORMATS[format].read(root, images)
        found = _recognized(root)
        chosen = asked and list(found) != [format]  # else the folder itself says which one it is
        why = f"as dataset.format={format} says" if chosen else f"since there is {found[format]}"
        capture = replace(capture, format=f"{FORMATS[format].title}, {why}: {capture.format}")
    capture = check_frames(capture)
    return with_masks(capture, mask_folder) if masks else without_masks(capture)


def _recognized(root: Path) -> dict[str, str]:
    """Of each format that the folder shows, what shows it."""
    return {name: evidence for name, form in FORMATS.items() if (evidence := form.recognize(root))}


def _read_recognized(root: Path, images: str | None) -> Capture:
    """The capture in the format that the folder shows, and why it is that one."""
    found = _recognized(root)
    if not found:
        raise UserError(_unknown(root))
    name, aside = _choose(root, images, found)
    capture = FORMATS[name].read(root, images)
    for other in found:
        if other != name and not capture.has_depths and capture.aabb is None:
            capture, said = _with_depths_beside(capture, other, found[other], root, images)
            aside = said or aside
    if unusable := colmap.unusable_model(root):
        aside += f"; {unusable}, so it is not used"
    said = f"{FORMATS[name].title}, since there is {found[name]}{aside}: {capture.format}"
    return replace(capture, format=said)


def _choose(root: Path, images: str | None, found: dict[str, str]) -> tuple[str, str]:
    """The name of the format to take among those found, and what is said about the others."""
    if len(found) == 1:
        return next(iter(found)), ""
    if set(found) == {"colmap", "llff"}:  # LLFF's poses are COLMAP's, without lens and points
        return "colmap", f"; {found['llff']} of LLFF is there too, but COLMAP's model carries points and lenses"
    if set(found) == {"colmap", "transforms"} and found["colmap"].startswith("colmap/"):
        return "transforms", f"; {found['colmap']} is there too, from which nerfstudio made it"
    name = _knows_most(root, images, found)
    if name is not None:
        others = ", ".join(evidence for other, evidence in found.items() if other != name)
        return name, f"; {others} is there too, with the same poses, but knows less"
    listed = "; ".join(
        f"{FORMATS[name].title} ({evidence}), {_holds(root, images, name)}" for name, evidence in found.items()
    )
    raise UserError(
        f"{root}: found {len(found)} formats: {listed}. They may hold different poses, so choose one with "
        f"{' or '.join(f'dataset.format={name}' for name in found)}, or remove the other files."
    )


def _holds(root: Path, images: str | None, name: str) -> str:
    """How much there is of a capture in one of its formats, in words."""
    try:
        capture = FORMATS[name].read(root, images)
    except UserError:  # whoever chooses it is told why
        return "which cannot be read"
    there = len(capture.frames) - len(missing_images(capture))
    return f"{there} of whose {len(capture.frames)} frames have their photos"


def _knows_most(root: Path, images: str | None, found: dict[str, str]) -> str | None:
    """The format that has splits or masks, else depths, if it is the only one and all have the same poses."""
    try:
        captures = {name: FORMATS[name].read(root, images) for name in found}
    except UserError:  # whoever chooses one is told about it
        return None
    parts = [name for name, c in captures.items() if any(f.split or f.mask for f in c.frames)]
    chosen = parts or [name for name, capture in captures.items() if capture.has_depths]
    if len(chosen) != 1:
        return None
    alike = all(same_poses(captures[chosen[0]], capture) for capture in captures.values())
    return chosen[0] if alike else None


def _with_depths_beside(
    capture: Capture, other: str, evidence: str, root: Path, images: str | None
) -> tuple[Capture, str]:
    """The capture with the depths of another format in its folder, if that has some, and what is said about it."""
    title = FORMATS[other].title
    try:
        beside = FORMATS[other].read(root, images)
    except UserError as error:
        return capture, f"; {evidence} of {title} is there too, but cannot be read ({str(error).rstrip('.')})"
    if not beside.has_depths:
        return capture, ""
    known = with_depths_of(capture, beside)
    if known is None:
        return capture, f"; {evidence} of {title} is there too, but with other poses, so its depths are not taken"
    return known, f"; {evidence} of {title} is there too, with the same poses, and its depths are taken"


def _unknown(root: Path) -> str:
    """What was looked for, what is there instead, and what to do about it."""
    looked = ", ".join(f"{form.looks_for} ({form.title})" for form in FORMATS.values())
    content = sorted(path.name + "/" * path.is_dir() for path in root.iterdir())
    listed = ", ".join(content[:8]) + (f" and {len(content) - 8} more" if len(content) > 8 else "")
    begin = f"{root}: no format recognized; looked for {looked}; found {listed or 'an empty folder'}. "
    below = [path for path in sorted(root.iterdir()) if path.is_dir()]
    scenes = [path for path in below if any(form.recognize(path) for form in FORMATS.values())]
    if scenes:
        return f"{begin}Scenes lie one folder deeper: set {assignment('dataset.root', scenes[0])}" + (
            f" or another of {', '.join(path.name for path in scenes)}." if len(scenes) > 1 else "."
        )
    unusable = colmap.unusable_model(root)
    photos = list_photos(root)
    if photos:
        why = f"no usable poses: {unusable}. Export the model again, or make" if unusable else "no poses: make"
        most = Counter(path.parent.relative_to(root) for path in photos).most_common()
        which, also = "", ""
        if len(most) > 1:  # copies, other sizes or what a program rendered: all at once they are no capture
            listed = ", ".join(f"{folder} {count}" for folder, count in most[:MOST_FOLDERS])
            which = f" in {len(most)} folders ({listed}{', ...' if len(most) > MOST_FOLDERS else ''})"
            also = " or another one of the folders in its place"
        return (
            f"{begin}It has {len(photos)} photos{which} but {why} them with "
            f"{program('data/prepare.py', root / most[0][0], 'OUT')}{also}, then set dataset.root=OUT."
        )
    if unusable:
        return f"{begin}The folder {unusable}. Export the model again."
    return f"{begin}Set dataset.root to the folder with one of these files."
