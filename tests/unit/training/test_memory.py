"""The plan of a GPU's memory: refused before training with what would fit, and near to what training takes."""

import math
import re
from dataclasses import replace

import pytest
import torch
import yaml
from tiny_runs import tiny_config, tiny_images, tiny_state

from nerf.config.overrides import settings
from nerf.config.recipes import resolve_config
from nerf.config.schema import FIELDS, Config, DatasetConfig, TrainConfig
from nerf.errors import UserError
from nerf.ops.backend import select
from nerf.runs import run as runs
from nerf.runs.resolve import check_features
from nerf.training import initial_state, memory
from nerf.training.initial_state import init_state
from nerf.training.loop import train
from nerf.training.memory import ACTIVE_FRACTION, GIB, STORED_PER_ACTIVE, TooLittleMemory, check_memory, plan_memory
from nerf.training.state import TrainState

FINEST = (201, 350, 240)  # lego at 256^3


@pytest.fixture(autouse=True)
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever GPU is there, plans are those of one that adds bfloat16 as fast as float32."""
    monkeypatch.setattr(memory, "_has_short_values", lambda config: not config.deterministic)


def on_a_gpu(name: str, **train_settings: object) -> tuple:
    """The resolved config of a run on a GPU, its finest grid and some images."""
    config = resolve_config(Config(field=FIELDS[name](), train=TrainConfig(**train_settings)), "cuda", "bounded")
    return config, FINEST, tiny_images()


def refusal(arguments: tuple, free: int) -> str:
    with pytest.raises(UserError) as caught:
        check_memory(*arguments, free)
    return str(caught.value)


def test_the_plan_counts_what_is_there() -> None:
    plan = plan_memory(*on_a_gpu("voxel_deferred"))
    vertices = 201 * 350 * 240
    stored = STORED_PER_ACTIVE * ACTIVE_FRACTION
    assert plan.gradients == pytest.approx(stored * vertices * (4 + 16 * 2), rel=6e-3)
    assert plan.moments == pytest.approx(2 * ACTIVE_FRACTION * vertices * (4 + 16 * 2), rel=6e-3)
    where = 0.25 + 8 * (stored + 2 * ACTIVE_FRACTION)
    assert plan.values == pytest.approx(vertices * (stored * (4 + 16 * 2) + where), rel=6e-3)
    assert plan.images == tiny_images().pixels.numel() + len(tiny_images().pixels)
    assert plan.averages == pytest.approx(ACTIVE_FRACTION * vertices * 4 * (1 + 16), rel=6e-3)
    parts = plan.values, plan.gradients, plan.moments, plan.averages, plan.images, plan.samples, plan.libraries
    assert plan.total == sum(parts) and plan_memory(*on_a_gpu("voxel_deferred", average_from=1.0)).averages == 0
    assert str(plan).endswith(f"= {plan.total / GIB:.2f} GiB") and f"moments {plan.moments / GIB:.2f}" in str(plan)


def test_the_plan_of_a_run_that_repeats_has_dense_grids() -> None:
    config, finest, images = on_a_gpu("voxel_deferred")
    plan = plan_memory(replace(config, deterministic=True), finest, images)
    assert plan.values == plan.gradients == pytest.approx(math.prod(finest) * (1 + 16) * 4, rel=2e-3)


def test_the_plan_of_a_run_without_doublings_has_dense_grids() -> None:
    """Its first grid is its finest, and is dense and on the device until it is pruned."""
    config, finest, images = on_a_gpu("voxel_deferred", features="host")
    plan = plan_memory(replace(config, field=replace(config.field, upsample_at=[])), finest, images)
    assert plan.values == plan.gradients == pytest.approx(math.prod(finest) * (1 + 16) * 4, rel=2e-3)
    assert plan.in_host == plan.window == 0


def test_the_plan_with_features_in_host_memory() -> None:
    config, finest, images = on_a_gpu("voxel_deferred", features="host", rays_per_step=64)
    plan, whole = (plan_memory(c, finest, images) for c in (config, on_a_gpu("voxel_deferred")[0]))
    vertices = math.prod(finest)
    per_vertex = STORED_PER_ACTIVE * ACTIVE_FRACTION + 2 * ACTIVE_FRACTION
    assert plan.in_host == pytest.approx(per_vertex * vertices * 16 * 2, rel=1e-3)
    assert plan.gradients == pytest.approx(STORED_PER_ACTIVE * ACTIVE_FRACTION * vertices * 4, rel=0.05)
    assert 0 < plan.window < whole.values / 4 and plan.total < whole.total / 3
    kept = plan.values + plan.gradients + plan.moments + plan.window
    assert plan.total == kept + plan.images + plan.samples + plan.libraries
    assert f"window {plan.window / GIB:.2f}" in str(plan) and "window" not in str(whole)
    assert str(plan).endswith(f"GiB, and {plan.in_host / GIB:.2f} in host memory")


def test_the_plan_with_moments_of_16_bits() -> None:
    config, finest, images = on_a_gpu("voxel_deferred")
    assert config.train.moments == "bfloat16"
    plan, whole = (plan_memory(c, finest, images) for c in (config, on_a_gpu("voxel_deferred", moments="float32")[0]))
    channels = config.field.feature_channels
    share = (1 + channels / 2) / (1 + channels)
    assert plan.moments == pytest.approx(share * whole.moments, rel=0.02)
    assert plan.gradients == pytest.approx(share * whole.gradients, rel=0.02)
    assert whole.values - plan.values == whole.gradients - plan.gradients
    assert plan.samples < whole.samples  # features that are interpolated, and their gradients
    saved = [getattr(whole, part) - getattr(plan, part) for part in ("moments", "gradients", "values", "samples")]
    assert whole.total - plan.total == sum(saved)


def test_the_plan_of_a_gpu_whose_values_and_gradients_are_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_has_short_values", lambda config: False)
    plan, whole = (plan_memory(*on_a_gpu("voxel_deferred", **more)) for more in ({}, {"moments": "float32"}))
    assert whole.total - plan.total == whole.moments - plan.moments > 0


def test_host_memory_that_is_too_small_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = on_a_gpu("voxel_deferred", features="host")
    monkeypatch.setattr(memory, "host_memory", lambda: (2**20, 2**40))
    assert re.match(r"train.features=host needs about \d.\d\d GiB of host memory, and 0.00", refusal(arguments, 2**40))


def test_depth_maps_count_where_they_are_used() -> None:
    """They are on the device wherever the images are."""
    config, finest, images = on_a_gpu("voxel_deferred", images="host")
    images = replace(images, depths=torch.ones(len(images.pixels)))
    used = replace(config, loss=replace(config.loss, depth=0.1))
    assert [plan_memory(c, finest, images).images for c in (config, used)] == [0, 4 * len(images.pixels)]


@pytest.mark.parametrize("name", ["voxel_sh", "voxel_mlp", "voxel_deferred"])
def test_more_of_anything_needs_more(name: str) -> None:
    config, finest, images = on_a_gpu(name)
    total = plan_memory(config, finest, images).total
    train_more = replace(config, train=replace(config.train, rays_per_step=2 * config.train.rays_per_step))
    assert plan_memory(train_more, finest, images).total > total
    assert plan_memory(config, (300, 350, 240), images).total > total
    on_host = replace(config, train=replace(config.train, images="host"))
    assert plan_memory(on_host, finest, images).images == 0


@pytest.mark.parametrize("name", ["voxel_sh", "voxel_mlp", "voxel_deferred"])
def test_more_rays_of_a_pixel_need_more(name: str) -> None:
    """From the start in proportion; once little is left in the air, only what is more than the start needed."""
    config, finest, images = on_a_gpu(name)
    samples = {}
    for begin in (0.0, 0.5):
        for per_pixel in (1, 2, 4):
            several = replace(
                config,
                sampler=replace(config.sampler, rays_per_pixel=per_pixel),
                train=replace(config.train, antialias_start=begin),
            )
            samples[begin, per_pixel] = plan_memory(several, finest, images).samples
    one_more, three_more = samples[0.0, 2] - samples[0.0, 1], samples[0.0, 4] - samples[0.0, 1]
    assert one_more > 0.1 * samples[0.0, 1] and three_more == pytest.approx(3 * one_more, rel=1e-6)
    assert samples[0.5, 1] == samples[0.5, 2] == samples[0.0, 1] < samples[0.5, 4] < samples[0.0, 4]


def test_a_pixel_that_is_shaded_once_needs_one_network() -> None:
    """As wide as it may be, it costs no more where the pixel has several rays."""
    config, finest, images = on_a_gpu("voxel_deferred")
    costs = []
    for per_pixel in (1, 4):
        config = replace(config, sampler=replace(config.sampler, rays_per_pixel=per_pixel))
        plans = (
            plan_memory(replace(config, field=replace(config.field, hidden_width=width)), finest, images).samples
            for width in (128, 512)
        )
        narrow, wide = plans
        costs.append(wide - narrow)
    assert costs[0] > 0 and costs[1] == pytest.approx(costs[0], abs=2)


def test_enough_memory_is_enough() -> None:
    arguments = on_a_gpu("voxel_mlp")
    need = plan_memory(*arguments).total
    check_memory(*arguments, need)
    assert "training needs about" in refusal(arguments, need - 1)


@pytest.mark.parametrize("name", ["voxel_sh", "voxel_mlp", "voxel_deferred"])
@pytest.mark.parametrize("gibibytes", [0.5, 1.5, 2.0])
def test_what_is_proposed_fits_and_is_not_far_too_small(name: str, gibibytes: float) -> None:
    config, finest, images = on_a_gpu(name)
    free = int(gibibytes * GIB)
    message = refusal((config, finest, images), free)
    assert f"this GPU has {gibibytes:.2f} GiB free" in message and "\n" not in message
    voxels = int(re.search(r"field.num_voxels=(\d+)", message)[1])
    scale = (voxels / (201 * 350 * 240)) ** (1 / 3)
    smaller = tuple(round(n * scale) for n in finest)
    together = re.search(r"field.num_voxels=\d+( train.rays_per_step=(\d+))?( train.images=host)?", message)
    rays, where = int(together[2] or config.train.rays_per_step), "host" if together[3] else config.train.images
    config = replace(config, train=replace(config.train, rays_per_step=rays, images=where))
    assert 0.75 * free < plan_memory(config, smaller, images).total <= free


def test_fewer_rays_and_images_on_the_host_are_proposed_where_they_suffice() -> None:
    arguments = on_a_gpu("voxel_mlp", rays_per_step=1 << 17)
    need = plan_memory(*arguments).total
    assert "train.rays_per_step=65536" in refusal(arguments, int(0.9 * need))
    assert "train.images=host" in refusal(arguments, need - 1)
    assert "nothing smaller would fit; use device=cpu" in refusal(arguments, 1000)


def test_a_run_on_a_gpu_is_refused_before_its_grids_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device only says that it is one: all up to the plan runs on the CPU. The box needs the images there."""
    config, _ = tiny_state(tiny_config())
    backend = select("native", "cpu")

    class Cuda(str):
        type = "cuda"

    monkeypatch.setattr(initial_state, "free_bytes", lambda _: 1000)
    monkeypatch.setattr(initial_state, "build_field", lambda *_: pytest.fail("the grids were made"))
    with pytest.raises(UserError, match="this GPU has 0.00 GiB free"):
        init_state(config, tiny_images(), replace(backend, device=Cuda("cpu")))


