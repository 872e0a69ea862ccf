"""Panoramas: every pixel's ray by nerfstudio's formula, projection as its inverse, poles, seam, pinholes instead."""

import math
from dataclasses import replace

import pytest
import torch
from panorama_scene import room_panoramas
from torch import Tensor

from nerf.cameras.cameras import PANORAMA, SUBPIXELS, Cameras
from nerf.cameras.distortion import Lenses
from nerf.cameras.panoramas import FACES, common_target, cube_faces, full_turn, views_ahead
from nerf.cameras.paths import looks_at_something, orbit, spiral, tour, turn
from nerf.cameras.splines import interpolate

AXES = {"right": (1.0, 0.0, 0.0), "up": (0.0, 1.0, 0.0), "ahead": (0.0, 0.0, -1.0)}


def panoramas(count: int = 3, height: int = 12) -> Cameras:
    return room_panoramas(count, height)


def at_origin(height: int = 12) -> Cameras:
    """One panorama whose axes are the world's."""
    return replace(panoramas(1, height), c2w=torch.eye(4)[None, :3])


def mixed() -> Cameras:
    """A pinhole, a fisheye and two panoramas of different sizes in one set."""
    sizes = [(20, 16), (18, 18), (24, 12), (40, 20)]
    intrinsics = [(15.0, 16.0, 9.0, 8.5), (10.0, 10.0, 9.0, 9.0), full_turn(24, 12), full_turn(40, 20)]
    lenses = Lenses.of(["perspective", "fisheye", PANORAMA, PANORAMA], [[], [0.03], [], []])
    return Cameras.of_sizes(panoramas(4).c2w, torch.tensor(intrinsics), sizes, lenses)


def by_nerfstudio(c2w: Tensor, width: int, height: int, x: Tensor, y: Tensor) -> Tensor:
    """Directions [N,3] through pixel coordinates: nerfstudio/cameras/cameras.py, its names and its signs, float64."""
    fx, fy, cx, cy = width / 2, height, width / 2, height / 2
    theta = -math.pi * (x - cx) / fx
    phi = math.pi * (0.5 + (y - cy) / fy)
    local = torch.stack([-theta.sin() * phi.sin(), phi.cos(), -theta.cos() * phi.sin()], dim=-1)
    return local @ c2w[:, :3].T.double()


@pytest.mark.parametrize("per_pixel", list(SUBPIXELS))
def test_the_ray_of_each_pixel_is_nerfstudios(per_pixel: int) -> None:
    cameras = panoramas()
    width, height = cameras.size(0)
    rays = cameras.rays_through(torch.arange(len(cameras) * width * height), per_pixel)
    row, column = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    shift = torch.tensor(SUBPIXELS[per_pixel]).double()
    x, y = (grid.double().flatten()[:, None] + shift[:, axis] for axis, grid in enumerate((column, row)))
    for index, some in enumerate(rays.directions.view(len(cameras), -1, 3)):
        expected = by_nerfstudio(cameras.c2w[index], width, height, x.flatten(), y.flatten())
        torch.testing.assert_close(some.double(), expected, rtol=0, atol=5e-7)
    torch.testing.assert_close(rays.origins, cameras.centers.repeat_interleave(width * height * per_pixel, dim=0))


def test_directions_lie_where_they_should() -> None:
    """Ahead in the middle, right a quarter to its right, up at the top, behind on the left edge."""
    cameras = at_origin()
    width, height = cameras.size(0)
    places = {
        "ahead": (width / 2, height / 2),
        "right": (3 * width / 4, height / 2),
        "left": (width / 4, height / 2),
        "behind": (0, height / 2),
    }
    for name, place in places.items():
        sign = -1.0 if name in ("left", "behind") else 1.0
        axis = torch.tensor(AXES[{"left": "right", "behind": "ahead"}.get(name, name)])
        pixels, z = cameras.project(0, sign * 3.0 * axis[None])
        assert pixels[0].tolist() == pytest.approx(place, abs=1e-4) and z.item() == pytest.approx(3.0)
    for sign, row in ((1.0, 0.0), (-1.0, height)):
        pixels, z = cameras.project(0, sign * 2.0 * torch.tensor(AXES["up"])[None])
        assert pixels[0, 1].item() == pytest.approx(row, abs=1e-5) and z.item() == pytest.approx(2.0)
        assert 0 <= pixels[0, 0] < width


