"""Notes on a finished run: problems that did not stop it, each as a sentence with a remedy."""

from collections.abc import Sequence

from nerf.config.schema import Config
from nerf.evaluation.scores import Scores
from nerf.training.grid_schedule import TOO_FEW_STEPS
from nerf.training.loop import TrainMetrics
from nerf.training.state import TrainState

FULL_BOX = 0.5  # fraction of occupied cells; a scene of surfaces has a few percent
JUDGED_CELLS = 30**3  # in a coarser grid the neighbors of surface cells are half of all cells
JUDGED_STEPS = 300  # before, density and brightness have not converged
DIFFERENT_EXPOSURES = 0.5  # dB, mean gain by fitted exposures; about 0 if all photos have the same exposure


def run_notes(config: Config, state: TrainState, log: Sequence[TrainMetrics], scores: Scores) -> list[str]:
    """Notes on a run from its log entries and scores; empty if there are no problems. Reads from the device."""
    notes, clock, doublings = [], state.clock, len(config.field.upsample_at)
    too_few = clock.step < TOO_FEW_STEPS or state.num_upsamplings < doublings
    settled = clock.step >= JUDGED_STEPS and not too_few
    if too_few:
        limit = "train.steps" if config.train.max_seconds is None else "train.max_seconds"
        notes.append(
            f"the run had only {clock.step} steps, and the grid doubled {state.num_upsamplings} of {doublings} times; "
            f"raise {limit}, or lower field.num_voxels, train.rays_per_step or field.min_level_steps."
        )
    occupied = state.occupancy.occupied_fraction
    judged = settled and state.num_occupancy_updates and state.occupancy.occupied.numel() >= JUDGED_CELLS
    if judged and occupied > FULL_BOX:
        notes.append(
            f"the scene fills its box: {occupied:.0%} of the cells are occupied, so little empty space is skipped, and "
            "the scene may extend beyond the box; set dataset.aabb to a larger box, or to the part that matters, or "
            f"check that the background is {config.dataset.background} (dataset.background)."
        )
    dropped = sum(metrics.dropped_rays for metrics in log)
    if dropped:
        notes.append(f"{dropped} rays were dropped because a step had too many samples; the capacity was raised.")
    skipped = sum(metrics.skipped_steps for metrics in log)
    if skipped:
        notes.append(
            f"{skipped} steps were skipped because loss or gradient were not finite; lower field.lr_density, or check "
            "the images for broken ones."
        )
    gains = scores.exposure_gain
    if settled and gains and sum(gains) / len(gains) > DIFFERENT_EXPOSURES:
        learn = "" if config.exposure.learn else "train with exposure.learn=true and "
        notes.append(
            "the photos differ in exposure: a gain and a bias fitted on the left half of a view raise the PSNR of its "
            f"right half by {sum(gains) / len(gains):.1f} dB in the mean, by {max(gains):.1f} dB at most; {learn}score "
            "with evaluation.exposure=fit."
        )
    return notes
