"""Converts photos and videos to images that the trainer and COLMAP read: upright JPEG and PNG in one folder.

Files that both can read are copied unchanged. A file gets its name only when it is complete and on the disk.
"""

import io
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps  # before pycolmap: after it, saving a PNG can end the process
from tqdm import tqdm

from nerf.datasets.decoding import in_eight_bits, scale_transparency
from nerf.datasets.readers.photos import is_mask_beside
from nerf.errors import UserError
from nerf.files import partial_file

HEIC = (".heic", ".heif")
PHOTOS = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", *HEIC)
AS_JPEG = ("JPEG", "MPO", "HEIF", "WEBP")  # Pillow's formats that are stored as JPEG; the others are without loss
KEPT = {"JPEG": (".jpg", ".jpeg"), "MPO": (".jpg", ".jpeg"), "PNG": (".png",)}  # copied, if their names say so
QUALITY = {"JPEG": {"quality": 97, "subsampling": 0}, "PNG": {}}
ORIENTATION = 0x0112  # EXIF tag: how a viewer has to turn the picture; 1 = not at all
XMP_WITHIN = 1 << 18  # bytes from a file's beginning; behind EXIF and its thumbnail, which have 64 KiB each
NO_PICTURES = "matches no streams"  # what ffmpeg says of a file of sound alone
SHARPNESS_WIDTH = 480  # pixels to which a frame is thinned before its sharpness is judged


def find_photos(folder: Path) -> list[Path]:
    """The photos that lie in a folder, by name. Raises UserError where there are none."""
    if not folder.exists():
        raise UserError(f"{folder}: no such folder or file, expected a folder of photos or a video.")
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    pictures = [path for path in files if path.suffix.lower() in PHOTOS]
    known = {path.with_suffix("") for path in pictures}
    photos = [path for path in pictures if not is_mask_beside(path, known)]
    others = Counter(path.suffix.lower() or "no suffix" for path in files if path not in set(pictures))
    others.update("masks of photos" for path in pictures if path not in set(photos))
    listed = ", ".join(f"{count} {suffix}" for suffix, count in sorted(others.items()))
    if not photos:
        inside = sorted({path.parent.name for path in folder.glob("*/*") if path.suffix.lower() in PHOTOS})
        hint = f"; its folders {', '.join(inside[:5])} hold some: name one of them" if inside else ""
        raise UserError(
            f"{folder} holds no photos (found: {listed or 'nothing'}), expected files ending in "
            f"{', '.join(PHOTOS)}{hint or '; name a folder that does, or a video file'}."
        )
    if others:
        print(f"{folder}: {len(photos)} photos; left alone: {listed}")
    return photos


def refuse_panoramas(photos: list[Path]) -> None:
    """Raises UserError naming photos that say of themselves that they are panoramas, which COLMAP has no model for.

    They say so in XMP: GPano:ProjectionType, equirectangular (Google, "Photo Sphere XMP Metadata").
    """
    found = [photo.name for photo in photos if _is_panorama(photo)]
    if found:
        named = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
        raise UserError(
            f"{len(found)} of {len(photos)} photos are panoramas: {named}. COLMAP would take them for perspective "
            "photos. Cut perspective views out of them and prepare those, or write transforms.json with poses and "
            "camera_model EQUIRECTANGULAR (docs/data.md), which needs no preparation."
        )


def _is_panorama(photo: Path) -> bool:
    with photo.open("rb") as file:
        head = file.read(XMP_WITHIN)
    at = head.find(b"GPano:ProjectionType")
    return at >= 0 and b"equirectangular" in head[at : at + 64]


def store_photos(photos: list[Path], folder: Path, size: int | None, threads: int, skip_damaged: bool) -> None:
    """Stores photos upright in folder, those that are not there yet. Raises UserError naming those that do not decode.

    size: pixels to which the longer side shrinks, None = as it is. skip_damaged: goes on without the damaged ones.
    """
    _open_heic(photos)
    folder.mkdir(exist_ok=True)
    stems = Counter(photo.stem.lower() for photo in photos)

    def store(photo: Path) -> str | None:
        try:
            # IMG_1.HEIC beside IMG_1.JPG: both keep their whole name
            _store(photo, folder, photo.name if stems[photo.stem.lower()] > 1 else photo.stem, size)
        except Image.DecompressionBombError as error:
            return f"{photo.name} ({error})"
        except (OSError, SyntaxError, ValueError) as error:
            if getattr(error, "errno", None):  # of the disk, not of the picture
                raise
            return f"{photo.name} ({error})"
        return None

    pool = ThreadPoolExecutor(threads)
    try:
        found = tqdm(pool.map(store, photos), total=len(photos), desc="photos", unit="")
        damaged = [problem for problem in found if problem]
    finally:
        pool.shutdown(cancel_futures=True)  # on Ctrl-C, those begun are finished, no others are begun
    if damaged:
        named = "; ".join(damaged[:10]) + (f"; and {len(damaged) - 10} more" if len(damaged) > 10 else "")
        if not skip_damaged:
            raise UserError(
                f"{len(damaged)} of {len(photos)} photos cannot be decoded: {named}. Copy them again from the camera, "
                "remove them, or add --skip-damaged to go on without them."
            )
        print(f"left out, as they cannot be decoded: {named}")