@pytest.mark.parametrize("index", range(4))
def test_projection_is_the_inverse_of_rays(index: int) -> None:
    cameras = mixed()
    width, height = cameras.size(index)
    rays = cameras.image_rays(index)
    t = 0.5 + 3 * torch.rand(len(rays.origins), generator=torch.Generator().manual_seed(2))
    points = rays.origins + t[:, None] * rays.directions
    pixels, z = cameras.project(index, points)
    row, column = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    expected = torch.stack([column.flatten(), row.flatten()], dim=-1)
    torch.testing.assert_close(pixels, expected, rtol=0, atol=2e-3 if index < 2 else 1e-4)
    torch.testing.assert_close(z, t * cameras.z_along(index, rays.directions), rtol=1e-5, atol=1e-5)
    if index >= 2:
        torch.testing.assert_close(z, t, rtol=1e-5, atol=0)
    along = cameras.project_along(index, rays, t[:, None])
    torch.testing.assert_close(torch.stack([x[:, 0] for x in along[:2]], dim=-1), pixels, rtol=0, atol=2e-3)
    torch.testing.assert_close(along[2][:, 0], z, rtol=1e-5, atol=1e-5)


def test_one_kind_among_others_is_as_it_is_alone() -> None:
    cameras = mixed()
    every = cameras.rays_through(torch.arange(cameras.first_pixel(len(cameras))))
    alone = [cameras[[index]].image_rays(0) for index in range(len(cameras))]
    torch.testing.assert_close(every.directions, torch.cat([rays.directions for rays in alone]), rtol=0, atol=1e-6)
    assert cameras.panoramas.tolist() == [False, False, True, True] and cameras.has_panoramas
    assert not cameras[[0, 1]].has_panoramas and cameras[3].has_panoramas
    assert "perspective and fisheye and equirectangular lenses" in repr(cameras)


def test_both_sides_of_the_seam_and_both_signs_of_zero_are_in_the_picture() -> None:
    cameras = at_origin()
    width, _ = cameras.size(0)
    beside = torch.tensor([[0.0, 0.3, 2.0], [-0.0, 0.3, 2.0], [1e-4, 0.3, 2.0], [-1e-4, 0.3, 2.0]])
    column = cameras.project(0, beside)[0][:, 0]
    assert (column >= 0).all() and (column < width).all()
    assert column[2] > width - 0.01 and column[3] < 0.01  # right and left of straight behind
    rays = cameras.image_rays(0).directions.view(-1, width, 3)
    across = (rays[:, 0] * rays[:, -1]).sum(-1)  # the first and the last column are neighbors
    torch.testing.assert_close(across, (rays[:, 0] * rays[:, 1]).sum(-1), rtol=0, atol=1e-6)


@pytest.mark.parametrize("place", [(0.0, 2.0, 0.0), (0.0, -2.0, 0.0), (0.0, 0.0, 2.0), (0.0, 0.0, 0.0)])
def test_derivatives_are_finite_at_the_poles_behind_and_in_the_camera(place: tuple[float, float, float]) -> None:
    points = torch.tensor([place], requires_grad=True)
    pixels, z = at_origin().project(0, points)
    (pixels.sum() + z.sum()).backward()
    assert pixels.isfinite().all() and points.grad.isfinite().all()


def test_derivatives_of_rays_and_projection_are_those_of_differences() -> None:
    lenses = Lenses.of([PANORAMA], [()])
    image = torch.zeros(5, dtype=torch.int64)
    generator = torch.Generator().manual_seed(3)
    plane = (2 * torch.rand(5, 2, generator=generator, dtype=torch.float64) - 1).requires_grad_()
    points = torch.randn(5, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda p: lenses.undistort(image, p), plane)
    assert torch.autograd.gradcheck(lambda p: lenses.distort(image, p), points)


@pytest.mark.parametrize("size", [dict(scale=0.5), dict(width=16), dict(height=30), dict(width=50, height=31)])
def test_another_size_is_still_the_whole_sphere(size: dict) -> None:
    cameras = panoramas().resized(**size)
    width, height = cameras.size(0)
    expected = torch.tensor(full_turn(width, height)).expand(len(cameras), 4)
    torch.testing.assert_close(cameras.intrinsics, expected, rtol=1e-6, atol=0)


