"""Finding and loading Blender scenes: exact values on tiny scenes, and the official lego where present."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from fixtures import (
    DEPTH_SCALE,
    FOV,
    POSES,
    edit_transforms,
    official_scene,
    random_images,
    sphere_depth,
    write_sphere_scene,
    write_split,
)
from PIL import Image

from nerf.cameras.cameras import focal_from_fov
from nerf.config.schema import DatasetConfig
from nerf.datasets.blender import find_scene, load_blender
from nerf.datasets.load import check_split, load_split
from nerf.errors import UserError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A scene whose train split has two RGBA images of 6x4 random pixels."""
    write_split(tmp_path, "train", random_images(2, 4, 6, 4), POSES)
    return tmp_path


def test_pixels_names_and_cameras_are_those_stored(folder: Path) -> None:
    posed = load_blender(folder, "train")
    assert posed.pixels.dtype == torch.uint8
    assert np.array_equal(posed.pixels.numpy(), random_images(2, 4, 6, 4).reshape(-1, 4))
    assert posed.names == ["r_0", "r_1"]
    assert len(posed) == 2 and posed.has_alpha and posed.depths is None
    assert (posed.cameras.width, posed.cameras.height) == (6, 4)
    np.testing.assert_allclose(posed.cameras.c2w.numpy(), np.stack(POSES)[:, :3], atol=1e-6)
    focal = focal_from_fov(6, FOV)
    torch.testing.assert_close(posed.cameras.intrinsics, torch.tensor([[focal, focal, 3.0, 2.0]] * 2))


def test_stated_intrinsics_replace_the_field_of_view(folder: Path) -> None:
    stated = {"fl_x": 7, "fl_y": 8.5, "cx": 2.5, "cy": 2, "w": 6, "h": 4}
    edit_transforms(folder, lambda transforms: (transforms.pop("camera_angle_x"), transforms.update(stated)))
    intrinsics = load_blender(folder, "train").cameras.intrinsics
    torch.testing.assert_close(intrinsics, torch.tensor([[7, 8.5, 2.5, 2]] * 2))


def test_a_lens_may_be_stated(folder: Path) -> None:
    assert load_blender(folder, "train").cameras.lenses is None
    edit_transforms(folder, lambda transforms: transforms.update(k1=0.125, k2=0, p2=0.5))
    found = load_blender(folder, "train").cameras.lenses
    assert found.models == ["perspective"] * 2 and found.coefficients.tolist() == [[0.125, 0, 0, 0.5, 0, 0]] * 2


def test_center_ray_passes_through_the_origin(tmp_path: Path) -> None:
    write_split(tmp_path, "train", random_images(2, 5, 7, 3), POSES)  # odd sizes have a central pixel
    cameras = load_blender(tmp_path, "train").cameras
    for view in range(2):
        ray = cameras.image_rays(view)[7 * 2 + 3 : 7 * 2 + 4]
        torch.testing.assert_close(ray.origins + 4 * ray.directions, torch.zeros(1, 3), atol=1e-6, rtol=0)


def test_first_pixel_is_seen_up_and_to_the_left(folder: Path) -> None:
    cameras = load_blender(folder, "train").cameras
    focal = focal_from_fov(6, FOV)
    expected = torch.tensor([(0.5 - 3) / focal, -(0.5 - 2) / focal, -1.0])
    in_camera = cameras.image_rays(0).directions[0] @ cameras.c2w[0, :, :3]
    torch.testing.assert_close(in_camera, expected / expected.norm())


def test_rgb_images_are_opaque(tmp_path: Path) -> None:
    write_split(tmp_path, "train", random_images(2, 4, 6, 3), POSES)
    posed = load_blender(tmp_path, "train")
    assert not posed.has_alpha
    assert np.array_equal(posed.pixels.numpy(), random_images(2, 4, 6, 3).reshape(-1, 3))


