"""Which format a folder is in, and reading it: the entrance to all readers."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from nerf.datasets.capture import Capture
from nerf.datasets.readers import blender, colmap, llff, nsvf, transforms
from nerf.datasets.readers.frames import check_frames
from nerf.datasets.readers.photos import list_photos
from nerf.errors import UserError


@dataclass(frozen=True)
class Format:
    """A format and its reader."""

    title: str
    looks_for: str  # what recognises it, for messages
    recognise: Callable[[Path], str | None]
    read: Callable[[Path, str | None], Capture]


FORMATS = {
    "colmap": Format("COLMAP", "sparse/0 with cameras and images, .bin or .txt", colmap.recognise, colmap.read),
    "transforms": Format("instant-ngp or nerfstudio", "transforms.json", transforms.recognise, transforms.read),
    "blender": Format("Blender", "transforms_train.json", blender.recognise, blender.read),
    "nsvf": Format("NSVF", "intrinsics.txt and pose/", nsvf.recognise, nsvf.read),
    "llff": Format("LLFF", "poses_bounds.npy", llff.recognise, llff.read),
}


def read_capture(root: Path, format: str = "auto", images: str | None = None) -> Capture:
    """The scene in a folder: frames, cameras and what else the format knows. No pixel is decoded.

    format: one of FORMATS, or auto, which recognises it; Capture.format says what it found and why. images: the folder
    of the photos where there are several sizes, relative to root. Images that are missing stay in the list, see
    missing_images. Raises UserError for a folder in no format or in several, and for whatever its reader cannot take.
    """
    if format != "auto" and format not in FORMATS:
        raise UserError(f"dataset.format={format}: expected auto or one of {', '.join(FORMATS)}; choose one.")
    if not root.is_dir():
        found = "a file" if root.exists() else "no such folder"
        raise UserError(f"{root}: {found}, expected the folder of a capture; correct dataset.root.")
    why = f"as dataset.format={format} says"
    if format == "auto":
        format, why = _recognise(root)
    capture = FORMATS[format].read(root, images)
    said = f"{FORMATS[format].title}, {why}: {capture.format}"
    return check_frames(replace(capture, format=said))


def _recognise(root: Path) -> tuple[str, str]:
    """The name of the folder's format, and why it is that one."""
    found = {name: evidence for name, form in FORMATS.items() if (evidence := form.recognise(root))}
    if not found:
        raise UserError(_unknown(root))
    aside = ""
    if set(found) == {"colmap", "llff"}:  # LLFF's poses are COLMAP's, without lens and points
        aside = f"; {found.pop('llff')} of LLFF is there too, but COLMAP's model carries points and lenses"
    if set(found) == {"colmap", "transforms"} and found["colmap"].startswith("colmap/"):
        aside = f"; {found.pop('colmap')} is there too, from which nerfstudio made it"
    if len(found) > 1:
        listed = "; ".join(f"{FORMATS[name].title} ({evidence})" for name, evidence in found.items())
        raise UserError(
            f"{root}: found {len(found)} formats: {listed}. They may hold different poses, so choose one with "
            f"{' or '.join(f'dataset.format={name}' for name in found)}, or remove the other files."
        )
    ((name, evidence),) = found.items()
    return name, f"since there is {evidence}{aside}"


def _unknown(root: Path) -> str:
    """What was looked for, what is there instead, and what to do about it."""
    looked = ", ".join(f"{form.looks_for} ({form.title})" for form in FORMATS.values())
    content = sorted(path.name + "/" * path.is_dir() for path in root.iterdir())
    listed = ", ".join(content[:8]) + (f" and {len(content) - 8} more" if len(content) > 8 else "")
    begin = f"{root}: no format recognised; looked for {looked}; found {listed or 'an empty folder'}. "
    below = [path for path in sorted(root.iterdir()) if path.is_dir()]
    scenes = [path for path in below if any(form.recognise(path) for form in FORMATS.values())]
    if scenes:
        return f"{begin}Scenes lie one folder deeper: set dataset.root={scenes[0]}" + (
            f" or another of {', '.join(path.name for path in scenes)}." if len(scenes) > 1 else "."
        )
    photos = len(list_photos(root))
    if photos:
        return (
            f"{begin}It has {photos} photos but no poses: make them with python data/prepare.py {root} OUT, "
            "then set dataset.root=OUT."
        )
    return f"{begin}Set dataset.root to the folder with one of these files."
