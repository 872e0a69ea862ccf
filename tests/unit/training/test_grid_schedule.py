"""From the first grid to the finest."""

import math
from dataclasses import replace

import pytest
from tiny_runs import STEPS, UPSAMPLE_STEPS, tiny_config, tiny_state, watch

from nerf.training.state import TrainState


def cells(state: TrainState) -> int:
    return math.prod(n - 1 for n in state.field.resolution)


@pytest.mark.parametrize(("first", "doublings"), [(216, 3), (0, 4), (12**3, 0)])
def test_as_many_doublings_as_lead_from_the_first_grid_to_the_finest(first: int, doublings: int) -> None:
    config = tiny_config()
    field = replace(config.field, initial_num_voxels=first, upsample_at=None, min_level_steps=0)
    config, state = tiny_state(replace(config, field=field))
    sizes = list(dict.fromkeys(watch(state, config, cells)))
    assert len(sizes) == doublings + 1 and state.num_upsamplings == doublings
    assert sizes == pytest.approx([12**3 / 2**n for n in range(doublings, -1, -1)], rel=0.3)


def test_a_doubling_that_would_stay_below_the_first_grid_changes_nothing() -> None:
    """A schedule that is given can start coarser than the first grid may be; moments and graph then stay."""
    config = tiny_config()
    config, state = tiny_state(replace(config, field=replace(config.field, initial_num_voxels=1000)))
    seen = watch(state, config, lambda state: (cells(state), state.num_upsamplings, id(state.optimizer)))
    assert {size for size, done, _ in seen if done < 2} == {1000} and seen[-1][:2] == (12**3, 2)
    first = UPSAMPLE_STEPS[0]
    assert seen[first][1] != seen[first + 2][1] and seen[first][2] == seen[first + 2][2]
    assert len(seen) == STEPS + 1
