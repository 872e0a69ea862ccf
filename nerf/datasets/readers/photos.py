"""Finding the photos that a capture names, and their sizes. Headers are read, pixels are not."""

import re
import unicodedata
from collections.abc import Collection, Sequence
from itertools import takewhile
from pathlib import Path

from nerf.config.commands import assignment
from nerf.datasets.decoding import image_info
from nerf.errors import UserError
from nerf.reading import is_file, is_there

PHOTO_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff")
# The largest folder of images up to this size is taken: images_4 of LLFF, and of Mip-NeRF 360 images_4 outdoors and
# images_2 indoors, which is what the published figures are for.
LONGEST_SIDE = 1600
# Where photos lie that have no folder images or images_N; the last is the scene's folder itself.
OTHER_FOLDERS = ("image", "input", "rgb", "color", "frames", ".")
MASK_BESIDE = re.compile(r"^(?:dynamic_)?mask_|[_.]mask$")
IMAGES_FOLDER = re.compile(r"images(_\d+(x\d+)?)?")


def list_photos(folder: Path) -> list[Path]:
    """The photos in a folder and the folders in it, sorted by path; none where it does not exist.

    Masks that lie beside their photos are no photos.
    """
    found = (path for path in folder.rglob("*") if path.suffix.lower() in PHOTO_SUFFIXES)
    photos = sorted(path for path in found if not path.name.startswith(".") and path.is_file())
    known = {path.with_suffix("") for path in photos}
    return [path for path in photos if not is_mask_beside(path, known)]


def counted_photos(root: Path, images: str | None, count: int, poses: str) -> tuple[list[Path], str]:
    """The photos of a format that matches them with its poses in sorted order, and which folder was chosen.

    images: as choose_folder takes it. poses: what the format calls them, and their file. Raises UserError where there
    is not one photo for each of the poses.
    """
    folder, said = choose_folder(root, images)
    photos = list_photos(folder)
    if len(photos) != count:
        raise UserError(
            f"{folder}: {len(photos)} photos for the {count} {poses}, expected as many, since they are matched in "
            "sorted order. Remove photos that have none, or restore those that are missing."
        )
    return photos, said


def is_mask_beside(path: Path, known: Collection[Path]) -> bool:
    """Whether a file is named as the mask of another one of these photos, paths without their suffixes."""
    photo = MASK_BESIDE.sub("", path.stem)
    return photo != path.stem and path.with_name(photo) in known


def find_photo(folder: Path, name: str) -> Path:
    """The photo that name stands for, which may lack its suffix or have that of another copy; else folder/name."""
    path = folder / name
    if is_file(path):
        return path
    if not is_there(path.parent) or not path.parent.is_dir():
        return path
    # Letters with accents are one code point or two, and file systems do not keep the choice.
    wanted = unicodedata.normalize("NFC", path.name)
    photos = sorted(item for item in path.parent.iterdir() if item.suffix.lower() in PHOTO_SUFFIXES)
    names = {unicodedata.normalize("NFC", item.name): item for item in reversed(photos)}
    stems = {Path(found).stem: item for found, item in names.items()}
    stem = Path(wanted).stem if Path(wanted).suffix.lower() in PHOTO_SUFFIXES else wanted
    return names.get(wanted) or stems.get(stem) or path


def folders_with(root: Path, paths: Sequence[Path]) -> tuple[list[str], str | None]:
    """Where photos that are missing may be instead, as dataset.images takes it, and the one folder that surely is it.

    These are the folders under root that hold a photo of the name of each of the paths, each its own, with any suffix.
    Masks and depth maps have such names too: sure is a folder that is called as those of photos are, or as that of the
    paths; None where none or several are.
    """
    names = [path.name for path in dict.fromkeys(paths)]
    found = []
    for folder in sorted({photo.parent for photo in list_photos(root)}):
        there = takewhile(is_file, (find_photo(folder, name) for name in names))
        if len(set(there)) == len(names):
            found.append(folder.relative_to(root))
    usual = {"images", *OTHER_FOLDERS, *(path.parent.name for path in paths)}
    sure = [folder.as_posix() for folder in found if (folder.name or ".") in usual]
    return sure or [folder.as_posix() for folder in found], sure[0] if len(sure) == 1 else None


def lie_elsewhere(root: Path, paths: Sequence[Path]) -> str:
    """How photos of all these names are taken that lie in another folder under root, for messages; else empty."""
    found, _ = folders_with(root, paths)
    settings = " or ".join(assignment("dataset.images", folder) for folder in found)
    return f" Photos of all the names are in another folder, which {settings} takes." if found else ""


def photo_size(path: Path) -> tuple[int, int] | None:
    """Width and height as stored, None where there is no such file. Raises UserError for what is no photo."""
    if not is_there(path):
        return None
    info = image_info(path)
    return info.width, info.height