def test_palette_and_16_bit_gray_images_are_converted(folder: Path) -> None:
    palette = Image.new("P", (6, 4), color=1)
    palette.putpalette([0, 0, 0, 10, 20, 30])
    palette.save(folder / "train" / "r_0.png", transparency=0)
    Image.fromarray(np.full((4, 6), 0x80FF, np.uint16)).save(folder / "train" / "r_1.png")
    posed = load_blender(folder, "train")
    assert (posed.image(0) == torch.tensor([10, 20, 30])).all()  # its alpha is opaque
    assert (posed.image(1) == torch.tensor([0x80, 0x80, 0x80])).all()


def test_file_path_may_have_an_extension(folder: Path) -> None:
    Image.new("RGB", (6, 4), (255, 0, 0)).save(folder / "train" / "red.jpeg")
    edit_transforms(folder, lambda transforms: transforms["frames"][0].update(file_path="train/red.jpeg"))
    edit_transforms(folder, lambda transforms: transforms["frames"][1].update(file_path="train/r_1.png"))
    posed = load_blender(folder, "train")
    assert posed.names == ["red", "r_1"]
    assert np.array_equal(posed.image(1).numpy(), random_images(2, 4, 6, 4)[1])


def test_image_over_blends_straight_alpha(tmp_path: Path) -> None:
    image = np.array([[[[255, 0, 51, 51], [7, 7, 7, 0]]]], np.uint8)
    write_split(tmp_path, "train", image, POSES[:1])
    blended = load_blender(tmp_path, "train").image_over(0, torch.tensor([1.0, 0.5, 0.0]))
    expected = torch.tensor([[[0.2 + 0.8, 0.8 * 0.5, 0.2 * 0.2], [1.0, 0.5, 0.0]]])
    torch.testing.assert_close(blended, expected)


def test_downscaling_averages_premultiplied_color(tmp_path: Path) -> None:
    clear, red, blue = [0, 255, 0, 0], [200, 0, 0, 255], [0, 0, 100, 85]
    left_block, right_block = [[clear, red], [red, blue]], [[clear, clear], [clear, clear]]
    image = np.concatenate([left_block, right_block], axis=1).astype(np.uint8)
    write_split(tmp_path, "train", image[None], POSES[:1])
    full, half = load_blender(tmp_path, "train"), load_blender(tmp_path, "train", downscale=2)
    # Alpha (255 + 255 + 85) / 4; red 200 * 510 / 595, blue 100 * 85 / 595; no green from clear pixels.
    assert half.image(0).tolist() == [[[171, 0, 14, 149], [0, 0, 0, 0]]]
    assert (half.cameras.width, half.cameras.height) == (2, 1)
    torch.testing.assert_close(half.cameras.intrinsics, full.cameras.intrinsics / 2)


@pytest.mark.parametrize("downscale", [0, -2, 4])
def test_downscale_must_divide_the_size(folder: Path, downscale: int) -> None:
    with pytest.raises(UserError, match=f"downscale={downscale} does not divide .* 6x4; use one of 1, 2"):
        load_blender(folder, "train", downscale)


def test_depth_is_distance_along_the_ray(tmp_path: Path) -> None:
    write_sphere_scene(tmp_path, views=2, size=9, with_depth=True)
    posed = load_blender(tmp_path, "train")
    for view in range(2):
        expected = sphere_depth(posed.cameras.image_rays(view)).reshape(9, 9)
        torch.testing.assert_close(posed.depth(view), expected, atol=DEPTH_SCALE, rtol=0)
    assert posed.depth(0)[4, 4].item() == pytest.approx(3, abs=DEPTH_SCALE)
    assert torch.equal(posed.depths > 0, posed.pixels[:, 3] == 255)


def test_depth_downscales_over_hits_only(tmp_path: Path) -> None:
    depths = np.array([[[0, 2, 0, 0], [3, 4, 0, 0]]], np.float32)
    write_split(tmp_path, "train", random_images(1, 2, 4, 3), POSES[:1], depths)
    half = load_blender(tmp_path, "train", downscale=2).depth(0)
    torch.testing.assert_close(half, torch.tensor([[3.0, 0.0]]))


