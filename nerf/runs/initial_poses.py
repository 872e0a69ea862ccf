"""Initial poses from another run (poses.from_run): learned in a short run, then used in a full training."""

from dataclasses import replace
from pathlib import Path

import torch

from nerf.calibration.pose_alignment import align
from nerf.cameras.cameras import Cameras
from nerf.config.schema import PosesConfig
from nerf.errors import UserError
from nerf.runs import checkpoint


def cameras_to_begin_with(config: PosesConfig, given: Cameras) -> Cameras | None:
    """The training cameras with the learned poses of the run poses.from_run; None if that is not set.

    given: the training cameras of the dataset. Raises UserError if that run cannot be read, did not learn poses or has
    other training images, and if poses.perturb_* is set too.
    """
    if config.from_run is None:
        return None
    if config.perturbed:
        raise UserError("poses.from_run and poses.perturb_* both set the initial poses; drop one of the two.")
    folder = Path(config.from_run)
    content = checkpoint.load(folder)
    learned, initial = (checkpoint.restore_cameras(content, name) for name in ("cameras", "given_cameras"))
    if len(initial) != len(given) or not torch.equal(initial.c2w, given.c2w):
        raise UserError(
            f"poses.from_run={folder}: that run learned the poses of {len(initial)} images, which are not the "
            f"{len(given)} training images of this run. Take a run on the same dataset, with the same test_every and "
            "skip_missing."
        )
    if torch.equal(learned.c2w, initial.c2w):
        raise UserError(f"poses.from_run={folder}: that run learned no poses; train it with poses=refine.")
    return to_dataset_frame(learned, initial, given)


def to_dataset_frame(learned: Cameras, initial: Cameras, given: Cameras) -> Cameras:
    """The cameras `given` with learned poses, aligned with the frame of the dataset.

    learned: the result of training from `initial`. Learned poses are determined only up to a similarity, but sparse
    points and held-out views are in the dataset's frame. Learned intrinsics are applied as a relative change, because
    the images of `given` may have another size.
    """
    moved = replace(given, c2w=align(learned, initial).applied(learned).c2w.to(given.c2w))
    if torch.equal(learned.intrinsics, initial.intrinsics):
        return moved
    change = learned.intrinsics / initial.intrinsics
    return replace(moved, intrinsics=given.intrinsics * change.to(given.intrinsics))
