"""Kind, box, near and far of synthetic rigs and of the real captures."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fixtures import look_at_origin, official_scene, real_capture

from nerf.datasets import scene_bounds
from nerf.datasets.camera_rig import camera_rig
from nerf.datasets.capture import Capture, Frame
from nerf.datasets.readers import read_capture
from nerf.errors import UserError
from nerf.scene.description import SceneDescription

RNG_SEED = 5


def frame(pose: np.ndarray, split: str | None = None) -> Frame:
    """A frame of 120x80 pixels that sees 0.6 to each side and 0.4 up and down."""
    return Frame(Path("a.png"), pose[:3], 120, 80, (100.0, 100.0, 60.0, 40.0), split=split)


def capture_of(poses: list[np.ndarray], **known: np.ndarray) -> Capture:
    return Capture("made", Path("made"), [frame(pose) for pose in poses], **known)


def around(count: int = 24, radius: float = 4.0) -> list[np.ndarray]:
    """Cameras all around the origin that look at it exactly."""
    return [look_at_origin(2.4 * index, 0.1 + 0.03 * index, radius) for index in range(count)]


def by_hand(count: int = 24) -> list[np.ndarray]:
    """The same, but each turned by some degrees and moved a little."""
    rng = np.random.default_rng(RNG_SEED)
    poses = []
    for pose in around(count):
        tilt = look_at_origin(*rng.normal(0, 0.06, 2))[:3, :3] @ look_at_origin(0, 0)[:3, :3].T
        pose[:3, :3] = tilt @ pose[:3, :3]
        pose[:3, 3] += rng.normal(0, 0.2, 3)
        poses.append(pose)
    return poses


def looking_down(positions: np.ndarray) -> list[np.ndarray]:
    """Cameras at positions [I,3] that look along -z, x right."""
    poses = [np.eye(4) for _ in positions]
    for pose, position in zip(poses, positions):
        pose[:3, 3] = position
    return poses


def ball(count: int, radius: float) -> np.ndarray:
    rng = np.random.default_rng(RNG_SEED)
    directions = rng.normal(size=(count, 3))
    lengths = radius * rng.uniform(size=(count, 1)) ** (1 / 3)
    return lengths * directions / np.linalg.norm(directions, axis=1, keepdims=True)


def describe(capture: Capture, has_alpha: bool | None = None) -> SceneDescription:
    """With the box as an array."""
    found = scene_bounds.describe_capture(capture, has_alpha)
    return replace(found, aabb=found.aabb.numpy())


def words(scene: SceneDescription) -> str:
    return " ".join(scene.reasons)


# An object in a box


def test_cameras_that_look_at_one_point_exactly() -> None:
    scene = describe(capture_of(around()))
    assert scene.kind == "bounded" and "as a program or a turntable places them" in words(scene)
    np.testing.assert_allclose(scene.aabb, [[-2.4] * 3, [2.4] * 3], atol=1e-6)  # 0.6 of the distance 4
    assert 0.2 <= scene.near <= 4 - 2.4 and scene.far == pytest.approx(4 + 2.4 * math.sqrt(3), rel=0.1)


def test_one_camera_from_afar_does_not_put_the_others_into_the_box() -> None:
    """As much as it sees is a cube of edge 24, in which all the others stood; what fills their photos stays in it."""
    poses = [*around(39), look_at_origin(1.0, 0.2, 20.0)]
    scene = describe(capture_of(poses))
    centers = np.stack([pose[:3, 3] for pose in poses])
    inside = ((centers > scene.aabb[0]) & (centers < scene.aabb[1])).all(axis=1)
    assert scene.kind == "bounded" and inside.mean() <= 0.05 and "up to the nearest 5%" in words(scene)
    assert (np.abs(scene.aabb) > 2.4).all()  # what the 39 see


def test_points_that_end_with_the_object() -> None:
    points = np.concatenate([ball(2000, 1.0), [[90, 0, 0]] * 10])  # outliers
    scene = describe(capture_of(by_hand(), points=points))
    assert scene.kind == "bounded" and "99% of the sparse points lie within" in words(scene)
    assert (np.abs(scene.aabb) > 0.85).all() and (np.abs(scene.aabb) < 1.15).all()
    assert 1.5 < scene.near < 3.2 and 4.5 < scene.far < 7


def as_photos_show(capture: Capture) -> list[SceneDescription]:
    """Of photos that show an object alone, do not say, and show more around it."""
    return [
        scene_bounds.describe_capture(capture, False, None, lambda alone=alone: alone) for alone in (True, None, False)
    ]


@pytest.mark.parametrize("known", [{}, {"points": ball(500, 1.0)}], ids=["turntable", "points"])
def test_an_object_before_a_wall_without_texture_is_not_alone(known: dict) -> None:
    """Structure from motion finds no points on a bare wall, so an object is not alone where points end with it."""
    scenes = as_photos_show(capture_of(around(), **known))
    assert [scene.kind for scene in scenes] == ["bounded", "bounded", "unbounded"]
    assert ["no one even color along their edges" in words(scene) for scene in scenes] == [False, False, True]


@pytest.mark.parametrize(
    ("radius", "nearest", "half"),
    [(0.5, 4.0, 0.55 * 2.4), (2.5, 4.0, 2.5), (0.5, 1.2, 0.8)],
    ids=["bare table", "points around", "a camera close by"],
)
def test_an_inner_box_around_few_points_holds_half_of_what_is_seen(radius: float, nearest: float, half: float) -> None:
    """A bare table has no points, so a box that ends with those of what stands on it presses the table into the shell.

    But no camera is to be in it.
    """
    poses = [*by_hand(), look_at_origin(1.0, 0.8, nearest)]
    scene = as_photos_show(capture_of(poses, points=ball(2000, radius)))[2]
    found = (scene.aabb[1] - scene.aabb[0]).numpy() / 2
    assert scene.kind == "unbounded" and found == pytest.approx([half] * 3, rel=0.1)
    assert ("no narrower than" in words(scene)) == scene.bare == (radius == 0.5)


@pytest.mark.parametrize("known", [{}, {"points": ball(500, 9.0)}], ids=["hand", "points"])
def test_photos_before_one_even_color_show_an_object_alone(known: dict) -> None:
    scenes = as_photos_show(capture_of(by_hand(), **known))
    assert [scene.kind for scene in scenes] == ["bounded", "unbounded", "unbounded"]
    assert "an object before one even color" in words(scenes[0]) and "even color" not in words(scenes[2])


def test_a_box_that_the_format_gives() -> None:
    aabb = np.array([[-1.0, -2, -3], [1, 2, 3]])
    scene = describe(capture_of(by_hand(), aabb=aabb))
    assert scene.kind == "bounded" and "as the format gives it" in words(scene)
    np.testing.assert_array_equal(scene.aabb, aabb)


def test_transparent_photos_make_a_box() -> None:
    capture = capture_of(by_hand())
    assert describe(capture).kind == "unbounded" and describe(capture, has_alpha=False).kind == "unbounded"
    scene = describe(replace(capture, points=ball(500, 1.0)), has_alpha=True)
    assert scene.kind == "bounded" and "what no photo shows as transparent" in words(scene)
    assert "sparse points" not in words(scene)  # they tell another box, which is not taken


def test_cameras_inside_the_box() -> None:
    scene = describe(capture_of(around(), aabb=np.array([[-5.0] * 3, [5.0] * 3])))
    assert scene.near == pytest.approx(0.2, rel=0.01) and "Some cameras are inside the box" in words(scene)


def test_transparent_photos_of_nothing_in_common_have_no_box() -> None:
    outwards = [pose @ np.diag([-1.0, 1, -1, 1]) for pose in around()]
    with pytest.raises(UserError, match=r"the box of the object cannot be found; set dataset\.aabb"):
        describe(capture_of(outwards), has_alpha=True)


# Forward-facing


def test_a_grid_of_cameras_that_look_one_way() -> None:
    grid = np.array([[x, y, 0.02 * x * y] for x in range(-3, 4) for y in range(-2, 3)]) / 3
    bounds = np.tile([5.0, 20.0], (len(grid), 1))
    scene = describe(capture_of(looking_down(grid), bounds=bounds))
    assert scene.kind == "forward_facing" and "one plane is before them all" in words(scene)
    assert scene.near == pytest.approx(3.75) and scene.far == pytest.approx(20)
    # Widest at far: the grid's half and 0.6 or 0.4 of 20.
    np.testing.assert_allclose(scene.aabb[:, :2], [[-13, -8 - 2 / 3], [13, 8 + 2 / 3]], atol=1e-6)
    assert scene.aabb[0, 2] == pytest.approx(-20, abs=0.1) and scene.aabb[1, 2] == pytest.approx(-3.75, abs=0.1)


def test_without_depths_the_parallax_ends_it() -> None:
    scene = describe(capture_of(looking_down(np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]]))))
    assert scene.kind == "forward_facing"
    assert scene.far == pytest.approx(100 * math.sqrt(2)) and 0 < scene.near < 0.5


def test_an_arc_of_100_degrees_around_an_object_is_not_forward_facing() -> None:
    arc = [look_at_origin(angle, 0.2) for angle in np.linspace(-0.87, 0.87, 15)]
    assert describe(capture_of(arc)).kind == "bounded"
    arc = [look_at_origin(angle, 0.2) for angle in np.linspace(-0.5, 0.5, 15)]
    assert describe(capture_of(arc)).kind == "forward_facing"


# Unbounded


def test_cameras_by_hand_without_points() -> None:
    scene = describe(capture_of(by_hand()))
    assert scene.kind == "unbounded" and "as hands do" in words(scene)
    edges = scene.aabb[1] - scene.aabb[0]
    assert (edges > 4).all() and (edges < 5.5).all() and np.abs(scene.aabb.mean(axis=0)).max() < 0.3
    assert scene.near == pytest.approx(0.2, rel=0.1) and scene.far > 500


def test_points_behind_the_object() -> None:
    points = np.concatenate([ball(1000, 1.5), 6 * ball(200, 10.0)])
    scene = describe(capture_of(around(), points=points))
    assert scene.kind == "unbounded" and "an object alone: at most 0.6" in words(scene)
    assert (np.abs(scene.aabb) > 1).all() and (np.abs(scene.aabb) < 2.5).all()
    assert scene.near < 2.5


def test_depth_bounds_behind_the_object() -> None:
    poses = by_hand()
    near_only = describe(capture_of(poses, bounds=np.tile([2.5, 5.5], (24, 1))))
    assert near_only.kind == "bounded"
    scene = describe(capture_of(poses, bounds=np.tile([2.5, 9.0], (24, 1))))
    assert scene.kind == "unbounded" and scene.near == pytest.approx(0.75 * 2.5)


def test_a_walk_along_the_viewing_direction_is_not_forward_facing() -> None:
    track = np.array([[0.1 * (index % 2), 0, -index] for index in range(12)])
    scene = describe(capture_of(looking_down(track), bounds=np.tile([2.0, 30.0], (12, 1))))
    assert scene.kind == "unbounded" and "they move on through the scene" in words(scene)
    assert (scene.aabb[0] <= track.min(axis=0)).all() and (scene.aabb[1] >= track.max(axis=0)).all()


@pytest.mark.parametrize(("step", "kind"), [(0.05, "forward_facing"), (0.1, "unbounded")])
def test_cameras_that_move_a_seventh_of_the_nearest_depth_move_through_the_scene(step: float, kind: str) -> None:
    """Room's, a fifth, passed for forward-facing once its nearest depth was not that of a stray point any more."""
    track = np.array([[0.3 * index, 0.2 * (index % 3), -step * index] for index in range(11)])
    scene = describe(capture_of(looking_down(track), bounds=np.tile([5.0, 30.0], (11, 1))))
    assert scene.kind == kind


