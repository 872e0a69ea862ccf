"""When parameters are averaged, over the last part of a run (nerf/optim/averages.py)."""

import math

from nerf.config.schema import Config
from nerf.training.state import TrainState

INTERVAL = 0.002  # fraction of the run between two values that are averaged


def is_averaging(config: Config, state: TrainState) -> bool:
    """Whether parameters are averaged by now. Grids then keep their rows: nothing is pruned."""
    return config.train.average_from <= state.clock.progress < 1


def average_if_due(config: Config, state: TrainState) -> None:
    """Adds the parameters to their means, once in each INTERVAL. To be called after each step."""
    due = math.floor((state.clock.progress - config.train.average_from) / INTERVAL) + 1
    if config.train.average_from < 1 and due > state.num_averages:
        state.num_averages = due
        for optimizer in state.optimizers():
            optimizer.average()


def finish(state: TrainState) -> None:
    """At the end of a run the means take the place of the parameters, which several ranks no longer have whole then."""
    if state.parts is not None:
        state.parts.begin_step(state.field, state.optimizer)  # each has the means of its own part
    for optimizer in state.optimizers():
        optimizer.take_averages()
    if state.parts is not None:
        state.parts.refresh_halo(state.field)
