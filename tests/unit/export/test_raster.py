"""Triangles to pixels: coverage, perspective and depth order against what geometry says."""

import torch

from nerf.cameras.cameras import Cameras
from nerf.export.raster import covered_pixels, first_surfaces


def test_two_triangles_cover_a_square_once(monkeypatch) -> None:
    monkeypatch.setattr("nerf.export.raster.CANDIDATES_AT_A_TIME", 50)  # several pieces
    square = torch.tensor([[1.0, 2.0], [9.0, 2.0], [9.0, 7.0], [1.0, 7.0]])
    corners = square[torch.tensor([[0, 1, 2], [0, 2, 3]])] + 0.01  # no center lies on the diagonal
    parts = list(covered_pixels(corners, 12, 10))
    face, pixel, weights = (torch.cat(part) for part in zip(*parts))
    assert len(parts) == 2
    rows, columns = torch.meshgrid(torch.arange(2, 7), torch.arange(1, 9), indexing="ij")
    assert sorted(pixel.tolist()) == sorted((rows * 12 + columns).flatten().tolist())
    centers = torch.stack([pixel % 12, pixel // 12], dim=-1) + 0.5
    torch.testing.assert_close((corners[face] * weights[..., None]).sum(1), centers)


def test_triangles_beside_the_picture_and_without_area_cover_nothing() -> None:
    corners = torch.tensor(
        [[[-5.0, -5], [-1, -5], [-1, -1]], [[2.0, 2], [5, 5], [8, 8]], [[torch.nan, 0], [1, 0], [0, 9]]]
    )
    assert all(len(face) == 0 for face, _, _ in covered_pixels(corners, 10, 10))


def test_the_nearest_surface_is_shown_where_it_is() -> None:
    """A slanted plane behind a small triangle: points lie on the rays, and the small one hides the plane."""
    camera = Cameras(torch.eye(4)[None, :3], torch.tensor([[20.0, 20.0, 8.0, 8.0]]), 16, 16)
    plane = torch.tensor([[-9.0, -9, -6], [9.0, -9, -12], [9.0, 9, -12], [-9.0, 9, -6]])
    small = torch.tensor([[-0.3, -0.3, -2], [0.5, -0.3, -2], [0.0, 0.6, -2]])
    behind = torch.tensor([[-9.0, -9, 1], [9.0, -9, 1], [0.0, 9, 1]])
    vertices = torch.cat([plane, small, behind])
    faces = torch.tensor([[0, 1, 2], [0, 2, 3], [4, 5, 6], [7, 8, 9]])
    shown, weights = first_surfaces(vertices, faces, camera, 0)
    points = (vertices[faces[shown]] * weights[..., None]).sum(1)
    rays = camera.pixel_range_rays(0, 0, 256)
    off = torch.linalg.cross(points - rays.origins, rays.directions).norm(dim=-1)
    assert (shown >= 0).all() and off.max() < 1e-4
    small_shown = shown == 2
    assert 10 < small_shown.sum() < 60 and (points[small_shown, 2] + 2).abs().max() < 1e-5
    on_plane = points[~small_shown]
    assert ((on_plane[:, 2] + 9 + on_plane[:, 0] / 3).abs() < 1e-4).all()
