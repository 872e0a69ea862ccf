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


@pytest.mark.parametrize(("device", "seconds"), [("cuda", 5), ("cuda", 20), ("cuda", 60), ("cpu", 38)])
def test_beside_nearly_correct_poses_an_object_has_the_settings_of_given_ones(device: str, seconds: float) -> None:
    config = Config(train=TrainConfig(max_seconds=seconds))
    given = resolve_config(config, device, "bounded")
    learned = resolve_config(replace(config, poses=PosesConfig(mode="refine")), device, "bounded")
    far_off = resolve_config(replace(config, poses=PosesConfig(mode="refine", perturb_degrees=2.0)), device, "bounded")
    for name in ("average_from", "average_lr"):
        assert getattr(learned.train, name) == getattr(given.train, name) != getattr(far_off.train, name)
    assert learned.field.lr_mlp == given.field.lr_mlp > far_off.field.lr_mlp
    assert learned.field.view_frequencies == given.field.view_frequencies
    assert learned.occupancy.min_weight == given.occupancy.min_weight
    assert (learned.sampler.rays_per_pixel, learned.train.lr_decay) == (1, 0.1)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_beside_nearly_correct_poses_photos_have_rates_and_averages_of_given_ones(device: str) -> None:
    for kind in ("forward_facing", "unbounded"):
        given, learned, far_off = (
            resolve_config(Config(train=TrainConfig(max_seconds=60), poses=poses), device, kind)
            for poses in (PosesConfig(), PosesConfig(mode="refine"), PosesConfig(mode="refine", perturb_degrees=2.0))
        )
        assert learned.field.lr_mlp == given.field.lr_mlp > far_off.field.lr_mlp
        assert learned.field.lr_muon == given.field.lr_muon
        assert learned.train.average_from == given.train.average_from < 1
        assert learned.field.initial_num_voxels == learned.loss.multi_view == learned.field.view_annealing == 0
