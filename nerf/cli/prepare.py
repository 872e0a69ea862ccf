"""Poses for photos or a video, by structure from motion (COLMAP): OUT is then a scene that the trainer opens.

    python data/prepare.py PHOTOS OUT            a folder of photos: JPEG, PNG, WebP, HEIC, TIFF
    python data/prepare.py VIDEO.mp4 OUT         its sharpest frames, evenly spread
    python data/prepare.py PHOTOS OUT --size 1600        photos shrink to that many pixels on their longer side

OUT/images and OUT/sparse/0 are in COLMAP's layout, OUT/colmap keeps the features and matches. Photos are stored
upright; those of one size and lens share one camera, portrait and landscape have one each (--camera each: every photo
has its own, for zoom lenses). Photos are matched each with each, video frames with those near in time (--match). What
broke off goes on when the command is run again. Needs the optional packages: pip install 'nerf-voxel[capture]'.
"""

import argparse
import os
import shutil
import sys
from pathlib import Path

from nerf.cli import prepare_photos, prepare_poses, signals
from nerf.cli.prepared_folder import Prepared
from nerf.config.commands import program
from nerf.errors import UserError
from nerf.files import DISK_FULL, flush_folder

FEW = 0.8  # fraction of the photos; with fewer registered, the summary adds advice
TOO_FEW = 0.25  # with fewer, there is no scene
MIN_PHOTOS = 3  # structure from motion needs two to begin with and one to check them
MAX_EXHAUSTIVE = 300  # photos; pairs grow with their square: 44,850 here, about an hour on 16 cores


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog=Path(sys.argv[0]).name.removeprefix("-m "),
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("source", type=Path, metavar="PHOTOS_OR_VIDEO", help="a folder of photos, or a video file")
    made.add_argument("out", type=Path, metavar="OUT", help="folder of the scene; made if it is not there")
    made.add_argument("--size", type=_positive, help="longer side in pixels to which photos shrink; default: as is")
    made.add_argument("--frames", type=_positive, default=150, help="frames to take of a video; default 150")
    made.add_argument(
        "--camera", choices=("shared", "each"), default="shared", help="one camera for a size and lens, or for a photo"
    )
    made.add_argument(
        "--match", choices=("auto", "exhaustive", "sequential"), default="auto", help="which photos are compared"
    )
    made.add_argument("--threads", type=_positive, default=os.cpu_count(), help="default: one for each core")
    made.add_argument("--skip-damaged", action="store_true", help="go on without photos that do not decode")
    made.add_argument("--again", action="store_true", help="throw away what an earlier call made in OUT")
    return made


def command() -> int:
    arguments = parser().parse_args()
    try:
        with signals.raised():
            prepare(arguments)
    except UserError as error:
        return _complain(str(error), 2)
    except OSError as error:
        return _complain(_disk(error, arguments.out), 2)
    except signals.Stopped as stopped:
        return _complain(f"{stopped}; the same command goes on from here.", stopped.exit_status)
    return 0


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def _complain(message: str, status: int) -> int:
    print(f"\nerror: {message}", file=sys.stderr)
    return status


def _disk(error: OSError, out: Path) -> str:
    place, reason = error.filename or out, error.strerror or error
    if error.errno in DISK_FULL:
        return f"{place} cannot be written ({reason}); free some space and run the command again, which goes on."
    return f"{place} cannot be read or written ({reason}); name a folder OUT that you may write."


