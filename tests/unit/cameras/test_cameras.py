"""Cameras: pixels to rays and back, pixel centers, OpenGL axes."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nerf.cameras.cameras import SUBPIXELS, Cameras, corner_radii, focal_from_fov
from nerf.cameras.distortion import Lenses
from nerf.cameras.rays import Rays
from nerf.ops import native, reference

WIDTH, HEIGHT = 8, 6


def random_cameras(count: int = 3, dtype: torch.dtype = torch.float64) -> Cameras:
    """Cameras in any pose, with focal lengths and centers of their own on each axis."""
    rotations = torch.linalg.qr(torch.randn(count, 3, 3, dtype=dtype)).Q
    rotations = rotations * torch.linalg.det(rotations)[:, None, None]
    c2w = torch.cat([rotations, torch.randn(count, 3, 1, dtype=dtype)], dim=-1)
    intrinsics = torch.tensor([7.0, 9.0, 3.5, 2.75], dtype=dtype) + torch.rand(count, 4, dtype=dtype)
    return Cameras(c2w, intrinsics, WIDTH, HEIGHT)


def identity_camera() -> Cameras:
    """At the origin, looking along -z; the principal point is the center of pixel (4, 2)."""
    c2w = torch.eye(4)[:3][None]
    return Cameras(c2w, torch.tensor([[10.0, 20.0, 4.5, 2.5]]), WIDTH, HEIGHT)


def all_pixels(cameras: Cameras) -> Tensor:
    return torch.arange(len(cameras) * WIDTH * HEIGHT)


def test_projecting_a_point_on_a_ray_gives_its_pixel_center():
    cameras = random_cameras()
    rays = cameras.rays_through(all_pixels(cameras))
    distance = 0.5 + 4 * torch.rand(len(rays), 1, dtype=torch.float64)
    points = (rays.origins + distance * rays.directions).reshape(len(cameras), -1, 3)
    row, column = torch.meshgrid(torch.arange(HEIGHT), torch.arange(WIDTH), indexing="ij")
    centers = torch.stack([column, row], dim=-1).reshape(-1, 2).double() + 0.5
    for image in range(len(cameras)):
        pixels, z = cameras.project(image, points[image])
        torch.testing.assert_close(pixels, centers)
        assert (z > 0).all() and (z <= distance.reshape(len(cameras), -1)[image]).all()


def test_rays_start_at_the_camera_and_have_length_one():
    cameras = random_cameras()
    rays = cameras.rays_through(all_pixels(cameras))
    torch.testing.assert_close(rays.directions.norm(dim=-1), torch.ones(len(rays)).double())
    owner = all_pixels(cameras) // (WIDTH * HEIGHT)
    assert torch.equal(rays.origins, cameras.centers[owner])


def test_the_pixel_at_the_principal_point_looks_along_minus_z():
    rays = identity_camera().image_rays(0)
    center = rays.directions.view(HEIGHT, WIDTH, 3)[2, 4]
    assert center.tolist() == [0.0, 0.0, -1.0]


def test_columns_run_right_and_rows_run_down():
    """One pixel to the right adds 1 / fx, one pixel down subtracts 1 / fy."""
    directions = identity_camera().image_rays(0).directions.view(HEIGHT, WIDTH, 3)
    slopes = directions / -directions[..., 2:]
    torch.testing.assert_close(slopes[2, 5], torch.tensor([0.1, 0.0, -1.0]))
    torch.testing.assert_close(slopes[3, 4], torch.tensor([0.0, -0.05, -1.0]))


def test_depth_is_measured_along_the_axis_and_negative_behind():
    cameras = identity_camera()
    _, z = cameras.project(0, torch.tensor([[1.0, 2.0, -3.0], [0.0, 0.0, 4.0], [5.0, 5.0, 0.0]]))
    assert z.tolist() == [3.0, -4.0, 0.0]


def test_points_that_cannot_be_projected_stay_finite():
    pixels, _ = identity_camera().project(0, torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 2.0]]))
    assert pixels.isfinite().all()


def test_one_camera_of_many_keeps_its_rays():
    cameras = random_cameras()
    for index in range(len(cameras)):
        alone, among = cameras[index].image_rays(0), cameras.image_rays(index)
        assert torch.equal(alone.origins, among.origins) and torch.equal(alone.directions, among.directions)
    assert len(cameras[1:]) == 2 and len(cameras[2]) == 1


def test_no_pixels_give_no_rays():
    rays = random_cameras().rays_through(torch.zeros(0, dtype=torch.int64))
    assert len(rays) == 0 and rays.directions.shape == (0, 3)


def test_the_farthest_corner_of_a_picture():
    intrinsics = torch.tensor([[10.0, 20.0, 3.0, 20.0], [10.0, 20.0, 30.0, 20.0]])
    assert corner_radii(intrinsics, torch.tensor([[33, 60]] * 2)) == pytest.approx([math.hypot(3, 2)] * 2)


@pytest.mark.parametrize("size, fov", [(800, 0.6911), (64, math.pi / 2)])
def test_focal_length_spans_the_field_of_view(size, fov):
    assert 2 * math.atan(0.5 * size / focal_from_fov(size, fov)) == pytest.approx(fov)


def test_cameras_move_to_another_device(device):
    cameras = random_cameras().to(device)
    rays = cameras.image_rays(1)
    assert rays.directions.device.type == cameras.centers.device.type == device


@pytest.mark.parametrize(
    ("size", "expected_size", "expected_intrinsics"),
    [
        ({}, (64, 48), [50.0, 60.0, 31.0, 25.0]),
        ({"width": 32}, (32, 24), [25.0, 30.0, 15.5, 12.5]),
        ({"height": 96}, (128, 96), [100.0, 120.0, 62.0, 50.0]),
        ({"width": 32, "height": 96}, (32, 96), [100.0, 120.0, 14.0, 50.0]),
        ({"width": 64, "height": 24}, (64, 24), [25.0, 30.0, 31.5, 12.5]),
        ({"scale": 0.5}, (32, 24), [25.0, 30.0, 15.5, 12.5]),
        ({"scale": 1e-6}, (1, 1), [50 / 48, 60 / 48, 0.5 - 1 / 48, 25 / 48]),
    ],
)
def test_resizing_keeps_the_vertical_field_of_view_and_square_pixels_square(size, expected_size, expected_intrinsics):
    cameras = Cameras(torch.eye(4)[:3].repeat(3, 1, 1), torch.tensor([[50.0, 60.0, 31.0, 25.0]]).repeat(3, 1), 64, 48)
    found = cameras.resized(**size)
    assert (found.width, found.height) == expected_size
    torch.testing.assert_close(found.intrinsics, torch.tensor([expected_intrinsics] * 3))
    assert torch.equal(found.c2w, cameras.c2w)


def test_resized_refuses_no_pixels_and_two_wishes():
    with pytest.raises(ValueError, match="width: found 0, expected at least 1"):
        identity_camera().resized(width=0, height=5)
    with pytest.raises(ValueError, match="scale, width, height: found 2.0, 5, None, expected scale alone"):
        identity_camera().resized(width=5, scale=2.0)


def test_rays_come_in_ranges_of_pixels():
    cameras = random_cameras()
    whole = cameras.image_rays(1)
    assert len(whole) == WIDTH * HEIGHT
    parts = [cameras.pixel_range_rays(1, first, first + 10) for first in range(0, WIDTH * HEIGHT, 10)]
    assert [len(part) for part in parts] == [10, 10, 10, 10, 8]
    torch.testing.assert_close(torch.cat([part.directions for part in parts]), whole.directions)
    torch.testing.assert_close(torch.cat([part.origins for part in parts]), whole.origins)


def test_an_image_may_be_counted_from_the_end() -> None:
    cameras = random_cameras()
    assert torch.equal(cameras.image_rays(-1).directions, cameras.image_rays(len(cameras) - 1).directions)
    with pytest.raises(IndexError):
        cameras.image_rays(len(cameras))


def test_pictures_fit_within_a_side() -> None:
    pose = torch.eye(4)[None, :3]
    cameras = Cameras(pose, torch.tensor([[3000.0, 3000.0, 2000.0, 1500.0]]), 4000, 3000)
    assert cameras.within(4000) is cameras
    small = cameras.within(400)
    assert (small.width, small.height) == (400, 300)
    torch.testing.assert_close(small.intrinsics, torch.tensor([[300.0, 300.0, 200.0, 150.0]]))


# Several rays of a pixel

SEVERAL = pytest.mark.parametrize("per_pixel", [2, 4])


def cameras_of_sizes() -> Cameras:
    """As random_cameras, with pictures of two sizes."""
    cameras = random_cameras()
    return Cameras.of_sizes(cameras.c2w, cameras.intrinsics, [(WIDTH, HEIGHT), (5, 7), (WIDTH, HEIGHT)])


def assert_rays_pass_where_they_should(rays: Rays, cameras: Cameras, pixels: Tensor, per_pixel: int) -> None:
    """Each ray of a pixel goes through the center of the same pixel of a camera whose picture is shifted that far."""
    assert rays.per_pixel == per_pixel and len(rays) == per_pixel * len(pixels)
    for number, offset in enumerate(SUBPIXELS[per_pixel]):
        shift = torch.tensor([0.0, 0.0, *offset]).to(cameras.intrinsics)
        expected = replace(cameras, intrinsics=cameras.intrinsics - shift).rays_through(pixels)
        torch.testing.assert_close(rays.directions[number::per_pixel], expected.directions)
        assert torch.equal(rays.origins[number::per_pixel], expected.origins)


@SEVERAL
@pytest.mark.parametrize("cameras", [random_cameras, cameras_of_sizes])
def test_rays_of_a_pixel_pass_it_where_subpixels_says(cameras, per_pixel):
    """In any order of the pixels, also twice."""
    cameras = cameras()
    pixels = torch.randint(cameras.first_pixel(len(cameras)), (200,))
    assert_rays_pass_where_they_should(cameras.rays_through(pixels, per_pixel), cameras, pixels, per_pixel)


@SEVERAL
@pytest.mark.parametrize("cameras", [random_cameras, cameras_of_sizes])
def test_ranges_of_pixels_have_the_same_rays(cameras, per_pixel):
    cameras = cameras()
    for index in range(len(cameras)):
        first, end = cameras.first_pixel(index), cameras.first_pixel(index + 1)
        for start in range(0, end - first, 10):  # rows have other lengths, and the last range goes on beyond the end
            rays = cameras.pixel_range_rays(index, start, start + 10, per_pixel)
            pixels = torch.arange(first + start, min(first + start + 10, end))
            assert_rays_pass_where_they_should(rays, cameras, pixels, per_pixel)


@pytest.mark.parametrize("per_pixel", SUBPIXELS)
def test_rays_are_spread_evenly_over_their_pixel(per_pixel):
    """Around its center, and each alone in one of as many rows and columns."""
    offsets = torch.tensor(SUBPIXELS[per_pixel])
    assert offsets.shape == (per_pixel, 2) and not offsets.mean(0).any()
    strips = ((offsets + 0.5) * per_pixel).floor()
    assert torch.equal(strips.sort(0).values, torch.arange(per_pixel)[:, None].expand(-1, 2).float())


@pytest.mark.parametrize("ops", [native, reference], ids=["native", "torch"])
@pytest.mark.parametrize("different", [False, True])
def test_pixels_move_within_their_image(different, ops):
    sizes = [(8, 6), (5, 9), (4, 4)] if different else [(8, 6)] * 3
    cameras = Cameras.of_sizes(random_cameras().c2w, random_cameras().intrinsics, sizes)
    pixels = torch.arange(cameras.first_pixel(3)).repeat(20)
    shifts = torch.randint(-6, 7, (len(pixels), 2))
    image, column, row = cameras.locate(pixels)
    after = cameras.locate(cameras.moved(pixels, shifts.float(), ops))
    width, height = torch.tensor(sizes)[image].unbind(-1)
    assert torch.equal(after[0], image)
    assert torch.equal(after[1], (column + shifts[:, 0]).clamp(min=0).minimum(width - 1))
    assert torch.equal(after[2], (row + shifts[:, 1]).clamp(min=0).minimum(height - 1))


def test_projecting_into_several_images_is_projecting_into_each():
    cameras, points = random_cameras(5), 3 * torch.randn(50, 3, dtype=torch.float64)
    pixels, z = cameras.project_into(range(1, 4), points)
    assert pixels.shape == (3, 50, 2) and z.shape == (3, 50)
    for number, image in enumerate((1, 2, 3)):
        alone = cameras.project(image, points)
        torch.testing.assert_close((pixels[number], z[number]), alone)


@pytest.mark.parametrize("distorted", [False, True])
def test_projecting_along_rays_is_projecting_their_points(distorted):
    cameras = random_cameras(3)
    if distorted:
        cameras = replace(cameras, lenses=Lenses.of(["perspective"] * 3, [[0.1, -0.02]] * 3))
    rays = Rays(torch.randn(20, 3, dtype=torch.float64), torch.randn(20, 3, dtype=torch.float64))
    t = torch.rand(20, 7, dtype=torch.float64)
    points = rays.origins[:, None] + t[..., None] * rays.directions[:, None]
    u, v, z = cameras.project_along(1, rays, t)
    pixels, expected_z = cameras.project(1, points.view(-1, 3))
    torch.testing.assert_close(torch.stack([u, v], dim=-1).view(-1, 2), pixels)
    torch.testing.assert_close(z.flatten(), expected_z)
    assert (z > 0).any() and (z < 0).any()


def test_one_camera_is_chosen_by_its_number_as_of_a_list() -> None:
    c2w = torch.eye(3, 4).repeat(3, 1, 1)
    c2w[:, 0, 3] = torch.arange(3)
    cameras = Cameras(c2w, torch.ones(3, 4), 4, 4, torch.tensor([[4, 4], [3, 4], [4, 2]]))
    assert [camera.c2w[0, 0, 3].item() for camera in cameras] == [0, 1, 2]  # and it ends
    assert torch.equal(cameras[-1].c2w, c2w[2:]) and cameras[-1].size(0) == (4, 2)
    for index in (3, 7, -4):
        with pytest.raises(IndexError):
            cameras[index]
