"""Which settings a budget gets, and that what a user gives is left alone. Resolving needs no GPU."""

import itertools
import math
from dataclasses import asdict, dataclass, replace

import pytest
import torch
import yaml
from test_configs import CONFIGS, compose

from nerf.config.fields import FieldConfig, FieldSettings, Recipe, known_fields
from nerf.config.recipes import (
    BUDGETS,
    DEFAULT_SECONDS_CPU,
    DEFAULT_STEPS_CUDA,
    DEFAULTS,
    KINDS,
    choose,
    resolve_config,
    sources,
)
from nerf.config.schema import FIELDS, Config, PosesConfig, TrainConfig
from nerf.config.settings import setting
from nerf.errors import UserError
from nerf.fields import registry
from nerf.fields.field import Field
from nerf.fields.registry import FieldKind
from nerf.fields.voxel_mlp import VoxelMlpConfig
from nerf.ops.backend import Backend, select

GROUPS = ("field", "loss", "occupancy", "poses", "sampler", "train")
RECIPES = [recipe for known in known_fields().values() for recipe in known.recipes]
FAR_OFF = PosesConfig(mode="refine", perturb_degrees=2.0)
USERS_OWN = {"poses.from_run", "sampler.far"}  # none is a choice, or the data say


def fake(device: str) -> Backend:
    """A backend that says it is on that device."""
    return replace(select("native", "cpu"), device=torch.device(device))


def test_every_setting_of_a_recipe_is_none_until_it_is_chosen() -> None:
    """Else what a user gives could not be told from a default."""
    for recipe in RECIPES:
        defaults = asdict(Config(field=FIELDS[recipe.field]()))
        for name in recipe.settings:
            group, leaf = name.split(".")
            assert defaults[group][leaf] is None, f"{name} of {recipe}"
        empty = {f"{g}.{n}" for g in GROUPS for n, v in defaults[g].items() if v is None} - USERS_OWN
        assert recipe.settings.keys() | DEFAULTS.keys() == empty - {
            "train.steps",
            "train.max_seconds",
            "field.upsample_at",
        }
        for kind, changed in recipe.of_kind.items():
            assert kind in KINDS and changed.keys() <= recipe.settings.keys() | DEFAULTS.keys()
    for by_device in KINDS.values():
        for settings in by_device.values():
            assert settings.keys() <= RECIPES[0].settings.keys() | DEFAULTS.keys()


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_recipe_named_is_followed_on_any_device(kind: str) -> None:
    """On a CPU everything is as on a GPU in that time, but for the budget, and what is given is left alone."""
    own = resolve_config(Config(train=TrainConfig(max_seconds=15.0)), "cuda", kind)
    named = Config(train=TrainConfig(steps=100, recipe="cuda_15", lr_decay=0.5))
    found = resolve_config(named, "cpu", kind)
    train = replace(own.train, steps=100, max_seconds=None, recipe="cuda_15", lr_decay=0.5)
    assert found == replace(own, train=train)
    assert found.field != resolve_config(Config(train=TrainConfig(steps=100)), "cpu", kind).field
    told = sources(named, found, "cpu")["field.num_voxels"]
    assert told == sources(Config(train=TrainConfig(max_seconds=15.0)), own, "cuda")["field.num_voxels"]
    assert resolve_config(Config(train=TrainConfig(recipe="cpu_38")), "cuda", kind).train.steps == DEFAULT_STEPS_CUDA


@pytest.mark.parametrize(
    "name", ["seconds_15", "cuda", "cuda_", "cuda_0", "cuda_1e3", "cpu_-1", "gpu_15", "cuda_15 ", ""]
)
def test_a_recipe_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"train.recipe=.*, expected auto, or cuda or cpu and a number of seconds"):
        resolve_config(Config(train=TrainConfig(recipe=name)), "cpu")


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_every_field_has_a_recipe_that_reaches_any_budget_or_is_the_longest_of_its_own(device: str) -> None:
    for name in FIELDS.keys() - {"auto"}:
        for seconds in (0.5, 1e5, None):
            assert choose(device, name, seconds).field == name
    assert choose(device, "auto", 1e9).up_to == math.inf
    assert choose(device, "auto", None) == choose(device, "auto", 60.0)
    rows = [recipe for recipe in RECIPES if recipe.device == device]
    for name in {recipe.field for recipe in rows}:
        limits = [recipe.up_to for recipe in rows if recipe.field == name]
        assert limits == sorted(set(limits)), "a row behind a longer one of its field would never be chosen"