def test_room_is_unbounded_and_its_near_is_not_that_of_a_stray_point() -> None:
    scene = describe(read_capture(real_capture("room")))
    assert scene.kind == "unbounded" and 6 < scene.near < 9  # 2.6 with it; most of what three images see is beyond 12


def test_cameras_that_look_outwards() -> None:
    outwards = [pose @ np.diag([-1.0, 1, -1, 1]) for pose in around(radius=0.5)]
    scene = describe(capture_of(outwards))
    assert scene.kind == "unbounded" and "look at nothing in common" in words(scene)
    centers = np.stack([pose[:3, 3] for pose in outwards])
    assert (scene.aabb[0] < centers.min(axis=0)).all() and (scene.aabb[1] > centers.max(axis=0)).all()


def walk(other_side: float, count: int = 60) -> list[np.ndarray]:
    """Cameras along a way 12 long that look to its sides, the share other_side of them to the other one."""
    rng = np.random.default_rng(RNG_SEED)
    poses = []
    for index in range(count):
        pose = look_at_origin(math.pi * (0.5 + (index < other_side * count)) + rng.normal(0, 0.5), rng.normal(0, 0.1))
        pose[:3, 3] = [0.2 * index - 6, *rng.normal(0, 0.3, 2)]
        poses.append(pose)
    return poses