def test_pinholes_keep_the_rule_of_other_sizes_beside_panoramas() -> None:
    cameras = mixed()
    alone, together = cameras[[0]].resized(30, 10), cameras.resized(30, 10)
    torch.testing.assert_close(together.intrinsics[:1], alone.intrinsics)


def test_the_faces_of_a_cube_see_every_direction_once() -> None:
    cameras = panoramas(2, 20)
    faces = cube_faces(cameras)
    assert len(faces) == 2 * len(FACES) and faces.lenses is None
    rotation = faces.c2w[:, :, :3]
    torch.testing.assert_close(rotation @ rotation.mT, torch.eye(3).expand(12, 3, 3), rtol=0, atol=1e-6)
    assert torch.linalg.det(rotation).min() > 0.99
    for index in range(2):
        rays = cameras.image_rays(index)
        seen = torch.zeros(len(rays.origins), dtype=torch.int64)
        for face in range(6 * index, 6 * index + 6):
            pixels, z = faces.project(face, rays.origins + 2 * rays.directions)
            side = faces.size(face)[0]
            seen += (z > 0) & (pixels >= 0).all(-1) & (pixels < side).all(-1)
            forward = -faces.c2w[face, :, 2]
            pixel = (cameras.project(index, (cameras.centers[index] + forward)[None])[0][0] / 20 * 4).tolist()
            expected = ((4, 2), (6, 2), (0, 2), (2, 2), (None, 0), (None, 4))[face % 6]
            for found, wanted in zip(pixel, expected):
                # Straight behind may be on either edge.
                assert wanted is None or found == pytest.approx(wanted, abs=1e-2) or (wanted == 0 and found > 7.99)
        assert (seen == 1).all()


def test_other_cameras_stay_beside_views_ahead() -> None:
    cameras = mixed()
    ahead, faces = views_ahead(cameras), cube_faces(cameras)
    assert len(ahead) == 4 and ahead.lenses.models == ["perspective", "fisheye", "perspective", "perspective"]
    assert torch.equal(ahead.c2w, cameras.c2w) and torch.equal(ahead.intrinsics[:2], cameras.intrinsics[:2])
    assert [ahead.size(index) for index in range(4)] == [(20, 16), (18, 18), (8, 8), (13, 13)]
    for index in (0, 1):
        torch.testing.assert_close(faces.image_rays(index).directions, cameras.image_rays(index).directions)
    assert len(faces) == 2 + 12
    pinholes = cameras[[0]]
    assert cube_faces(pinholes) is pinholes and views_ahead(pinholes) is pinholes


def test_paths_turn_on_the_spot_and_pass_through_pinholes() -> None:
    cameras = panoramas(9)
    assert not looks_at_something(cameras) and tour(cameras, 4) == [0, 3, 5, 8]
    for way in (orbit, spiral):
        with pytest.raises(ValueError, match="panoramas, which see in all directions"):
            way(cameras, 4)
    with pytest.raises(ValueError, match="panoramas"):
        common_target(cameras)
    views = turn(cameras, 8)
    assert len(views) == 8 and views.lenses is None and views.size(0) == (8, 8)
    assert (views.centers == views.centers[0]).all()
    middle = cameras.centers.mean(0)
    assert (views.centers[0] - middle).norm() == pytest.approx((cameras.centers - middle).norm(dim=-1).min().item())
    torch.testing.assert_close(views.c2w[:, 1, 1], torch.ones(8), rtol=0, atol=1e-5)  # level: up is y
    steps = (views.c2w[:, :, 2] * views.c2w[:, :, 2].roll(1, 0)).sum(-1)
    torch.testing.assert_close(steps, torch.full((8,), math.cos(math.pi / 4)), rtol=0, atol=1e-5)
    assert ((views.c2w[0, :, 0] * -views.c2w[1, :, 2]).sum() > 0.7).item()  # the second view is to the right
    path = interpolate(cameras[[0, 4]], 5)
    assert path.lenses is None and path.size(0) == (8, 8)
    torch.testing.assert_close(path.c2w[0], cameras.c2w[0], rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="views: found 0"):
        turn(cameras, 0)
