"""Photos or a video to a scene: what is stored, and what is refused in words.

Structure from motion needs pycolmap, which is optional; everything before it is tested without.
"""

import subprocess
import sys
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
import warm_python
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from script_runs import ROOT, TIMEOUT

from nerf import files
from nerf.cli import prepare_photos, prepare_poses
from nerf.cli.prepare_photos import find_photos
from nerf.cli.prepared_folder import Prepared

SCRIPT = ROOT / "data" / "prepare.py"
# What stands for pycolmap where only what comes before it is tested.
STAND_IN = "import sys, types; sys.modules['pycolmap'] = types.ModuleType('pycolmap')"
ABSENT = "import sys; sys.modules['pycolmap'] = None"


def command(*arguments: object, first: str = "import sys") -> list[str]:
    program = (
        f"{first}; sys.argv[0] = {str(SCRIPT)!r}; sys.path.insert(0, {str(ROOT)!r}); "
        "from nerf.cli.main import command; sys.exit(command('prepare'))"
    )
    return [sys.executable, "-c", program, *map(str, arguments)]


def run(*arguments: object, first: str = "import sys") -> subprocess.CompletedProcess:
    """The command in a process of its own."""
    return warm_python.run(
        command(*arguments, first=first), capture_output=True, text=True, timeout=TIMEOUT, check=False
    )


def fail(*arguments: object, first: str = STAND_IN) -> str:
    """The one sentence with which the command refuses."""
    found = run(*arguments, first=first)
    assert found.returncode == 2, found.stderr
    assert "Traceback" not in found.stderr and found.stderr.count("error: ") == 1
    return found.stderr[found.stderr.index("error: ") :]


