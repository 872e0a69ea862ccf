"""The viewer's kinds of picture say what the renderer says."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from viewed import tiny_scene

from nerf.calibration.vignetting import vignetted_image
from nerf.cameras.cameras import Cameras
from nerf.images.pixel_runs import PixelRuns
from nerf.images.srgb import to_linear
from nerf.images.visualize import color_error
from nerf.rendering.render import Rendering, render_image
from nerf.viewer.look import Look, ViewCamera, page_pose, vertical_fov
from nerf.viewer.modes import MODES, UNSEEN, draw_pixels, nearest_camera
from nerf.viewer.scene import Scene


def drawn(look: Look, cameras: Cameras | None = None, scene: Scene | None = None) -> Tensor:
    """The picture [H,W,3] in [0,1], in three parts."""
    scene = tiny_scene() if scene is None else scene
    cameras = scene.cameras[0] if cameras is None else cameras
    pixels = cameras.width * cameras.height
    cuts = [0, pixels // 3, pixels // 2, pixels]
    parts = [draw_pixels(scene, look, cameras, *span, scene.sampler.rays_per_pixel) for span in zip(cuts, cuts[1:])]
    return torch.cat(parts).view(cameras.height, cameras.width, 3).float() / 255


def rendered() -> Rendering:
    scene = tiny_scene()
    return render_image(scene.field, scene.sampler, scene.cameras, 0, scene.background)


def test_color_and_opacity_are_those_of_render_image() -> None:
    expected = rendered()
    torch.testing.assert_close(drawn(Look()), expected.rgb.clamp(0, 1), rtol=0, atol=0.5 / 255 + 1e-5)
    opacity = drawn(Look("opacity"))[..., 0]
    torch.testing.assert_close(opacity, expected.opacity.clamp(0, 1), rtol=0, atol=0.5 / 255 + 1e-5)


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "occupancy"])
def test_each_shows_the_object_before_nothing(mode: str) -> None:
    picture, opacity = drawn(Look(mode)), rendered().opacity
    full, empty = picture[opacity > 0.9], picture[opacity < 0.1]
    assert len(full) > 0 and len(empty) > 0
    assert (full.mean(0) - empty.mean(0)).abs().max() > 0.1


def test_occupancy_shows_cells_where_there_are_some() -> None:
    nothing = drawn(Look("occupancy", crop_lower=(0.0, 0.0, 1.0)))
    assert (nothing == nothing[0, 0]).all()
    cells = (drawn(Look("occupancy")) - nothing).abs().amax(-1) > 0.05
    assert cells[rendered().opacity > 0.5].all()


def test_another_background_shows_where_the_scene_is_empty() -> None:
    red, white = drawn(Look(background=(1.0, 0.0, 0.0))), drawn(Look(background=(1.0, 1.0, 1.0)))
    clear = 1 - rendered().opacity
    torch.testing.assert_close((white - red)[..., 1], clear, rtol=0, atol=0.02)
    torch.testing.assert_close((white - red)[..., 0], torch.zeros_like(clear), rtol=0, atol=0.02)


def test_an_empty_crop_box_and_a_near_far_plane_show_nothing() -> None:
    for look in (Look("opacity", crop_lower=(0.0, 0.0, 1.0)), Look("opacity", near=1e3), Look("opacity", far=0.01)):
        assert drawn(look).max() == 0


def test_half_a_crop_box_shows_less() -> None:
    half = drawn(Look("opacity", crop_lower=(0.5, 0.0, 0.0))).mean()
    assert 0.05 < half / drawn(Look("opacity")).mean() < 0.95


def test_the_error_at_a_training_camera_is_that_of_evaluation() -> None:
    scene, seen = tiny_scene(), rendered()
    expected = color_error(seen.rgb, scene.photos.image_over(0, scene.background))
    inside = seen.opacity > 0.5
    found = drawn(Look("error"))
    assert (found[~inside] - UNSEEN).abs().max() < 0.01
    assert (found[inside] - expected[inside]).abs().mean() < 0.02


def test_the_error_is_unseen_where_the_photo_is_masked() -> None:
    scene, inside = tiny_scene(), rendered().opacity > 0.5
    counted = torch.ones(len(scene.cameras), *inside.shape, dtype=torch.bool)
    counted[:, :, inside.shape[1] // 2 :] = False
    masked = replace(scene, photos=replace(scene.photos, valid_pixels=PixelRuns.of_mask(counted.flatten())))
    whole, found, kept = drawn(Look("error")), drawn(Look("error"), scene=masked), counted[0] & inside
    assert (found[inside & ~kept] - UNSEEN).abs().max() < 0.01
    assert (found[kept] == whole[kept]).float().mean() > 0.95  # a point may fall into the pixel beside


def test_the_error_is_of_the_picture_with_the_photos_vignetting() -> None:
    scene, seen = tiny_scene(), rendered()
    known = torch.zeros(len(scene.cameras), 3)
    known[0, 0] = -0.6
    opaque = torch.ones_like(seen.rgb[..., :1])
    darkened = vignetted_image(seen.rgb, opaque, scene.cameras, 0, known)
    expected = color_error(darkened, scene.photos.image_over(0, scene.background))
    inside = seen.opacity > 0.5
    found = drawn(Look("error"), scene=replace(scene, vignetting=known))
    assert (found[inside] - expected[inside]).abs().mean() < 0.02
    assert (drawn(Look("error"))[inside] - expected[inside]).abs().mean() > 0.03


def test_the_nearest_camera_of_a_training_pose_is_itself() -> None:
    cameras = tiny_scene().cameras
    assert [nearest_camera(cameras, pose) for pose in cameras.c2w] == list(range(len(cameras)))


def test_a_pose_goes_to_the_page_and_back() -> None:
    cameras = tiny_scene().cameras
    for index, pose in enumerate(cameras.c2w):
        fov = vertical_fov(cameras, index)
        view = ViewCamera.of_page(*page_pose(pose), fov, cameras.width, cameras.height, largest=1000)
        torch.testing.assert_close(view.c2w, pose, rtol=0, atol=1e-5)
        again = view.cameras(cameras.width, cameras.height)
        torch.testing.assert_close(again.intrinsics[0], cameras.intrinsics[index])


def test_a_large_window_gets_a_smaller_picture() -> None:
    view = ViewCamera.of_page(*page_pose(tiny_scene().cameras.c2w[0]), 0.8, 4000, 2000, largest=1000)
    assert (view.width, view.height) == (1000, 500)


def test_a_far_plane_of_the_run_stays() -> None:
    sampler = tiny_scene().sampler
    limited = replace(sampler, config=replace(sampler.config, near=0.5, far=3.0))
    assert Look(far=math.inf).limit(limited).config.far == 3.0
    assert Look(near=0.1).limit(limited).config.near == 0.5


def test_exposure_brightens_colors_and_nothing_else() -> None:
    before, after = drawn(Look()), drawn(Look(exposure=-1.0))
    torch.testing.assert_close(to_linear(after), to_linear(before) / 2, rtol=0, atol=0.01)
    for mode in ("depth", "normals", "opacity", "features"):
        assert drawn(Look(mode, exposure=2.0)).equal(drawn(Look(mode)))
