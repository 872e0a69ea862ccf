"""Masks of a capture are found in every usual layout, and mean an object's outline or pixels to leave out."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from capture_files import (
    HEIGHT,
    WIDTH,
    ring,
    write_colmap,
    write_llff,
    write_neus,
    write_photos,
    write_transforms,
)
from fixtures import look_at_origin, random_images, write_sphere_scene
from PIL import Image

from nerf.cameras.cameras import Cameras, focal_from_fov
from nerf.config.schema import Config, DatasetConfig
from nerf.datasets.decoding import read_mask
from nerf.datasets.load import load_split
from nerf.datasets.mask_use import decide
from nerf.datasets.readers import read_capture
from nerf.errors import UserError
from nerf.runs.checkpoint import restore_config

VIEWS = ring()
JPEGS = ring(name="view {}.JPG")


def found(folder: Path, **options: object) -> list[str | None]:
    """The masks of a capture, relative to its folder."""
    frames = read_capture(folder, **options).frames
    return [frame.mask and frame.mask.relative_to(folder).as_posix() for frame in frames]


# Where they are


@pytest.mark.parametrize("folder", ["masks", "mask"])
@pytest.mark.parametrize("write", [write_llff, write_transforms, write_neus])
def test_a_folder_of_masks_is_found_in_every_format(tmp_path: Path, write: Callable, folder: str) -> None:
    write(tmp_path, VIEWS)
    write_photos(tmp_path / folder, VIEWS.names)
    assert found(tmp_path) == [f"{folder}/{name}" for name in VIEWS.names]
    assert f"4 masks in {folder}" in read_capture(tmp_path).format
    assert found(tmp_path, masks=False) == [None] * 4


@pytest.mark.parametrize("form", ["{}.png", "{}.JPG.png", "{}_mask.png", "mask_{}.png", "{}.mask.png"])
@pytest.mark.parametrize("folder", ["masks", "images", "masks/images"])
def test_every_way_to_name_a_mask(tmp_path: Path, form: str, folder: str) -> None:
    if folder == "images" and form in ("{}.png", "{}.JPG.png"):
        pytest.skip("beside a photo of that name it would be a photo")
    write_transforms(tmp_path, JPEGS)
    names = [form.format(Path(name).stem) for name in JPEGS.names]
    write_photos(tmp_path / folder, names)
    assert found(tmp_path) == [f"{folder}/{name}" for name in names]


def test_masks_beside_the_photos_of_llff_are_not_counted_as_photos(tmp_path: Path) -> None:
    write_llff(tmp_path, VIEWS)
    write_photos(tmp_path / "images", [f"view {index}_mask.png" for index in range(4)])
    assert found(tmp_path)[3] == "images/view 3_mask.png"


def test_masks_beside_smaller_copies_and_by_the_names_of_the_originals(tmp_path: Path) -> None:
    write_colmap(tmp_path, VIEWS)
    write_photos(tmp_path / "images", VIEWS.names, (2 * WIDTH, 2 * HEIGHT))
    write_photos(tmp_path / "images_2", [f"image{index:03d}.png" for index in range(4)])
    write_photos(tmp_path / "masks", [f"{name}.png" for name in VIEWS.names[:3]])
    assert found(tmp_path, images="images_2") == [f"masks/{name}.png" for name in VIEWS.names[:3]] + [None]
    assert "3 masks in masks, 1 photos have none" in read_capture(tmp_path).format
    write_photos(tmp_path / "masks_2", VIEWS.names)
    assert found(tmp_path, images="images_2") == [f"masks_2/{name}" for name in VIEWS.names]
    assert found(tmp_path, images="images")[0] == "masks/view 0.png.png"


def test_masks_by_number_and_in_sorted_order(tmp_path: Path) -> None:
    views = ring(name="{:06d}.png")
    write_neus(tmp_path, views)
    write_photos(tmp_path / "mask", [f"{index:03d}.png" for index in range(4)])
    assert found(tmp_path) == [f"mask/{index:03d}.png" for index in range(4)]
    assert "matched by their numbers" in read_capture(tmp_path).format
    for index in range(4):
        (tmp_path / "mask" / f"{index:03d}.png").rename(tmp_path / "mask" / f"m{10 + index}.png")
    assert found(tmp_path)[2] == "mask/m12.png" and "matched in sorted order" in read_capture(tmp_path).format


def test_instant_ngps_masks_say_what_does_not_count(tmp_path: Path) -> None:
    write_transforms(tmp_path, JPEGS)
    white = np.zeros((HEIGHT, WIDTH), np.uint8)
    white[:4] = 255
    for index in range(4):
        Image.fromarray(white).save(tmp_path / "images" / f"dynamic_mask_view {index}.png")
    images = load_split(DatasetConfig(root=str(tmp_path), format="transforms", test_every=0), "train")
    assert len(images) == 4 and not images.valid_mask(0)[:4].any() and images.valid_mask(0)[4:].all()
    assert "4 masks beside the photos" in images.notes[0] and "neither trained on nor scored" in images.notes[1]


def test_a_folder_that_is_named(tmp_path: Path) -> None:
    write_transforms(tmp_path, VIEWS)
    write_photos(tmp_path / "segmentation", VIEWS.names)
    assert found(tmp_path) == [None] * 4
    assert found(tmp_path, mask_folder="segmentation")[1] == "segmentation/view 1.png"
    with pytest.raises(UserError, match="dataset.mask_folder=nothing"):
        read_capture(tmp_path, mask_folder="nothing")


def test_masks_that_belong_to_no_photo_are_answered(tmp_path: Path) -> None:
    write_llff(tmp_path, VIEWS)
    write_photos(tmp_path / "masks", ["a.png", "b.png"])
    with pytest.raises(UserError) as caught:
        read_capture(tmp_path)
    for fact in ("masks: none of its 2 masks", "a.png", "view 0.png", "4 photos", "dataset.masks=none"):
        assert fact in str(caught.value)
    assert found(tmp_path, masks=False) == [None] * 4


def test_masks_that_a_file_names_and_that_are_missing(tmp_path: Path) -> None:
    path = write_transforms(tmp_path, VIEWS)
    parsed = json.loads(path.read_text())
    for index, frame in enumerate(parsed["frames"]):
        frame["mask_path"] = f"outlines/{index}.png"
    path.write_text(json.dumps(parsed))
    write_photos(tmp_path / "outlines", ["0.png", "1.png"])
    with pytest.raises(UserError, match=r"2.png: no such mask, and 2 of 4 are missing.*dataset.masks=none"):
        read_capture(tmp_path)


# What they mean


def cameras(count: int = 12) -> Cameras:
    poses = np.stack([look_at_origin(6.0 * index / count, 0.2 + 0.1 * (index % 3))[:3] for index in range(count)])
    focal = focal_from_fov(40, 0.8)
    return Cameras(torch.tensor(poses).float(), torch.tensor([[focal, focal, 20.0, 20.0]] * count), 40, 40)


def balls(views: Cameras, center: tuple[float, ...] = (0.2, 0.3, 0.1), radius: float = 0.5) -> list[np.ndarray]:
    """The outline of a ball in each view."""
    masks = []
    for index in range(len(views)):
        rays = views.image_rays(index)
        offset = torch.tensor(center) - rays.origins
        along = (offset * rays.directions).sum(-1, keepdim=True)
        masks.append(((offset - along * rays.directions).norm(dim=-1) < radius).view(40, 40).numpy())
    return masks


def test_masks_around_one_object_are_its_outline() -> None:
    views = cameras()
    for radius in (0.2, 0.5, 1.2):  # the last fills much of the picture
        assert decide(balls(views, radius=radius), views).use == "object"
    assert decide(balls(views, (0.0, 0.0, 0.0)), views).use == "object"  # the same in all views
    parts = balls(views, (0.0, 0.0, 0.0))  # of what pictures show whole two thirds of the time
    for index in range(0, 12, 3):
        parts[index] = np.roll(parts[index], 12 if index % 2 else -12, 0)
    assert decide(parts, views).use == "object"


def test_masks_over_what_is_to_be_left_out() -> None:
    views = cameras()
    passers_by = [~mask for mask in balls(views)]
    assert decide(passers_by, views).use == "leave_out"
    bonnet = np.ones((40, 40), bool)
    bonnet[30:] = False
    assert decide([bonnet] * 12, views).use == "leave_out"
    y, x = np.mgrid[:40, :40]
    fisheye = (x - 19.5) ** 2 + (y - 19.5) ** 2 < 19.5**2
    wide = np.pad(fisheye, ((0, 0), (12, 12)))
    assert fisheye.mean() > 0.7 and decide([wide] * 12, views).use == "leave_out"
    scattered = [np.roll(mask, (7 * index, 11 * index), (0, 1)) for index, mask in enumerate(balls(views, radius=0.2))]
    found = decide(scattered, views)
    assert found.use == "leave_out" and "no place that the photos have in common" in found.why
    assert decide([np.zeros((40, 40), bool)] * 12, views).use == "leave_out"


def object_before_noise(folder: Path, views: int = 16, size: int = 32) -> np.ndarray:
    """The unit sphere before a background of noise, in transforms.json's layout, with masks: alpha [I,H,W]."""
    write_sphere_scene(folder, views=views, size=size, splits=("train",))
    (folder / "transforms_train.json").rename(folder / "transforms.json")
    (folder / "train").rename(folder / "images")
    path = folder / "transforms.json"
    path.write_text(path.read_text().replace("./train/", "images/"))
    (folder / "masks").mkdir()
    alphas = []
    for index, noise in enumerate(random_images(views, size, size, 3)):
        photo = folder / "images" / f"r_{index}.png"
        rgba = np.asarray(Image.open(photo))
        alpha = rgba[..., 3:]
        Image.fromarray(np.where(alpha > 127, rgba[..., :3], noise)).save(photo)
        Image.fromarray(alpha[..., 0]).save(folder / "masks" / f"r_{index}.png")
        alphas.append(alpha[..., 0])
    return np.stack(alphas)


