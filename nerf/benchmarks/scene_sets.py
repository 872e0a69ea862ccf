"""The scenes that a folder holds, and the published sets that they belong to, with each set's customs."""

from dataclasses import dataclass
from pathlib import Path

from nerf.datasets.readers.formats import FORMATS
from nerf.datasets.readers.photos import list_photos
from nerf.errors import UserError

DEPTH = 3  # folders below the data folder that are looked into
OWN = "captures"  # the set of what belongs to no published one
LLFF_ROOM_PHOTOS = 100  # LLFF's room has 41 photos, that of mip-NeRF 360 has 311


@dataclass(frozen=True)
class SceneSet:
    """A published set of scenes. images: the folder of each scene's photos by the set's custom; empty: as found."""

    title: str
    scenes: tuple[str, ...]
    images: dict[str, str]


_OUTDOOR = ("bicycle", "flowers", "garden", "stump", "treehill")
_INDOOR = ("bonsai", "counter", "kitchen", "room")
_LLFF = ("fern", "flower", "fortress", "horns", "leaves", "orchids", "room", "trex")
SETS = {
    "blender": SceneSet(
        "Synthetic-NeRF", ("chair", "drums", "ficus", "hotdog", "lego", "materials", "mic", "ship"), {}
    ),
    "llff": SceneSet("LLFF", _LLFF, dict.fromkeys(_LLFF, "images_4")),
    "mipnerf360": SceneSet(
        "mip-NeRF 360",
        tuple(sorted((*_OUTDOOR, *_INDOOR))),
        dict.fromkeys(_OUTDOOR, "images_4") | dict.fromkeys(_INDOOR, "images_2"),
    ),
}


@dataclass(frozen=True)
class Scene:
    """A scene that is there."""

    set: str  # one of SETS, or OWN
    name: str
    folder: Path
    images: str | None  # the folder of its photos; None: as the reader chooses

    @property
    def key(self) -> str:
        """Unlike that of any other scene, of the letters of a file's name."""
        return f"{self.set}_{self.name}"


def find_scenes(folders: list[Path], names: list[str]) -> list[Scene]:
    """The scenes in the folders, the sets' first; of two with one name in one set the first.

    names: the wanted ones, as NAME or SET/NAME; empty: all. Raises UserError where a wanted one, or any, is missing.
    """
    found: dict[str, Scene] = {}
    for folder in folders:
        for place in _places(folder, DEPTH):
            scene = _scene(place)
            found.setdefault(scene.key, scene)
    order = [*SETS, OWN]
    scenes = sorted(found.values(), key=lambda scene: (order.index(scene.set), scene.name))
    looked = ", ".join(map(str, folders))
    if not scenes:
        raise UserError(f"{looked}: no scene in a known format; put scenes there, or give dataset.root=FOLDER.")
    chosen = []
    for name in names:
        wanted = [scene for scene in scenes if name in (scene.name, f"{scene.set}/{scene.name}")]
        if not wanted:
            known = ", ".join(f"{scene.set}/{scene.name}" for scene in scenes)
            raise UserError(f"scenes={name}: there is no such scene in {looked}; found {known}.")
        chosen += [scene for scene in wanted if scene not in chosen]
    return chosen or scenes


def _places(folder: Path, depth: int) -> list[Path]:
    """The folders of scenes, in the order of their names; what lies inside of a scene is part of it."""
    try:
        if any(form.recognize(folder) for form in FORMATS.values()):
            return [folder]
        below = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:  # a folder that may not be read holds nothing for us
        return []
    return [place for path in below for place in _places(path, depth - 1)] if depth else []


def _scene(folder: Path) -> Scene:
    name, above = folder.name, folder.parent.name.lower()
    kind = OWN
    if FORMATS["blender"].recognize(folder):
        kind = "blender" if name in SETS["blender"].scenes else OWN
    else:
        sets = [one for one in ("llff", "mipnerf360") if name in SETS[one].scenes]
        if len(sets) == 2:
            named = [one for one, mark in (("llff", "llff"), ("mipnerf360", "360")) if mark in above]
            many = len(list_photos(folder / "images")) > LLFF_ROOM_PHOTOS
            sets = named or (["mipnerf360"] if many else ["llff"])
        kind = sets[0] if sets else OWN
    images = SETS[kind].images.get(name) if kind in SETS else None
    return Scene(kind, name, folder, images if images and (folder / images).is_dir() else None)