@pytest.mark.parametrize("seconds", BUDGETS)
def test_an_experiment_is_its_budget_and_nothing_more(seconds: float) -> None:
    name = f"seconds_{seconds:g}"
    content = yaml.safe_load((CONFIGS / "experiment" / f"{name}.yaml").read_text())
    assert content == {"train": {"max_seconds": seconds}}
    one, other = compose("train", f"experiment={name}"), compose("train", f"train.max_seconds={seconds}")
    for device in ("cuda", "cpu"):
        assert resolve_config(one, device) == resolve_config(other, device)


def test_the_budget_decides() -> None:
    """The budgets of the curve fall into different rows wherever rows differ: no limit lies on a budget."""
    for recipe in RECIPES:
        assert recipe.up_to not in BUDGETS
    sizes = [
        resolve_config(Config(train=TrainConfig(max_seconds=s)), "cuda", "bounded").field.num_voxels for s in BUDGETS
    ]
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_poses_of_photos_move_late_and_little(device: str) -> None:
    """They were found by matching; rendered ones are right, unless an experiment perturbs them."""
    box, *photos = (resolve_config(Config(), device, kind).poses for kind in KINDS)
    assert (box.lr, box.start, box.view_dependence_start) == (3e-3, 0.0, 0.25)
    for poses in photos:
        assert poses.lr < box.lr and poses.start > box.start and poses.initial_num_voxels > box.initial_num_voxels


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_color_of_harmonics_is_not_smoothed_as_features_are(device: str) -> None:
    smoothing = {
        name: resolve_config(Config(field=FIELDS[name]()), device, "forward_facing").loss.tv_color for name in FIELDS
    }
    assert smoothing["voxel_sh"] <= smoothing["voxel_deferred"] / 20
    for known in known_fields().values():
        for kind, settings in known.of_kind.items():
            assert kind in KINDS and settings.keys() <= RECIPES[0].settings.keys() | DEFAULTS.keys()


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_distortion_is_weighed_where_it_was_tried(device: str) -> None:
    for kind, name, weight in (
        ("bounded", "voxel_sh", 0.01),
        ("forward_facing", "voxel_sh", 0.0),
        ("unbounded", "voxel_sh", 0.01),
        ("unbounded", "voxel_deferred", 0.005 if device == "cuda" else 0.01),
        ("bounded", "voxel_deferred", 0.003 if device == "cuda" else 0.0),
        ("bounded", "voxel_mlp", 0.0),
    ):
        assert resolve_config(Config(field=FIELDS[name]()), device, kind).loss.distortion == weight, (kind, name)


@pytest.mark.parametrize(
    ("kind", "seconds", "decay", "rays"),
    [
        ("bounded", 15.0, 0.1, 16384),
        ("bounded", 60.0, 0.02, 32768),
        ("bounded", 300.0, 0.02, 32768),
        ("forward_facing", 60.0, 0.03, 16384),
        ("unbounded", 15.0, 0.01, 32768),
        ("unbounded", 60.0, 0.01, 32768),
    ],
)
def test_rates_settle_where_there_are_steps_enough(kind: str, seconds: float, decay: float, rays: int) -> None:
    """On a GPU; a CPU takes too few steps for a rate that falls far."""
    train = resolve_config(Config(train=TrainConfig(max_seconds=seconds)), "cuda", kind).train
    assert (train.lr_decay, train.rays_per_step) == (decay, rays)
    assert resolve_config(Config(train=TrainConfig(max_seconds=seconds)), "cpu", kind).train.lr_decay == 0.1


@pytest.mark.parametrize(("device", "weights"), [("cuda", [0.0, 0.006, 0.004]), ("cpu", [0.0, 0.0, 0.0])])
def test_photos_are_compared_in_pairs_where_each_pixel_is_seen_often(device: str, weights: list[float]) -> None:
    assert [
        resolve_config(Config(), device, kind).loss.pair_ssim for kind in ("bounded", "forward_facing", "unbounded")
    ] == weights