def test_photos_with_masks_around_one_object_are_a_bounded_scene(tmp_path: Path) -> None:
    alphas = object_before_noise(tmp_path)
    dataset = DatasetConfig(root=str(tmp_path), test_every=0)
    images = load_split(dataset, "train")
    assert images.has_alpha and images.valid_pixels is None
    assert np.array_equal(images.pixels[:, 3].view(16, 32, 32).numpy(), alphas)
    assert images.scene.kind == "bounded" and "masks are black around one object" in images.scene.reasons[0]
    assert "dataset.masks=leave_out" in images.notes[1]
    # A test view is treated as the training views are
    held_out = load_split(DatasetConfig(root=str(tmp_path), test_every=8), "test")
    assert len(held_out) == 2 and held_out.has_alpha
    # Smaller copies: colors are averaged within the outline, which no noise enters
    small = load_split(DatasetConfig(root=str(tmp_path), test_every=0, downscale=2), "train")
    edge = (small.pixels[:, 3] > 0) & (small.pixels[:, 3] < 255)
    assert small.has_alpha and edge.any()


def test_masks_of_photos_whose_own_alpha_is_opaque(tmp_path: Path) -> None:
    alphas = object_before_noise(tmp_path)
    for photo in (tmp_path / "images").iterdir():
        Image.open(photo).convert("RGB").convert("RGBA").save(photo)
    images = load_split(DatasetConfig(root=str(tmp_path), test_every=0), "train")
    assert np.array_equal(images.pixels[:, 3].view(16, 32, 32).numpy(), alphas)