def _open_heic(photos: list[Path]) -> None:
    if not any(photo.suffix.lower() in HEIC for photo in photos):
        return
    try:
        from pillow_heif import register_heif_opener  # optional
    except ImportError as error:
        raise UserError(
            "these photos are HEIC, which needs an optional package; run: pip install pillow-heif, or let the phone "
            "export JPEG."
        ) from error
    register_heif_opener()


def _store(photo: Path, folder: Path, name: str, size: int | None) -> None:
    with Image.open(photo) as image:
        shrinks = size is not None and max(image.size) > size
        upright = image.getexif().get(ORIENTATION, 1) == 1
        kind = "JPEG" if image.format in AS_JPEG and not image.has_transparency_data else "PNG"
        kept = upright and not shrinks and photo.suffix.lower() in KEPT.get(image.format, ())
        suffix = photo.suffix if kept else ".jpg" if kind == "JPEG" else ".png"
        target = folder / f"{name if name.lower().endswith(suffix.lower()) else name + suffix}"
        if target.exists():
            return
        image.load()  # all of it: a file that broke off shows here
        if image.format == "PNG":
            with photo.open("rb") as file:
                scale_transparency(image, file.read(26))
        content = io.BytesIO()
        if not kept:
            exif = image.getexif()  # keeps the focal length, from which the camera is guessed
            turned = ImageOps.exif_transpose(image)
            if turned.has_transparency_data:
                turned = in_eight_bits(turned).convert("RGBA")
            if shrinks:
                turned = _shrunk(turned, size)
            exif.pop(ORIENTATION, None)
            modes = ("RGB", "L") if kind == "JPEG" else ("RGB", "L", "RGBA", "I;16", "I")
            turned = turned if turned.mode in modes else turned.convert("RGB")
            turned.save(content, kind, exif=exif, **QUALITY[kind])
        write_file(target, photo.read_bytes() if kept else content.getvalue())


def write_file(target: Path, content: bytes) -> None:
    """Writes a file whole. Raises OSError, which names it."""
    try:
        with partial_file(target) as file:
            file.write(content)
    except OSError as error:
        error.filename = str(target)
        raise


def _shrunk(image: Image.Image, size: int) -> Image.Image:
    """The image with its longer side at size pixels; each pixel the area average of what it covers."""
    factor = size / max(image.size)
    image = image if image.mode in ("RGB", "L", "RGBA", "I;16") else image.convert("RGB")
    return image.resize(tuple(max(1, round(factor * side)) for side in image.size), Image.Resampling.BOX)


def extract_frames(video: Path, folder: Path, count: int, size: int | None) -> None:
    """Stores the sharpest frame of each of count equal pieces of a video. Raises UserError where it has no frames.

    Fewer frames than count are all taken. Sharpness is the variance of the Laplacian of the brightness.
    """
    import imageio_ffmpeg

    unreadable = f"{video} cannot be read as a video (%s), expected a file that ffmpeg decodes; copy or convert it"
    try:
        total, seconds = imageio_ffmpeg.count_frames_and_secs(str(video.absolute()))
    except (RuntimeError, OSError) as error:
        if NO_PICTURES not in str(error):
            raise UserError(f"{unreadable % _last_line(error)}.") from error
        total = 0
    if total == 0:
        raise UserError(f"{video} has no frames, expected a video of a scene; record it again.")
    folder.mkdir()
    pieces = min(count, total)
    try:
        with tqdm(total=total, desc="frames", unit="") as bar:
            best, sharpest, piece = None, -1.0, 0
            for index, frame in enumerate(_frames(video)):
                bar.update()
                if index * pieces // total > piece:
                    _save_frame(best, folder, piece, size)
                    best, sharpest, piece = None, -1.0, index * pieces // total
                sharpness = _sharpness(frame)
                if sharpness > sharpest:
                    best, sharpest = frame, sharpness
            if best is not None:
                _save_frame(best, folder, piece, size)
    except RuntimeError as error:
        raise UserError(f"{unreadable % _last_line(error)}.") from error
    print(f"{len(list(folder.iterdir()))} frames of {total} in {seconds:.1f} s, the sharpest of each piece")


def _frames(video: Path) -> Iterator[np.ndarray]:
    """Frames [H,W,3] uint8, upright."""
    import imageio_ffmpeg

    reader = imageio_ffmpeg.read_frames(str(video.absolute()))
    try:
        width, height = next(reader)["size"]
        for data in reader:
            yield np.frombuffer(data, np.uint8).reshape(height, width, 3)
    finally:
        reader.close()


def _sharpness(frame: np.ndarray) -> float:
    step = max(1, frame.shape[1] // SHARPNESS_WIDTH)
    gray = frame[::step, ::step].astype(np.float32).mean(-1)
    laplacian = gray[:-2, 1:-1] + gray[2:, 1:-1] + gray[1:-1, :-2] + gray[1:-1, 2:] - 4 * gray[1:-1, 1:-1]
    return float(laplacian.var()) if laplacian.size else 0.0


def _save_frame(frame: np.ndarray, folder: Path, index: int, size: int | None) -> None:
    image = Image.fromarray(frame)
    if size is not None and max(image.size) > size:
        image = _shrunk(image, size)
    content = io.BytesIO()
    image.save(content, "JPEG", **QUALITY["JPEG"])
    write_file(folder / f"frame_{index:05d}.jpg", content.getvalue())


def _last_line(error: Exception) -> str:
    """The last line of ffmpeg's output, which has the reason."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and "===" not in line]
    return lines[-1] if lines else type(error).__name__
