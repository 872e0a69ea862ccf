"""The capacity: the fixed maximum number of samples of a step on a GPU, so that a step can be captured.

Of features in host memory also that of the rows that a step brings.
"""

import math

from nerf.config.schema import Config
from nerf.optim.host_rows import HostRows
from nerf.rendering.render import visible_samples
from nerf.training.state import TrainState, make_sampler

CAPACITY_MARGIN = 1.1  # relative to a probe batch; the number of samples varies by 1 to 2 percent between batches
CAPACITY_STEP = 8192
OVERFLOW_FACTOR = 1.25  # growth of a capacity that was too small


def plan_capacity(config: Config, state: TrainState) -> None:
    """Sets state.capacity from the number of samples of one probe batch, so that no later step reads it back.

    Where features are in host memory, windows have room for the rows that these samples read.

    Does nothing on a CPU, and for a field without a density grid: its steps read the number back.
    """
    if state.device.type != "cuda" or state.field.density_grid_view is None:
        return
    rays, jitter = state.batches.draw_rays(config.train.rays_per_step, state.rays_per_pixel)
    sampler = make_sampler(config, state)
    samples = visible_samples(state.field, sampler, rays, jitter)
    state.capacity = round_up_capacity(len(samples.t_starts), state.capacity)
    host = state.field.host_rows
    if host is not None:
        _set_capacity(host, host.count_rows(samples.coords(sampler.grid_map), state.field.rows))
        host.forget_requests()


def grow_window(state: TrainState) -> bool:
    """Whether a step has needed more rows of host memory than a window has room for; later ones have room for as many.

    Reads nothing from the device: steps that are queued already may be left out too.
    """
    host = state.field.host_rows
    if host is None or not host.capacity[0]:
        return False
    largest = host.largest_request()
    if all(count <= capacity for count, capacity in zip(largest, host.capacity, strict=True)):
        return False
    _set_capacity(host, largest)
    return True


def _set_capacity(host: HostRows, needed: list[int]) -> None:
    host.set_capacity(
        *(round_up_capacity(count, capacity) for count, capacity in zip(needed, host.capacity, strict=True))
    )


def round_up_capacity(needed: int, capacity: int) -> int:
    """A capacity with a margin over the needed samples. Keeps the given capacity if it fits, so that shapes stay.

    Never 0: that would mean no fixed capacity.
    """
    if 0.8 * capacity <= needed * CAPACITY_MARGIN <= capacity and capacity:
        return capacity
    return max(1, math.ceil(1.05 * CAPACITY_MARGIN * needed / CAPACITY_STEP)) * CAPACITY_STEP


def raise_capacity(state: TrainState) -> None:
    """Raises the capacity after rays were dropped, until the next plan_capacity."""
    state.capacity = math.ceil(OVERFLOW_FACTOR * state.capacity / CAPACITY_STEP) * CAPACITY_STEP
