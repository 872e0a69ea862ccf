"""Panoramas where cameras are drawn, stood at or looked through: the viewer, the dry run's page, a web page's start."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from panorama_scene import room_panoramas

from nerf.cameras.cameras import Cameras
from nerf.cameras.distortion import Lenses
from nerf.datasets.posed_images import PosedImages
from nerf.diagnostics.dry_run_page import _scene
from nerf.export.raster import first_surfaces
from nerf.export.web.export import _start
from nerf.viewer.look import vertical_fov
from nerf.viewer.modes import nearest_camera


def panoramas() -> Cameras:
    return room_panoramas(4, 32)


def test_one_stands_where_a_panorama_was_and_looks_ahead() -> None:
    cameras = panoramas()
    assert vertical_fov(cameras, 2) == pytest.approx(math.pi / 2, rel=0.02)
    start = _start(cameras)
    center, ahead = cameras.centers[0], -cameras.c2w[0, :, 2]
    assert start["center"] == pytest.approx(center.tolist()) and start["aspect"] == 1
    looks = torch.nn.functional.normalize(torch.tensor(start["target"]) - center, dim=0)
    torch.testing.assert_close(looks, ahead, rtol=0, atol=1e-5)
    assert start["focal"] == pytest.approx(0.5, rel=0.05)  # of the height


def test_the_nearest_panorama_is_so_however_it_is_turned() -> None:
    cameras = panoramas()
    behind = cameras.c2w[1].clone()
    behind[:, [0, 2]] *= -1
    assert nearest_camera(cameras, behind) == 1
    pinholes = Cameras(cameras.c2w, cameras.intrinsics, 64, 32)
    assert nearest_camera(pinholes, behind) != 1


def test_a_frustum_shows_the_part_of_the_picture_that_is_ahead() -> None:
    pytest.importorskip("viser", reason="no viser: pip install viser")
    from nerf.viewer.cameras_panel import _thumbnail

    cameras = panoramas()[[0]]
    pixels = torch.zeros(32, 64, 3, dtype=torch.uint8)
    pixels[8:24, 24:40, 1] = 255
    scene = SimpleNamespace(
        photos=PosedImages(pixels.view(-1, 3), cameras, ["a"]), cameras=cameras, background=torch.ones(3)
    )
    shown = _thumbnail(scene, 0)
    assert shown.shape == (16, 16, 3)
    np.testing.assert_array_equal(shown, np.broadcast_to([0, 255, 0], shown.shape))


def test_the_dry_run_draws_frusta_that_look_ahead() -> None:
    lenses = Lenses.of(["equirectangular", "perspective"], [(), ()])
    cameras = Cameras(panoramas().c2w[:2], panoramas().intrinsics[:2], 64, 32, None, lenses)
    images = PosedImages(torch.zeros(2 * 64 * 32, 3, dtype=torch.uint8), cameras, ["a", "b"])
    found = SimpleNamespace(points=torch.zeros(0, 3), point_colors=torch.zeros(0, 3), box=None)
    for index, frustum in enumerate(_scene(cameras, images, found)["frusta"]):
        corners = torch.tensor(frustum[1:]) - torch.tensor(frustum[0])
        middle = torch.nn.functional.normalize(corners.mean(0), dim=0)
        assert middle @ -cameras.c2w[index, :, 2] > 0.999


def test_triangles_are_not_drawn_through_a_panorama() -> None:
    with pytest.raises(ValueError, match="found a panorama"):
        first_surfaces(torch.rand(3, 3), torch.tensor([[0, 1, 2]]), panoramas(), 0)
