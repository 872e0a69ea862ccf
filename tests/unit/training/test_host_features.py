"""Features in host memory: the same run but for 16 bits, with a step's rows alone on the device."""

import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from resumed_runs import MIDDLE, stop_and_restore
from tiny_runs import STEPS, few_rays_to_prune, run_to, supersampled, tiny_config, tiny_images, tiny_state

from nerf.cli.ranks import divided
from nerf.config.recipes import resolve_config
from nerf.config.schema import Config, PosesConfig, TrainConfig
from nerf.errors import UserError
from nerf.fields import voxel_field
from nerf.fields.voxel_field import VoxelField
from nerf.ops.backend import Backend, select
from nerf.ops.rounding import hashed, narrow_at_random, random_bits
from nerf.optim import adam, host_rows
from nerf.rendering.render import composited_grid, render_image
from nerf.runs import checkpoint
from nerf.runs.resolve import check_features
from nerf.runs.run import TrainingRun
from nerf.training.loop import NonFiniteLoss, step_runner
from nerf.training.losses import LossInputs
from nerf.training.state import TrainState, make_sampler
from nerf.training.step import TrainStep


@pytest.fixture(autouse=True)
def sparse_however_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny grids are filled nearly everywhere. Both kinds of runs have sparse grids from the first step on."""
    monkeypatch.setattr(voxel_field, "SPARSE_FROM", 1)
    monkeypatch.setattr(voxel_field, "SPARSE_BELOW", 2.0)
    monkeypatch.setattr(voxel_field, "POINTS_AT_A_TIME", 1000)
    monkeypatch.setattr(host_rows, "ROWS_AT_A_TIME", 1000)
    few_rays_to_prune(monkeypatch)


@pytest.fixture
def with_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host memory has the numbers of an ordinary run: all but the rounding is compared to the bit."""
    monkeypatch.setattr(host_rows, "VALUES", torch.float32)
    monkeypatch.setattr(host_rows, "MOMENTS", torch.float32)


def config_of(field: str, features: str) -> Config:
    config = tiny_config(field, features=features, average_from=1.0)
    return replace(
        config, field=replace(config.field, sparse=True), loss=replace(config.loss, tv_color=1e-4, tv_until=1.0)
    )


def assert_same(one: TrainState, other: TrainState) -> None:
    for kept in ("field", "optimizer"):
        values, others = (getattr(state, kept).state_dict() for state in (one, other))
        assert values.keys() == others.keys()
        for name, value in values.items():
            assert torch.equal(value, others[name]), name
    assert torch.equal(one.occupancy.occupied, other.occupancy.occupied)


@pytest.mark.usefixtures("with_32_bits")
@pytest.mark.parametrize(
    ("field", "backend"),
    [("voxel_sh", "native"), ("voxel_mlp", "native"), ("voxel_deferred", "native"), ("voxel_deferred", "torch")],
)
def test_a_run_is_the_same_to_the_bit(field: str, backend: str) -> None:
    """Through doublings, prunings, several rays a pixel, total variation and its end."""
    states = []
    for features in ("device", "host"):
        config = supersampled(config_of(field, features), 0.5)
        config, state = tiny_state(replace(config, loss=replace(config.loss, tv_until=0.8)), select(backend, "cpu"))
        run_to(config, state, STEPS)
        states.append(state)
    assert states[0].field.host_rows is None and states[1].field.host_rows.most_bytes > 0
    assert_same(*states)


@pytest.mark.usefixtures("with_32_bits")
@pytest.mark.parametrize(("field", "backend"), [("voxel_sh", "native"), ("voxel_deferred", "torch")])
def test_a_run_with_room_for_a_fixed_number_of_rows_is_the_same_to_the_bit(field: str, backend: str) -> None:
    """As on a GPU, where nothing is read back."""
    states = []
    for features in ("device", "host"):
        config, state = tiny_state(config_of(field, features), select(backend, "cpu"))
        if features == "host":
            state.field.host_rows.set_capacity(3000, 2500)
        run_to(config, state, STEPS)
        states.append(state)
    host = states[1].field.host_rows
    assert host.capacity == (3000, 2500) and all(
        0 < n <= capacity for n, capacity in zip(host.largest_request(), host.capacity, strict=True)
    )
    assert_same(*states)