def prepare(arguments: argparse.Namespace) -> None:
    """Photos or a video to OUT, whole; says how well it went. Raises UserError, OSError."""
    pycolmap = prepare_poses.load_pycolmap()  # first: nothing is copied for a machine that cannot go on
    is_video = arguments.source.is_file()
    photos = [] if is_video else prepare_photos.find_photos(arguments.source)
    if not is_video and len(photos) < MIN_PHOTOS:
        raise UserError(
            f"{arguments.source} holds {len(photos)} photos, expected at least {MIN_PHOTOS}, better 30 and more; add "
            "photos of the same scene from other places."
        )
    prepare_photos.refuse_panoramas(photos)
    with Prepared(arguments.out, _asked(arguments, photos), arguments.again) as prepared:
        images = arguments.out / "images"
        if not images.is_dir():
            part = arguments.out / "images.part"
            if is_video:
                shutil.rmtree(part, ignore_errors=True)
                prepare_photos.extract_frames(arguments.source, part, arguments.frames, arguments.size)
            else:
                prepare_photos.store_photos(photos, part, arguments.size, arguments.threads, arguments.skip_damaged)
            part.replace(images)
            flush_folder(arguments.out)
        names = sorted(path.name for path in images.iterdir())
        if len(names) < MIN_PHOTOS:
            raise UserError(f"{images} has {len(names)} images, expected at least {MIN_PHOTOS}; add photos or frames.")
        how = _how_to_match(arguments.match, is_video, len(names))
        found = prepared.result(how)
        if found is None:
            run = prepare_poses.Run(pycolmap, images, arguments.out / "colmap", names, arguments.threads)
            run.extract(arguments.camera == "each")
            run.match(how)
            found = run.solve(arguments.out / "sparse", max(MIN_PHOTOS, TOO_FEW * len(names)))
            if isinstance(found, prepare_poses.TooFew):
                raise UserError(f"{_registered(found)}: too few for a scene. {_remedies(how, arguments, is_video)}")
            prepared.finish(how, found)
        else:
            print(f"{arguments.out} is there already, made of the same photos")
    _report(found, how, arguments, is_video)


def _asked(arguments: argparse.Namespace, photos: list[Path]) -> dict:
    """What decides about images and features: a folder OUT that was made for something else is not gone on with."""
    inputs = photos or [arguments.source]
    return {
        "source": str(arguments.source.resolve()),
        "inputs": [[path.name, path.stat().st_size] for path in inputs],
        "size": arguments.size,
        "frames": None if photos else arguments.frames,
        "camera": arguments.camera,
    }


def _how_to_match(asked: str, is_video: bool, count: int) -> str:
    if asked == "auto":
        asked = "sequential" if is_video or count > MAX_EXHAUSTIVE else "exhaustive"
    if asked == "sequential":
        kind = "video frames" if is_video else "photos in the order of their names"
        print(f"{count} {kind}: each is matched with those near it (--match sequential)")
    else:
        print(f"{count} images, {count * (count - 1) // 2} pairs: each is matched with each (--match exhaustive)")
    return asked


def _registered(found: prepare_poses.Found | prepare_poses.TooFew) -> str:
    return f"{len(found.registered)} of {len(found.registered) + len(found.missing)} photos could be registered"


def _remedies(how: str, arguments: argparse.Namespace, is_video: bool) -> str:
    """What to do when few photos registered."""
    remedies = ["take more photos, each sharing two thirds of what it shows with its neighbors"]
    remedies.append("walk around the scene instead of turning on the spot")
    remedies.append("leave out blurred ones; glass, mirrors and bare walls give nothing to match")
    if how == "sequential":
        remedies.append("or try --match exhaustive")
    if is_video:
        remedies.append(f"or take more frames, --frames {2 * arguments.frames} with --again")
    elif arguments.camera == "shared":
        remedies.append("or, with a zoom lens, try --camera each with --again")
    return f"What helps: {'; '.join(remedies)}."


def _report(found: prepare_poses.Found, how: str, arguments: argparse.Namespace, is_video: bool) -> None:
    total = len(found.registered) + len(found.missing)
    print(
        f"{_registered(found)}, with a mean reprojection error of {found.reprojection_error:.2f} pixels over "
        f"{found.num_points} points; {found.cameras}"
    )
    if found.missing:
        more = f" and {len(found.missing) - 10} more" if len(found.missing) > 10 else ""
        shown = ", ".join(found.missing[:10]) + more
        print(f"not registered, so not part of the scene: {shown}")
    if len(found.registered) < FEW * total:
        print(f"warning: that is few. {_remedies(how, arguments, is_video)}", file=sys.stderr)
    if found.reprojection_error > 2:
        print(
            "warning: a reprojection error over 2 pixels makes a blurred scene; something moved between the photos, or "
            "they come from different lenses (--camera each with --again).",
            file=sys.stderr,
        )
    train = ("scripts/train.py", "dataset=capture", f"dataset.root={arguments.out}")
    print(f"look at it with:  {program(*train, 'dry_run=true')}")
    print(f"train it with:    {program(*train)}")
