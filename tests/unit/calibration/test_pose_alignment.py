"""Perturbing poses, aligning two sets of them, the errors that are left, and held-out views that move along."""

import math
from dataclasses import replace

import pytest
import torch
from tiny_runs import run_to, some_similarity, tiny_config, tiny_images

from nerf.calibration.pose_alignment import Similarity, align, align_views, perturbed, pose_errors
from nerf.calibration.pose_refinement import scene_distances
from nerf.cameras.cameras import Cameras
from nerf.cameras.se3 import exponential, rotation_angle
from nerf.config.recipes import resolve_config
from nerf.config.schema import EvaluationConfig, PosesConfig
from nerf.evaluation import held_out_poses as held_out
from nerf.evaluation.held_out_poses import align_eval_poses, pose_facts
from nerf.evaluation.scores import evaluate
from nerf.ops.backend import select
from nerf.rendering.render import render_rays
from nerf.training.initial_state import init_state
from nerf.training.state import make_sampler

GIVEN = tiny_images().cameras


def moved_centers(cameras: Cameras, centers: torch.Tensor) -> Cameras:
    return replace(cameras, c2w=torch.cat([cameras.c2w[:, :, :3], centers[:, :, None]], dim=-1))


LINE = moved_centers(GIVEN, torch.arange(8.0)[:, None] * torch.tensor([1.0, 0.5, 0.0]))
ONE_PLACE = moved_centers(GIVEN, torch.ones(8, 3))


# Alignment


@pytest.mark.parametrize("cameras", [GIVEN, LINE, GIVEN[:2], GIVEN[:1]], ids=["ring", "line", "two", "one"])
def test_a_similarity_is_found_again(cameras: Cameras) -> None:
    true = some_similarity()
    found = align(cameras, true.applied(cameras))
    torch.testing.assert_close(found.rotation, true.rotation, rtol=0, atol=1e-5)
    assert found.scale == pytest.approx(true.scale if len(cameras) > 1 else 1.0, abs=1e-5)
    expected = true.applied(cameras).c2w
    torch.testing.assert_close(found.applied(cameras).c2w, expected, rtol=0, atol=2e-5)


def test_cameras_in_one_place_determine_the_rotation() -> None:
    true = replace(some_similarity(), scale=1.0)
    torch.testing.assert_close(align(ONE_PLACE, true.applied(ONE_PLACE)).rotation, true.rotation, rtol=0, atol=1e-5)


def fanned_cameras() -> tuple[Cameras, Cameras, torch.Tensor, torch.Tensor]:
    """Five cameras beside each other before a wall, and the same each turned about the spot of it that it looks at.

    Then pixels, and how far the wall is from the turned ones along their rays. Those stand apart by 7% more,
    and see what they saw before.
    """
    wall, count, size = 7.0, 5, 9
    places = torch.linspace(-1, 1, count)
    angles = 0.07 * places / wall
    zeros = torch.zeros(count)
    rotations, _ = exponential(torch.stack([zeros, angles, zeros, zeros, zeros, zeros], dim=-1).double())
    spots = torch.stack([places + 0.5, zeros + 0.3, zeros - wall], dim=-1).double()
    centers = spots + (rotations @ torch.tensor([0.0, 0.0, wall], dtype=torch.float64)[:, None])[..., 0]
    straight = torch.cat([torch.eye(3).expand(count, 3, 3), (spots + torch.tensor([0, 0, wall]))[..., None]], dim=-1)
    intrinsics = torch.tensor([9.0, 9.0, 4.5, 4.5]).expand(count, 4)
    given = Cameras(straight.float(), intrinsics, size, size)
    fanned = replace(given, c2w=torch.cat([rotations, centers[..., None]], dim=-1).float())
    pixels = torch.arange(0, count * size * size, 4)
    rays = fanned.rays_through(pixels)
    return given, fanned, pixels, (-wall - rays.origins[:, 2]) / rays.directions[:, 2]