def is_turned(path: Path) -> bool:
    """Whether the photo's EXIF orientation swaps its width and height."""
    return is_there(path) and image_info(path).turns


def first_size(paths: Sequence[Path], where: str, root: Path) -> tuple[int, int]:
    """The size of the first photo that exists, for formats that do not state it. Raises UserError if none does.

    root: folder of the scene; where begins the message.
    """
    for path in paths:
        size = photo_size(path)
        if size is not None:
            return size
    raise UserError(
        f"{where}: none of its {len(paths)} images exists, the first is {paths[0]}. Restore the images; "
        f"their size is needed to place the cameras.{lie_elsewhere(root, paths)}"
    )


def choose_folder(root: Path, wanted: str | None) -> tuple[Path, str]:
    """The folder of photos, and in words which one and why.

    wanted: its name, else the largest of images and images_N with sides up to LONGEST_SIDE, or the smallest where
    all are larger; else OTHER_FOLDERS. Raises UserError where there is no folder with photos.
    """
    if wanted is not None:
        if not list_photos(root / wanted):
            raise UserError(
                f"{root / wanted}: no photos there, as dataset.images={wanted} asks; folders with photos: "
                f"{', '.join(_folders_with_photos(root)) or 'none'}. Name one of these."
            )
        return root / wanted, f"photos in {wanted} as asked"
    sizes = {folder: photo_size(list_photos(folder)[0]) for folder in _image_folders(root)}
    if not sizes:
        for name in OTHER_FOLDERS:
            if any(path.suffix.lower() in PHOTO_SUFFIXES for path in (root / name).glob("*")):
                return root / name, f"photos in {'its own folder' if name == '.' else name}"
        raise UserError(
            f"{root}: no photos found; looked for folders images, images_N, {', '.join(OTHER_FOLDERS[:-1])}. "
            "Put the photos that the poses belong to into a folder images."
        )
    fitting = [folder for folder in sizes if max(sizes[folder]) <= LONGEST_SIDE]
    if fitting:
        folder = max(fitting, key=lambda found: max(sizes[found]))
    else:
        folder = min(sizes, key=lambda found: max(sizes[found]))
    others = [f"{other.name} ({_by(sizes[other])})" for other in sizes if other != folder]
    choice = f", chosen for its size; dataset.images= takes {', '.join(others)}" if others else ""
    return folder, f"photos in {folder.name} ({_by(sizes[folder])}{choice})"


def match_photos(folder: Path, names: Sequence[str], originals: Path) -> tuple[list[Path], str]:
    """The photo in folder for each of the names that a reconstruction gave the photos in originals, and how.

    Copies at another size often have other names. Then those with the same numbers belong together (0002.jpg is
    2.jpg); where these differ, equal numbers of files are matched in sorted order, as LLFF does. How: words for the
    user, empty where names are the same. Raises UserError where nothing works.
    """
    paths = [find_photo(folder, name) for name in names]
    if any(is_file(path) for path in paths):
        return paths, ""
    photos = list_photos(folder)
    numbered = by_number(list(map(Path, names)), photos)
    if numbered is not None:
        return numbered, "none is named as in the reconstruction, so they are matched by their numbers"
    sources = [str(path.relative_to(originals)) for path in list_photos(originals)]
    if not set(names) <= set(sources):  # the originals are not here: the reconstruction may have used them all
        sources = sorted(names)
    if len(sources) == len(photos):
        by_name = dict(zip(sources, photos))
        how = f"none is named as in the reconstruction, so they are matched in sorted order ({sources[0]} is "
        return [by_name[name] for name in names], f"{how}{photos[0].name})"
    raise UserError(
        f"{folder}: none of the {len(names)} images of the reconstruction is there (the first is {names[0]}), and its "
        f"{len(photos)} photos are not as many. Restore the photos that were reconstructed, under their names."
    )


def by_number(names: Sequence[Path], files: Sequence[Path]) -> list[Path] | None:
    """The file with the same last number as each of the names; None unless all have one, each its own."""
    numbers, theirs = [last_number(name) for name in names], [last_number(file) for file in files]
    if None in numbers or len(set(numbers)) < len(numbers) or sorted(set(theirs) - {None}) != sorted(numbers):
        return None
    found = dict(zip(theirs, files))
    return [found[number] for number in numbers]


def last_number(path: Path) -> int | None:
    """The last number in a file's name."""
    digits = re.findall(r"\d+", path.stem)
    return int(digits[-1]) if digits else None


def _image_folders(root: Path) -> list[Path]:
    folders = sorted(path for path in root.iterdir() if path.is_dir() and IMAGES_FOLDER.fullmatch(path.name))
    return [folder for folder in folders if list_photos(folder)]


def _folders_with_photos(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.is_dir() and list_photos(path))


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"
