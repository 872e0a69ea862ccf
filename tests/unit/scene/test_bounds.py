"""Kinds of scenes: which one is taken, what its box holds, and that each trains what a box cannot."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from fixtures import KIND_SCENES, SMALL, all_around, forward_facing

from nerf.config.recipes import BACKGROUNDS, resolve_config
from nerf.config.schema import Config, DatasetConfig, OccupancyConfig, TrainConfig
from nerf.datasets.posed_images import PosedImages
from nerf.errors import UserError
from nerf.evaluation.scores import evaluate
from nerf.fields.voxel_mlp import VoxelMlpConfig
from nerf.fields.voxel_sh import VoxelShConfig
from nerf.ops.backend import select
from nerf.rendering.background import Background
from nerf.rendering.render import render_image
from nerf.runs import checkpoint
from nerf.scene import bounds as scene_kinds
from nerf.scene.description import SceneDescription
from nerf.training.initial_state import init_state
from nerf.training.loop import train
from nerf.training.state import TrainState, make_sampler

CPU = torch.device("cpu")


def config_of(kind: str, **dataset: object) -> Config:
    return Config(
        dataset=DatasetConfig(kind=kind, **dataset),
        field=VoxelShConfig(
            num_voxels=20**3,
            min_level_steps=10,
            upsample_at=[0.2, 0.4],
            sh_degree=0,
            lr_density=0.5,
            initial_alpha=0.01,
        ),
        occupancy=OccupancyConfig(start=0.4, min_steps=60, update_interval=0.2),
        train=TrainConfig(steps=150, rays_per_step=512, log_every=50),
    )


def trained(config: Config, images: PosedImages, backend_name: str = "native") -> tuple[Config, TrainState]:
    backend = select(backend_name, "cpu")
    described = scene_kinds.describe(config.dataset, images.scene, images.has_alpha)
    config = resolve_config(config, backend.device.type, described.kind)
    state = init_state(config, images, backend, described)
    for _ in train(config, state):
        pass
    return config, state


def psnr(config: Config, state: TrainState, images: PosedImages) -> float:
    scores = evaluate(state.field, make_sampler(config, state), images, state.background.eval(state.device))
    return scores.summary()["psnr"]["mean"]


@cache
def trained_kind(kind: str) -> tuple[Config, TrainState]:
    return trained(config_of("auto"), KIND_SCENES[kind]("train"))


def view_box(images: PosedImages, far: float) -> list[float]:
    """The best that a box can do: all that the cameras see up to far."""
    rays = [images.cameras.image_rays(i) for i in range(len(images))]
    points = torch.cat([r.origins + t * r.directions for r in rays for t in (0.0, far)])
    return [*points.amin(0).tolist(), *points.amax(0).tolist()]


@pytest.mark.parametrize("kind, far", [("forward_facing", 24.0), ("unbounded", 32.0), ("unbounded", 4.0)])
def test_a_scene_that_a_box_cannot_hold(kind: str, far: float) -> None:
    """Its own kind beats a box around all that is seen, and one around what is near, by far."""
    images = KIND_SCENES[kind]("test")
    config, state = trained_kind(kind)
    assert config.dataset.kind == kind
    box = trained(config_of("bounded", aabb=view_box(KIND_SCENES[kind]("train"), far)), KIND_SCENES[kind]("train"))
    assert psnr(config, state, images) > psnr(*box, images) + 2.5


@pytest.mark.parametrize("kind", KIND_SCENES)
def test_backends_take_the_same_steps(kind: str) -> None:
    config = config_of(kind)
    config = replace(config, train=replace(config.train, steps=12), field=replace(config.field, upsample_at=[]))
    images = KIND_SCENES[kind]
    found = [psnr(*trained(config, images("train"), name), images("test")) for name in ("native", "torch")]
    assert found[0] == pytest.approx(found[1], abs=1e-3)


@pytest.mark.parametrize("kind", KIND_SCENES)
def test_a_saved_run_renders_the_same_and_goes_on(kind: str, tmp_path) -> None:
    """The model file knows the space and the learned background; the resume state goes on to the last bit."""
    config, state = trained_kind(kind)
    images = KIND_SCENES[kind]("train")
    cameras, backend = images.cameras, state.field.backend
    checkpoint.save(tmp_path, config, state, cameras)
    content = checkpoint.load(tmp_path)
    field, occupancy = checkpoint.restore_field(content, checkpoint.restore_config(content), backend)
    sampler = make_sampler(config, state)
    color = state.background.eval(state.device)
    assert torch.equal(Background.of(config.dataset, field.background).eval(color.device), color)
    assert torch.equal(color, torch.full((3,), 0.5)) == (kind == "forward_facing")  # gray, or learned from gray on
    before = render_image(state.field, sampler, cameras, 1, color)
    after = render_image(field, replace(sampler, occupancy=occupancy, grid_map=field.grid_map), cameras, 1, color)
    assert (before.rgb - after.rgb).abs().max() < 1 / 255  # values in half precision
    assert (before.depth - after.depth).abs().median() < 0.01 * before.depth.abs().median()
    again = checkpoint.restore_run(checkpoint.load_resume(tmp_path), config, images, backend)
    assert again.field.box.space.kind == kind
    assert again.optimizer.moments.keys() == state.optimizer.moments.keys()
    if kind == "unbounded":  # its background is learned
        assert torch.equal(again.optimizer.moments["background"][0], state.optimizer.moments["background"][0])


def test_depth_of_each_kind_is_that_of_the_world() -> None:
    """The ball's middle from a test camera, and the wall beside the window."""
    config, state = trained_kind("unbounded")
    cameras = all_around("test").cameras
    seen = render_image(state.field, make_sampler(config, state), cameras, 0, state.background.eval(state.device))
    expected = cameras.centers[0].norm().item() - 0.7
    middle = seen.distance()[SMALL // 2 - 2 : SMALL // 2 + 2, SMALL // 2 - 2 : SMALL // 2 + 2]
    assert middle.median().item() == pytest.approx(expected, rel=0.15)
    assert seen.distance()[0, 0] > 4  # the sky
    config, state = trained_kind("forward_facing")
    seen = render_image(state.field, make_sampler(config, state), forward_facing("test").cameras, 4, torch.zeros(3))
    rays = forward_facing("test").cameras.image_rays(4)
    wall = (-2 / rays.directions[:, 2]).view(SMALL, SMALL)
    assert (seen.distance() / wall)[:, :2].median().item() == pytest.approx(1, abs=0.15)
    assert (seen.distance() / wall)[SMALL // 2, SMALL // 2] > 3  # the hills


# Choices


def test_the_settings_decide_then_the_capture_then_the_images() -> None:
    images = all_around("train")
    assert scene_kinds.describe(DatasetConfig(), images.scene, images.has_alpha).kind == "unbounded"
    asked = scene_kinds.describe(DatasetConfig(kind="forward_facing"), images.scene, images.has_alpha)
    assert (asked.kind, asked.near, asked.reasons) == ("forward_facing", 1.0, ("as asked",))
    unknown = scene_kinds.describe(DatasetConfig(), None, has_alpha=False)
    assert unknown.kind == "bounded" and "nothing says otherwise" in unknown.reasons[0]
    with_alpha = scene_kinds.describe(DatasetConfig(), None, has_alpha=True)
    assert with_alpha.kind == "bounded" and "alpha" in with_alpha.reasons[0]
    given = scene_kinds.describe(DatasetConfig(aabb=[0.0, 0, 0, 1, 2, 3]), images.scene, images.has_alpha)
    assert given.aabb.tolist() == [[0, 0, 0], [1, 2, 3]] and given.kind == "unbounded"


@pytest.mark.parametrize("kind", ["bounded", "forward_facing", "unbounded"])
def test_what_the_kind_decides_unless_it_is_set(kind: str) -> None:
    backend = select("native", "cpu")
    config = resolve_config(Config(field=VoxelMlpConfig()), backend.device.type, kind)
    assert config.dataset.kind == kind and config.dataset.background == BACKGROUNDS[kind]
    assert (config.loss.tv_density > 0) == (kind != "bounded") and (config.loss.opacity_entropy > 0) == (
        kind == "bounded"
    )
    assert None not in vars(config.loss).values()
    asked = Config(dataset=DatasetConfig(kind=kind, background="random"))
    asked = resolve_config(replace(asked, loss=replace(asked.loss, tv_density=0.5)), backend.device.type)
    assert asked.dataset.kind == kind and asked.dataset.background == "random" and asked.loss.tv_density == 0.5


def test_the_frustum_holds_all_that_the_cameras_see() -> None:
    images = forward_facing("train")
    box = scene_kinds.make_box(images.scene, images.cameras, None, 0.0, CPU)
    lower, upper = box.aabb
    assert box.space.near_plane == pytest.approx(1.5)
    for index in range(len(images)):
        rays = images.cameras.image_rays(index)
        for distance in (2.0, 20.0, 2e4):
            points = box.space.to_scene(rays.origins + distance * rays.directions)
            assert (points >= lower - 1e-4).all() and (points <= upper + 1e-4).all()
    assert (upper - lower)[2] < (upper - lower)[0]  # more cells across than in depth


def test_the_inner_box_is_the_middle_of_all_space() -> None:
    images = all_around("train")
    described = replace(images.scene, aabb=torch.tensor([[-1.0, -2, -3], [3, 2, 1]]))
    box = scene_kinds.make_box(described, images.cameras, None, 0.0, CPU)
    whole = (1 + scene_kinds.SHELL) * torch.tensor([2.0, 2, 2])
    center = torch.tensor([1.0, 0, -1])
    torch.testing.assert_close(box.aabb, torch.stack([center - whole, center + whole]))
    assert torch.equal(box.space.to_scene(described.aabb), described.aabb)
    cameras_alone = scene_kinds.make_box(SceneDescription("unbounded"), images.cameras, None, 0.0, CPU)
    torch.testing.assert_close(cameras_alone.aabb.mean(0), torch.zeros(3), atol=0.05, rtol=0)


def test_near_is_the_users_then_the_captures() -> None:
    images = all_around("train")
    assert scene_kinds.make_box(images.scene, images.cameras, None, 0.3, CPU).space.near == 0.3
    assert scene_kinds.make_box(images.scene, images.cameras, None, 0.0, CPU).space.near == 1.0
    unknown = scene_kinds.make_box(SceneDescription("unbounded"), images.cameras, None, 0.0, CPU).space.near
    assert 0 < unknown < 0.5


@pytest.mark.parametrize("kind", ["bounded", "unbounded"])
def test_how_far_cameras_may_stand_from_an_unbounded_scene(kind: str) -> None:
    """A focal length of 1e6 makes the boxes of photos so small; samples along a ray then had no end to speak of."""
    images = all_around("train")
    distance = images.cameras.centers.norm(dim=-1).mean().item()
    for widths, answered in ((25.0, True), (35.0, kind == "bounded")):
        half = distance / widths / 2 / (1 + scene_kinds.SHELL if kind == "unbounded" else 1)
        described = SceneDescription(kind, torch.tensor([[-half] * 3, [half] * 3]), near=0.1)
        if answered:
            scene_kinds.make_box(described, images.cameras, None, 0.0, CPU)
        else:
            with pytest.raises(UserError, match="training cameras are 35 times .* at most 30 on average"):
                scene_kinds.make_box(described, images.cameras, None, 0.0, CPU)


def test_cameras_that_do_not_suit_the_kind_are_answered() -> None:
    images = all_around("train")
    with pytest.raises(UserError, match="more than 60 degrees .* Use dataset.kind=unbounded"):
        scene_kinds.make_box(SceneDescription("forward_facing", near=1.0), images.cameras, None, 0.0, CPU)
    parallel = forward_facing("train")
    with pytest.raises(UserError, match="the scene's extent cannot be found .* set sampler.near"):
        scene_kinds.make_box(SceneDescription("forward_facing"), parallel.cameras, None, 0.0, CPU)
    with pytest.raises(UserError, match="the scene's extent cannot be found .* set dataset.aabb"):
        scene_kinds.make_box(SceneDescription("unbounded", near=1.0), parallel.cameras, None, 0.0, CPU)
    moved = parallel.cameras.c2w.clone()
    moved[:, 2, 3] = torch.linspace(0, 5, len(moved))
    walking = replace(parallel, cameras=replace(parallel.cameras, c2w=moved))
    with pytest.raises(UserError, match="move into the scene. Use dataset.kind=unbounded"):
        scene_kinds.make_box(SceneDescription("forward_facing", near=1.0), walking.cameras, None, 0.0, CPU)


def test_one_view_alone_does_not_tell_where_the_scene_is() -> None:
    """No other convention would: the message of axes that do not meet says so of several."""
    cameras, bounded = all_around("train").cameras, SceneDescription("bounded")
    with pytest.raises(UserError, match=r"one view alone does not tell .* or set dataset.aabb") as found:
        scene_kinds.make_box(bounded, cameras[[0]], None, 0.0, CPU)
    assert "convention" not in str(found.value)
    given = torch.tensor([[-1.0, -1, -1], [1, 1, 1]])
    box = scene_kinds.make_box(replace(bounded, aabb=given), cameras[[0]], None, 0.0, CPU)
    assert torch.equal(box.aabb, given)
