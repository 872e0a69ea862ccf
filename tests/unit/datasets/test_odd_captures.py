"""Captures as people bring them: renamed photos, phones held upside down, lists and masks that say two things."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from capture_files import HEIGHT, INTRINSICS, WIDTH, ring, write_colmap, write_photos, write_transforms
from fixtures import write_sphere_scene
from PIL import ExifTags, Image

from nerf.config.schema import DatasetConfig
from nerf.datasets.decoding import read_mask
from nerf.datasets.load import load_split
from nerf.datasets.photos import load_photos
from nerf.datasets.readers import read_capture
from nerf.errors import UserError

ORIENTATION = ExifTags.Base.Orientation


def renamed_photos(root: Path, names: list[str]) -> dict[str, str]:
    """A model of 0.jpg to 11.jpg beside photos that are called otherwise: by the model's name, the photo taken."""
    write_colmap(root, ring(12, name="{}.jpg"))
    write_photos(root / "images", names)
    capture = read_capture(root)
    assert "none is named as in the reconstruction" in capture.format
    return {frame.name: frame.image.name for frame in capture.frames}


def test_renamed_photos_belong_to_the_poses_of_their_numbers(tmp_path: Path) -> None:
    found = renamed_photos(tmp_path, [f"{number:04d}.jpg" for number in range(12)])
    assert found == {f"{number}.jpg": f"{number:04d}.jpg" for number in range(12)}
    assert "matched by their numbers" in read_capture(tmp_path).format


def test_photos_with_other_numbers_are_matched_in_order_and_that_is_said(tmp_path: Path) -> None:
    found = renamed_photos(tmp_path, [f"image{number:03d}.png" for number in range(100, 112)])
    order = sorted(found)  # 0.jpg, 1.jpg, 10.jpg, ...
    assert [found[name] for name in order] == [f"image{number:03d}.png" for number in range(100, 112)]
    said = read_capture(tmp_path).format
    assert "matched in sorted order (0.jpg is image100.png)" in said


def test_a_phone_held_upside_down_is_turned_where_others_show_that_poses_are_for_turned_photos(tmp_path: Path) -> None:
    views = ring(4)
    write_transforms(tmp_path, views)
    header = json.loads((tmp_path / "transforms.json").read_text())
    height, width = 40, 24  # shown upright
    header |= {"w": width, "h": height, "cx": width / 2, "cy": height / 2}
    (tmp_path / "transforms.json").write_text(json.dumps(header))
    shown = (np.arange(height * width * 3) % 251).reshape(height, width, 3).astype(np.uint8)
    tags = {6: Image.Transpose.ROTATE_90, 3: Image.Transpose.ROTATE_180}

    def store(tag: int, name: str) -> None:
        exif = Image.Exif()
        exif[ORIENTATION] = tag
        Image.fromarray(shown).transpose(tags[tag]).save(tmp_path / "images" / name, exif=exif)

    names = [frame["file_path"].rpartition("/")[2] for frame in header["frames"]]
    for index, name in enumerate(sorted(names)):
        store(6 if index % 2 else 3, name)
    for split in ("train", "test"):  # the test view is the first: it alone shows nothing
        views_of_split = load_photos(read_capture(tmp_path), split, test_every=4)
        assert views_of_split.cameras.image_sizes.tolist() == [[width, height]] * len(views_of_split)
        pictures = views_of_split.pixels.view(len(views_of_split), height, width, -1)[..., :3]
        assert all(torch.equal(picture, torch.from_numpy(shown)) for picture in pictures), split
    for name in names:
        store(3, name)
        header |= {"w": width, "h": height}
    stored = load_photos(read_capture(tmp_path), "train", test_every=4)
    assert any("read as stored" in note and "nothing shows" in note for note in stored.notes)


def lists_of(root: Path, **lists: list[str]) -> list[tuple[str, str]]:
    """Name and split of the frames of a capture with these lists."""
    write_transforms(root, ring(4, name="{}.png"), **{f"{split}_filenames": names for split, names in lists.items()})
    return sorted((frame.split, frame.image.name) for frame in read_capture(root).frames)


