"""Normals against spheres, whose normals are known, in boxes whose voxels are no cubes."""

import math

import pytest
import torch
from fixtures import sphere_depth
from torch import Tensor

from nerf.cameras.cameras import Cameras
from nerf.cameras.poses import look_at
from nerf.cameras.rays import Rays
from nerf.config.fields import FieldConfig
from nerf.config.schema import SamplerConfig
from nerf.fields.field import Field
from nerf.fields.registry import build_field
from nerf.fields.voxel_mlp import VoxelMlpConfig
from nerf.fields.voxel_sh import VoxelShConfig
from nerf.ops.backend import Backend, select
from nerf.rendering import render as rendering
from nerf.rendering.normals import facing_normals, falling_density
from nerf.rendering.render import render_image, render_samples
from nerf.rendering.sampler import RaySampler
from nerf.scene.box import SceneBox
from nerf.scene.occupancy import uniform

BOX = SceneBox(torch.tensor([[-1.4, -1.6, -1.5], [1.5, 1.3, 1.4]]))
RESOLUTION = (40, 64, 50)  # a vertex's neighbors are at 0.074, 0.046 and 0.059
STEEPNESS = 60.0  # of raw density, per world unit


@pytest.fixture(params=["native", "torch"])
def backend(request: pytest.FixtureRequest, device: str) -> Backend:
    return select(request.param, device)


@pytest.fixture(params=[VoxelShConfig(), VoxelMlpConfig()], ids=lambda config: config.name)
def field(request: pytest.FixtureRequest, backend: Backend) -> Field:
    return sphere(request.param, backend)


def sphere(config: FieldConfig, backend: Backend, steepness: float = STEEPNESS) -> Field:
    """The unit sphere: raw density falls with the distance from the origin and is 0 on the surface."""
    box = BOX.to(backend.device)
    field = build_field(config, box, RESOLUTION, box.voxel_size(RESOLUTION), backend)
    vertices = torch.stack(torch.meshgrid(*(torch.arange(n) for n in RESOLUTION), indexing="ij"), dim=-1).float()
    radius = BOX.grid_map(RESOLUTION).to_scene(vertices.view(-1, 3)).norm(dim=-1)
    with torch.no_grad():
        raw = steepness * (1 - radius) - field.density_shift
        field.density_grid.copy_(raw.view(*RESOLUTION, 1).clamp(-30, 30))
    return field


def sampler_of(field: Field) -> RaySampler:
    occupancy = uniform(RESOLUTION, field.backend.device)
    return RaySampler(field.backend, field.grid_map, occupancy, 0.5 * field.voxel_size, SamplerConfig())


def cameras_of(device: torch.device, size: int = 40) -> Cameras:
    """Two cameras that see the sphere whole, from sides that are no axes."""
    target, up = torch.zeros(3), torch.tensor([0.0, 0.0, 1.0])
    poses = [look_at(torch.tensor(position), target, up) for position in ([3.0, 1.5, 1.0], [-1.0, 2.0, -3.0])]
    intrinsics = torch.tensor([[1.3 * size, 1.3 * size, size / 2, size / 2]]).repeat(2, 1)
    return Cameras(torch.stack(poses), intrinsics, size, size).to(device)


def degrees_between(one: Tensor, other: Tensor) -> Tensor:
    return torch.rad2deg(torch.acos((one * other).sum(-1).clamp(-1, 1)))


@pytest.mark.parametrize("view", [0, 1])
def test_normals_of_a_sphere_are_its_radii(field: Field, view: int) -> None:
    cameras = cameras_of(field.backend.device)
    found = render_image(field, sampler_of(field), cameras, view, torch.ones(3, device=field.backend.device), True)
    rays = cameras.image_rays(view)
    depth = sphere_depth(rays)
    truth = rays.origins + depth[:, None] * rays.directions
    normals, opacity = found.normals.view(-1, 3), found.opacity.view(-1)
    facing = -(truth * rays.directions).sum(-1)
    inner = (depth > 0) & (facing > 0.3)  # the rim of a voxel sphere is ragged
    assert inner.sum() > 300 and (opacity[inner] > 0.95).all()
    errors = degrees_between(normals, truth)[inner]
    # Interpolation is straight between vertices: over half a voxel (0.03) a unit sphere turns by 2 degrees.
    assert errors.median() < 1.5 and errors.max() < 6
    hit = opacity > 1e-3
    torch.testing.assert_close(normals[hit].norm(dim=-1), torch.ones_like(opacity[hit]))
    assert (normals[hit] * rays.directions[hit]).sum(-1).max() <= 1e-6
    assert not normals[opacity == 0].any() and (opacity == 0).sum() > 100


