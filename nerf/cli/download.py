"""Fetch scenes of Synthetic-NeRF: download, verify, and unpack them where the trainer finds them.

    python data/download.py lego             into data/nerf_synthetic, or into $NERF_DATA where it is set
    python data/download.py chair ship       several
    python data/download.py all              all eight, 1.3 GB
    python data/download.py lego --source nerf_synthetic.zip        from an archive that is here already
    python data/download.py lego --source URL --sha256 HASH         from elsewhere; {scene} in URL becomes the name

mip-NeRF 360 and Tanks and Temples are not fetched, because each is one archive of many gigabytes; their names say where
they are: python data/download.py bicycle

An interrupted download is resumed when the command is run again. Licences: docs/data.md. Needs only tqdm.
"""

import argparse
import json
import os
import shutil
import stat
import sys
import urllib.parse
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from nerf.cli import signals
from nerf.cli.fetch import SPARE, Failure, discard, fetch
from nerf.config.commands import program
from nerf.files import DATA, DISK_FULL

# One archive per scene, in the layout of the authors' own archive, whose address is gone. Its host states checksums.
SOURCE = "https://huggingface.co/datasets/nerfbaselines/nerfbaselines-data/resolve/main/blender/{scene}.zip"
SCENES = ("chair", "drums", "ficus", "hotdog", "lego", "materials", "mic", "ship")
KNOWN_ARCHIVES = {
    "f01fd1b4ab045b0d453917346f26f898657bb5bec4834b95fdad1f361826e45e": "the authors' own nerf_synthetic.zip",
}


@dataclass(frozen=True)
class Elsewhere:
    """Scenes that lie in one large archive, which whoever wants them fetches."""

    title: str
    scenes: tuple[str, ...]
    address: str
    size: str
    folder: str  # of the scenes after unpacking

    def words(self, scene: str) -> str:
        """What to do to train a scene of it."""
        train = program("scripts/train.py", "dataset=capture", f"dataset.root={self.folder}/{scene}")
        return (
            f"{scene} is of {self.title}, which is not fetched here: {self.size}, {self.address}. Its "
            f"license was not verified here; ask its authors. Unpack it, then: {train}"
        )


# Addresses and contents as many public repositories use them; sizes as their instructions state them.
ELSEWHERE = (
    Elsewhere(
        "mip-NeRF 360 (Barron et al., CVPR 2022)",
        ("bicycle", "bonsai", "counter", "garden", "kitchen", "room", "stump"),
        "http://storage.googleapis.com/gresearch/refraw360/360_v2.zip",
        "one archive of seven scenes, about 12 GB",
        "360_v2",
    ),
    Elsewhere(
        "mip-NeRF 360's extra scenes (Barron et al., CVPR 2022)",
        ("flowers", "treehill"),
        "https://storage.googleapis.com/gresearch/refraw360/360_extra_scenes.zip",
        "one archive of two scenes, of some gigabytes",
        "360_extra_scenes",
    ),
    Elsewhere(
        "Tanks and Temples (Knapitsch et al., SIGGRAPH 2017), with the poses of 3D Gaussian splatting",
        ("train", "truck"),
        "https://repo-sam.inria.fr/fungraph/3d-gaussian-splatting/datasets/input/tandt_db.zip",
        "one archive with two scenes of Deep Blending, about 650 MB",
        "tandt",
    ),
)
VIEWS = {"train": 100, "val": 100, "test": 200}
UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog=Path(sys.argv[0]).name.removeprefix("-m "),
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names, others = (*SCENES, "all"), [scene for one in ELSEWHERE for scene in one.scenes]
    known = f"{', '.join(names)}; named alone: {', '.join(others)}"
    made.add_argument("scenes", nargs="+", choices=(*names, *others), metavar="SCENE", help=known)
    made.add_argument("--source", default=SOURCE, help=f"address or file of a zip archive; default {SOURCE}")
    made.add_argument("--sha256", help="checksum that the archive must have")
    return made


def command() -> int:
    arguments = parser().parse_args()
    named = [one.words(scene) for scene in arguments.scenes for one in ELSEWHERE if scene in one.scenes]
    if named:
        return _complain("\n".join(named))
    root = Path(os.environ.get("NERF_DATA") or DATA / "nerf_synthetic").expanduser()
    try:
        with signals.raised():
            scenes = SCENES if "all" in arguments.scenes else arguments.scenes
            download(scenes, root, arguments.source, arguments.sha256)
    except Failure as error:
        return _complain(str(error))
    except OSError as error:
        reason = f"{error.filename or root} cannot be made or written ({error.strerror or error})"
        return _complain(f"{reason}; set NERF_DATA to a folder that you may write.")
    except signals.Stopped as stopped:
        return _complain(f"{stopped}; the same command goes on from here.")
    return 0


