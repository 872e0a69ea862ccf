"""From a capture to posed images: which photos, at which size, turned how, and their pixels to the last bit."""

import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from fixtures import look_at_origin, random_images
from PIL import Image

from nerf.datasets.capture import Capture, Frame
from nerf.datasets.decoding import image_info, read_mask, read_pixels
from nerf.datasets.photos import load_photos, split_frames
from nerf.errors import UserError

ORIENTATION = 0x0112  # of EXIF
TURNED_RIGHT = 6  # is shown turned by a quarter clockwise


def frame(image: Path, width: int = 6, height: int = 4, azimuth: float = 0.3, **more: object) -> Frame:
    """A frame for an image of that size, the focal length and the middle of its own on each axis."""
    pose = look_at_origin(azimuth, 0.4)[:3]
    return Frame(image, pose, width, height, (5.0, 5.5, 0.4 * width, 0.6 * height), **more)


def capture(folder: Path, count: int = 3, size: tuple[int, int] = (6, 4), channels: int = 3) -> Capture:
    """Photos of random pixels, PNG, in the order of their names."""
    width, height = size
    frames = []
    for index, pixels in enumerate(random_images(count, height, width, channels)):
        path = folder / f"photo_{index:02d}.png"
        Image.fromarray(pixels).save(path)
        frames.append(frame(path, width, height, azimuth=0.1 * index))
    return Capture("test", folder, frames)


def of(folder: Path, *frames: Frame) -> Capture:
    return Capture("test", folder, list(frames))


def everything(found: Capture, **options: object) -> object:
    """All photos of a capture, as training views."""
    return load_photos(found, "train", **{"test_every": 0, **options})


def complaint(found: Capture, split: str = "train", **options: object) -> str:
    with pytest.raises(UserError) as caught:
        load_photos(found, split, **options)
    return str(caught.value)


# Pixels and cameras


@pytest.mark.parametrize("channels", [3, 4])
def test_pixels_names_and_cameras_are_those_stored(tmp_path: Path, channels: int) -> None:
    found = capture(tmp_path, channels=channels)
    posed = everything(found, masks="auto" if channels == 3 else "object")
    assert np.array_equal(posed.pixels.numpy(), random_images(3, 4, 6, channels).reshape(-1, channels))
    assert posed.names == ["photo_00", "photo_01", "photo_02"] and posed.has_alpha == (channels == 4)
    assert posed.valid_pixels is None and posed.cameras.sizes is None and posed.cameras.lenses is None
    torch.testing.assert_close(posed.cameras.intrinsics, torch.tensor([[5.0, 5.5, 2.4, 2.4]] * 3))
    np.testing.assert_allclose(posed.cameras.c2w, np.stack([f.c2w for f in found.frames]), atol=1e-6)


def opaque_capture(folder: Path) -> tuple[Capture, np.ndarray]:
    """Three photos that store alpha, which is 255 everywhere, and their pixels [3,4,6,4]."""
    found, stored = capture(folder, channels=4), random_images(3, 4, 6, 4)
    stored[..., 3] = 255
    for known, pixels in zip(found.frames, stored):
        Image.fromarray(pixels).save(known.image)
    return found, stored


def test_alpha_that_is_opaque_everywhere_is_none(tmp_path: Path) -> None:
    """As screenshots are stored; once it made an object in a box of any capture."""
    found, expected = opaque_capture(tmp_path)
    posed = everything(found)
    assert not posed.has_alpha and np.array_equal(posed.pixels.numpy(), expected[..., :3].reshape(-1, 3))