def test_one_photo_may_be_in_val_and_test_and_in_no_other_two_lists(tmp_path: Path) -> None:
    both = ["images/2.png"]
    found = lists_of(tmp_path / "equal", train=["images/0.png", "images/1.png"], val=both, test=both)
    assert found == [("test", "2.png"), ("train", "0.png"), ("train", "1.png"), ("val", "2.png")]
    with pytest.raises(UserError, match="is in train and in test, so its score would be that of a training view"):
        lists_of(tmp_path / "overlap", train=["images/0.png", "images/2.png"], test=both)


@pytest.mark.parametrize("form", ["{}", "./{}", "ROOT/{}", "images\\\\{}", "suffix"])
def test_lists_may_name_files_in_any_form(tmp_path: Path, form: str) -> None:
    names = {
        "{}": "images/0.png",
        "./{}": "./images/0.png",
        "ROOT/{}": f"{tmp_path}/images/0.png",
        "images\\\\{}": "images\\0.png",
        "suffix": "images/0",
    }
    assert lists_of(tmp_path, train=[names[form]], test=["images/3.png"]) == [("test", "3.png"), ("train", "0.png")]


def test_a_list_that_names_no_frame_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none of the 1 names in test_filenames .*the first is 9.png"):
        lists_of(tmp_path, train=["images/0.png"], test=["9.png"])


def test_one_mask_is_not_that_of_two_photos(tmp_path: Path) -> None:
    write_sphere_scene(tmp_path, views=2, size=12)
    (tmp_path / "masks").mkdir()
    first = json.loads((tmp_path / "transforms_train.json").read_text())["frames"][0]["file_path"]
    Image.new("L", (12, 12), 255).save(tmp_path / "masks" / f"{Path(first).name}.png")
    with pytest.raises(UserError, match=r"would be the mask of .*put masks into folders as the photos are"):
        load_split(DatasetConfig(root=str(tmp_path), scene="sphere"), "train")


def test_cameras_of_test_frames_alone_are_read(tmp_path: Path) -> None:
    write_sphere_scene(tmp_path, views=2, size=12)
    path = tmp_path / "transforms_test.json"
    header = json.loads(path.read_text())
    for frame in header["frames"]:
        frame["fl_x"] = frame["fl_y"] = 77.0
    path.write_text(json.dumps(header))
    dataset = DatasetConfig(root=str(tmp_path), scene="sphere")
    assert load_split(dataset, "test").cameras.intrinsics[:, 0].tolist() == [77.0] * len(header["frames"])
    assert (load_split(dataset, "train").cameras.intrinsics[:, 0] != 77.0).all()


@pytest.mark.parametrize("white", [1, 255, 65535])
def test_masks_of_16_bits_are_black_and_white_in_any_scale(tmp_path: Path, white: int) -> None:
    values = np.zeros((6, 8), np.uint16)
    values[:, 4:] = white
    Image.fromarray(values).save(tmp_path / "mask.png")
    assert read_mask(tmp_path / "mask.png", (8, 6)).tolist() == [[False] * 4 + [True] * 4] * 6


def test_paths_of_masks_and_points_may_be_those_of_windows(tmp_path: Path) -> None:
    write_transforms(tmp_path, ring(2, name="{}.png"), ply_file_path="points\\sparse.ply")
    (tmp_path / "mm").mkdir()
    header = json.loads((tmp_path / "transforms.json").read_text())
    size = Image.open(tmp_path / header["frames"][0]["file_path"]).size
    for index, frame in enumerate(header["frames"]):
        Image.new("L", size, 255).save(tmp_path / "mm" / f"{index}.png")
        frame["mask_path"] = f"mm\\{index}.png"
    (tmp_path / "transforms.json").write_text(json.dumps(header))
    capture = read_capture(tmp_path)
    assert [frame.mask.name for frame in capture.frames] == ["0.png", "1.png"]
    assert f"{tmp_path / 'points' / 'sparse.ply'} is missing" in capture.format


def test_all_photos_missing_is_not_answered_with_going_on_without_them(tmp_path: Path) -> None:
    write_transforms(tmp_path, ring(3))
    for path in (tmp_path / "images").iterdir():
        path.unlink()
    header = json.loads((tmp_path / "transforms.json").read_text()) | {"w": 32, "h": 24}
    (tmp_path / "transforms.json").write_text(json.dumps(header))
    with pytest.raises(UserError, match="all 3 photos are missing.*correct their names") as caught:
        load_photos(read_capture(tmp_path), "train")
    assert "skip_missing" not in str(caught.value)