@pytest.mark.parametrize("other_side", [0.4, 0.25, 0.0])
def test_a_walk_whose_cameras_look_to_its_sides_looks_at_nothing_in_common(other_side: float) -> None:
    """The point nearest to all axes lies amid the walk: ahead of the median camera, but to its side or behind it."""
    capture = capture_of(walk(other_side))
    scene = describe(capture)
    assert camera_rig(capture.frames).target is None and "the scene lies around them" in words(scene)
    centers = np.stack([item.c2w[:, 3] for item in capture.frames])
    assert (scene.aabb[0] < centers.min(axis=0)).all() and (scene.aabb[1] > centers.max(axis=0)).all()


@pytest.mark.parametrize("behind", [4, 5])
def test_up_to_a_fifth_of_the_cameras_may_have_their_backs_to_what_the_others_look_at(behind: int) -> None:
    turned = np.diag([-1.0, 1, -1, 1])
    poses = [pose @ turned if index < behind else pose for index, pose in enumerate(around(24))]
    assert (camera_rig(capture_of(poses).frames).target is None) == (behind == 5)


@pytest.mark.parametrize("count", [0, 1, 29])
@pytest.mark.parametrize("poses", [around(), by_hand(), looking_down(np.random.default_rng(3).random((9, 3)))])
def test_a_few_points_count_as_none(poses: list[np.ndarray], count: int) -> None:
    """With none there was an IndexError, with one a box without volume."""
    points = np.random.default_rng(RNG_SEED).normal(size=(count, 3)) - [0, 0, 9]
    scene = describe(capture_of(poses, points=points, bounds=np.tile([9.0, 9.0], (len(poses), 1)) if count else None))
    without = describe(capture_of(poses))
    assert (scene.kind, scene.near, scene.far) == (without.kind, without.near, without.far)
    np.testing.assert_array_equal(scene.aabb, without.aabb)
    assert f"{count}, expected at least 30" in words(scene)