def test_what_would_fit_is_known_to_who_catches_it_unless_it_is_far_smaller() -> None:
    config, finest, images = on_a_gpu("voxel_deferred")
    free = int(0.6 * plan_memory(config, finest, images).total)
    with pytest.raises(TooLittleMemory) as caught:
        check_memory(config, finest, images, free)
    scale = (caught.value.num_voxels / (201 * 350 * 240)) ** (1 / 3)
    smaller = tuple(round(n * scale) for n in finest)
    assert 0.9 * free < plan_memory(config, smaller, images).total <= free
    third = plan_memory(config, tuple(n // 3 for n in finest), images).total
    with pytest.raises(TooLittleMemory, match="field.num_voxels=") as caught:  # it is proposed, and not taken
        check_memory(config, finest, images, third)
    assert caught.value.num_voxels is None


@pytest.mark.parametrize(("given", "proposed"), [(None, 10**3), (20**3, 10**3), (None, None)])
def test_a_recipes_grids_shrink_to_what_a_gpu_holds(
    given: int | None, proposed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a user gave is left alone."""
    config, backend, tried = tiny_config(), select("native", "cpu"), []
    config = replace(config, field=replace(config.field, num_voxels=given, min_voxel_pixels=0.01))

    def init_state_on_a_gpu(config: Config, *rest: object) -> TrainState:
        tried.append(config.field.num_voxels)
        if len(tried) == 1:
            raise TooLittleMemory("this GPU is too small", proposed)
        return init_state(config, *rest)

    monkeypatch.setattr(runs, "init_state", init_state_on_a_gpu)
    if given is not None or proposed is None:
        with pytest.raises(UserError, match="this GPU is too small"):
            runs.start(config, tiny_images(), backend)
        assert len(tried) == 1
        return
    run = runs.start(config, tiny_images(), backend)
    assert tried == [80**3, 10**3] and run.config.field.num_voxels == 10**3
    assert f"field.num_voxels={10**3}, not {80**3}: what fits this GPU's memory" in run.reasons


def test_a_run_takes_sparse_grids_before_fewer_voxels(monkeypatch: pytest.MonkeyPatch) -> None:
    config, backend, tried = tiny_config(), select("native", "cpu"), []
    config = replace(config, field=replace(config.field, num_voxels=None, min_voxel_pixels=0.01))

    def init_state_on_a_gpu(config: Config, *rest: object) -> TrainState:
        tried.append((config.field.sparse, config.field.num_voxels))
        if len(tried) < 3:
            raise TooLittleMemory("this GPU is too small", 10**3, sparse=not config.field.sparse)
        return init_state(config, *rest)

    monkeypatch.setattr(runs, "init_state", init_state_on_a_gpu)
    run = runs.start(config, tiny_images(), backend)
    assert tried == [(False, 80**3), (True, 80**3), (True, 10**3)]
    assert "field.sparse=true: what fits this GPU's memory" in run.reasons
    assert run.sources["field.sparse"] == run.sources["field.num_voxels"] == "what fits this GPU's memory"
    tried.clear()
    with pytest.raises(UserError, match="this GPU is too small"):  # both were given
        runs.start(replace(config, field=replace(config.field, sparse=False, num_voxels=80**3)), tiny_images(), backend)


def test_sparse_grids_are_proposed_where_they_suffice() -> None:
    config, finest, images = on_a_gpu("voxel_deferred")
    dense = replace(config, field=replace(config.field, sparse=False))
    sparse = replace(config, field=replace(config.field, sparse=True))
    need = plan_memory(sparse, finest, images).total
    with pytest.raises(TooLittleMemory, match="field.sparse=true") as caught:
        check_memory(dense, finest, images, need)
    assert caught.value.sparse
    with pytest.raises(TooLittleMemory) as caught:
        check_memory(sparse, finest, images, need - 1)
    assert not caught.value.sparse and "field.sparse=true" not in str(caught.value)
    assert "field.sparse=true" not in refusal((dense, finest, images), need - 1)


@pytest.mark.parametrize(("change", "moved"), [({}, True), ({"sparse": False}, False), ({"num_voxels": None}, False)])
def test_features_go_to_host_memory_where_the_voxels_that_were_asked_for_do_not_fit(
    change: dict[str, object], moved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, backend, tried = tiny_config(), select("native", "cpu"), []
    config = replace(config, field=replace(config.field, **{"num_voxels": 12**3, "min_voxel_pixels": 0.01} | change))

    def init_state_on_a_gpu(config: Config, *rest: object) -> TrainState:
        tried.append(config.train.features)
        if config.train.features != "host":
            raise TooLittleMemory("this GPU is too small", None, in_host=True)
        return init_state(config, *rest)

    monkeypatch.setattr(runs, "init_state", init_state_on_a_gpu)
    if not moved:
        with pytest.raises(UserError, match="this GPU is too small"):
            runs.start(config, tiny_images(), backend)
        return
    run = runs.start(config, tiny_images(), backend)
    assert tried == ["device", "host"] and run.config.train.features == "host" and run.config.field.sparse
    assert "train.features=host: what fits this GPU's memory" in run.reasons
    assert run.sources["train.features"] == "what fits this GPU's memory"


def test_host_memory_is_proposed_where_it_has_room() -> None:
    arguments = on_a_gpu("voxel_deferred", rays_per_step=64)
    config, finest, images = arguments
    assert "train.features=host" in refusal(arguments, int(0.5 * plan_memory(*arguments).total))
    assert "train.features" not in refusal((replace(config, deterministic=True), finest, images), 2**28)


@pytest.mark.parametrize("given", [{}, {"field.sparse": False}, {"train.average_from": 0.8}, {"loss.tv_until": 0.5}])
def test_what_is_proposed_for_host_memory_is_taken(given: dict[str, object]) -> None:
    """Also beside what features in host memory do not go with, where that was given."""
    given = {"field": "voxel_deferred", "train.rays_per_step": 64, "loss.tv_global": 1e-4, **given}
    images, finest = tiny_images(), (300, 300, 300)
    config = resolve_config(settings(given), "cuda", "bounded")
    said = refusal((config, finest, images), int(0.5 * plan_memory(config, finest, images).total))
    (proposed,) = re.findall(r"train.features=host(?: [\w.]+=\w+)*", said)
    words = dict(word.split("=") for word in proposed.split(" "))
    again = settings(given | {name: yaml.safe_load(value) for name, value in words.items()})
    check_features(resolve_config(again, "cuda", "bounded"))


def test_the_plan_is_near_to_what_training_takes(cuda: str) -> None:
    """Grids large enough to matter: 96^3, four times 45 MB."""
    backend = select("native", cuda)
    config = Config(
        dataset=DatasetConfig(scene="sphere"),
        field=FIELDS["voxel_deferred"](num_voxels=96**3, min_voxel_pixels=0.01, upsample_at=[0.3], min_level_steps=5),
        train=TrainConfig(steps=60, rays_per_step=4096, images="device"),
    )
    config = resolve_config(config, backend.device.type)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    state = init_state(config, tiny_images(), backend)
    for _ in train(config, state):
        pass
    taken = torch.cuda.max_memory_allocated() - before
    plan = plan_memory(config, state.field.resolution, tiny_images())
    assert 0.5 * (plan.total - plan.libraries) <= taken <= 1.3 * plan.total