def test_turns_and_moves_that_photos_do_not_tell_apart_are_no_errors() -> None:
    """Poses alone say that the scene has grown; what the cameras see says that it has not."""
    given, fanned, pixels, distances = fanned_cameras()
    true = some_similarity()
    learned, apart = true.applied(fanned), true.scale * distances
    start, which = align(given, learned), learned.image_of(pixels)
    rays = given.rays_through(pixels), learned.rays_through(pixels)
    turn, _ = exponential(torch.tensor([[0.02, -0.01, 0.03, 0, 0, 0]], dtype=torch.float64))
    found = align_views(replace(start, rotation=turn[0] @ start.rotation), *rays, apart, which)
    assert start.scale == pytest.approx(1.07 * true.scale, rel=0.01)
    assert found.scale == pytest.approx(true.scale, rel=0.01)
    torch.testing.assert_close(found.rotation, true.rotation, rtol=0, atol=1e-3)
    beside = moved_centers(given[:1], torch.tensor([[2.0, 1.0, 0.5]]))
    expected, aligned = true.applied(beside).c2w, found.applied(beside).c2w
    torch.testing.assert_close(aligned, expected, rtol=0, atol=0.02)
    assert (start.applied(beside).c2w - expected).abs().max() > 0.1


def test_a_lost_camera_does_not_move_the_others_by_what_it_sees() -> None:
    given, fanned, pixels, distances = fanned_cameras()
    lost = fanned.c2w.clone()
    lost[0] = torch.tensor([[0.0, 0, 1, 3], [0, 1, 0, 2], [-1, 0, 0, 1]])
    learned = replace(fanned, c2w=lost)
    rays = given.rays_through(pixels), learned.rays_through(pixels)
    found = align_views(align(given, learned), *rays, distances, learned.image_of(pixels))
    torch.testing.assert_close(found.rotation, torch.eye(3, dtype=torch.float64), rtol=0, atol=3e-3)
    assert found.scale == pytest.approx(1, abs=0.03) and found.translation.norm() < 0.05


def test_cameras_in_one_place_keep_their_size() -> None:
    given = replace(ONE_PLACE, c2w=torch.cat([GIVEN.c2w[:, :, :3], torch.zeros(8, 3, 1)], dim=-1))
    turn, _ = exponential(torch.tensor([[0.0, 0.1, 0, 0, 0, 0]], dtype=torch.float64))
    learned = Similarity(1.0, turn[0], torch.zeros(3, dtype=torch.float64)).applied(given)
    pixels = torch.arange(0, given.first_pixel(len(given)), 37)
    rays = given.rays_through(pixels), learned.rays_through(pixels)
    distances = torch.ones(len(pixels))
    found = align_views(align(given, learned), *rays, distances, given.image_of(pixels))
    assert found.scale == 1
    torch.testing.assert_close(found.rotation, turn[0], rtol=0, atol=1e-5)


def test_what_cannot_be_aligned_is_not_mirrored() -> None:
    """Poses that have nothing to do with each other: least squares alone would mirror some of them."""
    for _ in range(50):
        one, other = (
            replace(LINE[:2], c2w=torch.cat([exponential(3 * torch.randn(2, 6))[0], torch.randn(2, 3, 1)], dim=-1))
            for _ in range(2)
        )
        rotation = align(one, other).rotation
        assert torch.det(rotation).item() == pytest.approx(1)
        torch.testing.assert_close(rotation @ rotation.T, torch.eye(3, dtype=torch.float64))


def test_a_similarity_moves_cameras_with_what_they_see() -> None:
    move, points = some_similarity(), torch.randn(5, 3)
    carried = (move.scale * points.double() @ move.rotation.T + move.translation).float()
    for before, after in zip(GIVEN.project(3, points), move.applied(GIVEN).project(3, carried), strict=True):
        torch.testing.assert_close(after, before * (1 if after.ndim == 2 else move.scale), rtol=1e-4, atol=1e-3)


def test_errors_are_zero_after_a_similarity_and_known_otherwise() -> None:
    same = pose_errors(GIVEN, some_similarity().applied(GIVEN)).summary()
    assert same["max_rotation_degrees"] < 1e-4 and same["max_translation"] < 1e-5
    c2w = GIVEN.c2w.double()
    turns = torch.zeros(8, 6, dtype=torch.float64)
    turns[:, 0] = torch.tensor([0.01, -0.01] * 4)  # no common turn is in them
    wrong = replace(GIVEN, c2w=torch.cat([c2w[:, :, :3] @ exponential(turns)[0], c2w[:, :, 3:]], dim=-1))
    assert pose_errors(GIVEN, wrong).rotation == pytest.approx([math.degrees(0.01)] * 8, rel=1e-2)


