"""The scene's box and first occupancy: nothing of the scene is cut away, and little else is kept."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from _bricks import bricks_cameras, scene_parts
from _solids import nearest_hits
from carving import CPU, carve, find_box
from fixtures import look_at_origin, sphere_depth, write_sphere_scene
from tiny_runs import tiny_images
from torch import Tensor

from nerf.calibration.pose_alignment import perturbed
from nerf.cameras.cameras import Cameras
from nerf.cameras.rays import Rays
from nerf.config.schema import PosesConfig, SamplerConfig
from nerf.datasets.blender import load_blender
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.ops.backend import select
from nerf.rendering.sampler import RaySampler
from nerf.scene import silhouettes, visual_hull
from nerf.scene.box import SceneBox
from nerf.scene.silhouettes import Silhouettes

BRICKS = Path(__file__).parents[3] / "data" / "bricks"


@cache
def bricks(downscale: int) -> PosedImages:
    return load_blender(BRICKS, "train", downscale)


@cache
def bricks_box(downscale: int) -> SceneBox:
    return find_box(bricks(downscale))


def true_bounds() -> Tensor:
    """Bounding box [2,3] of the analytic geometry."""
    bounds = torch.tensor([part.body.bounds() for part in scene_parts()])
    return torch.stack([bounds[:, 0].amin(0), bounds[:, 1].amax(0)])


@cache
def surface_points() -> Tensor:
    """Points on the analytic surface, exact, as seen from above and from all sides."""
    cameras = bricks_cameras("train", 40, 60, seed=5)
    rays = [cameras.image_rays(view) for view in range(len(cameras))]
    rays = Rays(torch.cat([r.origins for r in rays]), torch.cat([r.directions for r in rays]))
    hits = nearest_hits(scene_parts(), rays)
    hit = hits.parts >= 0
    assert hit.sum() > 20_000
    return (rays.origins + hits.t[:, None].float() * rays.directions)[hit]


def share_inside(points: Tensor, box: SceneBox, images: PosedImages, voxels: float) -> tuple[float, float]:
    """Share of the points in occupied cells of the hull, and the hull's share of all cells."""
    resolution = box.resolution(voxels)
    hull = carve(images, box, resolution)
    cells = box.grid_map(resolution).to_grid(points).floor().long()
    cells = torch.minimum(cells.clamp(min=0), torch.tensor(hull.occupied.shape) - 1)
    return hull.occupied[cells.unbind(-1)].double().mean().item(), hull.occupied_fraction


@pytest.mark.parametrize("downscale", [2, 8])
def test_the_box_holds_the_scene_and_is_tight(downscale: int) -> None:
    lower, upper = bricks_box(downscale).aabb
    true_lower, true_upper = true_bounds()
    assert (lower <= true_lower).all() and (upper >= true_upper).all()
    # A pixel is 0.015 * downscale wide there, and no camera looks from below.
    margin = torch.cat([true_lower - lower, upper - true_upper])
    assert margin[[0, 1, 3, 4, 5]].max() < 0.08 + 0.02 * downscale and margin[2] < 0.5


@pytest.mark.parametrize(("downscale", "voxels"), [(2, 64**3), (8, 64**3), (8, 20**3)])
def test_the_hull_contains_every_surface_and_leaves_much_out(downscale: int, voxels: float) -> None:
    inside, share = share_inside(surface_points(), bricks_box(downscale), bricks(downscale), voxels)
    assert inside == 1
    assert share < 0.75


