"""The schedule of a run: grid doublings, occupancy updates, start of antialiasing and end of total variation."""

import math

import torch

from nerf.config.schema import Config
from nerf.errors import TrainingStopped
from nerf.scene.box import Resolution
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
    progress, changed, step_number = state.clock.progress, False, None
    doublings_at, done = config.field.upsample_at, state.num_upsamplings
    settled = state.clock.step >= (done + 1) * config.field.min_level_steps
    doubling = done < len(doublings_at) and progress >= doublings_at[done] and settled
    occupancy, empty = config.occupancy, False
    started = progress >= occupancy.start and state.clock.step >= occupancy.min_steps
    updates = occupancy_updates(config, progress) if started else 0
    resolution = state.field.resolution
    if doubling:
        resolution = _resolution_after(config, state, done + 1)
        state.num_upsamplings = done + 1
    if resolution != state.field.resolution:
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
        changed = True
    if updates > state.num_occupancy_updates or (changed and updates):
        state.num_occupancy_updates = updates
        if state.field.rows is not None:  # sparse, to take little memory: pruning finds no room between what is left
            _release()
        sampler = make_sampler(config, state)
        rule = occupancy.alpha_threshold, occupancy.min_weight, occupancy.rays_per_surface_cell
        kept = prune(state.field, sampler, state.batches, *rule, state.parts)
        if kept.any():  # else keep the old cells: an empty occupancy grid gets no samples and stays empty
            state.occupancy.occupied = kept
        else:
            empty = progress >= TOO_EARLY and state.clock.step >= TOO_FEW_STEPS
        changed = True
    rows = None
    if changed and state.parts is None:
        state.field.store_at(state.occupancy.stored_vertices())
        rows = state.occupancy.active_vertices()
    elif changed:
        state.parts.redivide(state.field, state.occupancy, state.optimizer if step_number is None else None)
        rows = state.parts.rows
    if step_number is not None:  # doubled: gradients and moments are allocated after pruning, for active vertices only
        _release()
        state.optimizer = make_optimizer(config, state.field, rows)
        state.optimizer.step_number.copy_(step_number)
    elif changed and state.parts is None:
        state.optimizer.set_active(rows)
    if empty:
        raise EmptyGrid(
            f"after step {state.clock.step} the grid is empty: no training ray meets a cell with the alpha "
            f"occupancy.alpha_threshold={occupancy.alpha_threshold:g} and the weight "
            f"occupancy.min_weight={occupancy.min_weight:g}"
        )
    per_pixel = make_sampler(config, state).rays_per_pixel if progress >= config.train.antialias_start else 1
    supersampled = per_pixel != state.rays_per_pixel
    state.rays_per_pixel = per_pixel
    if (changed or supersampled) and state.parts is None:
        plan_capacity(config, state)
    tv_active = progress < config.loss.tv_until
    new_kernels = supersampled or tv_active != state.tv_active or (changed and state.field.host_rows is not None)
    state.tv_active = tv_active
    if changed or new_kernels:
        runner.invalidate(rewarm=new_kernels)
    return changed


def _resolution_after(config: Config, state: TrainState, doublings: int) -> Resolution:
    """That of the grid after so many doublings; the same as before where the first grid is not to be coarser."""
    box = state.field.box
    voxels = level_voxels(config, box.size.prod().item() / state.finest_voxel**3, doublings)
    if state.most_voxels:
        most = state.most_voxels / 2 ** (len(config.field.upsample_at) - doublings)
        voxels = refined(voxels, state.occupancy, most)
    return box.resolution(voxels)


def _release() -> None:
    """Returns what PyTorch keeps of freed memory to the GPU. Without effect where there is none."""
    torch.cuda.empty_cache()