def test_official_lego() -> None:
    posed = load_blender(official_scene("lego"), "train", downscale=8)
    assert posed.pixels.shape == (1_000_000, 4) and posed.has_alpha
    assert posed.names[:2] == ["r_0", "r_1"]
    torch.testing.assert_close(posed.cameras.intrinsics[0], torch.tensor([1111.1111 / 8] * 2 + [50, 50]))
    radii = posed.cameras.centers.norm(dim=-1)
    torch.testing.assert_close(radii, torch.full((100,), 4.0311), atol=1e-3, rtol=0)


# Finding a scene


def test_find_scene_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, exported, mine = tmp_path / "data", tmp_path / "exported", tmp_path / "mine"
    monkeypatch.setenv("NERF_DATA", str(exported))
    in_order = [data / "lego", exported / "lego", data / "nerf_synthetic" / "lego"]
    for place in in_order:  # each found in turn outranks those before it
        write_split(place, "train", random_images(1, 1, 1, 3), POSES[:1])
        assert find_scene(None, "lego", data) == place
    write_split(mine / "lego", "train", random_images(1, 1, 1, 3), POSES[:1])
    assert find_scene(str(mine), "lego", data) == mine / "lego"
    assert find_scene(str(mine / "lego"), "lego", data) == mine / "lego"


def test_find_scene_lists_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NERF_DATA", str(tmp_path / "exported"))
    with pytest.raises(UserError) as caught:
        find_scene(None, "lego", tmp_path)
    for place in ("nerf_synthetic/lego", "exported/lego", "lego"):
        assert str(tmp_path / place) in str(caught.value)
    for remedy in ("dataset.root=PATH", "export NERF_DATA", "Fetch it with: ", "download.py lego"):
        assert remedy in str(caught.value)
    with pytest.raises(UserError, match="Scene 'mine' not found.* Set dataset.root=PATH") as caught:
        find_scene(None, "mine", tmp_path)
    assert "download.py" not in str(caught.value)


def test_explicit_root_is_the_only_place_searched(folder: Path) -> None:
    with pytest.raises(UserError, match="elsewhere/lego"):
        find_scene("elsewhere", "lego", folder.parent)


def test_a_scene_without_a_file_of_test_views_holds_some_out(tmp_path: Path) -> None:
    images = random_images(5, 4, 6, 3)
    write_split(tmp_path, "train", images, [POSES[0]] * 5)
    plain = DatasetConfig(root=str(tmp_path), test_every=3)
    for settings in (plain, replace(plain, skip_missing=True)):  # the second is read as a capture
        train, test = load_split(settings, "train"), load_split(settings, "test")
        assert (train.names, test.names) == (["r_1", "r_2", "r_4"], ["r_0", "r_3"])
        assert np.array_equal(test.image(1).numpy(), images[3])
        check_split(settings, "test")
    assert "one image in 3 is a test view" in load_blender(tmp_path, "train", test_every=3).notes[0]
    all_of_them = DatasetConfig(root=str(tmp_path), test_every=0)
    assert len(load_split(all_of_them, "train")) == 5
    with pytest.raises(UserError, match=r"transforms_test.json: no such file.*dataset.test_every=8.*split=train"):
        check_split(all_of_them, "test")
    write_split(tmp_path, "val", images[:1], POSES[:1])
    with pytest.raises(UserError, match=r"found in its folder: train, val.*evaluation.split=val"):
        check_split(DatasetConfig(root=str(tmp_path)), "test")
    assert len(load_split(DatasetConfig(root=str(tmp_path)), "train")) == 5


def test_names_as_cameras_and_windows_write_them(folder: Path) -> None:
    (folder / "train" / "r_0.png").rename(folder / "train" / "r_0.PNG")
    names = {"r_0": "./train/r_0", "r_1": r".\train\r_1"}
    edit_transforms(folder, lambda found: [f.update(file_path=n) for f, n in zip(found["frames"], names.values())])
    assert load_blender(folder, "train").names == list(names)