def test_a_few_transparent_pixels_make_no_object_of_a_capture(tmp_path: Path) -> None:
    """A border as programs that undistort leave it, or a single pixel: it once took decibels from a whole room."""
    found, stored = opaque_capture(tmp_path)
    stored[1, 0, 0, 3], stored[1, 0, 1, 3] = 127, 128
    Image.fromarray(stored[1]).save(found.frames[1].image)
    for masks in ("auto", "leave_out"):
        posed = everything(found, masks=masks)
        assert not posed.has_alpha and np.array_equal(posed.pixels.numpy(), stored[..., :3].reshape(-1, 3))
        assert [int((~posed.valid_mask(index)).sum()) for index in range(3)] == [0, 1, 0]
        assert not posed.valid_mask(1)[0, 0] and "0.014 of the pixels, is neither trained on" in posed.notes[-1]
    ignored = everything(found, masks="none")
    assert not ignored.has_alpha and ignored.valid_pixels is None and len(ignored.notes) == 1
    assert everything(found, masks="object").has_alpha
    stored[1, ..., 3] = 0
    Image.fromarray(stored[1]).save(found.frames[1].image)
    assert "photo_01.png: the photo is transparent everywhere; drop the frame" in complaint(found, test_every=0)


def test_photos_of_different_sizes_lie_one_after_another(tmp_path: Path) -> None:
    sizes = [(6, 4), (5, 7), (3, 3)]
    pixels = [random_images(height, width, 3) for width, height in sizes]
    frames = []
    for index, ((width, height), image) in enumerate(zip(sizes, pixels)):
        Image.fromarray(image).save(tmp_path / f"{index}.png")
        frames.append(frame(tmp_path / f"{index}.png", width, height))
    posed = everything(of(tmp_path, *frames))
    cameras = posed.cameras
    assert [cameras.size(index) for index in range(3)] == sizes and (cameras.width, cameras.height) == (6, 7)
    assert [cameras.first_pixel(index) for index in range(4)] == [0, 24, 59, 68] and len(posed.pixels) == 68
    for index, image in enumerate(pixels):
        assert np.array_equal(posed.image(index).numpy(), image)
        assert np.array_equal(posed.image_over(index, torch.ones(3)).numpy(), image.astype(np.float32) / 255)


def test_one_photo_with_alpha_gives_all_of_them_alpha(tmp_path: Path) -> None:
    found = capture(tmp_path)
    Image.fromarray(random_images(4, 6, 4)).save(found.frames[1].image)
    posed = everything(found, masks="object")
    assert posed.has_alpha and (posed.image(0)[..., 3] == 255).all()
    assert np.array_equal(posed.image(1).numpy(), random_images(4, 6, 4))


@pytest.mark.parametrize("suffix", [".jpg", ".webp", ".png"])
def test_every_format_is_decoded(tmp_path: Path, suffix: str) -> None:
    """A constant color survives the lossy ones."""
    path = tmp_path / f"photo{suffix}"
    Image.new("RGB", (16, 16), (200, 100, 50)).save(path, quality=95)
    posed = everything(of(tmp_path, frame(path, 16, 16)))
    assert (posed.pixels.int() - torch.tensor([200, 100, 50])).abs().max() <= 2


def test_16_bit_photos_keep_their_high_byte(tmp_path: Path) -> None:
    """Color of 16 bits, which Pillow cannot write: a PNG by hand."""
    values = np.array([[[0x12FF, 0x8000, 0xFFFF], [0, 0x00FF, 0x0100]]], ">u2")

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 1, 16, 2, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(b"\0" + values.tobytes()))
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + header + data + chunk(b"IEND", b""))
    assert read_pixels(tmp_path / "a.png", 3).tolist() == [[[0x12, 0x80, 0xFF], [0, 0, 1]]]


def test_names_with_spaces_and_letters_of_any_script(tmp_path: Path) -> None:
    path = tmp_path / "Ünter den Linden 名前 #1.png"
    Image.fromarray(random_images(4, 6, 3)).save(path)
    assert everything(of(tmp_path, frame(path))).names == ["Ünter den Linden 名前 #1"]


def test_photos_of_one_name_in_two_folders_keep_two_names(tmp_path: Path) -> None:
    frames = []
    for folder in ("left", "right"):
        (tmp_path / folder).mkdir()
        Image.fromarray(random_images(4, 6, 3)).save(tmp_path / folder / "1.png")
        frames.append(frame(tmp_path / folder / "1.png"))
    assert everything(of(tmp_path, *frames)).names == ["left_1.png", "right_1.png"]