def moved_photos(root: Path, folder: str, count: int = 3, suffix: str = ".png", **header: object) -> None:
    """transforms.json that names photos of another machine, which are in a folder here, maybe with another suffix."""
    path = write_transforms(root, ring(count, name="{}.png"), **header)
    for photo in sorted((root / "images").iterdir()):
        (root / folder).mkdir(parents=True, exist_ok=True)
        photo.rename((root / folder / photo.name).with_suffix(suffix))
    path.write_text(path.read_text().replace('"images/', '"/home/somebody/scene/pictures/'))


@pytest.mark.parametrize("folder", [".", "images", "old/pictures"])
def test_photos_in_one_other_folder_are_taken_from_there(tmp_path: Path, folder: str) -> None:
    moved_photos(tmp_path, folder, suffix=".webp", w=None)
    write_photos(tmp_path / "masks", [f"{index}.png" for index in range(3)])
    capture = read_capture(tmp_path)
    assert [frame.image for frame in capture.frames] == [tmp_path / folder / f"{index}.webp" for index in range(3)]
    where = "the scene's own folder" if folder == "." else folder
    assert f"the photos are taken from {where}, since none is where the file says (/home/somebody/" in capture.format


@pytest.mark.parametrize("size", [None, 24])
def test_photos_in_several_other_folders_are_chosen_by_a_setting(tmp_path: Path, size: int | None) -> None:
    """The size of the photos may be in the file or not; a folder of another name may be one of masks."""
    moved_photos(tmp_path, "cut out", w=size)
    with pytest.raises(UserError, match=r"in another folder, which 'dataset.images=cut out' takes\.$"):
        load_photos(read_capture(tmp_path), "train")
    write_photos(tmp_path / "images", [f"{index}.png" for index in range(3)])
    write_photos(tmp_path / "rgb", [f"{index}.png" for index in range(3)])
    with pytest.raises(UserError, match=r"which dataset.images=images or dataset.images=rgb takes\."):
        load_photos(read_capture(tmp_path), "train")
    assert read_capture(tmp_path, images="rgb").frames[0].image == tmp_path / "rgb" / "0.png"


def test_some_photos_are_missing_and_all_are_in_another_folder(tmp_path: Path) -> None:
    names = [f"{index}.png" for index in range(4)]
    write_colmap(tmp_path, ring(4, name="{}.png"))
    write_photos(tmp_path / "images", names[1:])
    write_photos(tmp_path / "whole", names)
    with pytest.raises(UserError, match=r"skip_missing=true\. Photos .*, which dataset.images=whole takes\.$"):
        load_photos(read_capture(tmp_path), "train")
    (tmp_path / "whole" / "0.png").unlink()
    with pytest.raises(UserError, match=r"skip_missing=true\.$"):
        load_photos(read_capture(tmp_path), "train")


@pytest.mark.parametrize("scale", [1, 2])
def test_photos_of_another_size_than_their_file_says_are_told(tmp_path: Path, scale: int) -> None:
    write_transforms(tmp_path, ring(4), w=scale * WIDTH, h=scale * HEIGHT)
    notes = load_photos(read_capture(tmp_path), "train").notes
    said = f"3 photos are scaled copies ({WIDTH}x{HEIGHT}) of what their intrinsics are for ({2 * WIDTH}x{2 * HEIGHT})"
    assert any(said in note for note in notes) == (scale == 2)


FX, FY, CX, CY = INTRINSICS
K = [[FX, 0, CX], [0, FY, CY], [0, 0, 1]]


def write_matrices(root: Path, matrix: object, where: str, file: str = "transforms.json", **header: object) -> None:
    """Transforms whose intrinsics are a matrix, of each frame or of all."""
    none = dict.fromkeys(("fl_x", "fl_y", "cx", "cy"))
    path = write_transforms(root, ring(4), file, **none, **(header | ({"K": matrix} if where == "header" else {})))
    content = json.loads(path.read_text())
    content = {key: value for key, value in content.items() if value is not None}
    for frame in content["frames"]:
        frame |= {"K": matrix} if where == "frame" else {}
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("where", ["header", "frame"])
@pytest.mark.parametrize("file", ["transforms.json", "transforms_train.json"])
def test_intrinsics_may_be_a_matrix(tmp_path: Path, where: str, file: str) -> None:
    write_matrices(tmp_path, K, where, file)
    assert all(frame.intrinsics == INTRINSICS for frame in read_capture(tmp_path).frames)
    cameras = load_split(DatasetConfig(root=str(tmp_path)), "train").cameras
    torch.testing.assert_close(cameras.intrinsics, torch.tensor([INTRINSICS] * 3))


