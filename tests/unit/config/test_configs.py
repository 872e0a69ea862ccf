"""Every config composes and builds; every mistake in a setting is answered with the nearest right one.

    PYTHONPATH=. python tests/unit/config/test_configs.py

writes the list of all settings anew. A setting that is new there has a reason that its doc states.
"""

import dataclasses
import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from script_runs import SCRIPTS

from nerf.config.recipes import resolve_config
from nerf.config.schema import FIELDS, Config, build
from nerf.errors import UserError
from nerf.fields.voxel_mlp import VoxelMlpConfig
from nerf.fields.voxel_sh import VoxelShConfig

CONFIGS = SCRIPTS.parent / "configs"
GOLDEN = Path(__file__).parents[2] / "golden" / "settings.txt"
CLASSES = {
    "train": "TrainScriptConfig",
    "render": "RenderConfig",
    "evaluate": "EvaluateConfig",
    "mesh": "MeshConfig",
    "export": "ExportConfig",
    "view": "ViewConfig",
    "ablate": "AblateScriptConfig",
    "benchmark": "BenchmarkScriptConfig",
}


def load(name: str) -> ModuleType:
    """A module of nerf/cli."""
    return importlib.import_module(f"nerf.cli.{name}")


def settings_class(script: str) -> type:
    return getattr(load(script), CLASSES[script])


def compose(script: str, *overrides: str) -> object:
    """The checked settings of a command line."""
    return load("composition").compose(script, settings_class(script), list(overrides))


def complaint(*overrides: str, script: str = "train") -> str:
    """The message with which a command line is refused."""
    with pytest.raises(UserError) as caught:
        compose(script, *overrides)
    return str(caught.value)


def options(group: str) -> list[str]:
    return [path.stem for path in files(group)]


def files(group: str) -> list[Path]:
    found = sorted((CONFIGS / group).glob("*.yaml"))
    assert found, f"{CONFIGS / group} has no files"
    return found


# Every file


def test_every_config_file_belongs_to_a_script_or_a_group() -> None:
    top = {path.stem for path in CONFIGS.glob("*.yaml")} - {"output"}
    assert top == set(CLASSES)
    assert {path.name for path in CONFIGS.iterdir() if path.is_dir()} == {
        "dataset",
        "field",
        "poses",
        "experiment",
    }


@pytest.mark.parametrize("script", CLASSES)
def test_every_script_composes_without_arguments(script: str) -> None:
    assert isinstance(compose(script), settings_class(script))


@pytest.mark.parametrize("group", ["dataset", "field", "poses", "experiment"])
def test_every_option_of_every_group_composes_and_resolves(group: str) -> None:
    for option in options(group):
        needed = {"blender": ["dataset.scene=drums"], "capture": ["dataset.root=photos"]}.get(option, [])
        config = compose("train", f"{group}={option}", *needed)
        resolved = resolve_config(config, "cpu")
        assert isinstance(resolved.field, (VoxelShConfig, VoxelMlpConfig))
        assert resolved.train.rays_per_step and (resolved.train.steps or resolved.train.max_seconds)


def test_config_files_say_only_what_differs_from_the_dataclasses() -> None:
    """The defaults stand once, in nerf/config/schema.py."""
    for path in files("dataset"):
        assert yaml.safe_load(path.read_text()).keys() <= {"defaults", "scene", "root", "format"}, path
    for path in files("poses"):
        assert yaml.safe_load(path.read_text()).keys() <= {"defaults", "mode"}, path
    for path in files("field"):
        assert yaml.safe_load(path.read_text()).keys() == {"defaults"}, path
    defaults = dataclasses.asdict(Config())
    for path in files("experiment"):
        for group, leaves in (yaml.safe_load(path.read_text()) or {}).items():
            for name, value in leaves.items():
                assert defaults[group][name] != value, f"{path}: {group}.{name}"


def test_a_dataset_names_its_scene() -> None:
    scenes = [compose("train", f"dataset={name}").dataset.scene for name in ("bricks", "lego")]
    assert scenes == ["bricks", "lego"] and compose("train").dataset.scene == "bricks"
    assert compose("train", "dataset=blender", "dataset.scene=ship").dataset.scene == "ship"
    assert compose("train", "dataset=blender", "dataset.root=/data/ficus").dataset.scene == "ficus"
    assert "Missing mandatory value: scene; give it as name=value" in complaint("dataset=blender")
    capture = compose("train", "dataset=capture", "dataset.root=/data/my photos").dataset
    assert (capture.scene, capture.root, capture.format) == ("my photos", "/data/my photos", "auto")
    assert "Missing mandatory value" in complaint("dataset=capture")


