"""The scene box: where vertices lie, grid units there and back, and rays that keep their parameter."""

import pytest
import torch

from nerf.scene.box import SceneBox

RESOLUTION = (5, 9, 3)


def box() -> SceneBox:
    """4 x 2 x 8 world units: cells of 1 x 1/4 x 4 at RESOLUTION."""
    return SceneBox(torch.tensor([[-1.0, 2.0, -3.0], [3.0, 4.0, 5.0]], dtype=torch.float64))


def test_first_and_last_vertices_lie_on_the_faces():
    grid_map = box().grid_map(RESOLUTION)
    last = torch.tensor(RESOLUTION).double() - 1
    assert torch.equal(grid_map.to_grid(box().aabb), torch.stack([torch.zeros(3).double(), last]))
    assert torch.equal(grid_map.to_scene(torch.stack([torch.zeros(3).double(), last])), box().aabb)


def test_a_cell_is_one_grid_unit_wide():
    points = box().grid_map(RESOLUTION).to_scene(torch.tensor([[1.0, 1.0, 1.0], [2.0, 3.0, 1.5]]).double())
    assert torch.equal(points - box().aabb[0], torch.tensor([[1.0, 0.25, 4.0], [2.0, 0.75, 6.0]]).double())


def test_grid_units_there_and_back():
    grid_map = box().grid_map(RESOLUTION)
    points = 20 * torch.randn(100, 3, dtype=torch.float64)  # most of them outside of the box
    torch.testing.assert_close(grid_map.to_scene(grid_map.to_grid(points)), points)


def test_rays_keep_their_parameter():
    """The point at t on the mapped ray, whose direction is scaled alone, is the mapped point at t."""
    grid_map = box().grid_map(RESOLUTION)
    origins, directions = 5 * torch.randn(2, 50, 3, dtype=torch.float64)
    for t in (0.0, 0.7, 13.0):
        mapped = grid_map.to_grid(origins) + t * (directions * grid_map.scale)
        torch.testing.assert_close(grid_map.to_grid(origins + t * directions), mapped)


def test_resolution_gives_cubic_cells_of_the_number_asked_for():
    """4 x 2 x 8 units hold 512 cells of edge 1/2: 8 x 4 x 16 of them, one vertex more on each axis."""
    assert box().resolution(512) == (9, 5, 17)
    assert box().voxel_size((9, 5, 17)) == pytest.approx(0.5)
    x, y, z = box().resolution(100_000)
    assert (x - 1) * (y - 1) * (z - 1) == pytest.approx(100_000, rel=0.05)


def test_a_flat_box_keeps_two_vertices_per_axis():
    flat = SceneBox(torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1e-4]]))
    assert flat.resolution(10_000)[2] == 2


def test_box_moves_to_another_device(device):
    moved = box().to(device)
    assert moved.size.device.type == moved.grid_map(RESOLUTION).scale.device.type == device
    assert moved.size.tolist() == [4.0, 2.0, 8.0]