def test_the_hull_of_a_sphere_contains_the_sphere_and_what_no_camera_can_tell_from_it(
    tmp_path: Path,
) -> None:
    write_sphere_scene(tmp_path, views=12, size=80)
    images = load_blender(tmp_path, "train")
    box = SceneBox(torch.tensor([[-1.4, -1.4, -1.4], [1.4, 1.4, 1.4]]))
    resolution = (29, 29, 29)
    hull, grid_map = carve(images, box, resolution), box.grid_map(resolution)
    centers = grid_map.to_scene(torch.cartesian_prod(*[torch.arange(28.0)] * 3) + 0.5)
    kept = hull.occupied.flatten()
    radius, side = centers.norm(dim=-1), centers[:, :2].norm(dim=-1)
    assert kept[radius < 1].all()
    # The cameras look half a radian downwards: sideways they see the outline itself, to a pixel and a cell.
    assert not kept[(side > 1.3) & (centers[:, 2].abs() < 0.2)].any()
    # Above the sphere their lines of sight along its outline meet at 1 / cos(0.5) = 1.14.
    assert kept[(side < 0.05) & (centers[:, 2] > 0) & (centers[:, 2] < 1.1)].all()


def test_images_without_alpha_leave_everything_in_doubt() -> None:
    images = replace(tiny_images(), pixels=tiny_images().pixels[:, :3])
    box = find_box(images)
    assert carve(images, box, (9, 9, 9)).occupied.all()
    # What the cameras look at: the origin, from a distance of 4 with slope tan(0.4).
    expected = 4 * torch.tan(torch.tensor(0.4))
    torch.testing.assert_close(box.aabb, expected * torch.tensor([[-1.0] * 3, [1.0] * 3]), rtol=1e-4, atol=1e-4)


def test_a_cell_that_no_view_contains_stays() -> None:
    """A camera decides only over what it sees: a grid far beside the images is left as it is."""
    box = SceneBox(torch.tensor([[20.0, 20.0, 20.0], [21.0, 21.0, 21.0]]))
    assert carve(tiny_images(), box, (5, 5, 5)).occupied.all()


def test_empty_images_are_answered() -> None:
    empty = replace(bricks(8), pixels=torch.zeros_like(bricks(8).pixels))
    with pytest.raises(UserError, match="no part of space is inside every training image's silhouette"):
        find_box(empty)


def test_cameras_that_look_the_same_way_are_answered() -> None:
    images = tiny_images()
    cameras = images.cameras
    poses = cameras.c2w[:1].expand(len(cameras), 3, 4).clone()
    poses[:, :, 3] += torch.randn(len(cameras), 3)
    with pytest.raises(
        UserError, match="scene box cannot be found from the cameras: .*dry_run=true .* set dataset.aabb"
    ):
        find_box(replace(images, cameras=replace(cameras, c2w=poses)))


def assert_no_ray_is_missed(sampler: RaySampler, silhouettes: Silhouettes, box: SceneBox) -> None:
    """But on the edges of images: over cells whose centers lie beyond, a view does not decide."""
    cameras = silhouettes.cameras
    pool = visual_hull.pixels_of_hull(silhouettes, box, (33, 33, 33)).mask(0, len(silhouettes.opaque))
    rays = cameras.rays_through(torch.arange(len(silhouettes.opaque)))
    missed = (sampler.sample(rays).ray_offsets.diff() > 0) & ~pool
    assert not missed.view(-1, cameras.height, cameras.width)[:, 1:-1, 1:-1].any()


@pytest.mark.slow
def test_poses_that_may_be_wrong_leave_room_for_the_scene() -> None:
    """With poses off by 2 degrees and 2% the hull loses much of the surfaces; dilated by as much it holds them all."""
    images = bricks(8)
    wrong = perturbed(images.cameras, PosesConfig(perturb_degrees=2.0, perturb_translation=0.02), seed=0)
    images, points = replace(images, cameras=wrong), surface_points()
    inside, pools = {}, {}
    for dilation in (0.0, math.radians(4)):
        silhouettes = Silhouettes(images.cameras, images.pixels[:, 3], images.valid_pixels, CPU, dilation)
        box = visual_hull.find_box(wrong, silhouettes, CPU)
        grid_map, resolution = box.grid_map((33, 33, 33)), (33, 33, 33)
        hull = visual_hull.carve(silhouettes, box, resolution)
        cells = grid_map.to_grid(points).floor().long()
        held = ((cells >= 0) & (cells < 32)).all(-1)
        kept = hull.occupied[cells.clamp(0, 31).unbind(-1)] & held
        inside[dilation] = kept.double().mean().item()
        pools[dilation] = len(visual_hull.pixels_of_hull(silhouettes, box, resolution))
        sampler = RaySampler(select("native", "cpu"), grid_map, hull, 0.02, SamplerConfig())
        assert_no_ray_is_missed(sampler, silhouettes, box)
    assert inside[0.0] < 0.9 and inside[math.radians(4)] == 1
    assert pools[math.radians(4)] > pools[0.0]


