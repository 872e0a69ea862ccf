"""The bundled scene: surfaces against closed forms and brute force, materials, and the files on disk."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from _bricks import (
    CAMERA_ANGLE_X,
    GROUND,
    PITCH,
    PLATE,
    STUD_HEIGHT,
    bricks_cameras,
    render_bricks,
    render_view,
    scene_parts,
    write_scene,
)
from _solids import Box, Cylinder, Part, nearest_hits
from PIL import Image
from torch import Tensor

from nerf.cameras.cameras import Cameras, focal_from_fov
from nerf.cameras.rays import Rays

BUNDLE = Path(__file__).parents[2] / "data" / "bricks"
BUNDLE_SIZE, BUNDLE_SUPERSAMPLE, BUNDLE_SEED = 200, 6, 0


def ray(origin: tuple[float, float, float], direction: tuple[float, float, float]) -> Rays:
    unit = torch.nn.functional.normalize(torch.tensor([direction], dtype=torch.float64), dim=-1)
    return Rays(torch.tensor([origin], dtype=torch.float64), unit)


def random_rays(count: int, radius: float, spread: float) -> Rays:
    """From a sphere about the origin towards points scattered around its center."""
    generator = torch.Generator().manual_seed(3)
    origins = torch.randn(count, 3, generator=generator, dtype=torch.float64)
    origins = radius * torch.nn.functional.normalize(origins, dim=-1)
    targets = spread * torch.randn(count, 3, generator=generator, dtype=torch.float64)
    return Rays(origins, torch.nn.functional.normalize(targets - origins, dim=-1))


def contains(solid: Box | Cylinder, points: Tensor) -> Tensor:
    """Occupancy straight from the definition of a solid, the reference for the interval arithmetic."""
    if isinstance(solid, Box):
        lower, upper = points.new_tensor(solid.lower), points.new_tensor(solid.upper)
        return ((points > lower) & (points < upper)).all(-1)
    offset = points - points.new_tensor(solid.center)
    across = [axis for axis in range(3) if axis != solid.axis]
    in_circle = offset[..., across].norm(dim=-1) < solid.radius
    return in_circle & (offset[..., solid.axis].abs() < solid.half_height)


def occupied(parts: Sequence[Part], points: Tensor) -> Tensor:
    inside = torch.zeros(points.shape[:-1], dtype=torch.bool)
    for part in parts:
        in_part = contains(part.body, points)
        for cut in part.cuts:
            in_part &= ~contains(cut, points)
        inside |= in_part
    return inside


# Closed forms -----------------------------------------------------------------------------------------------


def test_straight_down_onto_base_plate_stud_and_between_studs() -> None:
    corner = -4 * PITCH  # of the base plate
    _, hit, depth = render_bricks(ray((corner + 0.5 * PITCH, corner + 0.5 * PITCH, 3.0), (0, 0, -1)))
    assert hit.item() and depth.item() == pytest.approx(3.0 - GROUND - STUD_HEIGHT, abs=1e-12)
    rgb, hit, depth = render_bricks(ray((corner + 0.02, corner + 0.02, 3.0), (0, 0, -1)))
    assert hit.item() and depth.item() == pytest.approx(3.0 - GROUND, abs=1e-12)
    assert rgb[0].argmax() == 1  # grass


def test_beam_is_hit_beside_its_holes_and_seen_through_at_them() -> None:
    x_face, y, z = -4 * PITCH, (1.5 - 4) * PITCH, GROUND + 7.5 * PLATE
    _, hit, depth = render_bricks(ray((-3.0, y + 0.5 * PITCH, z), (1, 0, 0)))
    assert hit.item() and depth.item() == pytest.approx(3.0 + x_face, abs=1e-12)
    _, _, depth = render_bricks(ray((-3.0, y, z), (1, 0, 0)))
    assert depth.item() == 0 or depth.item() > 3.0 + x_face + PITCH


def test_slanted_ray_into_a_hole_meets_its_wall() -> None:
    block = Part(Box((-1, -1, -1), (1, 1, 1)), "red", (Cylinder((0, 0, 0), 0.5, 2.0),))
    hits = nearest_hits([block], ray((0.0, 0.0, 3.0), (0.5, 0.0, -2.5)))
    assert hits.t.item() == pytest.approx(math.hypot(0.5, 2.5), abs=1e-12)
    torch.testing.assert_close(hits.normals, torch.tensor([[-1.0, 0, 0]], dtype=torch.float64))


def test_overlapping_holes_act_as_their_union_in_any_order() -> None:
    holes = tuple(Box((x, -0.5, -0.5), (x + 0.7, 0.5, 0.5)) for x in (0.3, -0.2, -0.7, -1.2))
    for cuts in (holes, holes[::-1]):
        hits = nearest_hits([Part(Box((-1, -1, -1), (1.5, 1, 1)), "red", cuts)], ray((-3.0, 0, 0), (1, 0, 0)))
        assert hits.t.item() == pytest.approx(4.0, abs=1e-12)


def test_rays_away_from_the_scene_miss_it() -> None:
    rgb, hit, depth = render_bricks(ray((0.0, 0.0, 3.0), (0, 0, 1)))
    assert not hit.item() and depth.item() == 0 and not rgb.any()


# Brute force ------------------------------------------------------------------------------------------------


def test_nearest_hits_agree_with_dense_sampling() -> None:
    parts, rays = scene_parts(), random_rays(200, radius=2.5, spread=0.35)
    hits = nearest_hits(parts, rays)
    step = 2e-3
    t = torch.arange(1.0, 4.0, step, dtype=torch.float64)
    inside = occupied(parts, rays.origins[:, None] + t[:, None] * rays.directions[:, None])
    sampled = torch.where(inside.any(1), t[inside.int().argmax(1)], torch.inf)
    # Sampling finds a surface late by less than a step, unless it jumps over a sliver: the point just behind
    # the exact surface must then still be inside.
    just_inside = occupied(parts, rays.origins + (hits.t + 1e-9)[:, None] * rays.directions)
    hit = hits.parts >= 0
    assert 50 < hit.sum() < 195
    assert just_inside[hit].all()
    assert (hits.t <= sampled).all()
    late = sampled[hit] - hits.t[hit]
    assert (late < step + 1e-9).double().mean() > 0.97
    # Normals: of unit length, against the ray, and a small step along them leads out of the scene.
    normals = hits.normals[hit]
    torch.testing.assert_close(normals.norm(dim=-1), torch.ones_like(late))
    assert ((normals * rays.directions[hit]).sum(-1) < 0).all()
    points = rays.origins[hit] + hits.t[hit, None] * rays.directions[hit]
    assert (~occupied(parts, points + 1e-6 * normals)).all()


def test_bounding_spheres_skip_no_hit() -> None:
    parts, rays = scene_parts(), random_rays(200, radius=2.5, spread=0.35)
    every_part = torch.stack([part.first_hit(rays)[0] for part in parts])
    torch.testing.assert_close(nearest_hits(parts, rays).t, every_part.amin(0), rtol=0, atol=0)


def test_scene_lies_in_the_promised_box() -> None:
    bounds = torch.tensor([part.body.bounds() for part in scene_parts()])
    assert bounds.abs().max() <= 1.2
    assert (bounds[:, 1] - bounds[:, 0]).min() > 0.01


# Materials --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("material", ["grass", "glossy blue", "glossy red"])
def test_only_glossy_materials_change_with_the_view(material: str) -> None:
    # Look from all around at one point near the corner of the top of a brick, beside its stud.
    bricks = (part.body for part in scene_parts() if part.material == material)
    (x, y, _), (_, _, top) = next(body for body in bricks if isinstance(body, Box)).bounds()
    target = torch.tensor([x + 0.02, y + 0.02, top], dtype=torch.float64)
    azimuth = torch.linspace(0, 2 * math.pi, 17, dtype=torch.float64)
    away = torch.stack([azimuth.cos(), azimuth.sin(), torch.full_like(azimuth, 1.5)], dim=-1)
    away = torch.nn.functional.normalize(away, dim=-1)
    rgb, hit, depth = render_bricks(Rays(target + 0.05 * away, -away))
    assert hit.all()
    torch.testing.assert_close(depth, torch.full_like(depth, 0.05))
    change = (rgb.amax(0) - rgb.amin(0)).max().item()
    if material.startswith("glossy"):
        assert change > 0.2
    else:
        assert change == 0


def test_colors_stay_in_range() -> None:
    rgb, hit, _ = render_bricks(random_rays(3000, radius=3.0, spread=0.4))
    assert rgb.min() >= 0 and rgb.max() <= 1
    assert rgb[hit].amax(-1).min() > 0.05


# Pictures and files -----------------------------------------------------------------------------------------


def test_render_view_covers_pixels_by_share_and_keeps_color_straight() -> None:
    cameras = bricks_cameras("test", 1, 24, seed=1)
    fine, fine_depth = render_view(cameras, 0, 4)
    coarse, depth = render_view(cameras, 0, 1)
    assert np.isin(fine[..., 3], np.round(255 * np.arange(17) / 16)).all()
    assert 0 < ((fine[..., 3] > 0) & (fine[..., 3] < 255)).sum() < fine[..., 3].size / 2
    assert (fine[fine[..., 3] == 0] == 0).all()
    # One ray per pixel is the ray through its center, the one that depth belongs to.
    assert ((coarse[..., 3] == 255) == (depth > 0)).all()
    np.testing.assert_array_equal(depth, fine_depth)
    # Straight alpha: a barely covered edge pixel is not darkened by the empty rest.
    edge = (fine[..., 3] > 0) & (fine[..., 3] < 128)
    assert fine[edge][:, :3].max(-1).min() > 20


def test_cameras_look_at_the_origin_from_the_promised_elevations() -> None:
    for split, lowest, highest in (("train", 5, 75), ("test", 15, 65)):
        cameras = bricks_cameras(split, 100, 20, seed=0)
        torch.testing.assert_close(cameras.centers.norm(dim=-1), torch.full((100,), 4.0))
        elevation = torch.rad2deg(torch.asin(cameras.centers[:, 2] / 4))
        assert lowest - 0.01 <= elevation.min() < lowest + 5
        assert highest - 5 < elevation.max() <= highest + 0.01
        pixel, _ = cameras.project(7, torch.zeros(1, 3))
        torch.testing.assert_close(pixel, torch.full((1, 2), 10.0))
        assert (torch.linalg.det(cameras.c2w[:, :, :3]) > 0.99).all()
        assert not torch.equal(cameras.c2w, bricks_cameras(split, 100, 20, seed=1).c2w)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="split"):
        bricks_cameras("val", 3, 20, 0)
    with pytest.raises(ValueError, match="at least 1"):
        bricks_cameras("train", 0, 20, 0)
    with pytest.raises(ValueError, match="supersample"):
        render_view(bricks_cameras("test", 1, 4, 0), 0, 0)


def test_write_scene_writes_what_it_renders(tmp_path: Path) -> None:
    write_scene(tmp_path / "new", 16, train_views=2, test_views=1, supersample=2, seed=5)
    train, test = (json.loads((tmp_path / f"new/transforms_{s}.json").read_text()) for s in ("train", "test"))
    assert len(train["frames"]) == 2 and len(test["frames"]) == 1
    cameras = bricks_cameras("test", 1, 16, 5)
    rgba, depth = render_view(cameras, 0, 2)
    frame = test["frames"][0]
    np.testing.assert_array_equal(np.array(Image.open(tmp_path / "new" / f"{frame['file_path']}.png")), rgba)
    stored = np.array(Image.open(tmp_path / "new" / frame["depth_file_path"])).astype(np.float64)
    assert depth.max() > 3
    np.testing.assert_allclose(stored * test["depth_scale"], depth, rtol=0, atol=0.51 * test["depth_scale"])
    assert ((stored > 0) == (depth > 0)).all()
    torch.testing.assert_close(torch.tensor(frame["transform_matrix"])[:3], cameras.c2w[0], rtol=0, atol=0)


def bundled(split: str) -> dict:
    return json.loads((BUNDLE / f"transforms_{split}.json").read_text())


def bundled_images(split: str) -> np.ndarray:
    """[I,H,W,4] in [0, 1]."""
    paths = [BUNDLE / f"{frame['file_path']}.png" for frame in bundled(split)["frames"]]
    return np.stack([np.array(Image.open(path)) for path in paths]) / 255


def test_bundle_is_complete_and_small() -> None:
    listed = {BUNDLE / f"transforms_{split}.json" for split in ("train", "test")}
    for split, fewest in (("train", 80), ("test", 16)):
        scene = bundled(split)
        assert len(scene["frames"]) >= fewest
        assert scene["camera_angle_x"] == CAMERA_ANGLE_X
        for frame in scene["frames"]:
            listed.add(BUNDLE / f"{frame['file_path']}.png")
            if split == "test":
                listed.add(BUNDLE / frame["depth_file_path"])
    assert listed == {path for path in BUNDLE.rglob("*") if path.is_file()}
    assert sum(path.stat().st_size for path in listed) <= 3_000_000


def test_bundled_depths_match_the_coverage() -> None:
    scene = bundled("test")
    alphas = bundled_images("test")[..., 3]
    for frame, alpha in zip(scene["frames"], alphas, strict=True):
        image = Image.open(BUNDLE / frame["depth_file_path"])
        depth = np.array(image).astype(np.float64) * scene["depth_scale"]
        assert image.mode.startswith("I") and depth.shape == alpha.shape
        assert (depth[alpha == 1] > 2.5).all() and depth.max() < 5.5
        assert (depth[alpha == 0] == 0).all()


def test_one_bundled_view_renders_again_to_the_same_bytes() -> None:
    scene, index = bundled("test"), 5
    frame = scene["frames"][index]
    focal = focal_from_fov(BUNDLE_SIZE, scene["camera_angle_x"])
    intrinsics = torch.tensor([[focal, focal, BUNDLE_SIZE / 2, BUNDLE_SIZE / 2]])
    pose = torch.tensor([frame["transform_matrix"]])[:, :3]
    rgba, depth = render_view(Cameras(pose, intrinsics, BUNDLE_SIZE, BUNDLE_SIZE), 0, BUNDLE_SUPERSAMPLE)
    np.testing.assert_array_equal(np.array(Image.open(BUNDLE / f"{frame['file_path']}.png")), rgba)
    steps = np.array(Image.open(BUNDLE / frame["depth_file_path"]))
    np.testing.assert_array_equal(steps, np.round(depth / scene["depth_scale"]))


@pytest.mark.parametrize("split", ["train", "test"])
def test_bundled_poses_are_those_of_the_seed(split: str) -> None:
    poses = torch.tensor([frame["transform_matrix"] for frame in bundled(split)["frames"]])
    cameras = bricks_cameras(split, len(poses), BUNDLE_SIZE, BUNDLE_SEED)
    torch.testing.assert_close(poses[:, :3], cameras.c2w, rtol=0, atol=1e-6)


def test_no_constant_color_passes_for_a_reconstruction() -> None:
    rgba = bundled_images("test")
    on_white = rgba[..., :3] * rgba[..., 3:] + 1 - rgba[..., 3:]
    # The mean minimizes the squared error, so no other constant scores higher over the whole split.
    mse = np.square(on_white - on_white.mean((0, 1, 2))).mean()
    assert -10 * math.log10(mse) < 15
    # Nor does a constant chosen for each view.
    per_view = np.square(on_white - on_white.mean((1, 2), keepdims=True)).mean((1, 2, 3))
    assert (-10 * np.log10(per_view)).max() < 15
