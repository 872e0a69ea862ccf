"""Settings that are given and do nothing beside others: refused where the run would be another, else told."""

import re
from dataclasses import replace

import pytest
from tiny_runs import tiny_config, tiny_images

import nerf
from nerf.config.schema import Config, EvaluationConfig, PosesConfig
from nerf.errors import UserError
from nerf.ops.backend import select


def started(config: Config) -> nerf.TrainingRun:
    return nerf.start(replace(config, device="cpu"), tiny_images(), select("native", "cpu"))


def test_doublings_are_refused_where_poses_are_learned() -> None:
    """They are at the times of poses.coarse_to_fine_end. What a resolved run has of it is no setting of a user."""
    config = replace(tiny_config(), poses=PosesConfig(mode="refine", start=0.1, initial_num_voxels=500))
    with pytest.raises(UserError, match=r"field.upsample_at=\[0.2,0.6\] has no effect where poses are learned; set "):
        started(config)
    run = started(replace(config, field=replace(config.field, upsample_at=None)))
    assert run.config.field.upsample_at not in (None, [0.2, 0.6])
    assert started(run.config).config.field.upsample_at == run.config.field.upsample_at


@pytest.mark.parametrize(
    ("train", "told"),
    [
        ({"lr_decay": 0.01, "average_from": 0.5}, "train.lr_decay=0.01 .* no lower than train.average_lr=0.5 "),
        ({"lr_decay": 0.7, "average_from": 0.5}, None),
        ({"lr_decay": 0.01, "average_from": 0.5, "average_lr": 0.3}, None),  # both as they are wanted
        ({"lr_decay": 0.01}, None),
        ({"average_lr": 0.3}, "train.average_lr=0.3 has no effect, as no parameters are averaged"),
        ({"average_lr": 0.3, "average_from": 0.5}, None),
    ],
)
def test_rates_that_averages_decide_are_told(train: dict[str, float], told: str | None) -> None:
    notes = started(tiny_config(**train)).notes
    assert len(notes) == (told is not None)
    if told is not None:
        assert re.search(told, notes[0])


def test_training_views_that_will_not_be_refined_are_told() -> None:
    def notes(**settings: str) -> tuple[str, ...]:
        return started(replace(tiny_config(), evaluation=EvaluationConfig(**settings))).notes

    (note,) = notes(view_poses="refined", split="train")
    assert "evaluation.view_poses=refined has no effect with evaluation.split=train" in note
    assert notes(view_poses="refined") == notes(split="train") == ()
