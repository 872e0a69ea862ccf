"""Where each setting's value comes from, as a run keeps it in config.yaml."""

from dataclasses import asdict
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from nerf.cli.report import save_config
from nerf.config.recipes import flat, resolve_config, sources
from nerf.config.schema import Config, LossConfig, PosesConfig, TrainConfig


def sources_of(config: Config, device: str = "cuda", kind: str = "bounded") -> dict[str, str]:
    return sources(config, resolve_config(config, device, kind), device)


def test_every_value_has_a_source_and_what_was_given_says_so() -> None:
    config = Config(loss=LossConfig(distortion=0.5, tv_until=0.5), train=TrainConfig(max_seconds=5.0))
    found = sources_of(config)
    assert found.keys() == flat(asdict(resolve_config(config, "cuda", "bounded"))).keys()
    assert {name for name, source in found.items() if source == "given"} == {
        "loss.distortion", "loss.tv_until", "train.max_seconds"
    }  # fmt: skip
    assert found["field.num_voxels"] == found["field.lr_features"] == "recipe of voxel_deferred on cuda up to 8 s"
    assert found["train.beta1"] == found["loss.alpha"] == "default"


@pytest.mark.parametrize(
    ("kind", "name", "source"),
    [
        ("forward_facing", "loss.pair_ssim", "forward_facing scenes on cuda"),
        ("unbounded", "poses.start", "unbounded scenes on cuda"),
        ("unbounded", "dataset.background", "unbounded scenes"),
        ("bounded", "train.steps", "default budget on cuda"),
        ("bounded", "dataset.kind", "what the data say"),
    ],
)
def test_the_kind_of_scene_and_the_device_are_sources(kind: str, name: str, source: str) -> None:
    assert sources_of(Config(), kind=kind)[name] == source


def test_learned_poses_are_a_source() -> None:
    assert sources_of(Config(poses=PosesConfig(mode="refine")))["train.lr_decay"] == "learned poses"


def test_the_file_of_a_run_says_where_values_come_from_and_reads_as_before(tmp_path: Path) -> None:
    config = resolve_config(Config(loss=LossConfig(distortion=0.5)), "cuda", "unbounded")
    save_config(tmp_path, config, sources_of(Config(loss=LossConfig(distortion=0.5)), kind="unbounded"))
    text = (tmp_path / "config.yaml").read_text()
    assert "  distortion: 0.5  # given\n" in text and "  alpha: 0.0004  # unbounded scenes on cuda\n" in text
    assert OmegaConf.to_container(OmegaConf.load(tmp_path / "config.yaml")) == asdict(config)
    config.loss.distortion = 0.25  # as in a run that was resumed: what stays keeps its source
    save_config(tmp_path, config, {})
    text = (tmp_path / "config.yaml").read_text()
    assert "  distortion: 0.25\n" in text and "  alpha: 0.0004  # unbounded scenes on cuda\n" in text