def test_poses_name_their_mode_and_keep_their_settings() -> None:
    assert compose("train").poses.mode == "fixed"
    config = compose("train", "poses=refine", "poses.lr=0.002", "poses.intrinsics=true")
    assert (config.poses.mode, config.poses.lr, config.poses.intrinsics) == ("refine", 0.002, True)


def test_a_field_brings_its_own_settings() -> None:
    config = compose("train", "field=voxel_mlp", "field.hidden_width=32", "field.lr_density=0.3")
    assert isinstance(config.field, VoxelMlpConfig)
    assert (config.field.hidden_width, config.field.lr_density) == (32, 0.3)
    assert isinstance(compose("train", "field=voxel_sh", "field.sh_degree=1").field, VoxelShConfig)
    assert isinstance(compose("ablate", "field=voxel_mlp", "field.hidden_layers=1").field, VoxelMlpConfig)


def test_none_is_written_as_help_writes_it() -> None:
    hydra = load("hydra_app")
    arguments = ["train.max_seconds=none", "experiment=none", "field.num_voxels=none", "dataset.scene=nonesuch"]
    expected = ["train.max_seconds=null", "experiment=none", "field.num_voxels=null", "dataset.scene=nonesuch"]
    assert [hydra.none_as_null(settings_class("train"), a) for a in arguments] == expected


def test_none_is_a_choice_where_a_setting_has_it() -> None:
    """It was taken for a setting left open, and refused as not Optional."""
    hydra = load("hydra_app")
    for argument in ("dataset.masks=none", "evaluation.exposure=none"):
        assert hydra.none_as_null(settings_class("train"), argument) == argument
    assert compose("train", "dataset.masks=none").dataset.masks == "none"
    assert hydra.none_as_null(settings_class("evaluate"), "exposure=none") == "exposure=null"  # as the run had it


# Mistakes on the command line


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("train.stps=3", "there is no setting 'train.stps'; did you mean 'train.steps'?"),
        ("steps=3", "did you mean 'train.steps'?"),
        ("sed=1", "did you mean 'seed'?"),
        ("field.sh_degre=1", "did you mean 'field.sh_degree'?"),
        ("field.sh_degree=1", "field.sh_degree is a setting of field=voxel_sh; give field=voxel_sh too"),
        ("field.hidden_width=64", "give field=voxel_deferred or field=voxel_mlp too"),
        ("zzz=1", "there is no setting 'zzz'; see --help"),
        ("train=3", "there is no setting 'train'"),
        ("field=voxel_mpl", "choose one of auto, voxel_deferred, voxel_mlp, voxel_sh. Did you mean field=voxel_mlp?"),
        ("dataset=legoo", "choose one of blender, bricks, capture, lego. Did you mean dataset=lego?"),
        ("poses=refin", "choose one of fixed, refine. Did you mean poses=refine?"),
        ("poses.max_rotation=0", "poses.max_rotation=0.0 is out of range, expected 0.001 to 180"),
        ("poses.pertub_degrees=2", "did you mean 'poses.perturb_degrees'?"),
        ("evaluation.view_poses=align", "choose one of given, aligned, refined. Did you mean 'aligned'?"),
        ("experiment=smok", "Did you mean experiment=smoke?"),
        ("backend=nativ", "backend=nativ is unknown; choose one of auto, native, torch. Did you mean 'native'?"),
        ("device=gpu", "choose one of auto, cuda, cpu. Did you mean 'cuda'?"),
        ("lego", "'lego' is not name=value; for example dataset=lego"),
        ("train.steps=many", "train.steps=many: expected a whole number."),
        ("train.steps=1.5", "expected a whole number, such as 2."),
        ("train.log_every=null", "'train.log_every' is not Optional"),
        ("train.cuda_graph=perhaps", "expected true or false."),
        ("dataset.aabb=3", "expected a list, such as [3]."),
        ("dataset.aabb=[1,2", "input '[1,2'"),
        ("train.steps=0", "train.steps=0 is out of range, expected at least 1"),
        ("sampler.rays_per_pixel=3", "sampler.rays_per_pixel=3 is unknown; choose one of 1, 2, 4."),
        ("train.antialias_start=1.5", "train.antialias_start=1.5 is out of range, expected 0 to 1"),
        ("train.lr_decay=2", "train.lr_decay=2.0 is out of range, expected 1e-06 to 1"),
        ("dataset.downscale=-1", "dataset.downscale=-1 is out of range, expected at least 1"),
        ("seed=1,2", "seed=1,2 gives several values; give -m too"),
    ],
)
def test_mistakes_are_answered(override: str, expected: str) -> None:
    message = complaint(override)
    assert expected in message and "\n" not in message