@pytest.mark.parametrize(("room", "backend"), [((200, 4000), "native"), ((4000, 100), "native"), ((50, 50), "torch")])
def test_a_step_without_room_for_its_rows_changes_nothing_and_the_next_one_has_it(
    room: tuple[int, int], backend: str
) -> None:
    config, state = tiny_state(config_of("voxel_deferred", "host"), select(backend, "cpu"))
    run_to(config, state, MIDDLE)
    host, before = state.field.host_rows, {n: x.clone() for n, x in state.field.state_dict().items()}
    moments = {n: x.clone() for n, x in state.optimizer.state_dict().items()}
    host.set_capacity(*room)
    (report,) = run_to(config, state, MIDDLE + 1)
    assert report.dropped_rays == config.train.rays_per_step * state.rays_per_pixel and report.skipped_steps == 0
    for kept, found in ((before, state.field), (moments, state.optimizer)):
        assert all(torch.equal(x, kept[name]) for name, x in found.state_dict().items())
    (report,) = run_to(config, state, MIDDLE + 2)
    assert report.dropped_rays == 0 and report.psnr > 0
    assert all(n <= capacity for n, capacity in zip(host.largest_request(), host.capacity, strict=True))
    assert not torch.equal(before["density_grid"], state.field.density_grid)


@pytest.mark.usefixtures("with_32_bits")
@pytest.mark.parametrize("kind", ["poses", "unbounded"])
def test_a_run_is_the_same_in_contracted_space_and_with_learned_poses(kind: str) -> None:
    states = []
    for features in ("device", "host"):
        config = config_of("voxel_deferred", features)
        if kind == "poses":
            config = replace(config, poses=PosesConfig(mode="refine", start=0.1))
        else:
            aabb = [-0.6, -0.6, -0.6, 0.6, 0.6, 0.6]
            config = replace(config, dataset=replace(config.dataset, kind=kind, aabb=aabb))
        config, state = tiny_state(config)
        run_to(config, state, STEPS)
        states.append(state)
    assert states[1].field.host_rows is not None
    assert_same(*states)


@pytest.mark.usefixtures("with_32_bits")
@pytest.mark.parametrize("first", ["device", "host"])
def test_a_run_goes_on_with_features_in_the_other_place(first: str, tmp_path: Path) -> None:
    """From the same files, to the same numbers."""
    whole, never_stopped = tiny_state(config_of("voxel_deferred", "device"))
    run_to(whole, never_stopped, STEPS)
    config, state = tiny_state(config_of("voxel_deferred", first))
    run_to(config, state, MIDDLE)
    other = {"device": "host", "host": "device"}[first]
    config, state = stop_and_restore(tmp_path, replace(config, train=replace(config.train, features=other)), state)
    assert (state.field.host_rows is None) == (other == "device")
    run_to(config, state, STEPS)
    assert_same(never_stopped, state)