def test_what_masks_mean_can_be_said(tmp_path: Path) -> None:
    alphas = object_before_noise(tmp_path)
    for settings in ({"masks": "leave_out"}, {"kind": "unbounded"}):
        images = load_split(DatasetConfig(root=str(tmp_path), test_every=0, **settings), "train")
        assert not images.has_alpha and np.array_equal(images.valid_mask(3).numpy(), alphas[3] >= 128)
    images = load_split(DatasetConfig(root=str(tmp_path), test_every=0, masks="none"), "train")
    assert not images.has_alpha and images.valid_pixels is None and "asks " not in " ".join(images.notes)
    (tmp_path / "masks" / "r_3.png").unlink()
    assert not load_split(DatasetConfig(root=str(tmp_path), test_every=0), "train").has_alpha
    with pytest.raises(UserError, match=r"r_3.png of 16 photos have none.*dataset.masks=leave_out"):
        load_split(DatasetConfig(root=str(tmp_path), test_every=0, masks="object"), "train")


def test_masks_of_a_scene_in_blenders_format(tmp_path: Path) -> None:
    object_before_noise(tmp_path)
    (tmp_path / "transforms.json").rename(tmp_path / "transforms_train.json")
    images = load_split(DatasetConfig(root=str(tmp_path), format="blender"), "train")
    assert images.has_alpha and images.scene.kind == "bounded"
    assert not load_split(DatasetConfig(root=str(tmp_path), format="blender", masks="none"), "train").has_alpha


def test_a_mask_of_zeros_and_ones(tmp_path: Path) -> None:
    values = np.zeros((4, 8), np.uint8)
    values[:, :5] = 1
    Image.fromarray(values).save(tmp_path / "mask.png")
    assert np.array_equal(read_mask(tmp_path / "mask.png", (8, 4)), values > 0)
    assert np.array_equal(read_mask(tmp_path / "mask.png", (8, 4), inverted=True), values == 0)


@pytest.mark.parametrize("inverted", [False, True])
def test_a_cutout_of_a_dark_object_is_its_outline(tmp_path: Path, inverted: bool) -> None:
    pixels = np.random.default_rng(0).integers(0, 120, (40, 60, 4), np.uint8)
    pixels[..., 3] = 0
    pixels[10:30, 20:50, 3] = 255
    Image.fromarray(pixels).save(tmp_path / "mask.png")
    found = read_mask(tmp_path / "mask.png", (60, 40), inverted=inverted)
    assert np.array_equal(found, (pixels[..., 3] > 0) ^ inverted)


@pytest.mark.parametrize("color", [(255, 255, 255), (0, 200, 0)])
def test_a_mask_with_transparency_and_soft_edges_is_no_cutout(tmp_path: Path, color: tuple[int, int, int]) -> None:
    share = np.linspace(-6, 6, 60).clip(0, 1)[:, None]
    pixels = np.full((40, 60, 4), 255, np.uint8)
    pixels[..., :3] = share * color
    pixels[:8, :, 3] = 0  # as the border that undistortion leaves
    Image.fromarray(pixels).save(tmp_path / "mask.png")
    found = read_mask(tmp_path / "mask.png", (60, 40))
    assert not found[:8].any() and np.array_equal(found[8:], pixels[8:, :, :3].max(-1) >= 128)
    assert 0.4 < found[8:].mean() < 0.6


def test_runs_from_before_masks_could_be_an_outline_leave_out_what_is_black() -> None:
    saved = asdict(Config())
    del saved["dataset"]["masks"], saved["dataset"]["mask_folder"]
    assert restore_config({"config": saved}).dataset.masks == "leave_out"
    assert restore_config({"config": asdict(Config())}).dataset.masks == "auto"