def test_backends_agree_on_normals(device: str) -> None:
    images = []
    for name in ("native", "torch"):
        field = sphere(VoxelShConfig(), select(name, device))
        background = torch.ones(3, device=field.backend.device)
        images.append(render_image(field, sampler_of(field), cameras_of(field.backend.device), 0, background, True))
    difference = degrees_between(images[0].normals, images[1].normals)[images[0].opacity > 0.5]
    assert difference.max() < 1  # a sample on a cell's face may fall to either side, where the slope is another


def test_the_gradient_is_that_of_finite_differences(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    rays = cameras_of(field.backend.device, size=8).image_rays(0)
    samples = sampler_of(field).sample(rays)
    asked: list[bool] = []
    interpolate = field.interpolate

    def watched(grid: Tensor, coords: Tensor) -> Tensor:
        asked.append(grid.requires_grad)
        return interpolate(grid, coords)

    monkeypatch.setattr(field, "interpolate", watched)
    slopes = falling_density(field, samples)
    assert not slopes.requires_grad and asked == [False], "a gradient of the whole grid would be made and thrown away"
    positions, step = samples.positions(), 1e-3
    for axis in range(3):
        offset = torch.zeros(3, device=positions.device)
        offset[axis] = step
        with torch.no_grad():
            moved = [field.grid_map.to_grid(positions + sign * offset) for sign in (-1, 1)]
            raw = [field.interpolate(field.density_grid, coords)[:, 0] for coords in moved]
        # The middle of these differences: a few straddle a cell's face, where the slope jumps.
        error = (slopes[:, axis] + (raw[1] - raw[0]) / (2 * step)).abs()
        assert error.median() < 0.01 * STEEPNESS and error.quantile(0.9) < 0.1 * STEEPNESS


def test_normals_change_nothing_else(field: Field) -> None:
    sampler = sampler_of(field)
    samples = sampler.sample(cameras_of(field.backend.device, size=8).image_rays(0))
    background = torch.zeros(3, device=field.backend.device)
    without, found = (render_samples(field, sampler, samples, background, wanted) for wanted in (False, True))
    assert without.normals is None and found.normals is not None
    for name in ("rgb", "opacity", "depth"):
        torch.testing.assert_close(getattr(found, name), getattr(without, name))
    found.rgb.sum().backward()
    assert field.density_grid.grad.abs().sum() > 0


def test_an_image_with_normals_does_not_depend_on_its_pieces(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    field = sphere(VoxelShConfig(), backend)
    cameras, background = cameras_of(backend.device, size=12), torch.ones(3, device=backend.device)
    whole = render_image(field, sampler_of(field), cameras, 1, background, True)
    made: list[int] = []
    original = Cameras.pixel_range_rays

    def counted(*arguments: object) -> Rays:
        rays = original(*arguments)
        made.append(len(rays))
        return rays

    monkeypatch.setitem(rendering.SAMPLED_RAYS_PER_CHUNK, backend.device.type, 25)
    monkeypatch.setattr(Cameras, "pixel_range_rays", counted)
    pieces = render_image(field, sampler_of(field), cameras, 1, background, True)
    assert made == [25] * 5 + [19], "no more rays at a time than a chunk holds"
    torch.testing.assert_close(pieces.normals, whole.normals, atol=1e-2, rtol=0)


def test_facing_normals() -> None:
    down = torch.tensor([0.0, 0.0, -1.0])
    slopes = torch.tensor([[0.0, 0.0, 5.0], [0.0, 0.0, -5.0], [3.0, 0.0, 4.0], [0.0, 0.0, 0.0], [1e-9, 0.0, 0.0]])
    expected = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.6, 0.0, 0.8], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(facing_normals(slopes, down.expand(5, 3)), expected)


def test_distance_is_the_mean_along_the_ray_and_zero_where_nothing_is_met() -> None:
    opacity = torch.tensor([1.0, 0.5, 0.0, 1e-9])
    found = rendering.Rendering(torch.zeros(4, 3), opacity, torch.tensor([3.0, 1.5, 0.0, 1e-9]))
    assert found.distance().tolist() == [3.0, 3.0, 0.0, 0.0]
    assert math.isfinite(found.distance().sum())