@pytest.fixture
def rounded_alike(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Backend]:
    """Makes an ordinary run round what a run with features in host memory stores with 16 bits, on a backend for it."""

    def values(name: str, grid: torch.Tensor) -> torch.Tensor:
        return grid if name == "density_grid" or grid.dim() != 2 else grid.half().float()

    def rounded() -> Backend:
        backend = select("native", "cpu")
        step_of_all, ops = backend.ops.adam_step, SimpleNamespace(**vars(backend.ops))

        def adam_step(param, first, second, grad, lr, step, rows, *rest) -> None:
            step_of_all(param, first, second, grad, lr, step, rows, *rest)
            if rows is None or param.dim() != 2 or param.shape[-1] == 1:
                return
            random = random_bits(step, rows, param.shape[-1])
            with torch.no_grad():
                param[rows] = narrow_at_random(param[rows], torch.float16, hashed(random)).float()
            for moment, bits in ((first, random), (second, random >> 16)):
                moment.copy_(narrow_at_random(moment, torch.bfloat16, bits))

        ops.adam_step = adam_step
        for name in ("_stored", "_resampled"):  # of grids that become sparse, or finer
            make = getattr(VoxelField, name)
            monkeypatch.setattr(VoxelField, name, lambda self, n, *rest, make=make: values(n, make(self, n, *rest)))
        moved = adam._moved
        monkeypatch.setattr(
            adam,
            "_moved",
            lambda old, *rest: (lambda x: x if x.shape[-1] == 1 else x.bfloat16().float())(moved(old, *rest)),
        )
        return replace(backend, ops=ops)

    return rounded


