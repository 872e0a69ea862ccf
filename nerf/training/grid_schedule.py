"""What happens to the grids while a run trains: doublings, occupancy updates, more rays for each pixel."""

import math

import torch

from nerf.config.schema import Config
from nerf.errors import TrainingStopped
from nerf.optim.adam import MaskedAdam
from nerf.training.capacity import plan_capacity
from nerf.training.cuda_graph import StepRunner
from nerf.training.initial_state import level_voxels
from nerf.training.pruning import prune
from nerf.training.state import TrainState, make_sampler

TOO_EARLY = 0.5  # progress before which a grid where nothing is dense may still become dense
TOO_FEW_STEPS = 20  # nor is a run of fewer steps judged


class EmptyGrid(TrainingStopped):
    """Pruning found no cell worth sampling; what is left of the run would train nothing."""

    remedy = (
        "Look whether the images show anything but background, lower occupancy.alpha_threshold or "
        "occupancy.min_weight, or train longer"
    )


def occupancy_updates(config: Config, progress: float) -> int:
    """How many occupancy updates are due by then."""
    occupancy = config.occupancy
    return max(0, math.floor((progress - occupancy.start) / occupancy.every) + 1)


def advance_schedule(config: Config, state: TrainState, runner: StepRunner) -> bool:
    """Upsamples, prunes and takes more rays of each pixel when the run has come far enough.

    Returns whether grids or occupancy have changed. Raises EmptyGrid where pruning leaves nothing.
    """
    progress, changed, step_number = state.clock.progress, False, None
    shares, done = config.field.upsample_at, state.num_upsamplings
    settled = state.clock.step >= (done + 1) * config.field.min_level_steps
    if done < len(shares) and progress >= shares[done] and settled:
        state.num_upsamplings = done + 1
        runner.reset()
        box, step_number = state.field.box, state.optimizer.step_number
        del state.optimizer  # its moments go before finer grids come, or both would have to fit
        finest = box.size.prod().item() / state.finest_voxel**3
        state.field.upsample(box.resolution(level_voxels(config, finest, done + 1)))
        state.occupancy.resample(state.field.resolution)
        if state.poses is not None:  # other rays meet the scene now
            state.batches.find_pool(make_sampler(config, state))
        changed = True
    occupancy, empty = config.occupancy, False
    started = progress >= occupancy.start and state.clock.step >= occupancy.min_steps
    updates = occupancy_updates(config, progress) if started else 0
    if updates > state.num_occupancy_updates or (changed and updates):
        state.num_occupancy_updates = updates
        sampler = make_sampler(config, state)
        kept = prune(state.field, sampler, state.batches, occupancy.alpha_threshold, occupancy.min_weight)
        if kept.any():  # else nothing has become dense, and an empty grid would stay empty
            state.occupancy.occupied = kept
        else:
            empty = progress >= TOO_EARLY and state.clock.step >= TOO_FEW_STEPS
        changed = True
    rows = state.occupancy.vertex_rows() if changed else None
    if step_number is not None:  # finer grids: only now are gradients and moments made, for what pruning has left
        torch.cuda.empty_cache()  # or blocks of the coarser grids would stay reserved beside them
        state.optimizer = MaskedAdam(state.field, config.train.beta1, config.train.beta2, state.field.backend, rows)
        state.optimizer.step_number.copy_(step_number)
    elif changed:
        state.optimizer.visit(rows)
    if empty:
        raise EmptyGrid(
            f"after step {state.clock.step} the grid is empty: no training ray sees a cell with the opacity "
            f"occupancy.alpha_threshold={occupancy.alpha_threshold:g} and the weight "
            f"occupancy.min_weight={occupancy.min_weight:g}"
        )
    per_pixel = make_sampler(config, state).rays_per_pixel if progress >= config.train.supersample_from else 1
    supersampled = per_pixel != state.rays_per_pixel
    state.rays_per_pixel = per_pixel
    if changed or supersampled:
        plan_capacity(config, state)
    tv_active = progress < config.loss.tv_until
    other = supersampled or tv_active != state.tv_active
    state.tv_active = tv_active
    if changed or other:
        runner.invalidate(rewarm=other)
    return changed
