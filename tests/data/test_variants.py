"""The variants of the bundled scene: their solids, what makes one glossy, one thin and one smoke, and their files."""

import math
import sys
from pathlib import Path

import pytest
import torch
import warm_python
from _bricks import Renderer, render_bricks
from _glossy import FLOOR, ROUGHNESS, glossy_parts, render_glossy
from _round_solids import Rod, Sphere
from _smoke import BALLS, render_smoke
from _solids import Part, nearest_hits
from _thin import render_thin, thin_parts
from test_bricks import random_rays
from torch import Tensor

from nerf.cameras.rays import Rays
from nerf.config.schema import DatasetConfig
from nerf.datasets.load import load_split

UP_FROM_KEY = (0.328, -0.057, 0.943)  # 35 degrees from the key light: what is seen from around passes its reflection
MAKE = Path(__file__).parents[2] / "data" / "make_bricks.py"


def distance_outside(solid: Sphere | Rod, points: Tensor) -> Tensor:
    """Signed distance from a solid's surface, straight from its definition."""
    if isinstance(solid, Sphere):
        return (points - points.new_tensor(solid.center)).norm(dim=-1) - solid.radius
    start, end = points.new_tensor(solid.start), points.new_tensor(solid.end)
    share = ((points - start) @ (end - start) / (end - start).square().sum()).clamp(0, 1)
    return (points - start - share[..., None] * (end - start)).norm(dim=-1) - solid.radius


@pytest.mark.parametrize(
    "solid",
    [Sphere((0.1, -0.2, 0.3), 0.4), Rod((-0.4, 0.1, -0.3), (0.5, 0.2, 0.3), 0.15), Rod((0, 0, 0), (0, 0, 1), 0.2)],
)
def test_rays_enter_and_leave_round_solids_at_their_surface(solid: Sphere | Rod) -> None:
    rays = random_rays(500, radius=2.5, spread=0.4)
    t_in, t_out = solid.interval(rays)
    steps = torch.arange(1.0, 4.0, 5e-3, dtype=torch.float64)
    inside = distance_outside(solid, rays.origins[:, None] + steps[:, None] * rays.directions[:, None]) < 0
    hit = t_in < t_out
    assert 100 < hit.sum() < 450
    assert (inside.any(1) <= hit).all()
    between = (steps > t_in[:, None]) & (steps < t_out[:, None])
    torch.testing.assert_close(inside, between)
    ends = rays.origins[hit] + t_in[hit, None] * rays.directions[hit]
    assert distance_outside(solid, ends).abs().max() < 1e-9
    outward = ends + 1e-3 * solid.normals(ends)
    torch.testing.assert_close(distance_outside(solid, outward), torch.full_like(t_in[hit], 1e-3))


def test_a_ray_along_a_rod_meets_its_ends() -> None:
    rays = Rays(torch.tensor([[0.0, 0.0, 3.0]], dtype=torch.float64), torch.tensor([[0.0, 0, -1]], dtype=torch.float64))
    hits = nearest_hits([Part(Rod((0, 0, 0), (0, 0, 1), 0.2), "steel")], rays)
    assert hits.t.item() == pytest.approx(1.8)
    torch.testing.assert_close(hits.normals, -rays.directions)


def test_bounding_spheres_of_groups_skip_no_hit() -> None:
    parts, rays = thin_parts(), random_rays(300, radius=2.5, spread=0.3)
    every_part = torch.full((300,), torch.inf, dtype=torch.float64)
    for part in parts:
        every_part = torch.minimum(every_part, part.first_hit(rays)[0])
    assert 20 < every_part.isfinite().sum() < 200
    torch.testing.assert_close(nearest_hits(parts, rays).t, every_part, rtol=0, atol=0)


def seen_from_around(render: Renderer, target: Tensor, normal: Tensor, views: int = 65) -> Tensor:
    """Colors [views,3] of one surface point from directions on a cone of 35 degrees about its normal."""
    turn = torch.linspace(0, 2 * torch.pi, views, dtype=torch.float64)
    side = torch.linalg.cross(normal, normal.new_tensor([0.3, 0.5, 0.8]))
    side = side / side.norm()
    around = turn.cos()[:, None] * side + turn.sin()[:, None] * torch.linalg.cross(normal, side)
    away = torch.nn.functional.normalize(normal + 0.7 * around, dim=-1)
    rgb, hit, depth = render(Rays(target + 0.03 * away, -away))
    assert hit.all()
    torch.testing.assert_close(depth, torch.full_like(depth, 0.03))
    return rgb


def sphere_of(material: str) -> tuple[Tensor, Tensor]:
    """A point on the upper side of the sphere that is made of a material, and its normal."""
    sphere = next(part.body for part in glossy_parts() if part.material == material)
    assert isinstance(sphere, Sphere)
    normal = torch.nn.functional.normalize(torch.tensor(UP_FROM_KEY, dtype=torch.float64), dim=0)
    return torch.tensor(sphere.center, dtype=torch.float64) + sphere.radius * normal, normal


@pytest.mark.parametrize("row", ["gold", "paint"])
def test_glossy_surfaces_change_with_the_direction_and_rough_ones_more_slowly(row: str) -> None:
    colors = [seen_from_around(render_glossy, *sphere_of(f"{row} {i}")) for i in range(len(ROUGHNESS))]
    change = [(rgb.amax(0) - rgb.amin(0)).max().item() for rgb in colors]
    assert change[0] > (0.3 if row == "gold" else 0.1)
    steepest = [rgb.diff(dim=0).abs().max().item() for rgb in colors]
    assert all(rough < smooth for smooth, rough in zip(steepest, steepest[1:], strict=False)), steepest