def test_lenses_go_with_their_photos(tmp_path: Path) -> None:
    found = capture(tmp_path)
    found.frames[1] = replace(found.frames[1], distortion=(0.1, -0.2))
    found.frames[2] = replace(found.frames[2], lens="fisheye", distortion=(0.3,))
    lenses = everything(found, downscale=2).cameras.lenses
    assert lenses.models == ["perspective", "perspective", "fisheye"]
    torch.testing.assert_close(lenses.coefficients[:, :2], torch.tensor([[0.0, 0.0], [0.1, -0.2], [0.3, 0.0]]))


# Sizes


@pytest.mark.parametrize("channels", [3, 4])
def test_downscaling_averages_blocks_and_cuts_off_the_rest(tmp_path: Path, channels: int) -> None:
    found = capture(tmp_path, count=1, size=(8, 7), channels=channels)
    posed = everything(found, downscale=3)
    assert posed.cameras.size(0) == (2, 2)
    torch.testing.assert_close(posed.cameras.intrinsics, torch.tensor([[5.0, 5.5, 3.2, 4.2]]) / 3)
    blocks = random_images(1, 7, 8, channels)[0, :6, :6].astype(np.float64).reshape(2, 3, 2, 3, channels)
    weights = blocks[..., 3:] if channels == 4 else np.ones_like(blocks[..., :1])
    expected = (blocks[..., :3] * weights).sum((1, 3)) / weights.sum((1, 3))
    # Half a step, and what Pillow's division by a rounded reciprocal loses.
    assert np.abs(posed.image(0)[..., :3].numpy() - expected).max() <= 0.5 + 0.06


def test_a_downscaled_pixel_sees_the_middle_of_its_block(tmp_path: Path) -> None:
    found = capture(tmp_path, count=1, size=(8, 7))
    full, third = everything(found).cameras, everything(found, downscale=3).cameras
    for row, column in ((0, 0), (1, 1)):
        small = third.image_rays(0).directions.view(2, 2, 3)[row, column]
        large = full.image_rays(0).directions.view(7, 8, 3)[3 * row + 1, 3 * column + 1]
        torch.testing.assert_close(small, large)


def test_intrinsics_of_a_scaled_copy_are_scaled(tmp_path: Path) -> None:
    """images_4 and the like, with sides rounded to whole pixels."""
    found = capture(tmp_path, count=1)
    found.frames[0] = replace(found.frames[0], width=25, height=16)
    posed = everything(found)
    expected = [5 * 6 / 25, 5.5 * 4 / 16, 2.4 * 6 / 25, 2.4 * 4 / 16]
    torch.testing.assert_close(posed.cameras.intrinsics, torch.tensor([expected]))
    assert "1 photos are scaled copies (6x4) of what their intrinsics are for (25x16)" in posed.notes[-1]


def turned_photo(path: Path) -> np.ndarray:
    """Writes a photo of 6x4 pixels that EXIF shows as 4x6; returns its pixels as stored."""
    pixels = random_images(4, 6, 3)
    exif = Image.Exif()
    exif[ORIENTATION] = TURNED_RIGHT
    Image.fromarray(pixels).save(path, exif=exif)
    return pixels


def test_exif_turns_a_photo_only_where_its_intrinsics_are_turned(tmp_path: Path) -> None:
    path = tmp_path / "turned.png"
    stored = turned_photo(path)
    as_stored = everything(of(tmp_path, frame(path, 6, 4)))
    assert np.array_equal(as_stored.image(0).numpy(), stored)
    assert "1 photos are read as stored, though EXIF turns them" in as_stored.notes[-1]
    upright = everything(of(tmp_path, frame(path, 4, 6)))
    assert np.array_equal(upright.image(0).numpy(), np.rot90(stored, -1)) and upright.cameras.size(0) == (4, 6)
    assert "1 photos are turned as their EXIF orientation says" in upright.notes[-1]