def test_a_focal_length_or_an_angle_goes_before_the_matrix(tmp_path: Path) -> None:
    write_matrices(tmp_path, K, "frame", camera_angle_x=2 * np.arctan(0.5))
    assert read_capture(tmp_path).frames[0].intrinsics == pytest.approx((WIDTH, WIDTH, WIDTH / 2, HEIGHT / 2))


@pytest.mark.parametrize(
    "matrix",
    [[[FX, 0.1, CX], *K[1:]], [*K[:2], [0, 0, 2]], K[:2], [*map(str, K)], [["30", 0, CX], *K[1:]], [*K, K[2]], 30],
)
def test_a_matrix_that_is_none_of_intrinsics_is_refused(tmp_path: Path, matrix: object) -> None:
    write_matrices(tmp_path, matrix, "frame")
    with pytest.raises(UserError, match=r"frame 0: neither fl_x nor .* nor K as \[\[fl_x, 0, cx\]"):
        read_capture(tmp_path)


@pytest.mark.parametrize("k1", [0.05, 46.6])
@pytest.mark.parametrize("file", ["transforms.json", "transforms_train.json"])
def test_a_lens_that_cannot_be_right_is_told(tmp_path: Path, file: str, k1: float) -> None:
    write_matrices(tmp_path, K, "header", file, k1=k1, k2=-80 * k1)
    notes = load_split(DatasetConfig(root=str(tmp_path)), "train").notes
    assert sum("The lens of 3 photos cannot be right: by k1 46.6" in note for note in notes) == (k1 > 1)


@pytest.mark.parametrize(("offset", "noted"), [(0.0, False), (1e4, False), (1e5, True), (1e6, True)])
def test_cameras_far_from_the_origin_are_told_how_they_are_rounded(tmp_path: Path, offset: float, noted: bool) -> None:
    views = ring(4)
    for pose in views.poses:
        pose[0, 3] += offset
    write_transforms(tmp_path, views)
    notes = load_photos(read_capture(tmp_path), "train").notes
    assert any("single precision rounds them" in note for note in notes) == noted


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("format", ["auto", "blender"])
def test_a_format_is_said_to_be_asked_for_where_it_was(tmp_path: Path, format: str, beside: bool) -> None:
    """And where another one is there, so that it tells why this one was taken."""
    write_sphere_scene(tmp_path, views=2)
    if beside:
        write_colmap(tmp_path, ring(4))
    note = load_split(DatasetConfig(root=str(tmp_path), format=format, skip_missing=True), "train").notes[0]
    asked = beside and format == "blender"
    assert f"Blender, {'as dataset.format=blender says' if asked else 'since there is transforms_train.json'}" in note


@pytest.mark.parametrize(("images", "count", "stray"), [(2, 1, True), (3, 1, False), (2, 8, False)])
def test_points_that_two_images_match_wrongly_do_not_tell_what_is_nearest(
    tmp_path: Path, images: int, count: int, stray: bool
) -> None:
    """Right before a camera they made near a twentieth of what it is, and a scene before all cameras one without end.

    A point that three images see is taken for what it is, and so is a surface that two see.
    """
    views = ring(9)
    points = np.random.default_rng(4).uniform(-1, 1, (80, 3))
    wrong = np.tile(views.poses[0][:3, 3] - 0.1 * views.poses[0][:3, 2], (count, 1))
    model = write_colmap(tmp_path, views, binary=False, points=np.concatenate([points, wrong]))
    write_photos(tmp_path / "images", views.names)
    lines = (model / "images.txt").read_text().splitlines()  # a comment, then two of each image: pose and what it sees
    for row in range(2 + 2 * images, len(lines), 2):
        lines[row] = lines[row].split(" 1.0 2.0 85")[0]
    (model / "images.txt").write_text("\n".join(lines) + "\n")
    bounds = read_capture(tmp_path).bounds
    nearest = [-((points - pose[:3, 3]) @ pose[:3, 2]).max() for pose in views.poses]
    if stray:
        np.testing.assert_allclose(bounds[:, 0], nearest, rtol=0.1)
    else:
        assert bounds[0, 0] < 0.2 * nearest[0]
