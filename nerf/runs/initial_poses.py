"""Poses that another run learned, for a run to begin with: quickly found, then trained on with the whole recipe."""

from dataclasses import replace
from pathlib import Path

import torch

from nerf.calibration.pose_alignment import align
from nerf.cameras.cameras import Cameras
from nerf.config.schema import PosesConfig
from nerf.errors import UserError
from nerf.runs import checkpoint


def cameras_to_begin_with(config: PosesConfig, given: Cameras) -> Cameras | None:
    """The training cameras with the poses that poses.from_run names; None where it names none.

    given: the training cameras as the data set has them. Raises UserError where that run cannot be read, learned no
    poses or learned those of other images, and where errors are to be added besides.
    """
    if config.from_run is None:
        return None
    if config.perturb_degrees or config.perturb_translation or config.perturb_sigma:
        raise UserError("poses.from_run and poses.perturb_* both say where poses begin; drop one of the two.")
    folder = Path(config.from_run)
    content = checkpoint.load(folder)
    learned, before = (checkpoint.restore_cameras(content, name) for name in ("cameras", "given_cameras"))
    if len(before) != len(given) or not torch.equal(before.c2w, given.c2w):
        raise UserError(
            f"poses.from_run={folder}: it learned the poses of {len(before)} images, which are not the {len(given)} "
            "that are to be trained on. Take a run on the same dataset, with the same hold_out and skip_missing."
        )
    if torch.equal(learned.c2w, before.c2w):
        raise UserError(
            f"poses.from_run={folder}: it took its poses as given, so there is nothing to take over; train it with "
            "poses=refine."
        )
    return brought_back(learned, before, given)


def brought_back(learned: Cameras, before: Cameras, given: Cameras) -> Cameras:
    """given with the poses that were learned from before, back where these lie.

    A scene and its cameras are learned anywhere, turned and at another size; sparse points and held-out views stayed.
    Intrinsics that were learned change in shares: given may be of images of another size.
    """
    moved = replace(given, c2w=align(learned, before).applied(learned).c2w.to(given.c2w))
    if torch.equal(learned.intrinsics, before.intrinsics):
        return moved
    change = learned.intrinsics / before.intrinsics
    return replace(moved, intrinsics=given.intrinsics * change.to(given.intrinsics))