def test_the_head_of_a_file_is_read_without_its_pixels(tmp_path: Path) -> None:
    turned_photo(tmp_path / "turned.png")
    Image.fromarray(random_images(4, 6, 4)).save(tmp_path / "plain.png")
    for name, has_alpha, turns in (("turned", False, True), ("plain", True, False)):
        path = tmp_path / f"{name}.png"
        path.write_bytes(path.read_bytes()[:-30])  # its pixels are damaged
        info = image_info(path)
        assert (info.width, info.height, info.has_alpha, info.turns) == (6, 4, has_alpha, turns)


# Masks


def test_masked_pixels_do_not_count(tmp_path: Path) -> None:
    found = capture(tmp_path)
    mask = np.zeros((4, 6), np.uint8)
    mask[1:3, 2:5] = 255
    Image.fromarray(mask).save(tmp_path / "mask.png")
    found.frames[1] = replace(found.frames[1], mask=tmp_path / "mask.png")
    posed = everything(found)
    assert [posed.valid_mask(index).sum().item() for index in range(3)] == [24, 6, 24]
    assert np.array_equal(posed.valid_mask(1).numpy(), mask > 0) and len(posed.valid_pixels) == 54


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "RGBA", "I;16"])
def test_masks_of_every_kind(tmp_path: Path, mode: str) -> None:
    """A block counts where all of it does; a mask of another size is stretched."""
    white = np.zeros((4, 8), bool)
    white[:, :5] = True
    if mode == "I;16":
        image = Image.fromarray(np.where(white, 65535, 0).astype(np.uint16))
    else:
        image = Image.fromarray(white).convert("L").convert(mode)
    image.save(tmp_path / "mask.png")
    assert np.array_equal(read_mask(tmp_path / "mask.png", (8, 4)), white)
    assert read_mask(tmp_path / "mask.png", (8, 4), 2).tolist() == [[True, True, False, False]] * 2
    assert np.array_equal(read_mask(tmp_path / "mask.png", (16, 8))[::2, ::2], white)


# Splits


def named(folder: Path, *names: str, splits: dict[str, str] | None = None) -> Capture:
    for name in names:
        Image.new("RGB", (6, 4)).save(folder / f"{name}.png")
    return of(folder, *(frame(folder / f"{name}.png", split=(splits or {}).get(name)) for name in names))


def stems(frames: list[Frame]) -> list[str]:
    return [found.image.stem for found in frames]


def test_every_eighth_photo_by_name_is_held_out(tmp_path: Path) -> None:
    names = [f"{index:02d}" for index in range(20)]
    found = named(tmp_path, *reversed(names))
    assert stems(split_frames(found, "test")) == ["00", "08", "16"]
    assert stems(split_frames(found, "train")) == [name for name in names if name not in ("00", "08", "16")]
    assert stems(split_frames(found, "test", test_every=10)) == ["00", "10"]
    assert len(split_frames(found, "train", test_every=0)) == 20


def test_the_formats_own_split_is_kept(tmp_path: Path) -> None:
    found = named(tmp_path, "c", "b", "a", splits={"c": "test", "a": "val"})
    assert [stems(split_frames(found, split)) for split in ("train", "val", "test")] == [["b"], ["a"], ["c"]]


def test_no_view_held_out(tmp_path: Path) -> None:
    message = complaint(named(tmp_path, "a", "b"), "test", test_every=0)
    assert "no test view among 2 photos; dataset.test_every=0 makes 2 train and 0 test views" in message
    message = complaint(named(tmp_path, "a", "b", splits={"a": "val"}), "test")
    assert "no test view among 2 photos; its own split has 1 train, 1 val views; take these" in message
    assert "(split=val)" in message
    message = complaint(named(tmp_path, "a"))
    assert "no train view among 1 photos" in message and "dataset.test_every=0 evaluation.split=train" in message
    message = complaint(named(tmp_path, "a", "b", splits={"a": "test", "b": "test"}))
    assert message.endswith("its own split has 2 test views; name files for train that are there.")


# Bad input


