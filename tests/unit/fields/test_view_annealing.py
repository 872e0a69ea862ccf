"""Frequencies of the view direction that come in over a run: weights by closed forms, and what a run keeps of them."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from state_facts import differing, facts
from tiny_runs import STEPS, run_to, tiny_config, tiny_images, tiny_state
from torch.nn.functional import normalize

from nerf.config.schema import Config
from nerf.errors import UserError
from nerf.fields.view_encoding import annealed_weights
from nerf.ops.backend import select
from nerf.runs import checkpoint
from nerf.runs.run import start


def annealing_config(end: float = 0.8) -> Config:
    config = tiny_config("voxel_deferred")
    return replace(config, field=replace(config.field, view_annealing=end))


def test_frequencies_come_in_one_after_the_other() -> None:
    """Columns are the direction, three sines a frequency, three cosines a frequency, padding."""
    direction, padding = [1.0] * 3, [1.0] * 2
    for fraction, expected in ((0, [0, 0]), (0.25, [0.5, 0]), (0.5, [1, 0]), (0.75, [1, 0.5]), (1, [1, 1])):
        of_three = [float(weight) for weight in expected for _ in range(3)]
        assert annealed_weights(2, fraction, 17).tolist() == [*direction, *of_three, *of_three, *padding]


@pytest.mark.parametrize("fraction", [0.0, 0.5, 1.0])
def test_a_color_depends_on_the_frequencies_that_are_there_alone(fraction: float) -> None:
    _, state = tiny_state(annealing_config())
    field, channels = state.field, state.field.config.feature_channels
    values, opacity = torch.rand(50, channels), torch.rand(50)
    directions = normalize(torch.randn(50, 3), dim=-1)
    field.anneal(fraction)
    before = field.shade(values, opacity, directions)
    rows = field.mlp[0].weight.data
    closed = annealed_weights(field.config.view_frequencies, fraction, field.input_width - channels) == 0
    rows[:, channels:][:, closed] += 10
    torch.testing.assert_close(field.shade(values, opacity, directions), before)
    assert closed.any() == (fraction < 1)
    rows[:, channels:][:, ~closed] += 1
    assert not torch.allclose(field.shade(values, opacity, directions), before, atol=1e-3)


def test_a_run_that_is_stopped_in_between_keeps_what_has_come_in(tmp_path: Path) -> None:
    config, plain = tiny_state(annealing_config())
    run_to(config, plain, STEPS // 4)
    assert 0 < plain.field.annealed < 0.5
    checkpoint.save(tmp_path, config, plain, tiny_images().cameras)
    backend = select("native", "cpu")
    model, _ = checkpoint.restore_field(checkpoint.load(tmp_path), config, backend)
    resumed = checkpoint.restore_run(checkpoint.load_resume(tmp_path), config, tiny_images(), backend)
    assert model.annealed == resumed.field.annealed == plain.field.annealed
    for state in (plain, resumed):
        run_to(config, state, STEPS)
        assert state.field.annealed == 1
    assert differing(facts(plain), facts(resumed)) == []


def test_it_is_for_given_poses() -> None:
    config = annealing_config()
    config = replace(config, poses=replace(config.poses, mode="refine"))
    with pytest.raises(UserError, match=r"field.view_annealing=0.8 is for given poses.*view_dependence_start"):
        start(config, tiny_images())
