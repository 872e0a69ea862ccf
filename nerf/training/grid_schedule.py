"""The schedule of a run: grid doublings, occupancy updates, start of antialiasing and end of total variation."""

import math

import torch
from torch import Tensor

from nerf.config.schema import Config
from nerf.errors import TrainingStopped
from nerf.scene.box import Resolution
from nerf.training.averaging import is_averaging
from nerf.training.capacity import plan_capacity
from nerf.training.cuda_graph import StepRunner
from nerf.training.initial_state import level_voxels
from nerf.training.pruning import prune
from nerf.training.state import TrainState, make_optimizer, make_sampler
from nerf.training.voxel_budget import refined

TOO_EARLY = 0.5  # progress; before it an empty grid is no error, because density may still grow
TOO_FEW_STEPS = 20  # nor is an empty grid an error in a run of fewer steps


class EmptyGrid(TrainingStopped):
    """Pruning left no cell, so the rest of the run could not train anything."""

    remedy = (
        "Check that the images show more than background, lower occupancy.alpha_threshold or occupancy.min_weight, "
        "or train longer"
    )


def occupancy_updates(config: Config, progress: float) -> int:
    """The number of occupancy updates that are due up to this progress."""
    occupancy = config.occupancy
    return max(0, math.floor((progress - occupancy.start) / occupancy.update_interval) + 1)


def advance_schedule(config: Config, state: TrainState, runner: StepRunner) -> bool:
    """Applies the changes that are due before the next step: doubling, pruning, rays per pixel, total variation.

    Returns whether grids or occupancy have changed. Raises EmptyGrid if pruning leaves no cell.
    """
    step_number = _double_if_due(config, state, runner)
    doubled = step_number is not None
    pruned, empty = _prune_if_due(config, state, doubled)
    changed = doubled or pruned
    if changed:
        _store_where_occupied(config, state, step_number)
    if empty:
        raise EmptyGrid(
            f"after step {state.clock.step} the grid is empty: no training ray meets a cell with the alpha "
            f"occupancy.alpha_threshold={config.occupancy.alpha_threshold:g} and the weight "
            f"occupancy.min_weight={config.occupancy.min_weight:g}"
        )
    progress, sampler = state.clock.progress, make_sampler(config, state)
    rays_per_pixel = sampler.rays_per_pixel if progress >= config.train.antialias_start else 1
    tv_active = progress < config.loss.tv_until
    more_rays, tv_ends = rays_per_pixel != state.rays_per_pixel, tv_active != state.tv_active
    state.rays_per_pixel, state.tv_active = rays_per_pixel, tv_active
    if (changed or more_rays) and state.parts is None:
        plan_capacity(config, state)
    new_kernels = more_rays or tv_ends or (changed and state.field.host_rows is not None)
    if changed or new_kernels:
        runner.invalidate(rewarm=new_kernels)
    return changed


def _double_if_due(config: Config, state: TrainState, runner: StepRunner) -> Tensor | None:
    """Doubles the number of voxels where that is due, and gives up the optimizer, whose moments fit coarser grids.

    Returns the optimizer's step number [1], for the next one; None if the grids are as they were.
    """
    due_at, done = config.field.upsample_at, state.num_upsamplings
    progress, step = state.clock.progress, state.clock.step
    if done == len(due_at) or progress < due_at[done] or step < (done + 1) * config.field.min_level_steps:
        return None
    state.num_upsamplings = done + 1
    resolution = _resolution_after(config, state, done + 1)
    if resolution == state.field.resolution:
        return None
    runner.reset()
    step_number = state.optimizer.step_number
    del state.optimizer  # frees the moments before the finer grids are allocated
    state.occupancy.resample(resolution)
    if state.parts is None:
        state.field.upsample(resolution, state.occupancy.stored_vertices())
    else:
        state.parts.upsample(state.field, state.occupancy)
    _release()  # the memory of the coarser grids
    if state.poses is not None and progress > config.poses.start:  # they have moved: other rays hit the scene
        state.batches.find_valid_pixels(make_sampler(config, state))
    return step_number


def _prune_if_due(config: Config, state: TrainState, doubled: bool) -> tuple[bool, bool]:
    """Updates occupancy where its interval is over or the grids have doubled.

    Returns whether it did, and whether that is an error, since no cell is left late in the run.
    """
    occupancy, progress, step = config.occupancy, state.clock.progress, state.clock.step
    started = progress >= occupancy.start and step >= occupancy.min_steps
    updates = occupancy_updates(config, progress) if started else 0
    if updates <= state.num_occupancy_updates and not (doubled and updates):
        return False, False
    if is_averaging(config, state) and not doubled:
        return False, False
    state.num_occupancy_updates = updates
    if state.field.rows is not None:  # sparse, to take little memory: pruning finds no room between what is left
        _release()
    rule = occupancy.alpha_threshold, occupancy.min_weight, occupancy.rays_per_surface_cell
    kept = prune(state.field, make_sampler(config, state), state.batches, *rule, state.parts)
    if kept.any():  # else keep the old cells: an empty occupancy grid gets no samples and stays empty
        state.occupancy.occupied = kept
        return True, False
    return True, progress >= TOO_EARLY and step >= TOO_FEW_STEPS


def _store_where_occupied(config: Config, state: TrainState, step_number: Tensor | None) -> None:
    """Fits grids and optimizer to a new occupancy.

    step_number: for a new optimizer where there is none since the grids have doubled. Its gradients and moments are
    allocated after pruning, so that they are those of active vertices alone.
    """
    if state.parts is None:
        state.field.store_at(state.occupancy.stored_vertices())
        active = state.occupancy.active_vertices()
    else:
        state.parts.redivide(state.field, state.occupancy, state.optimizer if step_number is None else None)
        active = state.parts.rows
    if step_number is not None:
        _release()
        state.optimizer = make_optimizer(config, state.field, active)
        state.optimizer.step_number.copy_(step_number)
    elif state.parts is None:
        state.optimizer.set_active(active)


def _resolution_after(config: Config, state: TrainState, doublings: int) -> Resolution:
    """That of the grid after so many doublings; the same as before where the first grid is not to be coarser."""
    box = state.field.box
    finest = round(box.num_voxels(state.finest_voxel))  # in any unit of the world the same
    voxels = level_voxels(config, finest, doublings)
    if state.most_voxels:
        most = state.most_voxels / 2 ** (len(config.field.upsample_at) - doublings)
        voxels = refined(voxels, state.occupancy, most)
    return box.resolution(voxels)


def _release() -> None:
    """Returns what PyTorch keeps of freed memory to the GPU. Without effect where there is none."""
    torch.cuda.empty_cache()
