"""How many samples a step has room for on a GPU: fixed, so that a recorded step never asks for memory."""

import math

from nerf.config.schema import Config
from nerf.rendering.render import visible_samples
from nerf.training.state import TrainState, make_sampler

CAPACITY_MARGIN = 1.1  # over a probe batch; the sum over thousands of rays varies by a percent or two
CAPACITY_STEP = 8192
OVERFLOW_FACTOR = 1.25  # on a capacity that rays did not fit


def plan_capacity(config: Config, state: TrainState) -> None:
    """Fixes the number of samples of a step from one probe batch, so that no later step asks the GPU for it.

    Where density is asked for point by point every step asks.
    """
    if state.device.type != "cuda" or state.field.density_grid_view is None:
        return
    rays, jitter = state.batches.draw_rays(config.train.rays_per_step, state.rays_per_pixel)
    samples = visible_samples(state.field, make_sampler(config, state), rays, jitter)
    state.capacity = round_up_capacity(len(samples.t_starts), state.capacity)


def round_up_capacity(needed: int, capacity: int) -> int:
    """A capacity with room to spare; the given one where it still fits, so that recordings stay of one size.

    Never 0, even where nothing is needed: 0 would ask the device for the number in every step.
    """
    if 0.8 * capacity <= needed * CAPACITY_MARGIN <= capacity and capacity:
        return capacity
    return max(1, math.ceil(1.05 * CAPACITY_MARGIN * needed / CAPACITY_STEP)) * CAPACITY_STEP


def raise_capacity(state: TrainState) -> None:
    """More room at once where rays were dropped; the next plan measures anew how much is needed."""
    state.capacity = math.ceil(OVERFLOW_FACTOR * state.capacity / CAPACITY_STEP) * CAPACITY_STEP