@pytest.mark.parametrize(
    ("device", "seconds", "noise"),
    [
        ("cuda", 5.0, [0.1, 0.1, 0.1]),
        ("cuda", 15.0, [0.1, 0.1, 0.05]),
        ("cuda", 60.0, [0.1, 0.1, 0.05]),
        ("cpu", 60.0, [0.0, 0.0, 0.0]),
    ],
)
def test_features_are_noisy_where_there_is_time_to_learn_photos_by_heart(
    device: str, seconds: float, noise: list[float]
) -> None:
    """Half of it where coarse voxels came first and there are steps enough."""
    config = Config(train=TrainConfig(max_seconds=seconds))
    fields = [resolve_config(config, device, kind).field for kind in ("bounded", "forward_facing", "unbounded")]
    assert [field.feature_noise for field in fields] == noise
    learned = resolve_config(replace(config, poses=PosesConfig(mode="refine")), device, "unbounded").field
    assert learned.feature_noise == noise[0]


@pytest.mark.parametrize(
    ("device", "seconds", "of_object"),
    [("cuda", 5, 4), ("cuda", 15, 3), ("cuda", 60, 3), ("cuda", 300, 3), ("cpu", 38, 3)],
)
def test_colors_turn_less_fast_with_the_direction_where_a_run_has_time_to_learn_them_by_heart(
    device: str, seconds: float, of_object: int
) -> None:
    config = Config(field=FIELDS["voxel_deferred"](), train=TrainConfig(max_seconds=seconds))
    found = {kind: resolve_config(config, device, kind).field.view_frequencies for kind in KINDS}
    assert found == {"bounded": of_object, "forward_facing": 1, "unbounded": 4}
    learned = replace(config, poses=FAR_OFF)
    assert resolve_config(learned, device, "bounded").field.view_frequencies == 4


def test_frequencies_of_the_direction_come_in_bit_by_bit_for_photos_all_around_on_a_cpu() -> None:
    for device, poses, kind in itertools.product(("cuda", "cpu"), ("fixed", "refine"), KINDS):
        config = Config(field=FIELDS["voxel_deferred"](), poses=PosesConfig(mode=poses))
        expected = 0.5 if (device, poses, kind) == ("cpu", "fixed", "unbounded") else 0.0
        assert resolve_config(config, device, kind).field.view_annealing == expected


@pytest.mark.parametrize(
    ("device", "seconds", "rates", "of_learned"),
    [
        ("cuda", 2, (8e-3, 4e-3, 5e-4), 5e-4),
        ("cuda", 15, (4e-3, 4e-3, 4e-3), 5e-4),
        ("cuda", 60, (4e-3, 2e-3, 4e-3), 5e-4),
        ("cpu", 38, (4e-3, 4e-3, 4e-3), 1e-3),
    ],
)
def test_the_mlp_learns_fast_where_poses_are_given(
    device: str, seconds: float, rates: tuple[float, ...], of_learned: float
) -> None:
    config = Config(train=TrainConfig(max_seconds=seconds))
    learned = replace(config, poses=FAR_OFF)
    for kind, rate in zip(("bounded", "unbounded", "forward_facing"), rates, strict=True):
        assert resolve_config(config, device, kind).field.lr_mlp == rate
        assert resolve_config(learned, device, kind).field.lr_mlp == of_learned


def test_a_cpu_takes_steps_of_muon_for_every_kind_of_scene() -> None:
    for poses, kind in itertools.product((PosesConfig(), PosesConfig(mode="refine"), FAR_OFF), KINDS):
        config = Config(field=FIELDS["voxel_deferred"](), poses=poses)
        rates = [resolve_config(config, device, kind).field.lr_muon for device in ("cpu", "cuda")]
        assert rates == [0.08 if kind == "unbounded" and poses != FAR_OFF else 0.02, 0.0]


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_rates_of_features_are_those_of_the_field_that_they_were_found_with(device: str) -> None:
    names = "voxel_deferred", "voxel_mlp"
    rates = [resolve_config(Config(field=FIELDS[name]()), device, "unbounded").field.lr_features for name in names]
    assert rates == [0.015, 0.1]