# Several views at once


def sphere_of_sizes() -> PosedImages:
    """Views of the unit sphere, of two sizes and through two focal lengths in turn; the sizes change twice."""
    poses = tiny_images().cameras.c2w
    sizes = [(20, 20), (20, 20), (20, 20), (30, 16), (30, 16), (20, 20), (20, 20), (20, 20)]
    intrinsics = torch.tensor([[14.0 + 10 * (i % 2)] * 2 + [w / 2, h / 2] for i, (w, h) in enumerate(sizes)])
    cameras = Cameras.of_sizes(poses, intrinsics, sizes)
    hits = torch.cat([sphere_depth(cameras.image_rays(view)) > 0 for view in range(len(cameras))])
    return PosedImages(255 * hits[:, None].expand(-1, 4).to(torch.uint8), cameras, tiny_images().names)


def views_of_a_group(images: PosedImages) -> list[list[int]]:
    return [
        list(group) for group in Silhouettes(images.cameras, images.pixels[:, 3], images.valid_pixels, CPU).groups()
    ]


def test_views_of_one_size_are_looked_at_together_and_no_more_than_memory_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert views_of_a_group(tiny_images()) == [list(range(8))]
    assert views_of_a_group(sphere_of_sizes()) == [[0, 1, 2], [3, 4], [5, 6, 7]]
    monkeypatch.setattr(silhouettes, "MAX_PIXELS", 1300)
    assert views_of_a_group(tiny_images()) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    monkeypatch.setattr(silhouettes, "MAX_PIXELS", 7)
    assert views_of_a_group(tiny_images()) == [[view] for view in range(8)]
    monkeypatch.setattr(silhouettes, "MAX_PIXELS", 1300)
    monkeypatch.setattr(silhouettes, "MAX_VIEWS", 2)
    assert views_of_a_group(sphere_of_sizes()) == [[0, 1], [2], [3, 4], [5, 6], [7]]