def picture(seed: int, width: int = 64, height: int = 48) -> Image.Image:
    dice = np.random.default_rng(seed)
    return Image.fromarray(dice.integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "meine Fotos ä"
    folder.mkdir()
    for index in range(4):
        picture(index).save(folder / f"Bild {index} ß.jpg", quality=95)
    return folder


@pytest.fixture
def modules() -> object:
    """The module that stores photos."""
    return prepare_photos


def stored(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Refusals


def test_without_pycolmap(photos: Path, tmp_path: Path) -> None:
    message = fail(photos, tmp_path / "out", first=ABSENT)
    assert "pycolmap, which cannot be imported here" in message and "pip install" in message
    assert not (tmp_path / "out").exists()


def test_masks_beside_photos_are_no_photos(photos: Path, capsys: pytest.CaptureFixture) -> None:
    found = find_photos(photos)
    Image.new("L", (8, 8)).save(found[0].with_name(f"{found[0].stem}_mask.png"))
    assert find_photos(photos) == found and "1 masks of photos" in capsys.readouterr().out


def test_no_photos(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    (empty / "DCIM").mkdir(parents=True)
    message = fail(empty, tmp_path / "out")
    assert f"{empty} holds no photos (found: nothing)" in message and "or a video file" in message
    (empty / "notes.txt").touch()
    picture(0).save(empty / "DCIM" / "a.jpg")
    message = fail(empty, tmp_path / "out")
    assert "found: 1 .txt" in message and "its folders DCIM hold some" in message
    assert "no such folder or file" in fail(tmp_path / "nowhere", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_two_photos_are_too_few(photos: Path, tmp_path: Path) -> None:
    for path in sorted(photos.iterdir())[2:]:
        path.unlink()
    assert "holds 2 photos, expected at least 3" in fail(photos, tmp_path / "out")


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
def test_panoramas_are_refused_before_anything_is_written(photos: Path, tmp_path: Path, suffix: str) -> None:
    """COLMAP would look for a perspective lens that they do not have."""
    xmp = '<x:xmpmeta><rdf:Description GPano:ProjectionType="equirectangular"/></x:xmpmeta>'
    if suffix == ".jpg":
        picture(7, 64, 32).save(photos / "round.jpg", xmp=xmp.encode())
    else:
        info = PngInfo()
        info.add_itxt("XML:com.adobe.xmp", xmp)
        picture(7, 64, 32).save(photos / "round.png", pnginfo=info)
    message = fail(photos, tmp_path / "out")
    assert f"photos are panoramas: round{suffix}. COLMAP" in message and "EQUIRECTANGULAR" in message
    assert not (tmp_path / "out").exists()
    (photos / f"round{suffix}").write_bytes((photos / f"round{suffix}").read_bytes().replace(b"equirect", b"cylindri"))
    prepare_photos.refuse_panoramas(sorted(photos.iterdir()))


def test_a_photo_that_does_not_decode_is_named(photos: Path, tmp_path: Path) -> None:
    whole = photos / "Bild 1 ß.jpg"
    whole.write_bytes(whole.read_bytes()[:900])
    (photos / "text.png").write_text("not a picture")
    message = fail(photos, tmp_path / "out")
    assert "2 of 5 photos cannot be decoded: Bild 1 ß.jpg (" in message and "text.png (" in message
    assert "--skip-damaged" in message
    assert stored(tmp_path / "out" / "images.part") == ["Bild 0 ß.jpg", "Bild 2 ß.jpg", "Bild 3 ß.jpg"]


def test_heic_without_its_package(photos: Path, tmp_path: Path) -> None:
    (photos / "IMG_1.HEIC").write_bytes(b"heic")
    first = f"{STAND_IN}; sys.modules['pillow_heif'] = None"
    assert "pip install pillow-heif" in fail(photos, tmp_path / "out", first=first)


def test_a_folder_that_is_not_ours_is_left_alone(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "images").mkdir(parents=True)
    (tmp_path / "out" / "images" / "mine.jpg").write_text("mine")
    for again in ((), ("--again",)):
        assert "was not made by this command" in fail(photos, tmp_path / "out", *again)
    assert (tmp_path / "out" / "images" / "mine.jpg").read_text() == "mine"
    assert "was not made by this command" in fail(photos, photos)
    assert len(stored(photos)) == 4


def test_a_folder_of_a_call_that_was_killed_before_its_first_note_is_used(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "colmap").mkdir(parents=True)
    (out / "colmap" / "lock").touch()
    (out / "colmap" / ".prepare.123-0123abcd.partial.json").write_text("{")
    with Prepared(out, {"photos": "here"}, again=False):
        assert sorted(path.name for path in (out / "colmap").iterdir()) == ["lock", "prepare.json"]


def test_a_folder_that_cannot_be_written(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = fail(photos, tmp_path / "file" / "out")
    assert "cannot be read or written (Not a directory)" in message and "name a folder OUT" in message


def test_a_full_disk(photos: Path, tmp_path: Path) -> None:
    first = f"{STAND_IN}; import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))"
    message = fail(photos, tmp_path / "out", first=first)
    assert "cannot be written (File too large); free some space and run the command again, which goes on" in message


def test_other_photos_or_settings_are_not_mixed_in(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (photos / "broken.jpg").touch()
    fail(photos, out)  # breaks off after it has begun
    assert "was made with another size; name a new folder OUT, or add --again" in fail(photos, out, "--size", 32)
    (photos / "broken.jpg").unlink()
    assert "was made with another inputs" in fail(photos, out)
    (out / "colmap" / "prepare.json").write_text("{")
    assert "prepare.json is damaged" in fail(photos, out)
    picture(9).save(photos / "broken.png")
    (photos / "broken.png").write_bytes(b"")
    assert "broken.png" in fail(photos, out, "--again", "--size", 32)
    assert Image.open(out / "images.part" / "Bild 0 ß.jpg").size == (32, 24)


@pytest.mark.parametrize("content", [b"", b"not a video"])
def test_a_video_that_cannot_be_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "my video.mp4").write_bytes(content)
    message = fail(tmp_path / "my video.mp4", tmp_path / "out")
    assert "my video.mp4 cannot be read as a video (" in message and "copy or convert it" in message
    assert "=== stderr" not in message


def test_a_video_without_frames(tmp_path: Path) -> None:
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "error", "-f", "lavfi", "-i", "sine=duration=1"]
    subprocess.run([*ffmpeg, str(tmp_path / "sound.mp4")], check=True)
    assert "sound.mp4 has no frames" in fail(tmp_path / "sound.mp4", tmp_path / "out")


# What is stored


def test_photos_that_can_stay_are_copied_byte_by_byte(modules: object, photos: Path, tmp_path: Path) -> None:
    Image.fromarray(np.arange(64 * 48, dtype=np.uint16).reshape(48, 64)).save(photos / "deep.png")
    found = modules.find_photos(photos)
    modules.store_photos(found, tmp_path / "images", None, 2, False)
    assert stored(tmp_path / "images") == [path.name for path in found]
    assert all((tmp_path / "images" / path.name).read_bytes() == path.read_bytes() for path in found)


def test_photos_are_on_the_disk_before_they_have_their_names(
    modules: object, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a loss of power leaves half photos, which no later call looks at again."""
    flushed, flush = [], files._flush

    def recorded(path: Path, flags: int) -> None:
        flushed.append(path.name if path.is_dir() else ("photo", path.stat().st_size, stored(path.parent)))
        flush(path, flags)

    monkeypatch.setattr(files, "_flush", recorded)
    modules.store_photos(modules.find_photos(photos)[:2], tmp_path / "images", 32, 1, False)
    sizes = [(tmp_path / "images" / name).stat().st_size for name in ("Bild 0 ß.jpg", "Bild 1 ß.jpg")]
    assert [x if isinstance(x, str) else x[1] for x in flushed] == [sizes[0], "images", sizes[1], "images"]
    assert "Bild 0 ß.jpg" not in flushed[0][2] and "Bild 0 ß.jpg" in flushed[2][2]


@pytest.mark.parametrize(("orientation", "turn"), [(3, 2), (6, 3), (8, 1)])
def test_photos_are_stored_upright(modules: object, tmp_path: Path, orientation: int, turn: int) -> None:
    smooth = np.linspace(0, 255, 48 * 64 * 3).reshape(48, 64, 3).astype(np.uint8)
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = orientation, "a camera"
    (tmp_path / "in").mkdir()
    Image.fromarray(smooth).save(tmp_path / "in" / "a.jpg", exif=exif, quality=98)
    modules.store_photos([tmp_path / "in" / "a.jpg"], tmp_path / "images", None, 1, False)
    with Image.open(tmp_path / "images" / "a.jpg") as image:
        assert image.getexif().get(0x0112, 1) == 1 and image.getexif()[0x010F] == "a camera"
        upright = np.rot90(smooth, turn).astype(int)
        assert np.abs(np.asarray(image).astype(int) - upright).mean() < 4


def test_photos_shrink_by_area_averages(modules: object, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "in" / "a.png")
    picture(1, 20, 10).save(tmp_path / "in" / "small.png")
    modules.store_photos(modules.find_photos(tmp_path / "in"), tmp_path / "images", 32, 1, False)
    means = pixels.reshape(24, 2, 32, 2, 3).mean((1, 3))
    assert np.abs(np.asarray(Image.open(tmp_path / "images" / "a.png")) - means).max() <= 1
    assert Image.open(tmp_path / "images" / "small.png").size == (20, 10)


def test_other_formats_become_jpeg_or_png_and_no_name_is_lost(modules: object, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.jpg", "a.webp", "b.tiff", "c.bmp", "d.JPG"):
        picture(1).save(tmp_path / "in" / name)
    picture(1).convert("CMYK").save(tmp_path / "in" / "e.tif")
    modules.store_photos(modules.find_photos(tmp_path / "in"), tmp_path / "images", None, 2, False)
    assert stored(tmp_path / "images") == ["a.jpg", "a.webp.jpg", "b.png", "c.png", "d.JPG", "e.png"]
    assert np.array_equal(np.asarray(Image.open(tmp_path / "images" / "b.png")), np.asarray(picture(1)))


def test_heic_photos(modules: object, tmp_path: Path) -> None:
    heif = pytest.importorskip("pillow_heif")
    (tmp_path / "in").mkdir()
    smooth = Image.fromarray(np.linspace(0, 255, 48 * 64 * 3).reshape(48, 64, 3).astype(np.uint8))
    heif.from_pillow(smooth).save(tmp_path / "in" / "IMG_1.HEIC", quality=95)
    modules.store_photos(modules.find_photos(tmp_path / "in"), tmp_path / "images", None, 1, False)
    found = np.asarray(Image.open(tmp_path / "images" / "IMG_1.jpg")).astype(int)
    assert np.abs(found - np.asarray(smooth)).mean() < 4


def test_what_is_stored_is_not_stored_again(modules: object, photos: Path, tmp_path: Path) -> None:
    found = modules.find_photos(photos)
    modules.store_photos(found[:2], tmp_path / "images", None, 1, False)
    (tmp_path / "images" / found[0].name).write_text("as it was")
    modules.store_photos(found, tmp_path / "images", None, 1, False)
    assert (tmp_path / "images" / found[0].name).read_text() == "as it was"
    assert len(stored(tmp_path / "images")) == 4


def test_photos_of_one_size_and_lens_share_a_camera(modules: object, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, size, focal in (("a", (64, 48), 26), ("b", (64, 48), 26), ("tall", (48, 64), 26), ("tele", (64, 48), 77)):
        exif = Image.Exif()
        exif[0x0110], exif.get_ifd(0x8769)[0xA405] = "Téléphone 7", focal
        picture(1, *size).save(tmp_path / "in" / f"{name}.jpg", exif=exif)
    modules.store_photos(modules.find_photos(tmp_path / "in"), tmp_path / "images", 32, 1, False)  # EXIF stays
    groups = prepare_poses.lenses(tmp_path / "images", stored(tmp_path / "images"))
    assert groups == [["a.jpg", "b.jpg"], ["tall.jpg"], ["tele.jpg"]]


def write_video(path: Path, frames: list[np.ndarray]) -> None:
    height, width = frames[0].shape[:2]
    writer = imageio_ffmpeg.write_frames(str(path), (width, height), fps=10, quality=9, macro_block_size=2)
    writer.send(None)
    for frame in frames:
        writer.send(np.ascontiguousarray(frame))
    writer.close()


def test_the_sharpest_frame_of_each_piece_is_taken(modules: object, tmp_path: Path) -> None:
    """Twelve frames in four pieces; the third of each is sharp, the others are blurred. Brightness says which it is."""
    frames = []
    for index in range(12):
        stripes = np.zeros((64, 96, 3), np.uint8)
        stripes[:, ::8], stripes[:, 1::8] = 90, 90
        image = Image.fromarray(stripes)
        if index % 3 != 2:
            image = image.resize((12, 8), Image.Resampling.BOX).resize((96, 64), Image.Resampling.BICUBIC)
        frames.append(np.asarray(image) + np.uint8(10 * index))
    write_video(tmp_path / "v.mp4", frames)
    modules.extract_frames(tmp_path / "v.mp4", tmp_path / "images", 4, None)
    assert stored(tmp_path / "images") == [f"frame_{index:05d}.jpg" for index in range(4)]
    brightness = [np.asarray(Image.open(path)).mean() for path in sorted((tmp_path / "images").iterdir())]
    assert np.abs(np.array(brightness) - 90 / 4 - [20, 50, 80, 110]).max() < 4
    modules.extract_frames(tmp_path / "v.mp4", tmp_path / "all", 100, 48)
    assert len(stored(tmp_path / "all")) == 12
    assert Image.open(tmp_path / "all" / "frame_00003.jpg").size == (48, 32)


def test_too_few_registered_photos(photos: Path, tmp_path: Path) -> None:
    """Pictures of nothing in common."""
    pytest.importorskip("pycolmap", reason="pycolmap is not installed: pip install pycolmap")
    found = run(photos, tmp_path / "out", "--threads", 1)
    assert found.returncode == 2 and "Traceback" not in found.stderr
    assert "0 of 4 photos could be registered: too few for a scene. What helps: take more photos" in found.stderr
    assert "--camera each" in found.stderr and not (tmp_path / "out" / "sparse").exists()