def _complain(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 2


def download(scenes: tuple[str, ...], root: Path, source: str = SOURCE, sha256: str | None = None) -> None:
    """Downloads scenes to root/SCENE, each completely or not at all; existing ones are kept. Raises Failure."""
    missing = [scene for scene in dict.fromkeys(scenes) if not _is_there(root / scene)]
    parts = {scene: part(root, _address(source, scene)) for scene in missing}
    for number, scene in enumerate(missing):
        address = _address(source, scene)
        found, vouched = fetch(address, parts[scene], sha256)
        unpack(parts[scene], scene, root)
        by = KNOWN_ARCHIVES.get(found) or vouched or "no checksum is known for this source: CRCs and views were counted"
        print(f"{parts[scene].name.removesuffix('.part')}: SHA-256 {found} ({by})")
        if parts[scene] not in [parts[later] for later in missing[number + 1 :]]:
            discard(parts[scene])
        print(f"{root / scene}: {', '.join(f'{count} {split}' for split, count in VIEWS.items())} views")
        print(f"train it with: {program('scripts/train.py', 'dataset=blender', f'dataset.scene={scene}')}")


def part(root: Path, address: str) -> Path:
    """The path of the partial download of an address."""
    name = PurePosixPath(urllib.parse.urlsplit(address).path).name or "archive"
    return root / f"{name}.part"


def _address(source: str, scene: str) -> str:
    source = source.replace("{scene}", scene)
    return source if urllib.parse.urlsplit(source).scheme else Path(source).resolve().as_uri()


def _is_there(folder: Path) -> bool:
    if not folder.exists():
        return False
    problem = _incomplete(folder)
    if problem:
        raise Failure(f"{folder} is there but not whole: {problem}. Move it away, and run the command again.")
    print(f"{folder} is there already")
    return True


def unpack(archive: Path, scene: str, root: Path) -> None:
    """Unpacks one scene of an archive to root/scene, atomically.

    Raises Failure, and removes the archive, if it is damaged, lacks the scene or a view, or has files that point out
    of the folder.
    """
    for left_over in root.glob(f".{scene}.*"):  # of a process that was killed
        shutil.rmtree(left_over)
    unfinished = root / f".{scene}.{os.getpid()}"
    try:
        with zipfile.ZipFile(archive) as content:
            members = _members(content, scene)
            _check_space(sum(member.file_size for member in members.values()), root)
            for path, member in members.items():
                (unfinished / path).parent.mkdir(parents=True, exist_ok=True)
                with content.open(member) as packed, (unfinished / path).open("wb") as file:
                    shutil.copyfileobj(packed, file)  # compares the member's CRC
        problem = _incomplete(unfinished)
        if problem:
            raise ValueError(problem)
        unfinished.replace(root / scene)
    except Failure:
        raise
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise Failure(f"{root} is full ({error.strerror}); free some space. The download is kept.") from error
    except UNREADABLE as error:
        with archive.open("rb") as file:
            beginning = file.read(40)
        discard(archive)
        raise Failure(
            f"the archive is damaged or not of Synthetic-NeRF ({error}; it begins with {beginning!r}); it is removed. "
            "Run the command again, or name another source with --source."
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _members(content: zipfile.ZipFile, scene: str) -> dict[PurePosixPath, zipfile.ZipInfo]:
    """The files of a scene by their path in its folder. Raises ValueError."""
    paths = {PurePosixPath(member.filename): member for member in content.infolist() if not member.is_dir()}
    folders = [path.parent for path in paths if path.name == "transforms_train.json" and path.parent.name == scene]
    if len(folders) != 1:
        raise ValueError(f"it holds {len(folders)} folders '{scene}' with a transforms_train.json, expected one")
    members = {path.relative_to(folders[0]): m for path, m in paths.items() if path.is_relative_to(folders[0])}
    for path, member in members.items():
        if ".." in path.parts or path.is_absolute() or stat.S_ISLNK(member.external_attr >> 16):
            raise ValueError(f"its file {member.filename} points out of the scene's folder")
    return members


def _check_space(needed: int, root: Path) -> None:
    free = shutil.disk_usage(root).free
    if needed + SPARE > free:
        raise Failure(
            f"{root} has {free / 1e6:.1f} MB free, {(needed + SPARE) / 1e6:.1f} MB are needed to unpack; free some "
            "space, or set NERF_DATA to a folder on another disk. The download is kept."
        )


def _incomplete(folder: Path) -> str | None:
    """What is missing in a scene's folder compared with the published views; None if it is complete."""
    for split, count in VIEWS.items():
        path = folder / f"transforms_{split}.json"
        try:
            names = [frame["file_path"] for frame in json.loads(path.read_text())["frames"]]
        except (OSError, ValueError, TypeError, KeyError) as error:
            return f"{path.name} is missing or damaged ({error})"
        found = sum((folder / f"{name}.png").is_file() for name in names)
        if len(names) != count or found != count:
            return f"{path.name} names {len(names)} views of which {found} are there, expected {count}"
    return None
