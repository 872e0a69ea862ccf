"""What a user should know of a run that ended, though it ended well: in sentences, each with a remedy."""

from collections.abc import Sequence

from nerf.config.schema import Config
from nerf.evaluation.scores import Scores
from nerf.training.grid_schedule import TOO_FEW_STEPS
from nerf.training.loop import TrainMetrics
from nerf.training.state import TrainState

FULL_BOX = 0.5  # share of the cells that are left; a scene of surfaces leaves a few percent
JUDGED_CELLS = 30**3  # in a coarser grid the neighbours that are kept fill half of it
JUDGED_STEPS = 300  # before, density and brightness are still on their way, whatever the images show
DIFFERENT_EXPOSURES = 0.5  # dB that fitted exposures add in the mean; where all are alike it is about 0


def run_notes(config: Config, state: TrainState, looks: Sequence[TrainMetrics], scores: Scores) -> list[str]:
    """Sentences about a run from its looks and scores; none where all is well. Reads from the device."""
    notes, clock, doublings = [], state.clock, len(config.field.upsample_at)
    too_few = clock.step < TOO_FEW_STEPS or state.num_upsamplings < doublings
    settled = clock.step >= JUDGED_STEPS and not too_few
    if too_few:
        limit = "train.steps" if config.train.max_seconds is None else "train.max_seconds"
        notes.append(
            f"only {clock.step} steps were done, and the grid grew {state.num_upsamplings} of {doublings} times; raise "
            f"{limit}, or lower field.num_voxels, train.rays_per_step or field.min_level_steps."
        )
    share = state.occupancy.share
    judged = settled and state.num_occupancy_updates and state.occupancy.occupied.numel() >= JUDGED_CELLS
    if judged and share > FULL_BOX:
        notes.append(
            f"the scene fills its box: {share:.0%} of the cells are left, so little empty space is passed over, and "
            "what lies outside of the box is not seen; set dataset.aabb to a larger box, or to the part that matters, "
            f"or look whether the background is {config.dataset.background} (dataset.background)."
        )
    dropped = sum(look.dropped_rays for look in looks)
    if dropped:
        notes.append(f"{dropped} rays were dropped for lack of capacity, which was raised each time.")
    left_out = sum(look.skipped_steps for look in looks)
    if left_out:
        notes.append(
            f"{left_out} steps were left out because loss or gradient were not finite; lower field.lr_density, or look "
            "for broken images."
        )
    gains = scores.exposure_gain
    if settled and gains and sum(gains) / len(gains) > DIFFERENT_EXPOSURES:
        learn = "" if config.exposure.learn else "train with exposure.learn=true and "
        notes.append(
            "the photos differ in exposure: with a gain and a bias fitted to its left half, the right half of a view "
            f"has {sum(gains) / len(gains):.1f} dB more in the mean, {max(gains):.1f} dB at most; {learn}score with "
            "evaluation.exposure=fit."
        )
    return notes