@pytest.mark.parametrize("kind", list(KINDS))
def test_photos_on_a_gpu_begin_with_coarse_voxels(kind: str) -> None:
    """The schedule leads from the first grid to the finest; in a box, which is carved, and on a CPU it is as it was."""
    for device, poses, settings in itertools.product(("cuda", "cpu"), ("fixed", "refine"), ({}, {"num_voxels": 10**7})):
        config = Config(field=FIELDS["voxel_deferred"](**settings), poses=PosesConfig(mode=poses))
        found = resolve_config(config, device, kind)
        doublings, first = len(found.field.upsample_at), found.field.initial_num_voxels
        if kind != "bounded" and device == "cuda" and poses == "fixed":
            assert first == 100_000 and found.field.upsample_at[-1] == 0.18
            assert 2**-0.5 <= found.field.num_voxels / 2**doublings / first <= 2**0.5
        else:
            assert first == 0 and (poses == "refine" or found.field.upsample_at == [0.04, 0.08, 0.13, 0.18])
        given = replace(config, field=replace(config.field, upsample_at=[0.5]))
        assert poses == "refine" or resolve_config(given, device, kind).field.upsample_at == [0.5]


def test_photos_have_finer_voxels_where_there_is_time_and_learned_poses_do_not() -> None:
    def field(seconds: float, mode: str = "fixed") -> FieldConfig:
        config = Config(train=TrainConfig(max_seconds=seconds), poses=PosesConfig(mode=mode))
        return resolve_config(config, "cuda", "unbounded").field

    assert [(field(s).num_voxels, field(s).sparse) for s in (15.0, 60.0)] == [(320**3, False), (448**3, True)]
    assert (field(60.0, "refine").num_voxels, field(60.0, "refine").sparse) == (320**3, True)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_photos_all_around_show_something_on_every_ray_and_some_of_it_few_times(device: str) -> None:
    losses = [resolve_config(Config(), device, kind).loss for kind in ("bounded", "forward_facing", "unbounded")]
    assert [loss.alpha for loss in losses] == [0.0, 0.0, 4e-4]
    assert [loss.tv_global for loss in losses] == [0.0, 0.0, 1e-4]


@pytest.mark.parametrize(
    ("kind", "name", "seconds", "smoothing"),
    [
        ("bounded", "voxel_deferred", 5.0, (0.0, 0.5)),
        ("bounded", "voxel_deferred", 15.0, (3e-7, 1.0)),
        ("bounded", "voxel_deferred", 30.0, (1e-6, 1.0)),
        ("bounded", "voxel_deferred", 60.0, (2e-6, 1.0)),
        ("bounded", "voxel_deferred", 300.0, (2e-6, 1.0)),
        ("bounded", "voxel_sh", 5.0, (1e-6, 1.0)),
        ("unbounded", "voxel_deferred", 60.0, (1e-5, 0.5)),
        ("unbounded", "voxel_deferred", 300.0, (2e-5, 0.5)),
        ("unbounded", "voxel_sh", 60.0, (1e-5, 0.5)),
        ("forward_facing", "voxel_deferred", 60.0, (1e-3, 1.0)),
    ],
)
def test_what_is_smooth_and_until_when(kind: str, name: str, seconds: float, smoothing: tuple[float, float]) -> None:
    config = Config(field=FIELDS[name](), train=TrainConfig(max_seconds=seconds))
    loss = resolve_config(config, "cuda", kind).loss
    assert (loss.tv_color, loss.tv_until) == smoothing