@pytest.mark.parametrize(
    ("script", "override"),
    [("render", "frame=3"), ("evaluate", "splt=test"), ("ablate", "sed=1"), ("benchmark", "benchmark.sze=tiny")],
)
def test_every_script_answers_a_mistyped_setting(script: str, override: str) -> None:
    assert "did you mean" in complaint(override, script=script)


# Mistakes in plain values, without Hydra


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"train": {"stepz": 3}}, "there is no setting 'train.stepz'; did you mean 'train.steps'?"),
        ({"field": {"name": "voxel_sh", "hidden_width": 3}}, "there is no setting 'field.hidden_width'"),
        ({"train": {"steps": "3"}}, "train.steps='3' is a str, expected int"),
        ({"train": {"steps": True}}, "train.steps=True is a bool, expected int"),
        ({"train": {"log_every": None}}, "train.log_every=None is a NoneType, expected int"),
        ({"seed": -1}, "seed=-1 is out of range, expected 0 to 9223372036854775807"),
        ({"dataset": {"root": "x" * 300}}, "names no file or folder that there could be"),
        ({"dataset": {"mask_folder": "a\0b"}}, "names no file or folder that there could be"),
        ({"poses": {"from_run": "~nobody-here/run"}}, "names no file or folder that there could be"),
        ({"seed": 2**64}, "seed=18446744073709551616 is out of range"),
        ({"train": {"max_seconds": float("nan")}}, "train.max_seconds=nan is no number to compute with"),
        ({"sampler": {"far": float("inf")}}, "sampler.far=inf is no number to compute with"),
        ({"dataset": {"aabb": [1, "2", 3, 4, 5, 6]}}, "dataset.aabb[1]='2' is a str, expected float"),
        ({"sampler": {"min_weight": 1.5}}, "sampler.min_weight=1.5 is out of range, expected 0 to 1"),
        ({"poses": {"mode": "refin"}}, "choose one of fixed, refine. Did you mean 'refine'?"),
        ({"poses": {"start": 1.0}}, "poses.start=1.0 is out of range, expected 0 to 0.99"),
        ({"sampler": {"rays_per_pixel": 3}}, "sampler.rays_per_pixel=3 is unknown; choose one of 1, 2, 4."),
        (
            {"dataset": {"background": "whit"}},
            "choose one of auto, white, black, random, learned. Did you mean 'white'?",
        ),
    ],
)
def test_bad_values_are_refused(values: dict, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        build(Config, values)
    assert expected in str(caught.value)


@pytest.mark.parametrize("name", ["voxel_sh", "voxel_mlp"])
def test_a_saved_config_builds_again(name: str) -> None:
    config = Config(field=FIELDS[name](num_voxels=1000), seed=3)
    assert build(Config, dataclasses.asdict(config)) == config


# All settings


def all_settings() -> str:
    """Every setting of every script, one a line."""
    names = {
        f"{script}: {name}"
        for script in CLASSES
        for field in FIELDS
        for name in load("help_text").setting_names(settings_class(script), field)
    }
    return "".join(f"{name}\n" for name in sorted(names))


def test_no_setting_comes_or_goes_unnoticed() -> None:
    assert all_settings() == GOLDEN.read_text()


@pytest.mark.parametrize("script", CLASSES)
def test_help_tells_every_setting_with_default_and_meaning(script: str) -> None:
    help_text, cls = load("help_text"), settings_class(script)
    text = help_text.help_text(cls, load(script).__doc__)
    assert text.startswith(load(script).__doc__.strip().splitlines()[0])
    for name in {name for field in FIELDS for name in help_text.setting_names(cls, field)} - {"field.name"}:
        assert re.search(rf"^  {re.escape(name)}=\S.* \w.{{5,}}$", text, re.MULTILINE), name
    assert "hydra.run.dir=DIR" in text
    assert "device to run on: auto, cuda, cpu" in text


if __name__ == "__main__":
    GOLDEN.write_text(all_settings())


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"sampler": {"near": 5.0, "far": 2.0}}, "sampler.far=2 is not beyond sampler.near=5"),
        ({"sampler": {"far": 0.0}}, "sampler.far=0 is not beyond"),
        ({"field": {"name": "voxel_sh", "upsample_at": [0.5, 1.5]}}, "expected rising numbers from 0 to 1"),
        ({"field": {"name": "voxel_sh", "upsample_at": [0.9, 0.1]}}, "expected rising numbers from 0 to 1"),
    ],
)
def test_settings_that_do_not_go_together_are_answered(values: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        build(Config, values)