@pytest.mark.parametrize("images", [lambda: bricks(8), sphere_of_sizes], ids=["one size", "two sizes"])
@pytest.mark.parametrize("dilation", [0.0, 0.1])
def test_the_hull_is_the_same_however_many_views_are_looked_at_together(
    images: Callable[[], PosedImages], dilation: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, resolution = images(), (25, 31, 28)
    box = SceneBox(torch.tensor([[-1.5, -1.4, -1.3], [1.4, 1.5, 1.6]]))
    found = []
    for most in (1, 3, 8):
        monkeypatch.setattr(silhouettes, "MAX_VIEWS", most)
        outline = Silhouettes(images.cameras, images.pixels[:, 3], images.valid_pixels, CPU, dilation)
        hull = visual_hull.carve(outline, box, resolution).occupied
        found.append((hull, visual_hull.pixels_of_hull(outline, box, resolution).bounds))
    for hull, pixels in found[1:]:
        assert torch.equal(hull, found[0][0]) and torch.equal(pixels, found[0][1])
    assert 0.05 < found[0][0].double().mean() < 0.95 and len(found[0][1]) > 1


def test_the_hull_of_views_of_different_sizes_contains_the_sphere_and_little_else() -> None:
    images, resolution = sphere_of_sizes(), (29, 29, 29)
    box = SceneBox(torch.tensor([[-1.4, -1.4, -1.4], [1.4, 1.4, 1.4]]))
    kept = carve(images, box, resolution).occupied.flatten()
    cells = torch.cartesian_prod(*[torch.arange(28.0)] * 3)
    centers = box.grid_map(resolution).to_scene(cells + 0.5)
    assert kept[centers.norm(dim=-1) < 1].all()
    assert kept[centers.norm(dim=-1) > 1.5].double().mean() < 0.1


@pytest.mark.parametrize("dilation", [0.0, 0.1])
def test_pixels_near_a_silhouette_are_those_with_some_of_it_in_a_window(dilation: float) -> None:
    """As max pooling finds them, view by view; the dilation is an angle: more pixels where focal lengths are longer."""
    images = sphere_of_sizes()
    outline = Silhouettes(images.cameras, images.pixels[:, 3], images.valid_pixels, CPU, dilation)
    near, cameras = outline.pixels_near(2).mask(0, len(images.pixels)), images.cameras
    assert len(set(outline.dilation)) == (1 if dilation == 0 else 2)
    for view in range(len(images)):
        reach = 2 + math.ceil(dilation * cameras.intrinsics[view, 0].item())
        opaque = images.image(view)[None, ..., 3] > 0
        expected = torch.nn.functional.max_pool2d(opaque.float(), 2 * reach + 1, stride=1, padding=reach)[0] > 0
        found = near[cameras.first_pixel(view) : cameras.first_pixel(view + 1)].view(expected.shape)
        assert torch.equal(found, expected) and not found.all()


def views_of_balls(distances: list[float], heights: list[float], balls: list[tuple[float, float]]) -> PosedImages:
    """Pictures of 40x40 pixels of balls (height, radius) on the z axis, from around a point of it for each."""
    poses = [look_at_origin(2.4 * i, 0.2 + 0.1 * (i % 5), distance)[:3] for i, distance in enumerate(distances)]
    c2w, count = torch.tensor(np.stack(poses)).float(), len(distances)
    c2w[:, 2, 3] += torch.tensor(heights)
    cameras = Cameras(c2w, torch.tensor([[50.0, 50.0, 20.0, 20.0]] * count), 40, 40)
    rays = cameras.rays_through(torch.arange(count * 1600))
    alpha = torch.zeros(count * 1600, dtype=torch.bool)
    for height, radius in balls:
        origins = rays.origins - torch.tensor([0.0, 0.0, height])
        along = -(origins * rays.directions).sum(-1, keepdim=True)
        alpha |= (origins + along * rays.directions).norm(dim=-1) < radius
    pixels = torch.cat([torch.zeros(len(alpha), 3), 255 * alpha[:, None]], dim=1).byte()
    return PosedImages(pixels, cameras, [str(index) for index in range(count)])


def test_what_few_views_see_does_not_hold_the_box_open() -> None:
    """Two cameras far away make a cube in which the others stand, and no view looks behind them."""
    images = views_of_balls([2.0] * 22 + [7.0] * 2, [0.0] * 24, [(0.0, 0.5)])
    assert visual_hull._viewed_cube(images.cameras).size.min() > 4
    box = find_box(images)
    corners = box.aabb.abs()
    assert box.space.axes is None and corners.min() >= 0.5 and corners.max() < 0.62


def test_a_part_that_few_views_show_stays_in_the_box() -> None:
    """Two of 24 pictures show the small ball on top whole, in more of their pixels than may look past the box."""
    box = find_box(views_of_balls([2.0] * 22 + [4.0] * 2, [0.0] * 22 + [1.1] * 2, [(0.0, 0.5), (1.1, 0.25)]))
    ends = box.space.to_world(torch.cartesian_prod(*box.aabb.T))
    assert ends[:, 2].max() >= 1.35