@pytest.mark.parametrize(
    ("device", "kind", "name", "seconds", "rays"),
    [
        ("cuda", "bounded", "voxel_deferred", 5.0, 1),
        ("cuda", "bounded", "voxel_deferred", 8.0, 1),
        ("cuda", "bounded", "voxel_deferred", 8.1, 4),
        ("cuda", "bounded", "voxel_deferred", 300.0, 4),
        ("cuda", "bounded", "voxel_deferred", None, 4),  # a run of so many steps
        ("cuda", "bounded", "auto", 60.0, 4),
        ("cuda", "bounded", "voxel_sh", 60.0, 1),
        ("cuda", "bounded", "voxel_mlp", 60.0, 1),
        ("cuda", "forward_facing", "voxel_deferred", 60.0, 1),
        ("cuda", "unbounded", "voxel_deferred", 60.0, 1),
        ("cpu", "bounded", "voxel_deferred", 60.0, 1),
    ],
)
def test_which_pixels_are_areas(device: str, kind: str, name: str, seconds: float | None, rays: int) -> None:
    """Where there is time for four rays of each; photos and fields that shade every sample have one."""
    config = Config(field=FIELDS[name](), train=TrainConfig(max_seconds=seconds))
    assert resolve_config(config, device, kind).sampler.rays_per_pixel == rays
    config.sampler.rays_per_pixel = 2
    assert resolve_config(config, device, kind).sampler.rays_per_pixel == 2


def test_what_is_given_stays() -> None:
    config = Config(field=VoxelMlpConfig(num_voxels=1000), train=TrainConfig(max_seconds=2, rays_per_step=77))
    config.loss.opacity_entropy = 0.25
    resolved = resolve_config(config, "cuda", "bounded")
    assert (resolved.field.name, resolved.field.num_voxels, resolved.train.rays_per_step) == ("voxel_mlp", 1000, 77)
    assert resolved.loss.opacity_entropy == 0.25
    assert resolve_config(resolved, "cuda", "bounded") == resolved


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("name", sorted(FIELDS))
def test_nothing_is_left_open(kind: str, device: str, name: str) -> None:
    resolved = asdict(resolve_config(Config(field=FIELDS[name]()), device, kind))
    open_ones = {f"{g}.{n}" for g in GROUPS for n, v in resolved[g].items() if v is None} - USERS_OWN
    assert open_ones in ({"train.steps"}, {"train.max_seconds"})


def test_without_a_budget() -> None:
    gpu, cpu = (resolve_config(Config(), device, "bounded").train for device in ("cuda", "cpu"))
    assert (gpu.steps, gpu.max_seconds) == (DEFAULT_STEPS_CUDA, None)
    assert (cpu.steps, cpu.max_seconds) == (None, DEFAULT_SECONDS_CPU)
    assert resolve_config(Config(train=TrainConfig(steps=9)), "cpu", "bounded").train.max_seconds is None


# A field of one's own, whose file is not finished


@dataclass
class PlainConfig(FieldConfig):
    name: str = setting("plain", "which field")
    lr_plain: float | None = setting(None, "learning rate", low=0)


def with_recipes(monkeypatch: pytest.MonkeyPatch, *recipes: Recipe) -> Config:
    """The settings of a run with a new field that brings these recipes."""
    kind = FieldKind(Field, FieldSettings(PlainConfig, recipes))
    monkeypatch.setitem(registry.FIELDS, "plain", kind)
    return Config(field=PlainConfig())


def test_a_field_without_a_recipe_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    config = with_recipes(monkeypatch, Recipe("cuda", "plain", math.inf, {}))
    with pytest.raises(UserError, match=r'field=plain has no recipe for cpu; expected one .* Recipe\("cpu", "plain"'):
        resolve_config(config, "cpu", "bounded")


@pytest.mark.parametrize("mode", ["fixed", "refine"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_recipe_without_a_value_is_answered(monkeypatch: pytest.MonkeyPatch, kind: str, mode: str) -> None:
    config = with_recipes(monkeypatch, Recipe("cpu", "plain", math.inf, {"train.rays_per_step": 4096}))
    config = replace(config, poses=PosesConfig(mode=mode))
    missing = r"field.lr_plain.* of field=plain is none, and its recipe for cpu gives no value"
    with pytest.raises(UserError, match=missing):
        resolve_config(config, "cpu", kind)


def test_a_recipe_without_rays_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"field.num_voxels": 80**3, "field.lr_plain": 0.1, "loss.opacity_entropy": 0.0}
    config = with_recipes(monkeypatch, Recipe("cpu", "plain", math.inf, values))
    with pytest.raises(UserError, match="train.rays_per_step of field=plain is none"):
        resolve_config(config, "cpu", "bounded")