@pytest.mark.parametrize("field", ["voxel_sh", "voxel_deferred"])
def test_a_run_with_16_bits_is_that_of_a_device_that_rounds_alike(
    field: str, rounded_alike: Callable[[], Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, through doublings and prunings."""
    config, host = tiny_state(supersampled(config_of(field, "host"), 0.5))
    run_to(config, host, STEPS)
    assert host.field.appearance_grid.dtype == torch.float16
    config, device = tiny_state(supersampled(config_of(field, "device"), 0.5), rounded_alike())
    run_to(config, device, STEPS)
    assert torch.equal(host.field.appearance_grid.float(), device.field.appearance_grid)
    assert torch.equal(host.field.density_grid, device.field.density_grid)
    moments, others = host.optimizer.state_dict(), device.optimizer.state_dict()
    assert all(torch.equal(x, others[name]) for name, x in moments.items())


def test_a_run_with_16_bits_goes_on_to_the_same_numbers(tmp_path: Path) -> None:
    """From files that have them as float32."""
    config, never_stopped = tiny_state(config_of("voxel_deferred", "host"))
    run_to(config, never_stopped, STEPS)
    config, state = tiny_state(config_of("voxel_deferred", "host"))
    run_to(config, state, MIDDLE)
    config, state = stop_and_restore(tmp_path, config, state)
    content = checkpoint.load_resume(tmp_path)
    assert content["field"]["feature_grid"].dtype == torch.float32
    assert {x.dtype for x in content["optimizer"].values()} == {torch.float32}
    assert state.field.feature_grid.dtype == torch.float16
    run_to(config, state, STEPS)
    assert_same(never_stopped, state)


@pytest.mark.parametrize("field", ["voxel_sh", "voxel_mlp", "voxel_deferred"])
def test_pictures_of_16_bits_are_those_of_a_device_with_the_same_values(field: str, tmp_path: Path) -> None:
    """Here rows are brought and samples stored, there rays read the grid in place: the same but for roundings."""
    config, state = tiny_state(config_of(field, "host"))
    run_to(config, state, MIDDLE)
    checkpoint.save(tmp_path, config, state, tiny_images().cameras)
    content = checkpoint.load_resume(tmp_path)
    on_device = replace(config, train=replace(config.train, features="device"))
    device, _ = checkpoint.restore_field(content, on_device, state.field.backend)
    fields = state.field, device
    assert fields[0].appearance_grid.dtype == torch.float16 and fields[1].appearance_grid.dtype == torch.float32
    vertices = torch.arange(0, 9**3, 2)
    assert torch.equal(*(x.values_at(x.appearance_grid.detach(), vertices) for x in fields))
    assert torch.equal(*(x.dense(x.appearance_grid.detach()) for x in fields))
    sampler, cameras = make_sampler(config, state), tiny_images().cameras
    for normals in (False, True):
        host, expected = (render_image(x, sampler, cameras, 1, torch.ones(3), normals) for x in fields)
        for name in ("rgb", "depth", "opacity") + (("normals",) if normals else ()):
            torch.testing.assert_close(getattr(host, name), getattr(expected, name), rtol=1e-4, atol=1e-4)
    rays = cameras.pixel_range_rays(1, 0, 400, 4, state.field.backend.ops)
    found = zip(*(composited_grid(x, sampler, rays, x.appearance_grid.detach()) for x in fields), strict=True)
    for ours, theirs in found:
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert state.field.host_rows.window is None


@pytest.mark.usefixtures("with_32_bits")
def test_pictures_and_model_files_are_the_same(tmp_path: Path) -> None:
    found = []
    for features in ("device", "host"):
        config, state = tiny_state(config_of("voxel_deferred", features))
        run_to(config, state, MIDDLE)
        checkpoint.save_model(tmp_path, config, state, tiny_images().cameras)
        content = checkpoint.load(tmp_path)
        field, _ = checkpoint.restore_field(content, checkpoint.restore_config(content), state.field.backend)
        assert (field.host_rows is None) == (features == "device")
        white = torch.ones(3)
        for one in (state.field, field):
            sampler, cameras = make_sampler(config, state), tiny_images().cameras
            found.append([render_image(one, sampler, cameras, 1, white, normals) for normals in (False, True)])
    for one, other in zip(found[:2], found[2:], strict=True):
        for before, after in zip(one, other, strict=True):
            assert torch.equal(before.rgb, after.rgb) and torch.equal(before.depth, after.depth)


def test_a_step_has_few_rows_of_a_large_grid_on_the_device() -> None:
    """Those of the batch's samples; a gradient or moments of the whole grid are nowhere."""
    config = config_of("voxel_deferred", "host")
    config = replace(
        config,
        field=replace(config.field, num_voxels=64**3, min_voxel_pixels=0.01),
        occupancy=replace(config.occupancy, min_weight=0.002),  # after few rays nothing weighs much
        train=replace(config.train, rays_per_step=16),
    )
    config, state = tiny_state(config)
    run_to(config, state, STEPS)
    step, field = TrainStep(config, state), state.field
    step.advance()
    field.host_rows.most_bytes = 0
    step()
    group = next(group for group in state.optimizer.groups if group.host is not None)
    moments = state.optimizer.moments[group.name]
    assert group.parameter is field.appearance_grid and group.parameter.grad is None
    assert group.parameter.dtype == torch.float16 and {x.dtype for x in moments} == {torch.bfloat16}
    assert len(group.parameter) == len(field.rows.vertices) and len(moments[0]) == len(state.optimizer.active_vertices)
    whole = 4 * (2 * group.parameter.numel() + 2 * moments[0].numel())  # on a device, with a gradient
    assert 0 < field.host_rows.most_bytes < whole / 4


def test_a_skipped_step_changes_nothing() -> None:
    config, state = tiny_state(config_of("voxel_deferred", "host"))
    run_to(config, state, MIDDLE)
    before = {name: values.clone() for name, values in state.field.state_dict().items()}
    step = TrainStep(config, state, {"broken": lambda inputs: inputs.rgb.sum() * torch.nan})
    step.advance()
    step()
    assert step.read().skipped == 1
    for name, values in state.field.state_dict().items():
        assert torch.equal(values, before[name]), name


def test_values_beyond_float16_end_a_run_in_words() -> None:
    """Not by a picture that is wrong in silence."""
    config, state = tiny_state(config_of("voxel_deferred", "host"))
    run_to(config, state, MIDDLE)
    state.field.appearance_grid.data.copy_(torch.full(state.field.appearance_grid.shape, 1e5))
    assert state.field.appearance_grid.isinf().all()
    with pytest.raises(NonFiniteLoss, match="were skipped"):
        run_to(config, state, STEPS)


def test_a_second_look_at_the_field_in_a_step_is_refused() -> None:
    config, state = tiny_state(config_of("voxel_sh", "host"))
    run_to(config, state, 1)

    def again(inputs: LossInputs) -> torch.Tensor:
        coords = inputs.samples.coords(make_sampler(config, state).grid_map)
        return inputs.field(coords, inputs.samples.rays.directions, inputs.samples.ray_indices)[1].mean()

    step = TrainStep(config, state, {"again": again})
    step.advance()
    with pytest.raises(RuntimeError, match="evaluates the field once.*train.features=device"):
        step()


def test_what_does_not_go_together_is_said() -> None:
    config = resolve_config(config_of("voxel_deferred", "host"), "cpu")
    check_features(config)
    for changed, words in (
        (replace(config, deterministic=True), "deterministic=true with train.features=host"),
        (replace(config, field=replace(config.field, sparse=False)), "field.sparse=false with train.features=host"),
        (replace(config, loss=replace(config.loss, tv_global=1e-3, tv_until=0.5)), "loss.tv_global=0.001"),
    ):
        with pytest.raises(UserError, match=words):
            check_features(changed)
        check_features(replace(changed, train=replace(changed.train, features="device")))


def test_the_recipe_makes_room_for_them() -> None:
    for kind in ("bounded", "unbounded", "forward_facing"):
        for device in ("cpu", "cuda"):
            config = resolve_config(Config(train=TrainConfig(features="host")), device, kind)
            assert config.field.sparse and config.loss.tv_until == 1
            check_features(config)


def test_ranks_are_refused() -> None:
    config, state = tiny_state(config_of("voxel_sh", "host"))
    with pytest.raises(UserError, match="train.features=host .* needs one process"):
        divided(TrainingRun(config, tiny_images(), state), None)


@pytest.mark.parametrize("field", ["voxel_sh", "voxel_deferred"])
def test_steps_on_a_gpu_are_one_graph_that_is_recorded_anew_with_more_room(field: str, cuda: str) -> None:
    config, state = tiny_state(config_of(field, "host"), select("native", cuda))
    run_to(config, state, MIDDLE)
    host, step = state.field.host_rows, TrainStep(config, state)
    runner = step_runner(config, state, step)

    def run(count: int) -> None:
        for _ in range(count):
            step.advance()
            runner.step()
        torch.cuda.synchronize()

    run(6)
    graph, sums = runner._graph, step.read()
    assert graph is not None and sums.without_room == sums.skipped == 0 and sums.samples > 0
    host.set_capacity(100, 100)
    host.forget_requests()
    runner.invalidate()
    before = state.field.appearance_grid.clone()
    run(1)
    assert step.read().without_room == 1 and torch.equal(before, state.field.appearance_grid)
    run(3)
    assert step.read().without_room == 0 and runner._graph is not graph
    assert host.capacity[0] > 100 and not torch.equal(before, state.field.appearance_grid)


@pytest.mark.parametrize("field", ["voxel_sh", "voxel_deferred"])
def test_a_run_on_a_gpu_learns_as_much_with_less_memory(field: str, cuda: str, tmp_path: Path) -> None:
    """Gradients are added in any order there, so the numbers differ a little."""
    found, taken = [], []
    for features in ("device", "host"):
        config = config_of(field, features)
        config = replace(config, field=replace(config.field, num_voxels=160**3, min_voxel_pixels=0.01))
        backend = select("native", cuda)
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        config, state = tiny_state(config, backend)
        run_to(config, state, MIDDLE)
        torch.cuda.synchronize()
        taken.append(torch.cuda.memory_allocated() - before)
        config, state = stop_and_restore(tmp_path, config, state)
        assert (state.field.host_rows is None) == (features == "device")
        found.append(run_to(config, state, STEPS)[-1].psnr)
        render_image(state.field, make_sampler(config, state), state.cameras, 0, torch.ones(3, device=cuda), True)
        del state
        gc.collect()
    assert found[1] == pytest.approx(found[0], abs=0.5)
    assert taken[1] < 0.5 * taken[0]
