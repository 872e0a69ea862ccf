"""What recipes give where poses are learned: late and little of nearly correct ones, from far off of perturbed ones."""

from dataclasses import replace

import pytest

from nerf.config.recipes import resolve_config
from nerf.config.schema import Config, PosesConfig, TrainConfig


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_poses_are_nearly_right_unless_an_experiment_makes_them_wrong(device: str) -> None:
    def poses(kind: str, **settings: object) -> PosesConfig:
        return resolve_config(Config(poses=PosesConfig(mode="refine", **settings)), device, kind).poses

    given = poses("bounded")
    assert given == poses("unbounded") and given.start == 0.3
    assert replace(poses("bounded", from_run="outputs/RUN"), from_run=None) == given
    for name in ("perturb_degrees", "perturb_translation", "perturb_sigma"):
        wrong = poses("bounded", **{name: 0.02})
        assert wrong.start == 0.0 and wrong.lr > given.lr and wrong.initial_num_voxels < given.initial_num_voxels


def test_learned_poses_keep_the_rates_up_that_find_them() -> None:
    """Between rendered images, whose poses somebody perturbed; photos' were nearly right."""
    config = Config(train=TrainConfig(max_seconds=60))
    refined = replace(config, poses=replace(config.poses, mode="refine"))
    for kind, same in (("bounded", False), ("unbounded", True), ("forward_facing", True)):
        fixed, learned = resolve_config(config, "cuda", kind), resolve_config(refined, "cuda", kind)
        assert (fixed.train.lr_decay == learned.train.lr_decay) == same
        assert (fixed.loss.tv_color == learned.loss.tv_color) == same
    assert resolve_config(refined, "cuda", "bounded").train.lr_decay == 0.1