def test_points_in_one_place_count_as_none() -> None:
    scene = describe(capture_of(by_hand(), points=np.ones((50, 3))))
    assert "50 sparse points are all in one place" in words(scene)
    np.testing.assert_array_equal(scene.aabb, describe(capture_of(by_hand())).aabb)


@pytest.mark.parametrize("poses", [around(), by_hand()])
def test_points_on_one_plane_make_a_box_with_a_volume(poses: list[np.ndarray]) -> None:
    scene = describe(capture_of(poses, points=ball(500, 1.0) * [1, 1, 0]))
    edges = np.ptp(scene.aabb, axis=0)
    assert (edges[:2] > 1.5).all() and edges[2] == pytest.approx(0.02 * edges[:2].max(), rel=0.2)


def test_photos_from_one_place_have_no_depth() -> None:
    turning = around()
    for pose in turning:
        pose[:3, 3] = 0
    with pytest.raises(UserError, match="all cameras stand in one place"):
        describe(capture_of(turning))


# What must not matter


@pytest.mark.parametrize(
    "poses", [around(), by_hand(), looking_down(ball(12, 0.3))], ids=["bounded", "hand", "forward_facing"]
)
@pytest.mark.parametrize("scale", [1e-2, 1e3])
def test_size_and_place_of_the_world_do_not_matter(poses: list[np.ndarray], scale: float) -> None:
    scene = describe(capture_of(poses))
    shift = np.array([30.0, -20, 10])
    moved = []
    for pose in poses:
        other = pose.copy()
        other[:3, 3] = scale * (pose[:3, 3] + shift)
        moved.append(other)
    other = describe(capture_of(moved))
    assert other.kind == scene.kind
    assert (other.near, other.far) == (pytest.approx(scale * scene.near), pytest.approx(scale * scene.far))
    np.testing.assert_allclose(other.aabb, scale * (scene.aabb + shift), rtol=1e-4)