def test_the_board_and_all_of_the_thin_scene_are_matt() -> None:
    up = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    board = seen_from_around(render_glossy, torch.tensor([-0.7, 0.1, FLOOR], dtype=torch.float64), up)
    assert board.diff(dim=0).abs().max() == 0
    bead = [part.body for part in thin_parts() if isinstance(part.body, Sphere)][2]
    top = torch.tensor(bead.center, dtype=torch.float64) + bead.radius * up
    assert seen_from_around(render_thin, top, up).diff(dim=0).abs().max() < 1e-9


def test_a_mirror_shows_what_stands_before_it() -> None:
    """A ray down onto the front of the looking glass comes back to the board, whose color it brings along."""
    start = torch.tensor([[-0.75, 0.2, FLOOR + 0.5]], dtype=torch.float64)
    glass = torch.tensor([[-0.75, 0.72, FLOOR + 0.25]], dtype=torch.float64)
    to_glass = Rays(start, torch.nn.functional.normalize(glass - start, dim=-1))
    mirrored, hit, _ = render_glossy(to_glass)
    flipped = to_glass.directions * torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
    direct, lands, _ = render_glossy(Rays(glass - torch.tensor([[0.0, 1e-6, 0.0]]), flipped))
    assert hit.all() and lands.all()
    facing = to_glass.directions[0, 1].item()
    share = torch.tensor([[0.92, 0.92, 0.93]], dtype=torch.float64)
    torch.testing.assert_close(mirrored, direct * (share + (1 - share) * (1 - facing) ** 5))


def test_the_thin_scene_is_wide_and_nearly_empty() -> None:
    bounds = torch.tensor([part.body.bounds() for part in thin_parts()], dtype=torch.float64)
    lower, upper = bounds[:, 0].amin(0), bounds[:, 1].amax(0)
    assert ((upper - lower) > 1.3).all() and bounds.abs().max() < 1.2
    box = (upper - lower).prod()
    rods = [part.body for part in thin_parts() if isinstance(part.body, Rod)]
    volumes = [math.pi * rod.radius**2 * (math.dist(rod.start, rod.end) + 4 / 3 * rod.radius) for rod in rods]
    assert sum(volumes) / box < 0.01  # where rods overlap they are counted twice
    widths = torch.tensor([2 * part.body.radius for part in thin_parts()])
    pixel = 4.0 * 0.72 / 200  # of the default pictures, at the middle of the scene
    assert widths.max() < 3 * pixel and widths.median() < pixel


def test_smoke_stops_light_by_its_density_and_what_stands_in_front_counts_first() -> None:
    """Against sums over short steps."""
    found, step = random_rays(300, radius=2.5, spread=0.5), 5e-4
    rays = Rays(found.origins.double(), found.directions.double())
    points = rays.origins[:, None] + torch.arange(1.2, 3.8, step)[:, None].double() * rays.directions[:, None]
    density, color = torch.zeros(points.shape[:2], dtype=torch.float64), torch.zeros_like(points)
    for ball in BALLS:
        inside = distance_outside(ball.body, points) < 0
        assert not (inside & (density > 0)).any()  # no two balls meet
        density[inside] = -math.log(1 - ball.opacity) / (2 * ball.body.radius)
        color[inside] = torch.tensor(ball.color, dtype=torch.float64)
    optical = density.cumsum(1) * step
    weights = torch.exp(-optical) * density * step
    rgb, opacity, depth = render_smoke(rays)
    assert 0.3 < (opacity > 0).double().mean() < 0.99 and 20 < (depth > 0).sum() < 250
    torch.testing.assert_close(opacity, 1 - torch.exp(-optical[:, -1]), rtol=0, atol=5e-3)
    torch.testing.assert_close(rgb, (weights[..., None] * color).sum(1), rtol=0, atol=5e-3)
    half = 1.2 + step * (optical > math.log(2)).byte().argmax(1).double()
    sure = (opacity - 0.5).abs() > 0.01
    torch.testing.assert_close(depth[sure], torch.where(opacity > 0.5, half, 0.0)[sure], rtol=0, atol=5e-3)


@pytest.mark.parametrize(
    ("variant", "render"), [("glossy", render_glossy), ("thin", render_thin), ("smoke", render_smoke)]
)
def test_one_command_makes_a_scene_that_loads_like_the_bundled_one(
    variant: str, render: Renderer, tmp_path: Path
) -> None:
    command = [sys.executable, str(MAKE), str(tmp_path), "--variant", variant]
    command += ["--size", "24", "--train", "2", "--test", "1", "--supersample", "2"]
    warm_python.run(command, check=True, capture_output=True, text=True)
    images = load_split(DatasetConfig(scene="bricks", format="blender", root=str(tmp_path)), "test")
    assert len(images) == 1
    rays = images.cameras.image_rays(0)
    _, hit, depth = render(Rays(rays.origins.double(), rays.directions.double()))
    assert hit.any() and images.depths is not None
    stored = images.depths.double()
    torch.testing.assert_close(stored, depth, rtol=0, atol=2e-4)
    assert not (render_bricks(rays)[1] == hit).all()