def test_missing_photos_are_named_and_counted(tmp_path: Path) -> None:
    found = capture(tmp_path, count=9)
    for index in (2, 5):
        found.frames[index].image.unlink()
    message = complaint(found)
    assert "2 of the 9 photos" in message and "photo_02.png" in message and "photo_05.png" in message
    assert "dataset.skip_missing=true" in message
    posed = everything(found, skip_missing=True)
    assert len(posed) == len(posed.cameras) == 7 and "photo_02" not in posed.names
    assert posed.notes[1] == "2 photos are missing and left out."
    assert np.array_equal(posed.image(2).numpy(), random_images(9, 4, 6, 3)[3])
    for rest in found.frames:
        rest.image.unlink(missing_ok=True)
    assert "all 9 photos are missing" in complaint(found, skip_missing=True)
    with pytest.raises(UserError, match=r"all 9 photos are missing: .*photo_00.png"):  # as before training
        split_frames(found, "test")


@pytest.mark.parametrize("content", [b"", b"GIF89a no photo", None], ids=["empty", "no photo", "cut off"])
def test_a_photo_that_does_not_decode_is_named(tmp_path: Path, content: bytes | None) -> None:
    found = capture(tmp_path, size=(40, 30))
    path = found.frames[1].image
    path.write_bytes(path.read_bytes()[:-200] if content is None else content)
    assert str(path) in complaint(found, test_every=0)


def test_duplicate_frames(tmp_path: Path) -> None:
    found = capture(tmp_path)
    message = complaint(of(tmp_path, *found.frames, found.frames[2]), test_every=0)
    assert "duplicate frames" in message and "photo_02.png" in message


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda pose: pose * np.nan, "expected finite numbers"),
        (lambda pose: pose * [2, 2, 2, 1], "scales uniformly by 2"),
        (lambda pose: pose * [1, -1, 1, 1], "is a reflection"),
        (lambda pose: pose * [1, 2, 1, 1], "is not rigid"),
    ],
    ids=["NaN", "scaled", "mirrored", "sheared"],
)
def test_a_pose_that_is_none(tmp_path: Path, change: object, problem: str) -> None:
    found = capture(tmp_path)
    found.frames[1] = replace(found.frames[1], c2w=change(found.frames[1].c2w))
    message = complaint(found, test_every=0)
    assert "photo_01.png: its pose" in message and problem in message


@pytest.mark.parametrize("intrinsics", [(0.0, 5.0, 3.0, 2.0), (5.0, -5.0, 3.0, 2.0), (5.0, 5.0, np.nan, 2.0)])
def test_intrinsics_that_are_none(tmp_path: Path, intrinsics: tuple[float, ...]) -> None:
    found = capture(tmp_path)
    found.frames[1] = replace(found.frames[1], intrinsics=intrinsics)
    assert "photo_01.png: its intrinsics cannot be used, " in complaint(found, test_every=0)


def test_a_photo_of_other_proportions(tmp_path: Path) -> None:
    found = capture(tmp_path)
    found.frames[1] = replace(found.frames[1], width=4, height=6)
    message = complaint(found, test_every=0)
    assert "photo_01.png is 6x4, but its intrinsics are for 4x6, which has other proportions" in message


def test_masks_that_cannot_be_used(tmp_path: Path) -> None:
    found = capture(tmp_path)
    for size, problem in (((6, 4), "mask excludes every pixel"), ((40, 60), "mask is 40x60, but its image is 6x4")):
        Image.new("L", size).save(tmp_path / "mask.png")
        found.frames[1] = replace(found.frames[1], mask=tmp_path / "mask.png")
        message = complaint(found, test_every=0)
        assert "mask.png" in message and problem in message


def test_a_lens_that_cannot_be_used(tmp_path: Path) -> None:
    found = capture(tmp_path)
    found.frames[1] = replace(found.frames[1], lens="mirror", distortion=(0.1,))
    assert "found 'mirror', expected one of perspective, fisheye" in complaint(found, test_every=0)


def test_downscaling_to_nothing(tmp_path: Path) -> None:
    assert "dataset.downscale=5 leaves nothing of" in complaint(capture(tmp_path), test_every=0, downscale=5)