def test_training_frames_decide() -> None:
    capture = capture_of(by_hand(), bounds=np.tile([2.5, 9.0], (24, 1)))
    away = [frame(pose, "test") for pose in looking_down(ball(24, 100.0))]
    train = [replace(item, split="train") for item in capture.frames]
    mixed = replace(
        capture, frames=[*away, *train], bounds=np.concatenate([np.tile([0.1, 1e3], (24, 1)), capture.bounds])
    )
    scene, other = describe(capture), describe(mixed)
    assert (other.kind, other.near, other.far) == (scene.kind, scene.near, scene.far)
    np.testing.assert_array_equal(other.aabb, scene.aabb)


def test_a_fisheye_sees_as_wide_as_its_angle() -> None:
    item = replace(frame(np.eye(4)), lens="fisheye")
    np.testing.assert_allclose(camera_rig([item]).slopes, [[math.tan(0.6), math.tan(0.4)]])
    wide = replace(item, intrinsics=(30.0, 30.0, 60.0, 40.0))
    assert camera_rig([wide]).slopes[0, 0] == pytest.approx(math.tan(math.radians(75)))


# Real captures


def test_lego_is_a_box() -> None:
    scene = describe(read_capture(official_scene("lego")))
    assert scene.kind == "bounded"
    assert (scene.aabb[0] < [-0.7, -1.2, -0.7]).all() and (scene.aabb[1] > [0.7, 1.2, 1.1]).all()  # the model's own box
    assert 1 < scene.near < 2.5 and 5.5 < scene.far < 7


def test_fern_is_forward_facing() -> None:
    scene = describe(read_capture(real_capture("fern")))
    assert scene.kind == "forward_facing"
    assert 12 < scene.near < 17 and 70 < scene.far < 81  # the file's depths: 17.0 to 80.0


def test_fox_is_unbounded_with_the_fox_in_its_inner_box() -> None:
    capture = read_capture(real_capture("fox"))
    scene = describe(capture)
    assert scene.kind == "unbounded"
    centers = np.stack([item.c2w[:, 3] for item in capture.frames])
    inside = ((centers > scene.aabb[0]) & (centers < scene.aabb[1])).all(axis=1)
    assert not inside.any() and (scene.aabb[0] < -1.5).all() and (scene.aabb[1] > 1.5).all()
    assert scene.near < 1 and scene.far > 100


@pytest.mark.parametrize("name", ["colmap", "llff"])
def test_cup_is_unbounded_with_the_cup_in_its_inner_box(name: str) -> None:
    capture = read_capture(real_capture("cup"), name)
    scene = describe(capture)
    assert scene.kind == "unbounded" and scene.near < capture.bounds[:, 0].min()
    points = read_capture(real_capture("cup"), "colmap").points
    share = ((points > scene.aabb[0]) & (points < scene.aabb[1])).all(axis=1).mean()
    assert (0.9 if name == "colmap" else 0.6) < share < 0.99