@pytest.mark.parametrize("lost", [1, 2])
def test_cameras_that_were_never_found_again_do_not_move_the_others(lost: int) -> None:
    """Eight cameras off by a hundredth of a degree, some of them by twenty degrees and a third of their distance."""
    true = some_similarity()
    noise = 2e-4 * torch.randn(8, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    turns, centers = exponential(noise)[0], GIVEN.centers + noise[:, 3:].float()
    turns[:lost] = exponential(0.35 * torch.eye(6, dtype=torch.float64)[:2])[0][:lost]
    centers[:lost] += 1.3 * torch.eye(3)[:lost]
    c2w = torch.cat([GIVEN.c2w[:, :, :3].double() @ turns, centers.double()[:, :, None]], dim=-1)
    errors = pose_errors(GIVEN, true.applied(replace(GIVEN, c2w=c2w)))
    assert max(errors.rotation[lost:]) < 0.05 and max(errors.translation[lost:]) < 2e-3
    assert min(errors.rotation[:lost]) > 19 and min(errors.translation[:lost]) > 1.2


# Perturbation


def test_every_pose_is_perturbed_by_what_was_asked() -> None:
    config = PosesConfig(perturb_degrees=2.0, perturb_translation=0.02)
    wrong = perturbed(GIVEN, config, seed=3)
    angles = rotation_angle(GIVEN.c2w[:, :, :3].double().mT @ wrong.c2w[:, :, :3].double())
    torch.testing.assert_close(angles, torch.full((8,), math.radians(2), dtype=torch.float64), rtol=1e-4, atol=0)
    torch.testing.assert_close((wrong.centers - GIVEN.centers).norm(dim=-1), 0.02 * scene_distances(GIVEN))
    assert torch.equal(wrong.c2w, perturbed(GIVEN, config, seed=3).c2w)
    assert not torch.equal(wrong.c2w, perturbed(GIVEN, config, seed=4).c2w)
    assert scene_distances(GIVEN).tolist() == pytest.approx([4.0] * 8, rel=1e-3)


def test_noise_of_barf_turns_about_the_origin() -> None:
    many = Cameras(GIVEN.c2w[:1].repeat(4000, 1, 1), GIVEN.intrinsics[:1].repeat(4000, 1), 20, 20)
    wrong = perturbed(many, PosesConfig(perturb_sigma=0.15), seed=0)
    angles = rotation_angle(many.c2w[:, :, :3].double().mT @ wrong.c2w[:, :, :3].double())
    assert angles.square().mean().sqrt().item() == pytest.approx(0.15 * math.sqrt(3), rel=0.03)
    pixels = torch.stack([wrong.project(i, torch.zeros(1, 3))[0][0] for i in range(200)])
    assert (pixels - 10).abs().median() < 1.5  # what the camera looks at stays in sight: 0.15 of a distance of 4


def test_cameras_side_by_side_have_a_distance_too() -> None:
    parallel = replace(LINE, c2w=torch.cat([LINE.c2w[:1, :, :3].expand(8, 3, 3), LINE.c2w[:, :, 3:]], dim=-1))
    distances = scene_distances(parallel)
    assert (distances > 0).all() and distances.unique().numel() == 1


# Held-out views


def trained(moved: Similarity | None = None, how: str = "aligned"):
    """A short run, and its training cameras as if the whole scene had been learned elsewhere."""
    config = replace(tiny_config(), evaluation=EvaluationConfig(view_poses=how), poses=PosesConfig(mode="refine"))
    config = resolve_config(replace(config, poses=replace(config.poses, initial_num_voxels=500)), "cpu")
    state = init_state(config, tiny_images(), select("native", "cpu"))
    learned = GIVEN if moved is None else moved.applied(GIVEN)
    return config, state, make_sampler(config, state), learned


@pytest.mark.parametrize("split", ["test", "train"])
def test_held_out_views_move_as_the_training_views_did(split: str) -> None:
    move = some_similarity()
    config, state, sampler, learned = trained(move)
    views = tiny_images(split)
    placed = align_eval_poses(state.field, sampler, config, views, split, learned, GIVEN)
    torch.testing.assert_close(placed.cameras.c2w, move.applied(views.cameras).c2w, rtol=0, atol=3e-5)
    config.evaluation.view_poses = "given"
    assert align_eval_poses(state.field, sampler, config, views, split, learned, GIVEN) is views


def test_views_move_by_what_the_learned_cameras_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rays of the given and the learned cameras through the same pixels, and how far the learned ones see."""
    config, state, _, _ = trained()
    config = replace(config, train=replace(config.train, steps=100, rays_per_step=256))
    state = init_state(config, tiny_images(), state.field.backend)
    run_to(config, state, 100)
    true, asked = some_similarity(), []
    monkeypatch.setattr(held_out, "align_views", lambda *arguments: asked.append(arguments) or true)
    learned = perturbed(GIVEN, PosesConfig(perturb_degrees=3.0, perturb_translation=0.02), seed=2)
    views, sampler = tiny_images("test"), make_sampler(config, state)
    placed = align_eval_poses(state.field, sampler, config, views, "test", learned, GIVEN)
    torch.testing.assert_close(placed.cameras.c2w, true.applied(views.cameras).c2w, rtol=0, atol=1e-5)
    ((start, before, after, distances, cameras),) = asked
    assert start.scale == align(GIVEN, learned).scale and len(cameras.unique()) == len(GIVEN) < len(cameras)
    torch.testing.assert_close(before.origins, GIVEN.centers[cameras])
    torch.testing.assert_close(after.origins, learned.centers[cameras])
    apart = (before.directions * after.directions).sum(-1).clamp(max=1).acos() * 180 / math.pi
    assert apart.max() < 3.1, "rays through the same pixels, of cameras three degrees apart"
    with torch.no_grad():
        seen = render_rays(state.field, sampler, after, torch.ones(3))
    assert seen.opacity.min() > 0.5
    torch.testing.assert_close(distances, seen.distance(), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_views_that_are_off_are_refined_by_their_own_photos(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scene stays as it is, the views find back; only every second one is asked for."""
    steps, photometric = [], held_out.photometric
    monkeypatch.setattr(held_out, "photometric", lambda *args: steps.append(1) or photometric(*args))
    config, state, _, _ = trained(how="refined")
    config = replace(config, train=replace(config.train, steps=300, rays_per_step=256))
    state = init_state(config, tiny_images(), state.field.backend)
    run_to(config, state, 300)
    sampler, views = make_sampler(config, state), tiny_images("test")
    off = perturbed(views.cameras, PosesConfig(perturb_degrees=1.5), seed=1)
    before = {name: value.clone() for name, value in state.field.state_dict().items()}
    learned = state.cameras
    placed = align_eval_poses(
        state.field, sampler, config, replace(views, cameras=off), "test", learned, learned, every=2
    )
    assert len(steps) == config.evaluation.pose_steps
    assert torch.equal(placed.cameras.c2w[1::2], off.c2w[1::2])
    assert all(torch.equal(before[name], value) for name, value in state.field.state_dict().items())
    assert all(p.requires_grad for p in state.field.parameters())
    assert not any(p.grad.any() for p in state.field.parameters())  # training would go on with them
    psnr = {}
    for name, cameras in (("off", off), ("placed", placed.cameras)):
        scores = evaluate(state.field, sampler, replace(views, cameras=cameras), torch.ones(3), every=2)
        psnr[name] = sum(scores.psnr) / len(scores.psnr)
    assert psnr["placed"] > psnr["off"] + 1.5


def test_the_report_tells_changes_and_errors_where_they_are_known() -> None:
    config, _, _, _ = trained()
    facts = pose_facts(config, GIVEN, GIVEN)
    assert facts.keys() == {"pose_change"} and facts["pose_change"]["rotation_degrees"] < 1e-3
    config.poses.perturb_degrees = 2.0
    facts = pose_facts(config, GIVEN, GIVEN)  # they went all the way back
    assert facts.keys() == {"pose_change", "pose_error_before", "pose_error"}
    assert 1 < facts["pose_change"]["rotation_degrees"] < 2.5 and facts["pose_error"]["rotation_degrees"] < 1e-3
    config.poses.mode = "fixed"
    assert pose_facts(config, GIVEN, GIVEN).keys() == {"pose_error_before", "pose_error"}
