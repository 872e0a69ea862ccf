"""Cameras learned with the scene: gradients, bounds, gauge, recovery of known poses, resume."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from state_facts import differing, facts
from tiny_runs import poses_config, run_to, supersampled, tiny_config, tiny_images

from nerf.calibration.pose_alignment import align, pose_errors
from nerf.calibration.pose_refinement import PoseRefinement, take_rows
from nerf.cameras.cameras import Cameras
from nerf.cameras.distortion import Lenses
from nerf.cameras.se3 import rotation_angle
from nerf.config.recipes import resolve_config
from nerf.config.schema import Config, ExposureConfig, PosesConfig, TrainConfig
from nerf.datasets.blender import load_blender
from nerf.fields.voxel_sh import VoxelSh, VoxelShConfig
from nerf.ops.backend import select
from nerf.optim.clock import RunClock
from nerf.rendering.render import render_samples
from nerf.rendering.sampler import RaySampler
from nerf.runs import checkpoint
from nerf.scene.box import SceneBox
from nerf.scene.contraction import ContractedSpace
from nerf.scene.ndc import NdcSpace
from nerf.scene.occupancy import uniform
from nerf.training.batches import PROBED_AT_A_TIME
from nerf.training.initial_state import init_state
from nerf.training.loop import StopWhen, train
from nerf.training.state import TrainState, make_sampler

BRICKS = Path(__file__).parents[3] / "data" / "bricks"
BACKENDS = pytest.mark.parametrize("name", ["native", "torch"])


def cameras_of(dtype: torch.dtype = torch.float64) -> Cameras:
    cameras = tiny_images().cameras
    return Cameras(cameras.c2w.to(dtype), cameras.intrinsics.to(dtype), cameras.width, cameras.height)


def refinement(name: str = "native", dtype: torch.dtype = torch.float64, **settings: object) -> PoseRefinement:
    return PoseRefinement(cameras_of(dtype), 1.0, poses_config(**settings), select(name, "cpu"))


# Poses


def test_nothing_learned_is_nothing_changed() -> None:
    poses, cameras = refinement(intrinsics=True), cameras_of()
    pixels = torch.arange(0, 8 * 400, 37)
    found, given = poses.rays_through(pixels), cameras.rays_through(pixels)
    torch.testing.assert_close(found.origins, given.origins)
    torch.testing.assert_close(found.directions, given.directions)
    torch.testing.assert_close(poses.refined().c2w, cameras.c2w)
    torch.testing.assert_close(poses.refined().intrinsics, cameras.intrinsics)


@pytest.mark.parametrize("per_pixel", [1, 4])
def test_rays_are_those_of_the_refined_cameras(per_pixel: int) -> None:
    """Exactly: what trains is what is saved and rendered, the intrinsics too."""
    poses = refinement(intrinsics=True)
    with torch.no_grad():
        poses.increments += 0.1 * torch.randn_like(poses.increments)
        poses.lens += 0.1 * torch.randn_like(poses.lens)
        pixels = torch.arange(0, 8 * 400, 37)
        rays, expected = (source.rays_through(pixels, per_pixel) for source in (poses, poses.refined()))
        assert rays.per_pixel == per_pixel
        torch.testing.assert_close(rays.origins, expected.origins)
        torch.testing.assert_close(rays.directions, expected.directions, rtol=0, atol=1e-7)  # pixels are float32
        assert (rays.directions - cameras_of().rays_through(pixels, per_pixel).directions).abs().max() > 0.01


def test_rays_are_those_of_the_refined_cameras_through_lenses_and_sizes() -> None:
    lenses = Lenses.of(["perspective", "fisheye"] * 4, [[0.1, -0.02, 0.003, 0.002], [0.05]] * 4)
    sizes = torch.tensor([[20, 20], [16, 24]]).repeat(4, 1)
    given = Cameras.of_sizes(tiny_images().cameras.c2w, tiny_images().cameras.intrinsics, sizes, lenses)
    config = poses_config(intrinsics=True)
    poses = PoseRefinement(given, 1.0, config, select("native", "cpu"))
    pixels = torch.arange(0, given.first_pixel(8), 37)
    torch.testing.assert_close(poses.rays_through(pixels).directions, given.rays_through(pixels).directions)
    with torch.no_grad():
        poses.increments += 0.1 * torch.randn_like(poses.increments)
        poses.lens += 0.1 * torch.randn_like(poses.lens)
    rays, expected = poses.rays_through(pixels), poses.refined().rays_through(pixels)
    torch.testing.assert_close(rays.origins, expected.origins)
    torch.testing.assert_close(rays.directions, expected.directions, rtol=0, atol=1e-5)
    rays.directions[:, 0].sum().backward()
    assert poses.lens.grad.isfinite().all() and poses.lens.grad.all()


@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
def test_increments_are_bounded_and_poses_stay_rigid(size: float) -> None:
    poses = refinement(max_rotation=20.0, max_translation=0.1)
    with torch.no_grad():
        poses.increments += size * torch.randn_like(poses.increments)
        bounded, c2w = poses.bounded(), poses.c2w()
    assert bounded[:, :3].norm(dim=-1).max() <= math.radians(20) * (1 + 1e-12)
    assert bounded[:, 3:].norm(dim=-1).max() <= 0.1 * (1 + 1e-12)
    rotations = c2w[:, :, :3]
    torch.testing.assert_close(rotations @ rotations.mT, torch.eye(3, dtype=torch.float64).expand(8, 3, 3))
    angles = rotation_angle(cameras_of().c2w[:, :, :3].mT @ rotations)
    torch.testing.assert_close(angles, bounded[:, :3].norm(dim=-1))


def test_a_rotation_keeps_what_the_camera_looks_at_in_its_place() -> None:
    poses = refinement()
    with torch.no_grad():
        poses.increments[:, :2] += 0.05
        for index in range(8):
            before, _ = cameras_of().project(index, torch.zeros(1, 3, dtype=torch.float64))
            after, z = poses.refined().project(index, torch.zeros(1, 3, dtype=torch.float64))
            torch.testing.assert_close(after, before, rtol=0, atol=1e-2)
            assert z.item() == pytest.approx(4.0, abs=1e-3)


def test_the_cameras_do_not_draw_back_together() -> None:
    poses = refinement()
    with torch.no_grad():
        poses.increments[:, 5] += 0.01
        torch.testing.assert_close(poses.c2w(), cameras_of().c2w)
        poses.keep_scale = False
        assert (poses.c2w() - cameras_of().c2w).abs().max() > 0.01


# Gradients


@BACKENDS
def test_take_rows_adds_up_what_its_takers_send_back(name: str) -> None:
    table = torch.randn(5, 12, dtype=torch.float64, requires_grad=True)
    index = torch.randint(5, (300,))
    assert torch.autograd.gradcheck(lambda x: take_rows(x, index, select(name, "cpu")), table)


@BACKENDS
@pytest.mark.parametrize(("intrinsics", "per_pixel"), [(False, 1), (True, 1), (True, 4)])
def test_gradient_of_a_rendered_loss_by_finite_differences(name: str, intrinsics: bool, per_pixel: int) -> None:
    """In float64, samples at fixed places along their rays, color that does not see the direction."""
    poses, backend = refinement(name, intrinsics=intrinsics), select(name, "cpu")
    box = SceneBox(torch.tensor([[-1.3, -1.3, -1.3], [1.3, 1.3, 1.3]], dtype=torch.float64))
    config = tiny_config().field
    config.sh_degree = 0
    field = VoxelSh(config, box, (9, 9, 9), 0.3, backend).double()
    with torch.no_grad():
        field.density_grid += 3 * torch.randn_like(field.density_grid)
        field.sh_grid += torch.randn_like(field.sh_grid)
        poses.increments += 0.02 * torch.randn_like(poses.increments)
    field.density_grid.grad, field.sh_grid.grad = torch.zeros_like(field.density_grid), torch.zeros_like(field.sh_grid)
    occupancy = uniform(field.resolution, box.aabb.device)
    sampler = RaySampler(backend, field.grid_map, occupancy, 0.11, tiny_config().sampler)
    pixels = torch.arange(3, 8 * 400, 29)
    truth = torch.rand(len(pixels), 3, dtype=torch.float64)
    with torch.no_grad():
        places = sampler.sample(poses.rays_through(pixels, per_pixel))
    assert len(places.t_starts) > 500

    def loss() -> torch.Tensor:
        rays = poses.rays_through(pixels, per_pixel)
        samples = replace(places, rays=rays, path=sampler.march(rays, None)[0])
        rgb = render_samples(field, sampler, samples, torch.ones(3, dtype=torch.float64)).rgb
        return (rgb - truth).square().mean()

    loss().backward()
    parameters = {"increments": poses.increments, **({"lens": poses.lens} if intrinsics else {})}
    step = 1e-7
    for parameter in parameters.values():
        for place in ((0, 0), (0, 1), (-1, 2), (-1, 3), *(((3, 4), (5, 5)) if len(parameter) > 1 else ())):
            with torch.no_grad():
                parameter[place] += step
                above = loss()
                parameter[place] -= 2 * step
                below = loss()
                parameter[place] += step
            expected = ((above - below) / (2 * step)).item()
            assert parameter.grad[place].item() == pytest.approx(expected, rel=2e-4, abs=1e-8), place
    assert field.sh_grid.grad.any() and field.density_grid.grad.any()


def test_valid_pixels_are_those_of_the_poses_of_now_which_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of chunks of rays are marched; with poses computed for each, a search took fifteen seconds on a GPU."""
    config, state = tiny_refined("refine")
    occupied = torch.zeros_like(state.occupancy.occupied)
    occupied[tuple(size // 2 for size in occupied.shape)] = True
    state.occupancy.occupied = occupied
    sampler = make_sampler(config, state)
    pixels = torch.arange(len(state.batches.images))
    with torch.no_grad():
        state.poses.increments[:, 3] = 0.2
        expected = sampler.sample(state.poses.rays_through(pixels)).ray_offsets.diff() > 0
    computed, c2w = [], PoseRefinement.c2w
    monkeypatch.setattr(PoseRefinement, "c2w", lambda self: computed.append(self) or c2w(self))
    monkeypatch.setitem(PROBED_AT_A_TIME, "cpu", 50)
    state.batches.find_valid_pixels(sampler)
    found = state.batches.valid_pixels.mask(0, len(pixels))
    assert torch.equal(found, expected) and 0 < found.sum() < len(pixels)
    assert len(computed) == 1


def test_the_grids_gradients_are_the_same_whether_poses_are_learned_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nerf.scene.visual_hull.SEEN", ())  # one box: outlines are dilated where poses are learned
    gradients = []
    for mode in ("fixed", "refine"):
        config, state = tiny_refined(mode)
        field = state.field
        rays = state.batches.ray_source.rays_through(torch.arange(0, 8 * 400, 7))
        occupancy = uniform(field.resolution, torch.device("cpu"))
        sampler = RaySampler(field.backend, field.grid_map, occupancy, 0.1, config.sampler)
        with torch.no_grad():
            field.density_grid += torch.linspace(0, 9, field.density_grid.numel()).view_as(field.density_grid)
        if state.poses is not None:
            state.poses.view_weight.fill_(1)
        render_samples(field, sampler, sampler.sample(rays), torch.ones(3)).rgb[:, 0].sum().backward()
        gradients.append((field.density_grid.grad.clone(), field.sh_grid.grad.clone()))
        assert state.optimizer.groups[1].parameter.grad.data_ptr() == field.sh_grid.grad.data_ptr()  # added to in place
    for fixed, refined in zip(*gradients, strict=True):
        torch.testing.assert_close(refined, fixed)


# Whole runs


def tiny_refined(mode: str = "refine", backend: str = "native", **poses: object) -> tuple[Config, TrainState]:
    """The tiny run, its poses wrong by 3 degrees and 3% of the distance."""
    settings = {
        "perturb_degrees": 3.0,
        "perturb_translation": 0.03,
        "initial_num_voxels": 500,
        "mask_dilation_degrees": 8.0,
        **poses,
    }
    config = replace(tiny_config(), poses=PosesConfig(mode=mode, **settings))
    chosen = select(backend, "cpu")
    config = resolve_config(config, chosen.device.type)
    return config, init_state(config, tiny_images(), chosen)


@BACKENDS
@pytest.mark.parametrize("per_pixel", [1, 4])
def test_every_part_of_a_step_moves_poses_on_either_backend(name: str, per_pixel: int) -> None:
    config, state = tiny_refined(backend=name, intrinsics=True, start=0.0, warmup=0.0)
    before = state.cameras
    run_to(supersampled(config, 0.0, per_pixel), state, 4)
    assert state.rays_per_pixel == per_pixel
    assert (state.cameras.c2w - before.c2w).abs().amax((1, 2)).min() > 1e-4
    assert (state.cameras.intrinsics != before.intrinsics).all()
    assert state.poses.increments.grad is None


@pytest.mark.parametrize("kind", ["forward_facing", "unbounded"])
def test_the_path_through_scene_space_is_differentiable_in_the_poses(kind: str) -> None:
    """By finite differences of where samples are, in float64; at the middle of an image too."""
    if kind == "forward_facing":
        space = NdcSpace(cameras_of().c2w[0], near_plane=1.0, thickness=0.3)
    else:
        space = ContractedSpace(torch.zeros(3).double(), torch.ones(3).double(), 0.6, near=0.1)
    poses, pixels = refinement(), torch.tensor([0, 25, 190, 210, 399])  # of the first image
    t = torch.linspace(0.05, 0.25, 5).double() * (1 if kind == "forward_facing" else 20)

    def positions() -> torch.Tensor:
        rays = poses.rays_through(pixels)
        ends = torch.zeros(5).double(), torch.full((5,), 1e4).double()
        return space.path(rays.origins, rays.directions, *ends).positions(t, torch.arange(5)).square().sum()

    positions().backward()
    for place in range(6):
        with torch.no_grad():
            poses.increments[0, place] += 1e-6
            above = positions()
            poses.increments[0, place] -= 2e-6
            below = positions()
            poses.increments[0, place] += 1e-6
        expected = ((above - below) / 2e-6).item()
        assert poses.increments.grad[0, place].item() == pytest.approx(expected, rel=1e-4, abs=1e-6), place


@pytest.mark.parametrize(
    "total, step, start, expected",
    [
        (1000, 0, 0.0, 0.0),
        (1000, 10, 0.0, 0.5),  # by the share of a short run
        (1000, 20, 0.0, 1.0),
        (100_000, 100, 0.0, 0.5),  # by the steps of a long one
        (100_000, 200, 0.0, 1.0),
        (100_000, 900, 0.01, 0.0),  # not yet started
        (100_000, 1100, 0.01, 1.0),
    ],
)
def test_rates_rise_over_a_share_of_the_run_or_over_steps(total: int, step: int, start: float, expected: float) -> None:
    poses = refinement(start=start, warmup=0.02, warmup_steps=200, lr_decay=1.0)
    clock = RunClock(total, None)
    clock.load_state_dict({"step": step, "elapsed": 0.0})
    poses.set_progress(clock)
    assert poses.optimizer.decay.item() == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["unbounded", "bounded"])
def test_photos_without_alpha_move_poses_too(kind: str) -> None:
    images = tiny_images()
    photos = replace(images, pixels=images.pixels[:, :3].contiguous())
    config = tiny_config()
    settings = PosesConfig(mode="refine", initial_num_voxels=500, start=0.0, warmup=0.0)
    config = replace(config, poses=settings, dataset=replace(config.dataset, kind=kind))
    config = resolve_config(config, "cpu")
    state = init_state(config, photos, select("native", "cpu"))
    before = state.cameras
    reports = list(train(config, state, [StopWhen(lambda: state.clock.step >= 6)]))
    assert sum(report.skipped_steps for report in reports) == 0
    assert (state.cameras.c2w - before.c2w).abs().amax((1, 2)).min() > 1e-5


def test_both_backends_move_poses_alike() -> None:
    moved = []
    for name in ("native", "torch"):
        config, state = tiny_refined(backend=name, start=0.0, warmup=0.0)
        run_to(config, state, 3)
        moved.append(state.poses.increments.detach())
    assert moved[0].abs().max() > 1e-4
    torch.testing.assert_close(*moved, rtol=1e-2, atol=2e-5)


@pytest.mark.slow
def test_known_poses_are_recovered() -> None:
    """The bundled scene, 50x50: errors fall several times, and the scene keeps its size.

    Seen: from 1.99 to 0.55 degrees, from 0.080 to 0.038 world units.
    """
    images = load_blender(BRICKS, "train", 4)
    poses = PosesConfig(mode="refine", perturb_degrees=2.0, perturb_translation=0.02, initial_num_voxels=4000)
    config = Config(
        field=VoxelShConfig(num_voxels=30**3, min_level_steps=5),
        train=TrainConfig(steps=400, rays_per_step=1024),
        poses=poses,
    )
    config = resolve_config(config, "cpu")
    state = init_state(config, images, select("native", "cpu"))
    before = pose_errors(images.cameras, state.cameras).summary()
    list(train(config, state))
    after = pose_errors(images.cameras, state.cameras).summary()
    assert before["rotation_degrees"] > 1.8
    assert after["rotation_degrees"] < 0.3 * before["rotation_degrees"]
    assert after["translation"] < 0.6 * before["translation"]
    assert align(images.cameras, state.cameras).scale == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("stop", [5, 17, 30])
def test_a_resumed_run_ends_as_if_never_stopped(tmp_path: Path, stop: int) -> None:
    config, state = tiny_refined(intrinsics=True)
    config = replace(config, exposure=replace(config.exposure, learn=True))
    state = init_state(config, tiny_images(), state.field.backend)
    run_to(config, state, stop)
    checkpoint.save(tmp_path, config, state, tiny_images().cameras)
    list(train(config, state))
    content = checkpoint.load_resume(tmp_path)
    config = checkpoint.restore_config(content)
    resumed = checkpoint.restore_run(content, config, tiny_images(), state.field.backend)
    list(train(config, resumed))
    assert differing(facts(state), facts(resumed)) == []
    assert state.poses.increments.any() and state.poses.lens.any() and state.exposure.values.any()


def test_the_model_has_the_learned_cameras_and_the_given_ones(tmp_path: Path) -> None:
    config, state = tiny_refined()
    run_to(config, state, 20)
    checkpoint.save(tmp_path, config, state, tiny_images().cameras)
    content = checkpoint.load(tmp_path)
    assert torch.equal(checkpoint.restore_cameras(content).c2w, state.cameras.c2w)
    assert torch.equal(checkpoint.restore_cameras(content, "given_cameras").c2w, tiny_images().cameras.c2w)
    field, _ = checkpoint.restore_field(content, config, state.field.backend)
    assert torch.equal(field.view_weight, state.field.view_weight)


def test_color_sees_the_direction_only_once_poses_have_settled() -> None:
    config, state = tiny_refined(view_dependence_start=0.5)
    run_to(config, state, 20)
    coefficients = state.field.sh_grid.detach()[..., :27].unflatten(-1, (3, 9))
    assert coefficients[..., 0].any() and not coefficients[..., 1:].any()
    list(train(config, state))
    assert state.field.sh_grid.detach()[..., :27].unflatten(-1, (3, 9))[..., 1:].any()
    assert state.field.view_weight.item() == 1


def test_a_cuda_graph_moves_poses_as_plain_calls_do(cuda: str) -> None:
    """With intrinsics and exposures; atomic additions come in any order, so the runs are alike and not equal."""
    moved = []
    for graphed in (False, True):
        config = replace(tiny_config(steps=80, cuda_graph=graphed), poses=PosesConfig(mode="refine", intrinsics=True))
        config = replace(
            config, poses=replace(config.poses, perturb_degrees=3.0, initial_num_voxels=500, mask_dilation_degrees=8.0)
        )
        config = resolve_config(replace(config, exposure=ExposureConfig(learn=True)), cuda)
        state = init_state(config, tiny_images(), select("native", cuda))
        before = state.cameras
        list(train(config, state))
        assert state.exposure.values.any() and (state.cameras.intrinsics != before.intrinsics).all()
        moved.append(state.cameras.c2w - before.c2w)
    assert moved[0].norm() > 0.05
    assert (moved[1] - moved[0]).norm() < 0.5 * moved[0].norm()
